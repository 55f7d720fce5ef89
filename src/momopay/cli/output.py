"""What commands show: JSON for machines, tables for people. Phones are masked unless asked for whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol, TextIO, cast, runtime_checkable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from momopay._redaction import mask_phone, redact
from momopay.money import format_amount

_PHONES = frozenset({"phone", "phone_number"})
_STYLES = {
    "ACCEPTED": "green",
    "CANCELLED": "yellow",
    "EXPIRED": "yellow",
    "FAILED": "red",
    "NOT_SENT": "yellow",
    "PENDING": "cyan",
    "PROCESSING": "cyan",
    "REFUSED": "red",
    "REVERSED": "yellow",
    "SUCCESS": "green",
    "UNKNOWN": "bold red",
}


_UUID = 36
_NARROWEST = 80


def stdout() -> Console:
    """Where results go."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Where everything else goes."""
    return _console(sys.stderr)


def _console(file: TextIO) -> Console:
    """A narrower terminal wraps the lines: rich would cut off amounts and references."""
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, _NARROWEST)
    return console


def plain(text: object) -> str:
    """Make a text from elsewhere harmless to a terminal."""
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in str(text))


def kes(amount: Decimal) -> str:
    """Write an amount for people."""
    return f"{amount:,.2f}"


def moment(when: datetime) -> str:
    """Write a time for people, in their zone, which is named."""
    return when.astimezone().isoformat(sep=" ", timespec="seconds")


def status(word: str) -> Text:
    """Write a status in its colour."""
    return Text(plain(word), style=_STYLES.get(word, ""))


def table(*headings: str, right: Sequence[str] = (), title: str | None = None) -> Table:
    """Make a table; the columns in `right` hold numbers."""
    made = Table(
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title, title_justify="left", title_style="bold"
    )
    for heading in headings:
        made.add_column(
            heading,
            justify="right" if heading in right else "left",
            min_width=_UUID if heading in {"Transaction", "Channel"} else None,
            no_wrap=heading in {"Transaction", "Channel", *right},
            overflow="fold",
        )
    return made


@runtime_checkable
class HasFields(Protocol):
    """A record: to know it by its class would load pydantic for ``--help``."""

    def model_dump(self) -> dict[str, Any]:
        """Give the fields by name."""
        ...


@dataclass(frozen=True)
class Output:
    """How one command shows what it found.

    Attributes:
        as_json: For a machine.
        show_phones: Whole, instead of masked.
    """

    as_json: bool
    show_phones: bool = False

    def document(self, value: object) -> None:
        """Write one line of JSON to stdout."""
        sys.stdout.write(json.dumps(self._data(value)) + "\n")
        sys.stdout.flush()

    def people(self, *things: object) -> None:
        """Show things for people on stdout."""
        console = stdout()
        for thing in things:
            console.print(thing, soft_wrap=isinstance(thing, str))

    def say(self, text: str | Text) -> None:
        """Tell people something that is no result, on stderr."""
        stderr().print(text, soft_wrap=True)

    def phone(self, phone: str) -> str:
        """Write a phone as it may be shown."""
        return plain(phone if self.show_phones else mask_phone(phone))

    def text(self, text: str | None) -> str:
        """Write a text in which phones may stand."""
        return "" if text is None else plain(text if self.show_phones else redact(text))

    def _data(self, value: object, name: str = "") -> Any:
        match value:
            case HasFields():
                return self._data(value.model_dump(), name)
            case Mapping():
                pairs = cast("Mapping[str, object]", value).items()
                return {each: self._data(inner, each) for each, inner in pairs}
            case list() | tuple():
                return [self._data(inner, name) for inner in cast("Sequence[object]", value)]
            case Decimal() | datetime():
                return format_amount(value) if isinstance(value, Decimal) else value.isoformat()
            case str() if not self.show_phones and not (name.endswith("_id") or name in {"id", "next_cursor"}):
                return mask_phone(value) if name in _PHONES else redact(value)
            case _:
                return value
