"""Reads a CSV file into rows of cells: finds its encoding and separator, and the quotes that swallow rows."""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from momopay.spreadsheets.cells import Cell, column_name
from momopay.spreadsheets.faults import FileFault

_SEPARATORS: Final = (",", ";", "\t")
_NAMED_SEPARATOR: Final = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_UTF32: Final = (BOM_UTF32_LE, BOM_UTF32_BE)
_MANY: Final = 0.3  # the share of zero bytes at even or odd places from which a file is UTF-16
_SAMPLE: Final = 4096  # bytes
_MOST_BROKEN: Final = 20  # each is followed by another look at the rest of the file
_LINE: Final = re.compile("\r\n|\r|\n")
_SAVE_AS: Final = 'save it as "CSV UTF-8 (comma delimited)", or as .xlsx'


@dataclass(frozen=True)
class Record:
    """A row of a file, and the line on which it begins."""

    line: int
    cells: Sequence[Cell]


def csv_records(content: bytes, required: Collection[str], faults: list[FileFault]) -> list[Record]:
    """Return the rows that are not empty, the header among them; add what is wrong to the faults."""
    text = _decoded(content, faults)
    if text is None:
        return []
    if "\0" in text:
        line = _line_of(text, text.index("\0"))
        faults.append(FileFault(line, "", "has a NUL character: it is no text", _SAVE_AS))
        return []
    lines = _lines(text)
    first = 0
    separator = None
    if lines and (named := _NAMED_SEPARATOR.fullmatch(lines[0].rstrip("\r\n"))):
        separator, first = named[1], 1
        if separator not in {*_SEPARATORS, "|"}:
            faults.append(FileFault(1, "", f"names {separator!r} as the separator", "use a comma, semicolon or tab"))
            return []
    separator = separator or _separator(lines, required)
    return list(_records(lines, first, separator, faults))


def _decoded(content: bytes, faults: list[FileFault]) -> str | None:
    """Return the text; None if it has no text at all. Faults of other encodings are added, with their lines."""
    encoding = _encoding(content)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        if encoding != "utf-8-sig":
            faults.append(FileFault(0, "", f"is not whole: it begins as {encoding}, and does not go on so", _SAVE_AS))
            return None
    # Decoded in the way of old spreadsheets to find the other faults too. It is refused, because the bytes do not say
    # which of the many old encodings they are in.
    text = content.removeprefix(BOM_UTF8).decode("cp1252", errors="replace")
    for number, line in enumerate(re.split(b"\r\n|\r|\n", content), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            shown = line[error.start :].decode("cp1252", errors="replace")[:20]
            problem = "is not UTF-8; it may be Windows-1252 (ANSI)"
            faults.append(FileFault(number, "", problem, _SAVE_AS, value=shown))
    return text


def _encoding(content: bytes) -> str:
    if content.startswith(_UTF32):
        return "utf-32"
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "utf-16"
    sample = content[:_SAMPLE]
    half = max(len(sample) // 2, 1)
    if sample[1::2].count(0) / half > _MANY > sample[::2].count(0) / half:
        return "utf-16-le"
    if sample[::2].count(0) / half > _MANY > sample[1::2].count(0) / half:
        return "utf-16-be"
    return "utf-8-sig"


def _lines(text: str) -> list[str]:
    # `str.splitlines` would also split at other separators, such as U+2028, which may be within a cell.
    ends = [found.end() for found in _LINE.finditer(text)]
    begins = [0, *ends]
    return [each for begin, end in zip(begins, [*ends, len(text)], strict=True) if (each := text[begin:end])]


def _line_of(text: str, place: int) -> int:
    return len(_LINE.findall(text, 0, place)) + 1


def _separator(lines: Sequence[str], required: Collection[str]) -> str:
    """Return the separator by which the header has most of the names that are needed, then most cells."""
    header = next((each for each in lines if each.strip(" \t\r\n,;")), "")

    def names(separator: str) -> tuple[int, int]:
        found = next(csv.reader([header.rstrip("\r\n")], delimiter=separator), list[str]())
        return len({column_name(each) for each in found} & {*required}), len(found)

    return max(_SEPARATORS, key=names)


def _records(lines: Sequence[str], first: int, separator: str, faults: list[FileFault]) -> Iterator[Record]:
    """Yield the rows that are not empty. After a row that is not CSV, go on with the next line."""
    broken = 0
    while first < len(lines) and broken <= _MOST_BROKEN:
        begins = first
        try:
            reader = csv.reader(_from(lines, first), delimiter=separator, strict=True)
            for cells in reader:
                swallowed = _swallowed(cells, separator)
                if swallowed:
                    problem = "has a quotation mark that takes in lines that follow"
                    remedy = "close it where the cell ends, or remove the line break in the cell"
                    faults.append(FileFault(begins + 1, "", problem, remedy, value=swallowed))
                    broken += 1
                    break  # the lines that it took in are read as rows
                if any(each.strip() for each in cells):
                    yield Record(begins + 1, [Cell(each.strip()) for each in cells])
                begins = first + reader.line_num
            else:
                return
        except csv.Error as error:
            why = str(error)
            is_open = "unexpected end" in why
            problem = "has a quotation mark that is not closed" if is_open else f"is not CSV ({why})"
            shown = lines[begins].strip()[:40]
            faults.append(FileFault(begins + 1, "", problem, 'write "" for a quotation mark in a cell', value=shown))
            broken += 1
        first = begins + 1


def _from(lines: Sequence[str], first: int) -> Iterator[str]:
    return (lines[number] for number in range(first, len(lines)))


def _swallowed(cells: Sequence[str], separator: str) -> str:
    """Return the line, after a line break within a cell, that looks like a row; "" if there is none."""
    for cell in cells:
        _, *more = _LINE.split(cell)
        for each in more:
            if separator in each:
                return each.strip()
    return ""
