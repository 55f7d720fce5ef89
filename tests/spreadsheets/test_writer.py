"""CSV that a spreadsheet opens as it is, and runs nothing of."""

import csv
import io
from decimal import Decimal

import pytest

from momopay import TransactionStatus
from momopay.spreadsheets.writer import write_csv


def written(*cells: object) -> list[str]:
    file = io.StringIO(newline="")
    write_csv(file, ["first", *(["more"] * (len(cells) - 1))], [cells])
    text = file.getvalue()
    assert text.startswith("\ufefffirst")
    (_, row) = csv.reader(io.StringIO(text, newline=""))
    return row


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "=cmd|'/c calc'!A0", "\uff1d"])
def test_no_text_becomes_a_formula(begin: str) -> None:
    assert written(f"{begin}1+1", "b") == [f"'{begin}1+1", "b"]


def test_what_is_none_stays_as_it_is() -> None:
    row = ["a=b", "2026-11-01", "a\nb", 'say "a", b', "José", TransactionStatus.SUCCESS]
    assert written(*row) == [str(each) for each in row]
    assert written(Decimal("-5.50"), 3, None) == ["-5.50", "3", ""], "a number is no formula"
