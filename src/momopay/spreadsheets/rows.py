"""Payouts and orders from files. The one reader for the library and the command line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from os import PathLike
from typing import Final, TypeVar

from momopay.errors import RequestValidationError
from momopay.models.arguments import check_reference
from momopay.models.requests import PayoutRequest
from momopay.money import parse_amount
from momopay.spreadsheets import cells
from momopay.spreadsheets.cells import AS_TEXT, Cell, Problem
from momopay.spreadsheets.faults import FileFault, of_file
from momopay.spreadsheets.table import Row, Table, read_table

logger: logging.Logger = logging.getLogger("momopay.spreadsheets")
RowT = TypeVar("RowT")
STATES: Final = ("PAID", "WAITING", "FAILED")
"""The states of an order."""
_PAYOUTS: Final = ("reference", "phone", "amount")
_OPTIONAL: Final = ("description", "name")
_JUDGES: Final = {
    "phone": cells.phone_problem,
    "description": cells.text_problem,
    "name": cells.text_problem,
}
_ORDERS: Final = ("reference", "amount", "state")


@dataclass(frozen=True)
class PayoutRow:
    """One payout, with the line that it begins on. The phone is ``254XXXXXXXXX``, the amount is in KES."""

    line: int
    reference: str
    phone: str = field(repr=False)
    amount: Decimal
    description: str | None = None
    name: str = field(default="", repr=False)  # of the recipient, for the report alone


@dataclass(frozen=True)
class PayoutFile:
    """A file whose rows can all be sent.

    Attributes:
        rows: The payouts, in the file's order.
        ignored: The names of the columns that are not used.
        notes: What a person should know before the question: hidden rows, a hidden sheet.
        name: The file's name.
        sha256: Its digest.
    """

    rows: Sequence[PayoutRow]
    ignored: Sequence[str] = ()
    notes: Sequence[str] = ()
    name: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class OrderRow:
    """One order of the merchant's books."""

    reference: str
    amount: Decimal
    state: str


def read_payouts(path: str | PathLike[str], sheet: str | None = None) -> PayoutFile:
    """Read a payroll.

    Raises:
        FaultyFileError: Anything is wrong with it; every fault is in the one error.
        OSError: The file cannot be read.
    """
    table = read_table(path, _PAYOUTS, _OPTIONAL, sheet)
    if not table.rows and not table.faults:  # unlike a day without orders
        table.faults.append(FileFault(table.header, "", "nothing follows the header", "write the rows below it"))
    rows = _made(table, _payout)
    return PayoutFile(rows, table.ignored, table.notes, table.name, table.sha256)


def read_orders(path: str | PathLike[str], sheet: str | None = None) -> tuple[list[OrderRow], Sequence[str]]:
    """Read orders, and return them with what a person should know, such as hidden rows; raise as `read_payouts`."""
    table = read_table(path, _ORDERS, (), sheet)
    return _made(table, _order), table.notes


def log_notes(name: str, notes: Sequence[str]) -> None:
    """Log what a person should know of a file."""
    for note in notes:
        logger.warning("%s: %s", name, note)


def _made(table: Table, make: Callable[[Row, list[FileFault]], RowT | None]) -> list[RowT]:
    """Return what is made of each row. Raise FaultyFileError if anything is wrong."""
    faults = [*table.faults]
    made: list[RowT] = []
    first_line: dict[str, int] = {}
    for row in table.rows:
        reference = row.reference
        # Reported even if either line has other faults: once those are fixed, the reference would be paid once only.
        if reference and first_line.setdefault(reference, row.line) != row.line:
            same = f"is the same as on line {first_line[reference]}"
            remedy = "give each row a reference of its own, or delete one of them"
            faults.append(FileFault(row.line, "reference", same, remedy, reference, reference))
        each = make(row, faults)
        if each is not None:
            made.append(each)
    if faults:
        raise of_file(table.name, faults)
    return made


def _payout(row: Row, faults: list[FileFault]) -> PayoutRow | None:
    """Return the payout of a row, or None, with what is wrong. The library decides what the service accepts."""
    found = dict(_problems(row, _JUDGES))
    amount = _amount(row, found)
    phone, description = row.cells["phone"], row.cells.get("description", Cell())
    try:
        request = PayoutRequest.checked(
            reference=row.reference,
            phone=phone.text,
            amount=Decimal(10) if amount is None else amount,  # any valid one, to find the other faults too
            description=description.text or None,
        )
    except RequestValidationError as error:
        for name, problem in error.fields.items():
            found.setdefault(name, _with_remedy(problem))
    else:
        if not found and amount is not None:
            name = row.cells.get("name", Cell()).text
            return PayoutRow(row.line, request.reference, request.phone, request.amount, request.description, name)
    _add(row, found, faults)
    return None


def _order(row: Row, faults: list[FileFault]) -> OrderRow | None:
    found = dict(_problems(row, {"state": cells.word_problem}))
    amount, state = _amount(row, found), row.cells["state"].text.upper()
    try:
        if not row.reference:
            found.setdefault("reference", ("is missing", "write the order's reference"))
        check_reference(row.reference)
    except ValueError as error:
        found.setdefault("reference", _with_remedy(str(error)))
    if amount is not None:
        try:
            parse_amount(amount, minimum=0)
        except ValueError as error:
            found["amount"] = _with_remedy(str(error))
    if state not in STATES:
        found.setdefault("state", ("is no state of an order", f"write {', '.join(STATES[:-1])} or {STATES[-1]}"))
    _add(row, found, faults)
    return None if found or amount is None else OrderRow(row.reference, amount, state)


def _problems(row: Row, judges: Mapping[str, Callable[[str], Problem | None]]) -> Iterator[tuple[str, Problem]]:
    """Yield the problems of the cells that are used, other than of amounts."""
    for name, judge in {"reference": cells.reference_problem, **judges}.items():
        cell = row.cells.get(name, Cell())
        if cell.problem is not None:
            yield name, cell.problem
        elif cell.is_fraction and judge is not cells.text_problem:
            yield name, ("is a number with decimals, and may have lost zeros", AS_TEXT)
        elif cell.text and (problem := judge(cell.text)) is not None:
            yield name, problem


def _amount(row: Row, found: dict[str, Problem]) -> Decimal | None:
    """Return the amount of a row, or None after its problem was added."""
    cell = row.cells["amount"]
    if cell.problem is not None:
        found["amount"] = cell.problem
        return None
    if cell.is_fraction:  # by its number, and not by how an amount is written
        return Decimal(cell.text)
    amount = cells.amount_in(cell.text)
    if isinstance(amount, Decimal):
        return amount
    found["amount"] = amount
    return None


def _with_remedy(message: str) -> Problem:
    """Return a message of the library, which may have its remedy after a colon, as both."""
    problem, _, remedy = message.partition(": ")
    return problem, remedy


def _add(row: Row, found: dict[str, Problem], faults: list[FileFault]) -> None:
    for name, cell in row.cells.items():  # in the order of the file's columns
        if name in found:
            faults.append(FileFault(row.line, name, *found[name], row.reference, cell.text))
