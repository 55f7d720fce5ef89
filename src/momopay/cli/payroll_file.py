"""Reads a payroll file: CSV into rows, or all of its faults at once, by line."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from io import StringIO
from pathlib import Path

from momopay.cli.exit_codes import CommandError
from momopay.errors import RequestValidationError

_REQUIRED = ("reference", "phone", "amount")
_KNOWN = (*_REQUIRED, "description", "name")
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]{1,2})?")


@dataclass(frozen=True)
class Row:
    """One payout, with the line that it begins on. The phone is ``254XXXXXXXXX``, the amount is in KES."""

    line: int
    reference: str
    phone: str = field(repr=False)
    amount: Decimal
    description: str | None
    name: str = field(default="", repr=False)  # of the recipient, for the report alone


@dataclass(frozen=True)
class Fault:
    """What is wrong with a line, and the value that is at fault, where it is one value."""

    line: int
    column: str
    problem: str
    reference: str = ""
    value: str = field(default="", repr=False)


class FaultyFileError(CommandError):
    """The file cannot be paid, and nothing was sent. `faults` has everything that is wrong with it, by line."""

    def __init__(self, message: str, faults: list[Fault], *, remedy: str) -> None:
        super().__init__(f"{message}; nothing was sent", remedy=remedy)
        self.faults = faults


@dataclass(frozen=True)
class PayrollFile:
    """A file whose rows can all be sent. `ignored` has the names of the columns that are not used."""

    rows: list[Row]
    ignored: list[str]
    name: str = ""
    sha256: str = ""

    @property
    def possible_duplicates(self) -> list[list[int]]:
        """The lines that pay the same amount to the same phone under several references."""
        lines: dict[tuple[str, Decimal], list[int]] = defaultdict(list)
        for row in self.rows:
            lines[row.phone, row.amount].append(row.line)
        return [each for each in lines.values() if len(each) > 1]


def total(rows: Iterable[Row]) -> Decimal:
    """Return the sum of the amounts, KES."""
    return sum((row.amount for row in rows), Decimal(0))


def people(rows: Sequence[Row]) -> str:
    """Return how many payouts go to how many phones, in words."""
    phones = len({row.phone for row in rows})
    payouts = f"{len(rows):,} payout{'' if len(rows) == 1 else 's'}"
    return f"{payouts} to {phones:,} phone{'' if phones == 1 else 's'}"


def read_payroll(path: Path) -> PayrollFile:
    """Read a payroll file, which is CSV in UTF-8 with a heading; raise FaultyFileError with all of its faults."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path.name} cannot be read: {error.strerror}", remedy="check the file") from error
    payroll = PayrollFile([], [], path.name, sha256(content).hexdigest())
    faults = _read(content, payroll)
    if faults:
        remedy = "correct the lines that are shown, then run the command again"
        raise FaultyFileError(f"{path.name}: {len(faults)} fault(s)", faults, remedy=remedy)
    return payroll


def _read(content: bytes, payroll: PayrollFile) -> list[Fault]:
    """Add the rows that can be sent to the payroll; return all faults of the others."""
    records = _records(content)
    if isinstance(records, Fault):
        return [records]
    heading_line, heading = records[0] if records else (1, [])
    columns = [name.strip().lower() for name in heading]
    faults = list(_faults_of_heading(heading_line, columns))
    if faults:
        return faults
    payroll.ignored.extend(name for name in columns if name not in _KNOWN)
    first_line: dict[str, int] = {}
    for line, cells in records[1:]:
        # A comma inside an amount shifts the columns. What such a row means must not be guessed.
        if len(cells) != len(columns):
            found = f"has {len(cells)} columns, the heading has {len(columns)}"
            faults.append(Fault(line, "", found, value=",".join(cells)))
            continue
        values = {name: cell.strip() for name, cell in zip(columns, cells, strict=True) if name in _KNOWN}
        reference = values["reference"]
        # Reported even if either line has other faults: once those are fixed, the reference would be paid once only.
        if reference and first_line.setdefault(reference, line) != line:
            same = f"is the same as on line {first_line[reference]}"
            faults.append(Fault(line, "reference", same, reference, reference))
        row = _row(line, values)
        if isinstance(row, Row):
            payroll.rows.append(row)
        else:
            faults += row
    if not payroll.rows and not faults:
        faults.append(Fault(heading_line, "", "nothing follows the heading"))
    return faults


def _records(content: bytes) -> list[tuple[int, list[str]]] | Fault:
    """Return each record that is not empty, with the line that it begins on; or the fault if it is not CSV."""
    records: list[tuple[int, list[str]]] = []
    begins = 1
    try:
        # Spreadsheets begin UTF-8 files with a byte order mark. `splitlines` would also split at other separators,
        # such as U+2028, which may be within a cell.
        reader = csv.reader(StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        for cells in reader:
            if any(cell.strip() for cell in cells):
                records.append((begins, cells))
            begins = reader.line_num + 1  # a quoted cell may hold line breaks
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return Fault(line, "", "is not UTF-8: save the file as CSV UTF-8")
    except csv.Error as error:
        return Fault(begins, "", f"is not CSV: {error}")
    return records


def _faults_of_heading(line: int, columns: list[str]) -> Iterator[Fault]:
    if len(columns) == 1 and any(mark in columns[0] for mark in ";\t"):
        yield Fault(line, "", "the columns must be separated by commas", value=columns[0])
        return
    for name in _REQUIRED:
        if name not in columns:
            yield Fault(line, name, "is missing: the first line must name the columns reference, phone and amount")
    for name in _KNOWN:
        if columns.count(name) > 1:
            yield Fault(line, name, "is there more than once")


def _row(line: int, values: dict[str, str]) -> Row | list[Fault]:
    """Return the row, or its faults. The library decides what the service accepts."""
    from momopay.models.requests import PayoutRequest  # loads pydantic

    problems: dict[str, str] = {}
    if not _AMOUNT.fullmatch(values["amount"]):
        problems["amount"] = "must be digits, such as 2500 or 2500.50, without separators"
    amount = Decimal(10) if problems else Decimal(values["amount"])  # any valid one, to find the other faults too
    try:
        request = PayoutRequest.checked(
            reference=values["reference"],
            phone=values["phone"],
            amount=amount,
            description=values.get("description") or None,
        )
        if not problems:
            return Row(
                line, request.reference, request.phone, request.amount, request.description, values.get("name", "")
            )
    except RequestValidationError as error:
        problems |= error.fields
    if "phone" in problems and re.fullmatch("[17][0-9]{8}", values["phone"]):
        problems["phone"] += "; a spreadsheet may have dropped the leading 0"
    return [Fault(line, name, problem, values["reference"], values.get(name, "")) for name, problem in problems.items()]
