"""Writes CSV files that people open in a spreadsheet. Every CSV of this package is written here."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Final, Protocol

# A spreadsheet runs a cell that begins so as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}")
_BOM: Final = "\ufeff"  # without it, spreadsheets take UTF-8 for an old encoding


class Writable(Protocol):
    """What text is written to: a file that does not change line breaks, or a response."""

    def write(self, text: str, /) -> object:
        """Write a text."""
        ...


def write_csv(file: Writable, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file: a byte order mark, a header, then the rows. No text of a cell becomes a formula."""
    file.write(_BOM)
    lines = csv.writer(file)
    lines.writerow(map(_safe, header))
    for row in rows:
        lines.writerow(map(_safe, row))


def _safe(value: object) -> object:
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return f"'{value}"
    return value
