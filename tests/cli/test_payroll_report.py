"""What a payroll shows, row by row and at its end, and the report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from momopay import EntryKind, Payment, ResultCode, Transaction, TransactionStatus
from momopay.cli.output import Output
from momopay.cli.payroll import Plan, RowOutcome
from momopay.cli.payroll_file import Fault, PayrollFile, Row
from momopay.cli.payroll_report import show_end, show_faults, show_plan, show_row
from momopay.errors import APIConnectionError, InvalidPhoneError, MomoPayError, OutcomeUnknownError, ServerError
from virtual import transaction as transaction_of

PEOPLE = [Row(line, f"SAL-{line}", f"2547{line:08}", Decimal(1000 * line), None) for line in range(2, 10)]
FILE = PayrollFile(PEOPLE[:4], [])
REFUSED = InvalidPhoneError("no such phone 0712345678", code="INVALID_PHONE", status_code=400)
JSON, TEXT = Output(as_json=True), Output(as_json=False)


def unknown() -> OutcomeUnknownError:
    error = OutcomeUnknownError("SAL-3 may have been made", sent_at=datetime.now(UTC))
    error.__cause__ = ServerError("the service failed", code=None, status_code=502)
    return error


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


def outcomes() -> list[RowOutcome]:
    accepted, doubtful, refused, rest = FILE.rows
    unresolved = RowOutcome(doubtful, "UNKNOWN", error=unknown())
    return [paid(accepted), unresolved, RowOutcome(refused, "REFUSED", error=REFUSED), RowOutcome(rest)]


@dataclass
class Ended:
    """A run that has ended so."""

    rows: list[RowOutcome]
    stopped_by: MomoPayError | None = None
    signals: tuple[int, ...] = ()

    @property
    def outcomes(self) -> dict[str, RowOutcome]:
        return {each.row.reference: each for each in self.rows}


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_faults(capsys: pytest.CaptureFixture[str]) -> None:
    faults = [Fault(3, "phone", "is wrong", "SAL-3", "07123456789")]
    show_faults(TEXT, faults)
    assert words(capsys).endswith("3 SAL-3 phone 0712*****789 is wrong")
    show_faults(JSON, faults)
    assert json.loads(capsys.readouterr().out) == {
        "event": "faults",
        "faults": [
            {"line": 3, "reference": "SAL-3", "column": "phone", "value": "0712*****789", "problem": "is wrong"}
        ],
    }


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    file = PayrollFile([*PEOPLE, Row(10, "SAL-10", PEOPLE[0].phone, PEOPLE[0].amount, None)], ["name", ""])
    known = [paid(PEOPLE[0]), RowOutcome(PEOPLE[1], "UNKNOWN"), *map(RowOutcome, PEOPLE[2:])]
    plan = Plan({each.row.reference: each for each in known})
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
        "in_doubt": {"rows": 1, "total": "3000"},
        "service_wallet": "12",
    }
    assert warnings == [
        "lines 2, 10 pay the same amount to the same phone",
        "columns that are not used: name, (no name)",
    ]
    show_plan(TEXT, file, plan, Decimal(12))
    shown = words(capsys)
    for text in ("In the file 9 46,000.00", "Accepted before 1 2,000.00", "In doubt, not sent again 1 3,000.00"):
        assert text in shown
    assert "To pay now 6 39,000.00" in shown
    assert "9 SAL-9 2547*****009 9,000.00 8 SAL-8" in shown  # the largest first, five of them
    assert "SAL-4 " not in shown
    assert "Service wallet: KES 12.00, from which a fee is taken for each payout" in shown
    assert shown.count("Warning: ") == 2


def test_a_plan_with_nothing_to_pay_names_no_costs(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(TEXT, FILE, Plan(Ended([paid(row) for row in FILE.rows]).outcomes), Decimal(12))
    shown = words(capsys)
    assert "Nothing to pay: all 4 were accepted before" in shown
    assert "wallet" not in shown


def test_the_pace_of_a_long_payroll(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(line, f"SAL-{line}", f"2547{line:08}", Decimal(10), None) for line in range(2, 120)]
    show_plan(TEXT, PayrollFile(rows, []), Plan(Ended(list(map(RowOutcome, rows))).outcomes), Decimal(12))
    assert "takes about 2 min" in words(capsys)


def test_a_row_is_shown_to_machines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = outcomes()[2]
    show_row(TEXT, "row", outcome)
    assert capsys.readouterr().out == ""
    show_row(JSON, "row", outcome)
    assert json.loads(capsys.readouterr().out) == {
        "event": "row",
        "line": 4,
        "reference": "SAL-4",
        "phone": "2547*****004",
        "amount": "4000",
        "state": "REFUSED",
        "status": None,
        "transaction_id": None,
        "code": "INVALID_PHONE",
        "message": "no such phone 0712*****678",
    }


def test_an_end_lists_what_is_left_with_reasons_and_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    run: Any = Ended(outcomes(), APIConnectionError("the service was not reached"))
    end: dict[str, Any] = {"accepted_before": frozenset({"SAL-2"}), "code": 4}
    show_end(TEXT, run, **end)
    shown = words(capsys)
    assert "Stopped Rows KES" in shown
    assert "Accepted before 1 2,000.00 UNKNOWN 1 3,000.00 REFUSED 1 4,000.00 NOT_BEGUN 1 5,000.00" in shown
    assert "3 SAL-3 2547*****003 3,000.00 UNKNOWN the service failed" in shown  # not that it may have been made
    assert "REFUSED INVALID_PHONE" in shown
    assert "Stopped: the service was not reached What to do: try again later" in shown
    assert "UNKNOWN: Run again: that searches for the payout first" in shown
    assert "NOT_BEGUN: Run again." in shown
    assert "Accepted is not yet paid" in shown
    show_end(JSON, run, **end)
    document = json.loads(capsys.readouterr().out)
    assert [row["line"] for row in document.pop("left")] == [3, 4]
    assert document == {
        "event": "end",
        "rows": {
            "accepted": {"rows": 1, "total": "2000"},
            "unknown": {"rows": 1, "total": "3000"},
            "refused": {"rows": 1, "total": "4000"},
            "not_begun": {"rows": 1, "total": "5000"},
        },
        "ends": document["rows"],
        "stopped_by": {"error": "APIConnectionError", "message": "the service was not reached"},
        "interrupted": False,
        "exit_code": 4,
    }


def test_what_was_accepted_before_is_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    run: Any = Ended([paid(row) for row in FILE.rows], signals=(2,))
    show_end(TEXT, run, accepted_before=frozenset({"SAL-2", "SAL-3"}), code=0)
    shown = words(capsys)
    assert "Interrupted Rows KES" in shown
    assert "Accepted before 2 5,000.00 Accepted now 2 9,000.00" in shown
    assert "Run the same command with --wait" in shown
    run.signals = ()
    show_end(TEXT, run, accepted_before=frozenset(run.outcomes), code=0)
    assert "Done" not in words(capsys)


def test_ends_are_shown_apart(capsys: pytest.CaptureFixture[str]) -> None:
    came_back = paid(PEOPLE[1], "REVERSED", "1", resultDesc="insufficient funds of 0712345678")
    rows = [paid(PEOPLE[0], "SUCCESS"), came_back, paid(PEOPLE[2], "FAILED"), paid(PEOPLE[3], "PENDING")]
    run: Any = Ended(rows)
    show_end(TEXT, run, accepted_before=frozenset(), code=1)
    shown = words(capsys)
    assert "Paid 1 2,000.00 REVERSED 1 3,000.00 FAILED 1 4,000.00 Accepted now 1 5,000.00" in shown
    assert "3 SAL-3 2547*****003 3,000.00 REVERSED insufficient funds of 0712*****678" in shown
    assert "REVERSED: The money came back. Pay it under a new reference" in shown
    assert "FAILED: The money is not back yet" in shown
    assert "Accepted is not yet paid: the service may still reverse it." in shown
    show_end(JSON, run, accepted_before=frozenset(), code=1)
    document = json.loads(capsys.readouterr().out)
    assert document["rows"] == {"accepted": {"rows": 4, "total": "14000"}}
    counts = {name: count["rows"] for name, count in document["ends"].items()}
    assert counts == {"success": 1, "reversed": 1, "failed": 1, "accepted": 1}
    assert [(row["status"], row["code"]) for row in document["left"]] == [("REVERSED", "1"), ("FAILED", None)]
