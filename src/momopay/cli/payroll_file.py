"""A payroll file as the command line shows it: its rows, their sums, and the rows that look like others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from momopay.cli.exit_codes import CommandError
from momopay.cli.output import plain

if TYPE_CHECKING:
    from momopay.spreadsheets.rows import PayoutFile, PayoutRow

T = TypeVar("T")


def possible_duplicates(rows: Iterable[PayoutRow]) -> list[list[int]]:
    """Return the lines that pay the same amount to the same phone under several references."""
    lines: dict[tuple[str, Decimal], list[int]] = defaultdict(list)
    for row in rows:
        lines[row.phone, row.amount].append(row.line)
    return [each for each in lines.values() if len(each) > 1]


def total(rows: Iterable[PayoutRow]) -> Decimal:
    """Return the sum of the amounts, KES."""
    return sum((row.amount for row in rows), Decimal(0))


def people(rows: Sequence[PayoutRow]) -> str:
    """Return how many payouts go to how many phones, in words."""
    phones = len({row.phone for row in rows})
    payouts = f"{len(rows):,} payout{'' if len(rows) == 1 else 's'}"
    return f"{payouts} to {phones:,} phone{'' if phones == 1 else 's'}"


def read_payroll(path: Path, sheet: str | None = None) -> PayoutFile:
    """Read a payroll file; raise FaultyFileError with all of its faults, or CommandError if it cannot be read."""
    from momopay.spreadsheets.rows import read_payouts  # loads pydantic

    return read_file(path.name, lambda: read_payouts(path, sheet))


def read_file(name: str, read: Callable[[], T]) -> T:
    """Return what a function reads of a file; raise CommandError if the file cannot be read."""
    try:
        return read()
    except OSError as error:
        raise CommandError(f"{plain(name)} cannot be read: {error.strerror}", remedy="check the file") from error
