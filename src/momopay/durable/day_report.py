"""What a reconciliation of a day returns: sums, and the differences between the service, the journal and the orders."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from os import PathLike
from pathlib import Path
from typing import Final, Literal, Self, cast

from momopay.errors import RequestValidationError

__all__ = ["BookedOrder", "DayReport", "Difference"]

OrderState = Literal["PAID", "FAILED", "WAITING"]
_STATES: Final = frozenset({"PAID", "FAILED", "WAITING"})
# Neither the day after, nor a zone, leads out of what a datetime holds.
_YEARS: Final = range(1970, 9999)
_NAIROBI: Final = timezone(timedelta(hours=3))
# What a spreadsheet would take for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class BookedOrder:
    """One order in the merchant's own books.

    Attributes:
        reference: That of the collection.
        amount: KES.
        state: ``PAID`` if it was shipped, ``WAITING`` if it waits for its payment, ``FAILED`` if it was given up.
    """

    reference: str
    amount: Decimal
    state: OrderState

    @classmethod
    def read_csv(cls, path: str | PathLike[str]) -> list[Self]:
        """Read orders from a CSV file with the columns reference, amount and state.

        Raises:
            RequestValidationError: The file is not UTF-8, a line cannot be read, or two have one reference.
            OSError: The file cannot be read.
        """
        orders: dict[str, Self] = {}
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
            rows = [*csv.DictReader(io.StringIO(text, newline=""))]
        except (UnicodeDecodeError, csv.Error):
            raise RequestValidationError({"orders": "must be CSV in UTF-8"}) from None
        for number, row in enumerate(rows, start=2):
            reference, state = (row.get("reference") or "").strip(), (row.get("state") or "").strip().upper()
            try:
                amount = Decimal((row.get("amount") or "").strip())
            except InvalidOperation:
                amount = Decimal("NaN")
            if not reference or reference in orders or state not in _STATES or not amount.is_finite():
                problem = "needs a reference of its own, an amount, and a state: PAID, FAILED or WAITING"
                raise RequestValidationError({"orders": f"line {number} {problem}"})
            orders[reference] = cls(reference, amount, cast("OrderState", state))
        return list(orders.values())


@dataclass(frozen=True)
class Difference:
    """One thing in which the service, the journal and the orders do not agree.

    Attributes:
        reference: The caller's reference.
        ours: What the journal and the orders have.
        theirs: What the service has.
        remedy: What to do about it.
        transactions: The ids of the service's transactions, separated by spaces.
    """

    reference: str
    ours: str
    theirs: str
    remedy: str
    transactions: str


@dataclass(frozen=True)
class DayReport:
    """A day, or several, of the service against the journal and the orders. Sums are in KES.

    Attributes:
        since: When it begins.
        until: When it ends; not included.
        transactions: How many transactions the service has.
        collected: By collections that succeeded.
        paid_out: By payouts that succeeded, refunds not included.
        refunded: By refunds that succeeded.
        fees: The service's fees of all transactions, as far as it reports them.
        came_back: By payouts that were reversed.
        open: How many transactions have not ended.
        differences: What does not agree, by reference.
    """

    since: datetime
    until: datetime
    transactions: int
    collected: Decimal
    paid_out: Decimal
    refunded: Decimal
    fees: Decimal
    came_back: Decimal
    open: int
    differences: tuple[Difference, ...]

    @property
    def agrees(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write the differences into a CSV file, a line for each, below a line of names."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(each.name for each in fields(Difference))
            lines.writerows(_safe(astuple(each)) for each in self.differences)


def day_bounds(day: date, last_day: date | None, *, utc: bool) -> tuple[datetime, datetime]:
    """Return when the days begin and end, in Nairobi unless in UTC; raise RequestValidationError if they do not."""
    problems = {
        name: "must be a date without a time"
        for name, each in {"day": day, "last_day": last_day or day}.items()
        if isinstance(each, datetime) or not isinstance(each, date)
    }
    if not problems:
        last, years = last_day or day, f"must be in the years {_YEARS.start} to {_YEARS.stop - 1}"
        if day.year not in _YEARS:
            problems = {"day": years}
        elif last < day:
            problems = {"last_day": "is before the first day"}
        elif last.year not in _YEARS:
            problems = {"last_day": years}
    if problems:
        raise RequestValidationError(problems)
    zone = UTC if utc else _NAIROBI
    begin, end = (datetime.combine(each, time(), zone) for each in (day, last_day or day))
    return begin, end + timedelta(days=1)


def _safe(values: Iterable[str]) -> list[str]:
    return [f"'{value}" if value.startswith(_FORMULA) else value for value in values]
