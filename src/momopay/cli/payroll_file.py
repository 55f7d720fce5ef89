"""The payroll file: CSV into rows, or every fault of it at once, by line. Knows no network and shows no value."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from momopay.errors import RequestValidationError
from momopay.models.requests import PayoutRequest

_REQUIRED = ("reference", "phone", "amount")
_KNOWN = (*_REQUIRED, "description")
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]{1,2})?")


@dataclass(frozen=True)
class Row:
    """One payout of the file.

    Attributes:
        line: Where it begins in the file.
        reference: Unique in the file.
        phone: ``254XXXXXXXXX``.
        amount: KES.
        description: A short purpose.
    """

    line: int
    reference: str
    phone: str = field(repr=False)
    amount: Decimal
    description: str | None


@dataclass(frozen=True)
class Fault:
    """What is wrong with a line; never the value."""

    line: int
    column: str
    problem: str


class FaultyFileError(Exception):
    """The file cannot be paid from; nothing was sent.

    Attributes:
        faults: All of them, by line.
    """

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(f"{len(faults)} faults")
        self.faults = faults


@dataclass(frozen=True)
class Salaries:
    """A file in which every row can be sent.

    Attributes:
        rows: In the file's order.
        ignored: Columns that mean nothing here.
    """

    rows: list[Row]
    ignored: list[str]

    @property
    def total(self) -> Decimal:
        """KES."""
        return total(self.rows)

    @property
    def alike(self) -> list[list[int]]:
        """The lines that pay the same amount to the same phone under several references."""
        lines: dict[tuple[str, Decimal], list[int]] = defaultdict(list)
        for row in self.rows:
            lines[row.phone, row.amount].append(row.line)
        return [each for each in lines.values() if len(each) > 1]


def total(rows: list[Row]) -> Decimal:
    """Add up, KES."""
    return sum((row.amount for row in rows), Decimal(0))


def read_salaries(path: Path) -> Salaries:
    """Read a payroll file: CSV in UTF-8 with a heading, commas between the columns.

    Raises:
        FaultyFileError: Something is wrong with it, all of which is told.
        OSError: It cannot be read.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise FaultyFileError([Fault(line, "", "is not UTF-8: save the file as CSV UTF-8")]) from None
    records = _records(text)
    heading_line, heading = next(records, (1, list[str]()))
    columns = [name.strip().lower() for name in heading]
    faults = list(_faults_of_heading(heading_line, columns))
    if faults:
        raise FaultyFileError(faults)
    rows: list[Row] = []
    first_line: dict[str, int] = {}
    for line, cells in records:
        if len(cells) != len(columns):
            faults.append(Fault(line, "", f"has {len(cells)} columns, the heading has {len(columns)}"))
            continue
        given = {name: cell.strip() for name, cell in zip(columns, cells, strict=True) if name in _KNOWN}
        reference = given["reference"]
        if reference and first_line.setdefault(reference, line) != line:  # whatever else is wrong with either line
            faults.append(Fault(line, "reference", f"is the same as on line {first_line[reference]}"))
        found = _row(line, given)
        if isinstance(found, Row):
            rows.append(found)
        else:
            faults += found
    if not rows and not faults:
        faults.append(Fault(heading_line, "", "nothing follows the heading"))
    if faults:
        raise FaultyFileError(faults)
    return Salaries(rows, [name for name in columns if name not in _KNOWN])


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Give each record that is not empty, with the line that it begins on."""
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    begins = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise FaultyFileError([Fault(begins, "", f"is not CSV: {error}")]) from None


def _faults_of_heading(line: int, columns: list[str]) -> Iterator[Fault]:
    if len(columns) == 1 and any(mark in columns[0] for mark in ";\t"):
        yield Fault(line, "", "the columns must be separated by commas")
        return
    for name in _REQUIRED:
        if name not in columns:
            yield Fault(line, name, "is missing: the first line must name the columns reference, phone and amount")
    for name in _KNOWN:
        if columns.count(name) > 1:
            yield Fault(line, name, "is there more than once")


def _row(line: int, given: dict[str, str]) -> Row | list[Fault]:
    faults: list[Fault] = []
    if not _AMOUNT.fullmatch(given["amount"]):
        faults.append(Fault(line, "amount", "must be digits, such as 2500 or 2500.50, without separators"))
    amount = Decimal(10) if faults else Decimal(given["amount"])
    try:
        request = PayoutRequest.checked(
            reference=given["reference"],
            phone=given["phone"],
            amount=amount,
            description=given.get("description") or None,
        )
    except RequestValidationError as error:
        return faults + [
            Fault(line, name, _advice(problem, given.get(name, ""))) for name, problem in error.fields.items()
        ]
    if faults:
        return faults
    return Row(line, request.reference, request.phone, request.amount, request.description)


def _advice(problem: str, value: str) -> str:
    if re.fullmatch("[17][0-9]{8}", value):
        return f"{problem}; a spreadsheet may have dropped the leading 0"
    return problem
