"""What a payroll shows, row by row and at its end, and the report."""

import json
from collections.abc import Iterable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from momopay import EntryKind, Payment, ResultCode, Transaction, TransactionStatus
from momopay.cli.output import Output
from momopay.cli.payroll import Plan, RowOutcome
from momopay.cli.payroll_file import Fault, PayrollFile, Row
from momopay.cli.payroll_report import show_end, show_faults, show_plan
from virtual import transaction as transaction_of

PEOPLE = [Row(line, f"SAL-{line}", f"2547{line:08}", Decimal(1000 * line), None) for line in range(2, 10)]
JSON, TEXT = Output(as_json=True), Output(as_json=False)


def paid(row: Row, status: str = "PENDING", result_code: str | None = None, **read: str) -> RowOutcome:
    """Return an accepted row with such an end."""
    transaction = Transaction.model_validate(transaction_of(f"t-{row.line}", status, type="B2C", **read))
    payment = Payment(
        kind=EntryKind.PAYOUT,
        reference=row.reference,
        transaction_id=f"t-{row.line}",
        status=TransactionStatus(status),
        amount=row.amount,
        phone=row.phone,
        result_code=None if result_code is None else ResultCode(result_code),
        is_new=True,
        transaction=transaction if read else None,
    )
    return RowOutcome(row, "ACCEPTED", payment)


def plan_of(outcomes: Iterable[RowOutcome]) -> Plan:
    return Plan({each.row.reference: each for each in outcomes})


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_faults(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a phone at fault, a few digits are shown as they are: masked, they would look like another number."""
    faults = [Fault(3, "phone", "is wrong", "SAL-3", value) for value in ("07123456789", "0712")]
    show_faults(TEXT, faults)
    assert words(capsys).endswith("3 SAL-3 phone 0712*****789 is wrong 3 SAL-3 phone 0712 is wrong")
    show_faults(JSON, faults)
    shared = {"line": 3, "reference": "SAL-3", "column": "phone", "problem": "is wrong"}
    shown = [{**shared, "value": value} for value in ("0712*****789", "0712")]
    assert json.loads(capsys.readouterr().out) == {"event": "faults", "faults": shown}


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    file = PayrollFile([*PEOPLE, Row(10, "SAL-10", PEOPLE[0].phone, PEOPLE[0].amount, None)], ["name", ""])
    plan = plan_of([paid(PEOPLE[0]), RowOutcome(PEOPLE[1], "UNKNOWN"), *map(RowOutcome, PEOPLE[2:])])
    show_plan(JSON, file, plan, Decimal(12))
    document = json.loads(capsys.readouterr().out)
    warnings = document.pop("warnings")
    assert document == {
        "event": "plan",
        "name": "",
        "sha256": "",
        "file": {"rows": 9, "total": "46000"},
        "to_pay": {"rows": 6, "total": "39000"},
        "accepted_before": {"rows": 1, "total": "2000"},
        "unresolved": {"rows": 1, "total": "3000"},
        "service_wallet": "12",
    }
    assert warnings == [
        "lines 2, 10 pay the same amount to the same phone",
        "columns that are not used: name, (no name)",
    ]
    show_plan(TEXT, file, plan, Decimal(12))
    shown = words(capsys)
    for text in ("In the file 9 46,000.00", "Accepted before 1 2,000.00", "Unresolved, not sent again 1 3,000.00"):
        assert text in shown
    assert "To pay now 6 39,000.00" in shown
    assert "9 SAL-9 2547*****009 9,000.00 8 SAL-8" in shown  # the largest first, five of them
    assert "SAL-4 " not in shown
    assert "Service wallet: KES 12.00, from which a fee is taken for each payout" in shown
    assert shown.count("Warning: ") == 2
    many = [Row(line, f"SAL-{line}", f"2547{line:08}", Decimal(10), None) for line in range(2, 120)]
    show_plan(TEXT, PayrollFile(many, []), plan_of(map(RowOutcome, many)), Decimal(12))
    assert "takes about 2 min" in words(capsys)


def test_ends_are_shown_apart(capsys: pytest.CaptureFixture[str]) -> None:
    came_back = paid(PEOPLE[1], "REVERSED", "1", resultDesc="insufficient funds of 0712345678")
    rows = [paid(PEOPLE[0], "SUCCESS"), came_back, paid(PEOPLE[2], "FAILED"), paid(PEOPLE[3]), paid(PEOPLE[4])]
    run: Any = SimpleNamespace(outcomes=plan_of(rows).outcomes, stopped_by=None, signals=[2])
    before = plan_of([paid(PEOPLE[4])])
    show_end(TEXT, run, before, 1)
    shown = words(capsys)
    assert "Interrupted Rows KES" in shown
    assert "Paid 1 2,000.00 REVERSED 1 3,000.00 FAILED 1 4,000.00 Accepted before 1 6,000.00" in shown
    assert "Accepted now 1 5,000.00" in shown
    assert "3 SAL-3 2547*****003 3,000.00 REVERSED insufficient funds of 0712*****678" in shown
    assert "REVERSED: The money came back. Pay it under a new reference" in shown
    assert "FAILED: The money is not back yet" in shown
    assert "Accepted is not yet paid: the service may still reverse it." in shown
    show_end(JSON, run, before, 1)
    document = json.loads(capsys.readouterr().out)
    assert document["rows"] == {"accepted": {"rows": 5, "total": "20000"}}
    counts = {name: count["rows"] for name, count in document["ends"].items()}
    assert counts == {"success": 1, "reversed": 1, "failed": 1, "accepted": 2}
    assert [(row["status"], row["code"]) for row in document["left"]] == [("REVERSED", "1"), ("FAILED", None)]
