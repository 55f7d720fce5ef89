"""The report of a payroll."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cli.test_payroll_report import FILE, PEOPLE, TEXT, ended, outcomes
from momopay.cli.exit_codes import CommandError
from momopay.cli.output import Output
from momopay.cli.payroll_csv import write_report


def test_a_report_has_every_row_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    write_report(TEXT, path, FILE, outcomes())
    assert path.stat().st_mode & 0o777 == 0o600
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["line"], row["state"], row["code"]) for row in rows] == [
        ("2", "ACCEPTED", ""),
        ("3", "UNKNOWN", ""),
        ("4", "REFUSED", "INVALID_PHONE"),
        ("5", "NOT_BEGUN", ""),
    ]
    assert [row["why"] for row in rows] == ["", "the service failed", "no such phone 0712*****678", ""]
    assert "release REFERENCE" in rows[1]["what_to_do"]
    assert rows[0]["what_to_do"] == ""
    assert rows[3]["phone"] == "2547*****005"


def test_a_report_says_how_each_row_ended(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    came_back = ended(PEOPLE[1], "REVERSED", resultCode="1", resultDesc="insufficient funds")
    known = {each.row.reference: each for each in (ended(PEOPLE[0], "SUCCESS"), came_back, ended(PEOPLE[2], "PENDING"))}
    write_report(Output(as_json=False, show_phones=True), path, FILE, known)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["state"], row["ended"], row["code"], row["why"]) for row in rows] == [
        ("ACCEPTED", "SUCCESS", "", ""),
        ("ACCEPTED", "REVERSED", "1", "insufficient funds"),
        ("ACCEPTED", "", "", ""),
        ("NOT_BEGUN", "", "", ""),
    ]
    assert "new reference" in rows[1]["what_to_do"]
    assert [row["phone"] for row in rows] == [row.phone for row in FILE.rows]


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--report"):
        write_report(TEXT, tmp_path / "no" / "report.csv", FILE, {})
