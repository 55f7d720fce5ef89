"""What a payroll shows, row by row and at its end, and the report."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from momopay import Transaction
from momopay.cli.output import Output
from momopay.cli.payroll import Plan, RowOutcome, Wallet
from momopay.cli.payroll_file import Fault, PayrollFile, Row
from momopay.cli.payroll_report import show_end, show_faults, show_plan, show_row
from momopay.errors import APIConnectionError, InvalidPhoneError, OutcomeUnknownError, ServerError
from virtual import transaction

PEOPLE = [Row(line, f"SAL-{line}", f"2547{line:08}", Decimal(1000 * line), None) for line in range(2, 10)]
FILE = PayrollFile(PEOPLE[:4], [])
REFUSED = InvalidPhoneError("no such phone 0712345678", code="INVALID_PHONE", status_code=400)
JSON, TEXT = Output(as_json=True), Output(as_json=False)


def unknown() -> OutcomeUnknownError:
    error = OutcomeUnknownError("SAL-3 may have been made", sent_at=datetime.now(UTC))
    error.__cause__ = ServerError("the service failed", code=None, status_code=502)
    return error


def outcomes() -> dict[str, RowOutcome]:
    states = ["ACCEPTED", "UNKNOWN", "REFUSED"]
    errors = [None, unknown(), REFUSED]
    pairs = zip(PEOPLE, states, errors, strict=False)
    return {row.reference: RowOutcome(row, state, None, error) for row, state, error in pairs}


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_faults(capsys: pytest.CaptureFixture[str]) -> None:
    faults = [Fault(3, "phone", "is wrong")]
    show_faults(TEXT, faults)
    assert words(capsys).endswith("3 phone is wrong")
    show_faults(JSON, faults)
    assert json.loads(capsys.readouterr().out) == {
        "event": "faults",
        "faults": [{"line": 3, "column": "phone", "problem": "is wrong"}],
    }


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    file = PayrollFile([*PEOPLE, Row(10, "SAL-10", PEOPLE[0].phone, PEOPLE[0].amount, None)], ["name", ""])
    plan = Plan(PEOPLE[2:], [RowOutcome(PEOPLE[0], "ACCEPTED")], [RowOutcome(PEOPLE[1], "UNKNOWN")])
    wallet = Wallet(Decimal(12), Decimal(5))
    show_plan(JSON, file, plan, wallet)
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
        "fees_about": "30",
    }
    assert warnings == [
        "lines 2, 10 pay the same amount to the same phone",
        "columns that are not used: name, (no name)",
        "the service wallet may not cover the fees: top it up by KES 18.00",
    ]
    show_plan(TEXT, file, plan, wallet)
    shown = words(capsys)
    for text in ("In the file 9 46,000.00", "Accepted before 1 2,000.00", "In doubt, not sent again 1 3,000.00"):
        assert text in shown
    assert "To pay now 6 39,000.00" in shown
    assert "9 SAL-9 2547*****009 9,000.00 8 SAL-8" in shown  # the largest first, five of them
    assert "SAL-4 " not in shown
    assert "Service wallet: KES 12.00 for fees; the fees are about KES 30.00" in shown
    assert shown.count("Warning: ") == 3


def test_a_plan_with_nothing_to_pay_names_no_costs(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(TEXT, FILE, Plan([], [RowOutcome(row, "ACCEPTED") for row in FILE.rows]), Wallet(Decimal(12), None))
    shown = words(capsys)
    assert "Nothing to pay: all 4 were accepted before" in shown
    assert "wallet" not in shown


def test_the_pace_of_a_long_payroll_and_unknown_fees(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(line, f"SAL-{line}", f"2547{line:08}", Decimal(10), None) for line in range(2, 120)]
    show_plan(TEXT, PayrollFile(rows, []), Plan(rows), Wallet(Decimal(12), None))
    shown = words(capsys)
    assert "takes about 2 min" in shown
    assert "the fees are unknown" in shown


def test_a_row_is_shown_to_machines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = outcomes()["SAL-4"]
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
        "message": "INVALID_PHONE: no such phone 0712*****678 (HTTP 400)",
    }


def test_an_end_lists_what_is_left_with_reasons_and_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    stopped = APIConnectionError("the service was not reached")
    end: dict[str, Any] = {
        "accepted_before": frozenset({"SAL-2"}),
        "stopped_by": stopped,
        "interrupted": False,
        "code": 4,
    }
    show_end(TEXT, FILE, outcomes(), **end)
    shown = words(capsys)
    assert "Stopped Rows KES" in shown
    assert "Accepted before 1 2,000.00 UNKNOWN 1 3,000.00 REFUSED 1 4,000.00 NOT_BEGUN 1 5,000.00" in shown
    assert "3 SAL-3 2547*****003 3,000.00 UNKNOWN the service failed" in shown  # not that it may have been made
    assert "REFUSED INVALID_PHONE" in shown
    assert "Stopped: the service was not reached What to do: try again later" in shown
    assert "UNKNOWN: Run again: that searches for the payout first" in shown
    assert "NOT_BEGUN: Run again." in shown
    assert "Accepted is not yet paid" in shown
    show_end(JSON, FILE, outcomes(), **end)
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
    accepted = {row.reference: RowOutcome(row, "ACCEPTED") for row in FILE.rows}
    before = frozenset({"SAL-2", "SAL-3"})
    show_end(TEXT, FILE, accepted, accepted_before=before, stopped_by=None, interrupted=True, code=0)
    shown = words(capsys)
    assert "Interrupted Rows KES" in shown
    assert "Accepted before 2 5,000.00 Accepted now 2 9,000.00" in shown
    assert "Run the same command with --wait" in shown
    show_end(TEXT, FILE, accepted, accepted_before=frozenset(accepted), stopped_by=None, interrupted=False, code=0)
    assert "Done" not in words(capsys)


def ended(row: Row, status: str, **fields: str) -> RowOutcome:
    """Return an accepted row with such an end."""
    record = transaction(f"t-{row.line}", status, type="B2C", **fields)
    return RowOutcome(row, "ACCEPTED", f"t-{row.line}", last=Transaction.model_validate(record))


def test_ends_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    came_back = ended(PEOPLE[1], "REVERSED", resultCode="1", resultDesc="insufficient funds of 0712345678")
    rows = [ended(PEOPLE[0], "SUCCESS"), came_back, ended(PEOPLE[2], "FAILED"), ended(PEOPLE[3], "PENDING")]
    known = {each.row.reference: each for each in rows}
    end: dict[str, Any] = {"accepted_before": frozenset[str](), "stopped_by": None, "interrupted": False, "code": 1}
    show_end(TEXT, FILE, known, **end)
    shown = words(capsys)
    assert "Paid 1 2,000.00 REVERSED 1 3,000.00 FAILED 1 4,000.00 Accepted now 1 5,000.00" in shown
    assert "3 SAL-3 2547*****003 3,000.00 REVERSED insufficient funds of 0712*****678" in shown
    assert "REVERSED: The money came back. Pay it under a new reference" in shown
    assert "FAILED: The money is not back yet" in shown
    assert "Accepted is not yet paid: the service may still reverse it." in shown
    show_end(JSON, FILE, known, **end)
    document = json.loads(capsys.readouterr().out)
    assert document["rows"] == {"accepted": {"rows": 4, "total": "14000"}}
    assert {name: count["rows"] for name, count in document["ends"].items()} == {
        "success": 1,
        "reversed": 1,
        "failed": 1,
        "accepted": 1,
    }
    assert [(row["status"], row["code"]) for row in document["left"]] == [("REVERSED", "1"), ("FAILED", None)]
