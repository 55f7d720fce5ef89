"""Whether two references are one, written differently: what people and spreadsheets change. Pure.

A spreadsheet that opens a payroll and saves it again turns ``001`` into ``1``, ``1001`` into ``1001.0`` and ``2026-11``
into ``Nov-26``. Such a reference is not in the journal, so everybody would be paid a second time.

Two numbers that a person counts up are never the same: 11 and 12, W47 and W48, 2026-11 and 2026-12. So a weekly payroll
with the same wages is not stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations
from typing import Final, TypeAlias
from unicodedata import category, normalize

from momopay.models.arguments import without_hidden

_MINUS: Final = "\N{MINUS SIGN}"  # the one dash that is in another category than Pd
_MARKS: Final = frozenset("_./\\#,'`\N{RIGHT SINGLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}")
_SEPARATOR: Final = "-"  # what each of them is replaced by
_SPLIT_NUMBER: Final = re.compile(r"(?<=\d)-+(?=\d)")
_MOST_SPLITS: Final = 6
_TOKEN: Final = re.compile(r"\d+|[^\d-]+")
_ZEROS: Final = re.compile(r"(?<!\d)0+(?=\d)")
_DECIMAL_ZEROS: Final = re.compile(r"(?<=\d)(?:\.0+|,0{1,2})$")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:[,' ]\d{3})+(?:\.\d+)?")
_DOTTED: Final = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,2})?", re.ASCII)
# English and Swahili, in which spreadsheets of this country name a month.
_NAMES: Final = (
    *("jan january januari", "feb february februari", "mar march mac machi", "apr april aprili", "may mei"),
    *("jun june juni", "jul july julai", "aug august ago agosti", "sep sept september septemba"),
    *("oct october okt oktoba", "nov november novemba", "dec december des desemba"),
)
_MONTHS: Final = {name: number for number, names in enumerate(_NAMES, 1) for name in names.split()}
_YEAR: Final = re.compile(r"(?:19|20|21)\d\d")
_SHORT_YEAR: Final = re.compile(r"\d\d")
_DATE: Final = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_YEAR_LAST: Final = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d\d)")
_NAMED: Final = re.compile(r"(\d{1,2})[-/. ]([^\W\d]{3,9})\.?(?:[-/. ](\d{4}|\d\d))?")
_DAY_AND_MONTH: Final = re.compile(r"(\d{1,2})[-/.](\d{1,2})")
_DAYS: Final = 31

Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class Spellings:
    """What a reference may be written as. Two references are the same if either is in what the other looks like.

    Attributes:
        is_: The keys of what it is.
        like: The keys of what it may have been before a spreadsheet or a person changed it, `is_` among them.
    """

    is_: frozenset[Key]
    like: frozenset[Key]


def are_similar(one: str, other: str) -> bool:
    """Return whether two references are probably one, written differently.

    They may differ in case, dashes, spaces, underscores, dots, slashes, ``#``, an apostrophe, leading zeros of a
    number, ``.0`` at the end, thousands marks, the form of a number (``1E5``) or of a month (``Nov-26``, ``2026-11``),
    and in the form of one and the same date.
    """
    first, second = spellings_of(one), spellings_of(other)
    return bool(first.is_ & second.like or first.like & second.is_)


def spellings_of(reference: str) -> Spellings:
    """Return the spellings of a reference."""
    text = _folded(reference)
    is_: set[Key] = set()
    like: set[Key] = set()
    for variant in {text, _DECIMAL_ZEROS.sub("", text)}:
        marked = "".join(_SEPARATOR if each in _MARKS or each.isspace() else each for each in variant).strip(_SEPARATOR)
        tokens = [str(int(each)) if each.isdecimal() else each for each in _TOKEN.findall(marked)]
        is_ |= {("tokens", *tokens), ("tokens", *_with_months(tokens))}
        # Again, because a separator may have kept a letter and its accent apart.
        joined = _ZEROS.sub("", normalize("NFKC", marked.replace(_SEPARATOR, "")))
        splits = _splits_of(marked)
        is_.add(("joined", joined, splits))
        like |= {("joined", joined, fewer) for fewer in _fewer(splits)}
    whole = text.strip("'` #")
    plain = re.sub("[,' ]", "", whole) if _THOUSANDS.fullmatch(whole) else whole
    if _NUMBER.fullmatch(plain):
        is_.add(("number", Decimal(plain).normalize()))
    if _DOTTED.fullmatch(whole):
        like.add(("number", Decimal(whole.replace(".", "")).normalize()))
    dates, readings = _dates_in(whole)
    return Spellings(frozenset(is_ | dates), frozenset(is_ | like | dates | readings))


def _folded(reference: str) -> str:
    # Invisible characters are removed first, because they could keep a letter and its accent apart.
    folded = normalize("NFKC", normalize("NFKC", without_hidden(reference)).casefold())
    return "".join(_SEPARATOR if category(each) == "Pd" or each == _MINUS else each for each in folded).strip()


def _splits_of(marked: str) -> frozenset[int]:
    """Return where separators split numbers, as places in the text without separators.

    1-11 and 11-1 have the same digits and are two numbers each. So a reference is another one's only if it is split at
    some of the same places: 1-11 may have become 111, and not 11-1.
    """
    return frozenset(len(marked[: found.start()].replace(_SEPARATOR, "")) for found in _SPLIT_NUMBER.finditer(marked))


def _fewer(splits: frozenset[int]) -> Iterator[frozenset[int]]:
    """Yield every part of the splits; of very many, the whole and none."""
    sizes = range(len(splits) + 1) if len(splits) <= _MOST_SPLITS else (0, len(splits))
    for size in sizes:
        yield from map(frozenset, combinations(splits, size))


def _with_months(tokens: list[str]) -> Iterator[str]:
    """Yield the tokens, with one token for each month and its year."""
    place = 0
    while place < len(tokens):
        month = _month_of(*tokens[place : place + 2]) if place + 1 < len(tokens) else None
        yield month or tokens[place]
        place += 2 if month else 1


def _month_of(first: str, second: str) -> str | None:
    """Return the month that two tokens name, in either order; None if they name none."""
    for month, year in ((first, second), (second, first)):
        number = _MONTHS.get(month)
        if number is not None and (_YEAR.fullmatch(year) or _SHORT_YEAR.fullmatch(year)):
            return f"{year[-2:]}/{number}"
        if month.isdecimal() and 1 <= int(month) <= len(_NAMES) and _YEAR.fullmatch(year):
            return f"{year[-2:]}/{int(month)}"
    return None


def _dates_in(text: str) -> tuple[set[Key], set[Key]]:
    """Return the date that a text is, and the dates that it may be: 7/11/2026 is of July or of November."""
    if found := _DATE.fullmatch(text):
        year, month, day = map(int, found.groups())
        return {("date", year % 100, month, day)}, set()
    if (found := _NAMED.fullmatch(text)) and found[2] in _MONTHS and int(found[1]) <= _DAYS:
        year_key = () if found[3] is None else (int(found[3]) % 100,)
        return {("date", *year_key, _MONTHS[found[2]], int(found[1]))}, set()
    if found := _YEAR_LAST.fullmatch(text):
        one, other, year = map(int, found.groups())
        return set(), {("date", year % 100, one, other), ("date", year % 100, other, one)}
    if found := _DAY_AND_MONTH.fullmatch(text):
        one, other = map(int, found.groups())
        return set(), {("date", one, other), ("date", other, one)}
    return set(), set()
