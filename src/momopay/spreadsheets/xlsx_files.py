"""Reads a sheet of an .xlsx file into rows of cells, by openpyxl.

The whole sheet is read, and not in openpyxl's `read_only` mode: that trusts the size that the file says it has, and
drops the rows beyond it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from zipfile import BadZipFile, ZipFile

from momopay.spreadsheets.cells import AS_TEXT, ERROR_OF_SPREADSHEET, MADE_A_DATE, Cell, Problem, column_name
from momopay.spreadsheets.csv_files import Record
from momopay.spreadsheets.faults import FileFault

if TYPE_CHECKING:
    from openpyxl.cell import Cell as SheetCell
    from openpyxl.workbook import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

_MOST_BYTES: Final = 256 * 1024 * 1024  # unpacked
_MOST_CELLS: Final = 2_000_000
_MOST_NAMED: Final = 10
_EXACT: Final = 10**15  # spreadsheets keep 15 digits of a number
_SAVE: Final = "save it again as .xlsx, or as CSV UTF-8"
_ZEROS: Final = re.compile("0{2,}")  # a number format that shows 1 as 001


@dataclass(frozen=True)
class Sheet:
    """The rows of a sheet that are not empty, and what a person should know before they are used."""

    records: Sequence[Record]
    notes: Sequence[str] = ()


def xlsx_sheet(content: bytes, required: Collection[str], sheet: str | None, faults: list[FileFault]) -> Sheet:
    """Return the sheet that has the header, or the named one; add what is wrong to the faults."""
    books = _books(content, faults)
    if books is None:
        return Sheet([])
    values, formulas = books
    found = _choose(values, required, sheet, faults)
    if found is None:
        return Sheet([])
    records = list(_records(found, formulas[found.title]))
    return Sheet(records, list(_notes(found, records)))


def _books(content: bytes, faults: list[FileFault]) -> tuple[Workbook, Workbook] | None:
    """Return the file with the stored values, and with the formulas; None if it cannot be read."""
    try:
        from openpyxl import load_workbook  # noqa: PLC0415  of an extra
    except ModuleNotFoundError as missing:
        remedy = 'an .xlsx file needs an extra: pip install "momopay[excel]", or save the file as CSV UTF-8'
        raise ModuleNotFoundError(remedy, name=missing.name) from missing
    try:
        with ZipFile(BytesIO(content)) as archive:
            names = {each.filename for each in archive.infolist()}
            if sum(each.file_size for each in archive.infolist()) > _MOST_BYTES:
                faults.append(FileFault(0, "", "is too large", "delete what is not needed, and save it again"))
                return None
        if "xl/workbook.xml" not in names:
            kind = "an .xlsb file" if "xl/workbook.bin" in names else "an OpenDocument file"
            kind = kind if {"xl/workbook.bin", "mimetype"} & names else "another kind of archive"
            faults.append(FileFault(0, "", f"is {kind}, and no .xlsx", _SAVE))
            return None
        with warnings.catch_warnings():  # of what openpyxl leaves out, such as drop-down lists
            warnings.simplefilter("ignore")
            return load_workbook(BytesIO(content), data_only=True), load_workbook(BytesIO(content))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  a damaged file fails in any way
        problem = "is damaged" if isinstance(error, BadZipFile) else f"cannot be read ({type(error).__name__})"
        faults.append(FileFault(0, "", f"is an .xlsx file that {problem}", _SAVE))
        return None


def _choose(book: Workbook, required: Collection[str], name: str | None, faults: list[FileFault]) -> Worksheet | None:
    sheets: list[Worksheet] = list(book.worksheets)  # without charts
    titles = ", ".join(repr(each.title) for each in sheets)
    chosen = [each for each in sheets if name is None or each.title.strip().casefold() == name.strip().casefold()]
    if not chosen:
        faults.append(FileFault(0, "", f"has no sheet {name!r}; it has {titles}", "check --sheet", value=name or ""))
        return None
    too_large = [each for each in chosen if each.max_row * each.max_column > _MOST_CELLS]
    if too_large:
        problem = f"has cells down to row {too_large[0].max_row:,} of sheet {too_large[0].title!r}"
        faults.append(FileFault(0, "", problem, "delete the empty rows and columns after the last one"))
        return None
    if len(chosen) > 1:
        headers = {each.title: _header(each) for each in chosen}
        filled = [each for each in chosen if headers[each.title]]
        chosen = [each for each in chosen if {*required} <= headers[each.title]]
        chosen = chosen or (filled if len(filled) == 1 else [])
    if len(chosen) == 1:
        return chosen[0]
    wanted = ", ".join(required)
    if chosen:
        both = " and ".join(repr(each.title) for each in chosen)
        faults.append(FileFault(0, "", f"has the header in the sheets {both}", "name one with --sheet"))
    else:
        problem = f"has no sheet whose first row names the columns {wanted}; it has {titles}"
        faults.append(FileFault(0, "", problem, "write the header into the first row, or name a sheet with --sheet"))
    return None


def _header(sheet: Worksheet) -> set[str]:
    for row in sheet.iter_rows(values_only=True):
        names = {name for each in row if each is not None and (name := column_name(str(each)))}
        if names:
            return names
    return set()


def _records(sheet: Worksheet, formulas: Worksheet) -> Iterator[Record]:
    merged = _merged(sheet)
    for row, sources in zip(sheet.iter_rows(), formulas.iter_rows(), strict=False):
        cells = [_cell(each, source, merged) for each, source in zip(row, sources, strict=True)]
        if any(not each.is_empty for each in cells):
            yield Record(row[0].row or 0, cells)


def _merged(sheet: Worksheet) -> dict[tuple[int, int], str]:
    """Return each place in merged cells, with the name of the range."""
    return {
        (row, column): str(area.coord)
        for area in sheet.merged_cells.ranges
        # Beyond these is no row, and an area may be as large as the sheet.
        for row in range(area.min_row, min(area.max_row, sheet.max_row) + 1)
        for column in range(area.min_col, min(area.max_col, sheet.max_column) + 1)
    }


def _cell(cell: Any, source: Any, merged: dict[tuple[int, int], str]) -> Cell:
    value = cell.value
    if area := merged.get((cell.row, cell.column)):
        text = "" if value is None else str(value).strip()
        return Cell(text, (f"is in the merged cells {area}", "unmerge them"), is_merged=value is None)
    if source.data_type == "f" and value is None:
        if cell.data_type == "str":  # the stored value is the empty text
            return Cell()
        return Cell("", ("is a formula without a stored value", "open the file in a spreadsheet and save it"))
    if cell.data_type == "e":
        return Cell(str(value), ERROR_OF_SPREADSHEET)
    return _value(cell, value)


def _value(cell: SheetCell, value: object) -> Cell:
    if value is None:
        return Cell()
    if isinstance(value, bool):
        return Cell(str(value).upper(), ("is TRUE or FALSE", AS_TEXT))
    if isinstance(value, date | time | timedelta):  # a datetime is a date too
        return Cell(str(value), MADE_A_DATE)
    if isinstance(value, int | float | Decimal):
        return _number(value, str(cell.number_format))
    return Cell(str(value).strip())


def _number(value: float | Decimal, shown: str) -> Cell:
    try:
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    except ArithmeticError:
        return Cell(str(value), ("is no number", "write the value"))
    if not exact.is_finite() or abs(exact) >= _EXACT:
        return Cell(str(value), ("has more digits than a spreadsheet keeps", AS_TEXT))
    if "%" in shown:
        return Cell(str(value), ("is a percentage", "write the number itself"))
    is_whole = exact == exact.to_integral_value()
    text = str(int(exact)) if is_whole else f"{exact:f}"
    problem: Problem | None = None
    if is_whole and _ZEROS.fullmatch(shown) and len(text) < len(shown):
        problem = (f"is shown as {text.zfill(len(shown))} and is the number {text}", AS_TEXT)
    return Cell(text, problem, is_fraction=not is_whole)


def _notes(sheet: Worksheet, records: Sequence[Record]) -> Iterator[str]:
    """Yield what cannot be seen of the rows that are read."""
    if sheet.sheet_state != "visible":
        yield f"the sheet {sheet.title!r} is hidden"
    all_hidden = bool(sheet.sheet_format.zeroHeight)
    hidden = [each.line for each in records if _is_hidden(sheet, each.line, all_hidden=all_hidden)]
    if hidden:
        more = f" and {len(hidden) - _MOST_NAMED} more" if len(hidden) > _MOST_NAMED else ""
        yield f"hidden rows of the sheet are read too: {', '.join(map(str, hidden[:_MOST_NAMED]))}{more}"
    names = [name for name, each in sheet.column_dimensions.items() if each.hidden]
    if names:
        yield f"hidden columns of the sheet are read too: {', '.join(names)}"


def _is_hidden(sheet: Worksheet, row: int, *, all_hidden: bool) -> bool:
    if row not in sheet.row_dimensions:
        return all_hidden
    found: Any = sheet.row_dimensions[row]
    return bool(found.hidden or found.height == 0)
