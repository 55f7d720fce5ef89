"""The orders that a reconciliation takes, the report that it returns, and which days it is about."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from momopay import BookedOrder, DayReport, RequestValidationError
from momopay.durable.day_report import Difference, day_bounds

DAY = date(2026, 11, 20)
ZERO = Decimal(0)


def report(*differences: Difference) -> DayReport:
    since, until = day_bounds(DAY, None, utc=False)
    return DayReport(since, until, 1, ZERO, ZERO, ZERO, ZERO, ZERO, 0, differences)


def test_a_report_agrees_without_differences() -> None:
    assert report().agrees
    assert not report(Difference("A", "nothing", "SUCCESS 10", "find out", "t-1")).agrees


@pytest.mark.parametrize("reference", ["=1+1", "+1", "-1", "@sum", "\tx"])
def test_the_differences_are_written_as_csv_without_formulas(tmp_path: Path, reference: str) -> None:
    path = tmp_path / "differences.csv"
    report(Difference(reference, "nothing", "PENDING 10", "find out", "t-1 t-2")).write_csv(path)
    with path.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["reference"], row["theirs"], row["transactions"]) == (f"'{reference}", "PENDING 10", "t-1 t-2")
    assert list(row) == ["reference", "ours", "theirs", "remedy", "transactions"]


def test_orders_are_read_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("\ufeffreference,amount,state\nA, 500.50 ,paid\nB,5,WAITING\n", encoding="utf-8")
    assert BookedOrder.read_csv(path) == [
        BookedOrder("A", Decimal("500.50"), "PAID"),
        BookedOrder("B", Decimal(5), "WAITING"),
    ]


@pytest.mark.parametrize("line", ["A,x,PAID", "A,5,SHIPPED", ",5,PAID", "B,5,PAID\nB,6,PAID", "A,nan,PAID", "A"])
def test_a_line_that_is_no_order_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(f"reference,amount,state\n{line}\n")
    with pytest.raises(RequestValidationError, match=f"line {3 if line.startswith('B') else 2}"):
        BookedOrder.read_csv(path)


def test_what_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(b"reference,amount,state\n\xff,5,PAID\n")
    with pytest.raises(RequestValidationError, match="UTF-8"):
        BookedOrder.read_csv(path)


def test_days_begin_at_midnight_of_nairobi_or_of_utc() -> None:
    midnight = datetime(2026, 11, 20, tzinfo=UTC)
    assert day_bounds(DAY, None, utc=True) == (midnight, midnight + timedelta(days=1))
    nairobi = midnight - timedelta(hours=3)
    assert day_bounds(DAY, DAY + timedelta(days=1), utc=False) == (nairobi, nairobi + timedelta(days=2))


@pytest.mark.parametrize(
    ("day", "last_day", "at_fault"),
    [
        ("2026-11-20", None, {"day", "last_day"}),
        (datetime(2026, 11, 20, tzinfo=UTC), DAY, {"day"}),
        (DAY, 5, {"last_day"}),
        (DAY, DAY - timedelta(days=1), {"last_day"}),
        (date(1969, 12, 31), None, {"day"}),
        (DAY, date.max, {"last_day"}),
    ],
)
def test_what_is_no_day_is_refused(day: Any, last_day: Any, at_fault: set[str]) -> None:
    with pytest.raises(RequestValidationError) as caught:
        day_bounds(day, last_day, utc=False)
    assert caught.value.fields.keys() == at_fault
