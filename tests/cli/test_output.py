"""How values are shown: exact as JSON, readable in tables, and harmless to a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cli.kit import NORMALISED
from momopay.cli.output import Output, moment, table

WHEN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
ID = "0a1b2c3d-0712-4345-8678-0a1b2c3d4e5f"
REFERENCE = "SALARY-2026-NOVEMBER-WAREHOUSE-0002"


def as_json(capsys: pytest.CaptureFixture[str], document: object, *, show_phones: bool = False) -> dict[str, object]:
    Output(as_json=True, show_phones=show_phones).result(document, "not shown")
    shown: dict[str, object] = json.loads(capsys.readouterr().out)
    return shown


def as_text(capsys: pytest.CaptureFixture[str], *shown: object) -> str:
    Output(as_json=False).result({"not": "shown"}, *shown)
    return capsys.readouterr().out


def test_json_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"amounts": [Decimal("1234567.50"), Decimal(100)], "at": WHEN, "none": None, "ok": True, "rows": 3}
    assert as_json(capsys, document) == {
        "amounts": ["1234567.50", "100"],
        "at": "2026-01-05T09:00:00+00:00",
        "none": None,
        "ok": True,
        "rows": 3,
    }


def test_phones_are_masked_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "phone": "unusual-123456",
        "reference": f"for {NORMALISED}",
        "transaction_id": ID,
        "next_cursor": NORMALISED,
    }
    assert as_json(capsys, document) == {
        "phone": "unus*****456",
        "reference": "for 2547*****678",
        "transaction_id": ID,
        "next_cursor": NORMALISED,
    }
    assert as_json(capsys, document, show_phones=True) == document


def test_cells_are_formatted_by_their_type(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a", Decimal("1234567.5"), WHEN, None, 3)]
    shown = as_text(capsys, table(("Name", "KES", "At", "None", "Rows"), rows, right=("KES",)))
    assert shown.splitlines()[-1].split() == ["a", "1,234,567.50", "2026-01-05", "12:00:00+03:00", "3"]
    assert moment(WHEN) == "2026-01-05 12:00:00+03:00"


def test_a_record_shows_what_has_a_value_as_a_person_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = [{"transaction_id": ID, "status": "FAILED", "fee": None}, {"transaction_id": "t", "fee": Decimal(2)}]
    document = {"phone": NORMALISED, "amount": Decimal("9.5"), "created_at": WHEN, "receipt": None, "is_paid": False}
    Output(as_json=False).record({**document, "prompts": prompts, "secret": 1}, "secret")
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "Phone 2547*****678",
        "Amount KES 9.50",
        "Created 2026-01-05 12:00:00+03:00",
        f"Prompts transaction_id {ID}, status FAILED",
        "transaction_id t, fee 2.00",
    ]


def test_a_text_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x1b[2J[red]x[/red]"
    for shown in (table(("A",), [(text,)]), Output(as_json=False).table([{"a": text}], {"A": "a"})):
        written = as_text(capsys, shown)
        assert "\x1b" not in written
        assert "[red]x[/red]" in written


@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_table_cuts_nothing_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    rows = [(ID, Decimal("9123.50"), REFERENCE)]
    shown = as_text(capsys, table(("Transaction", "KES", "Reference"), rows, right=("KES",)))
    assert ID in shown
    assert "9,123.50" in shown
    start = shown.splitlines()[0].index("Reference")
    assert "".join(line[start:].strip() for line in shown.splitlines()[2:]) == REFERENCE


@pytest.mark.parametrize("columns", ["20", "40", "79"])
def test_a_narrow_terminal_gets_a_line_for_each_cell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    rows = [(ID, Decimal("9123.50"), f"{REFERENCE}\nin November"), (ID, Decimal(1), None)]
    shown = as_text(capsys, table(("Transaction", "KES", "Reference"), rows, right=("KES",), title="Paid"))
    assert shown.splitlines() == [
        "Paid",
        f"Transaction: {ID}",
        "KES: 9,123.50",
        f"Reference: {REFERENCE}",
        "  in November",
        "",
        f"Transaction: {ID}",
        "KES: 1.00",
        "",
    ]
    Output(as_json=False).record({"amount": Decimal(1), "transaction_id": ID})
    assert capsys.readouterr().out.splitlines() == ["Amount: KES 1.00", f"Transaction: {ID}"]
