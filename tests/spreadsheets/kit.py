"""Files as spreadsheets write them, and what is read of them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from openpyxl import Workbook

from momopay import PayoutItem
from momopay.types import BookedOrder, FaultyFileError, FileFault

PAYROLL = "reference,phone,amount,description\n"
ORDERS = "reference,state,amount\n"
HEADER = ("reference", "phone", "amount", "description")
GOOD = ("A", "0712345678", 1250, "November")


def write(folder: Path, content: str | bytes, name: str = "file.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def payouts(path: Path, sheet: str | None = None) -> list[tuple[str, str, str, str | None]]:
    """Read a payroll; return reference, phone, amount and description of each row."""
    found = PayoutItem.read(path, sheet=sheet)
    return [(each.reference, each.phone, str(each.amount), each.description) for each in found]


def faults(read: Callable[[], object]) -> list[FileFault]:
    """Return the faults for which a file is refused; [] if it is not."""
    try:
        read()
    except FaultyFileError as error:
        return error.faults
    return []


def of_payroll(folder: Path, content: str | bytes) -> list[FileFault]:
    path = write(folder, content)
    return faults(lambda: PayoutItem.read(path))


def of_orders(folder: Path, content: str | bytes) -> list[FileFault]:
    path = write(folder, content)
    return faults(lambda: BookedOrder.read(path))


def places(found: Iterable[FileFault]) -> list[tuple[int, str]]:
    return [(each.line, each.column) for each in found]


def book(*rows: Sequence[object], title: str = "Sheet", formats: Mapping[str, str] | None = None) -> Workbook:
    """Make a workbook of one sheet."""
    made = Workbook()
    sheet: Any = made.active
    sheet.title = title
    for row in rows:
        sheet.append(row)
    for place, shown in (formats or {}).items():
        sheet[place].number_format = shown
    return made


def save(folder: Path, made: Workbook, name: str = "file.xlsx") -> Path:
    path = folder / name
    made.save(path)
    return path


def edited(path: Path, edit: Callable[[str], str], part: str = "xl/worksheets/sheet1.xml") -> Path:
    """Change a part of an .xlsx file, as no library writes it."""
    buffer = io.BytesIO()
    with ZipFile(path) as old, ZipFile(buffer, "w", ZIP_DEFLATED) as new:
        for each in old.infolist():
            content = old.read(each.filename)
            if each.filename == part:
                before = content.decode()
                after = edit(before)
                assert after != before, "the edit changed nothing"
                content = after.encode()
            new.writestr(each.filename, content)
    path.write_bytes(buffer.getvalue())
    return path


def with_stored_value(path: Path, place: str, value: str) -> Path:
    """Store a value with the formula of a cell, as a spreadsheet does when it saves."""
    empty = re.compile(rf'(<c r="{place}"[^>]*>)(<f>.*?</f>)<v\s*(?:/>|></v>)')
    return edited(path, lambda text: empty.sub(rf"\g<1>\g<2>{value}", text))
