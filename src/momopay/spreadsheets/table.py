"""A file's header and rows, CSV or .xlsx: which columns it has, and whether each row has the header's shape."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Final
from unicodedata import normalize

from momopay.errors import RequestValidationError
from momopay.spreadsheets.cells import Cell, column_name, hidden_in
from momopay.spreadsheets.csv_files import Record, csv_records
from momopay.spreadsheets.faults import FileFault

_ZIP: Final = b"PK\x03\x04"
# How other files begin that people take for a spreadsheet, and what they are.
_OTHERS: Final = (
    (b"\xd0\xcf\x11\xe0", "is an old .xls file, or one that is protected by a password"),
    (b"%PDF", "is a PDF"),
    (b"{\\rtf", "is a text document"),
    (b"SQLite format 3", "is a database"),
    (b"\x1f\x8b", "is compressed"),
)
_HTML: Final = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*<(?:!doctype|html|table|\?xml|head|meta)", re.IGNORECASE)
_SAVE: Final = "save it as .xlsx without a password, or as CSV UTF-8"
# 45,250 that fills two cells: an amount of 45 and the next column 250, perhaps with what people write after an amount.
_BEFORE_COMMA: Final = re.compile("[0-9]{1,3}")
_AFTER_COMMA: Final = re.compile(
    r"[\W_]*([0-9]{3}(?:\.[0-9]+)?)[\W_]*(?:kes|ksh?s?|shs?|shillings?|only|bob)?[\W_]*", re.IGNORECASE
)


@dataclass(frozen=True)
class Row:
    """The cells of the columns that are used, by name, and the line on which the row begins."""

    line: int
    cells: dict[str, Cell]

    @property
    def reference(self) -> str:
        """The text of its reference."""
        return self.cells["reference"].text


@dataclass(frozen=True)
class Table:
    """A file that has been read.

    Attributes:
        name: The file's name.
        sha256: Its digest.
        rows: The rows that have the header's shape.
        header: The line of the header.
        ignored: The names of the columns that are not used.
        notes: What a person should know before the rows are used: hidden rows, a hidden sheet.
        faults: What is wrong so far.
    """

    name: str
    sha256: str
    rows: Sequence[Row]
    header: int
    ignored: Sequence[str]
    notes: Sequence[str]
    faults: list[FileFault]


def read_table(
    path: str | PathLike[str], required: Collection[str], optional: Collection[str], sheet: str | None
) -> Table:
    """Read a file. Raise OSError if it cannot be read at all; other faults are in the table."""
    path = Path(path)
    if "\0" in str(path):
        raise RequestValidationError({"path": "has a NUL character, which no file's name can have"})
    content = path.read_bytes()
    faults: list[FileFault] = []
    notes: Sequence[str] = ()
    records: Sequence[Record] = ()
    if content.startswith(_ZIP):
        from momopay.spreadsheets.xlsx_files import xlsx_sheet  # noqa: PLC0415  few files need it

        found = xlsx_sheet(content, required, sheet, faults)
        records, notes = found.records, found.notes
    elif other := next((what for begin, what in _OTHERS if content.startswith(begin)), None):
        faults.append(FileFault(0, "", other, _SAVE))
    elif _HTML.match(content):
        faults.append(FileFault(0, "", "is a web page or XML, whatever its name says", _SAVE))
    elif sheet is not None:
        raise RequestValidationError({"sheet": f"{path.name} is CSV, and has no sheets: leave it out"})
    else:
        records = csv_records(content, required, faults)
    if not records:
        if not faults:
            faults.append(FileFault(1, "", "is empty", f"write a header with {', '.join(required)}, then the rows"))
        return Table(path.name, sha256(content).hexdigest(), [], 1, [], notes, faults)
    header, *body = records
    columns = _columns(header)
    known = [name for name in columns if name in {*required, *optional}]
    in_header = list(_faults_of_header(header, columns, required, known))
    rows = [] if in_header else list(_rows(body, columns, known, faults))
    faults += in_header
    ignored = [name for name in columns if name and name not in known]
    return Table(path.name, sha256(content).hexdigest(), rows, header.line, ignored, notes, faults)


def _columns(header: Record) -> list[str]:
    columns = [column_name(each.text) for each in header.cells]
    while columns and not columns[-1] and header.cells[len(columns) - 1].is_empty:
        columns.pop()
    return columns


def _faults_of_header(
    header: Record, columns: Sequence[str], required: Collection[str], known: Collection[str]
) -> Iterator[FileFault]:
    for name, cell in zip(columns, header.cells, strict=False):
        if cell.problem is not None and (name in known or not (name or cell.is_empty)):
            yield FileFault(header.line, name, *cell.problem, value=cell.text)
        elif hidden := hidden_in(cell.text):
            problem = f"has {hidden}, which cannot be seen"
            yield FileFault(header.line, "", problem, "type the name anew", value=cell.text)
    missing = [name for name in required if name not in columns]
    for name in missing:
        has = ", ".join(name for name in columns if name) or "nothing"
        remedy = f"name the columns {', '.join(required)} in the first line; it has: {has[:200]}"
        yield FileFault(header.line, name, "is missing", remedy)
    if missing and len(columns) == 1:
        problem = "the columns must be separated by commas, semicolons or tabs"
        yield FileFault(header.line, "", problem, value=columns[0])
    for name in dict.fromkeys(columns):
        if name and columns.count(name) > 1:
            yield FileFault(header.line, name, "is there more than once", "keep one column of this name")


def _rows(
    records: Sequence[Record], columns: Sequence[str], known: Sequence[str], faults: list[FileFault]
) -> Iterator[Row]:
    places = {name: columns.index(name) for name in known}
    for record in records:
        cells = [*record.cells]
        reference = cells[places["reference"]].text if places["reference"] < len(cells) else ""
        problem = _shape(cells, columns)
        if problem is not None:
            shown = ",".join(each.text for each in cells)
            remedy = "give each row as many cells as the header; an amount with a comma must be in quotation marks"
            faults.append(FileFault(record.line, "", problem, remedy, reference, shown))
            continue
        amount = places["amount"]
        following = cells[amount + 1].text if amount + 1 < len(cells) else ""
        rest = _AFTER_COMMA.fullmatch(normalize("NFKC", following))
        if rest is not None and _BEFORE_COMMA.fullmatch(cells[amount].text):
            both = f"{cells[amount].text},{rest[1]}"
            problem = f"is followed by {following}: {both} may have been split at its comma"
            remedy = f"write {both.replace(',', '')} if it is that; if not, put words into the next column"
            faults.append(FileFault(record.line, "amount", problem, remedy, reference, cells[amount].text))
        yield Row(record.line, {name: cells[place] for name, place in places.items()})


def _shape(cells: Sequence[Cell], columns: Sequence[str]) -> str | None:
    """Return what is wrong with the number of cells; None if nothing is."""
    count = len(cells)
    while count > len(columns) and cells[count - 1].is_empty:
        count -= 1
    if count != len(columns):
        return f"has {count} cells, and the header has {len(columns)}"
    if any(not (name or each.is_empty) for name, each in zip(columns, cells, strict=False)):
        return "has a cell in a column without a name"
    return None
