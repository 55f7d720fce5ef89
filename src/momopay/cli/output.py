"""The output of commands: JSON for machines, tables for people.

All values are formatted here, by type: amounts, times, and texts, whose control characters must not reach the terminal.
Phones are masked unless ``--show-phones`` is given.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path
from textwrap import fill
from typing import Any, Final, TextIO, TypeAlias, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from momopay._redaction import mask_phone, redact
from momopay.money import format_amount

Columns: TypeAlias = Mapping[str, str]
"""The headings of a table, each with the names of the fields that its cells show."""

_PHONE_FIELDS: Final = frozenset({"phone", "phone_number"})
_NUMBERS: Final = frozenset({"KES", "Line", "Attempts", "Rows"})
_ID_COLUMNS: Final = frozenset({"Transaction", "Channel"})
_UUID_WIDTH: Final = 36
TABLES_FROM: Final = 80
"""The columns from which there are tables; below, each record is shown as lines."""
_ANSWER: Final = 9  # columns, for " [y/N]: " and the answer
_HEADINGS_BESIDE_FROM: Final = 60  # below, an id does not fit beside its heading
_NARROWEST: Final = _UUID_WIDTH  # an id is copied into the next command, so it is never broken
# --timezone sets it before other options are parsed. None is the zone of this machine.
_ZONE: Final[ContextVar[tzinfo | None]] = ContextVar("zone", default=None)
_AT_THE_EDGE: Final = (OverflowError, ValueError, OSError)  # of the calendar, by the zone and the system


class ShownConsole(Console):
    """A console that wraps sentences at words."""

    def on_broken_pipe(self) -> None:
        """Raise an error that `Command` handles; rich would exit with 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def show(self, shown: object, style: str | None = None) -> None:
        """Print a sentence, a text or a table.

        For people, the lines of a sentence end at words. Programs that search a pipe get it on one line.
        """
        self.print(shown, style=style, soft_wrap=isinstance(shown, str | Text) and not self.wraps)

    @property
    def wraps(self) -> bool:
        """Whether a person reads it, so that lines end at words."""
        return self.file.isatty() or self.width < TABLES_FROM


def stdout(*, stderr: bool = False) -> ShownConsole:
    """Return the console for results."""
    # On Windows, rich takes a pipe for an old console, which has one column less: 79, too few for tables.
    file = cast("TextIO | None", sys.stderr if stderr else sys.stdout)  # None: it was closed before the start
    is_legacy = None if file is not None and file.isatty() else False
    console = ShownConsole(stderr=stderr, highlight=False, markup=False, emoji=False, legacy_windows=is_legacy)
    console.width = max(console.width, _NARROWEST)
    return console


def stderr() -> ShownConsole:
    """Return the console for everything else."""
    return stdout(stderr=True)


def in_lines(text: str) -> str:
    """Return a question whose lines end at words, with room for the answer."""
    console = stderr()
    return fill(text, console.width - _ANSWER, break_on_hyphens=False) if console.wraps else text


def plain(text: object) -> str:
    """Return a text with its control characters replaced, because a terminal would act on them."""
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in str(text))


def kes(amount: Decimal) -> str:
    """Format an amount for people."""
    return f"{amount:,.2f}"


def use_timezone(name: str | None) -> str | None:
    """Set the zone of all times of this command, None for this machine's; the callback of ``--timezone``."""
    try:
        _ZONE.set(None if name is None else ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        if not _has_zones():
            raise typer.BadParameter(
                "this machine has no time zones: pip install tzdata, or leave --timezone out"
            ) from None
        raise typer.BadParameter(f"there is no zone {plain(name)!r}; Africa/Nairobi and UTC are zones") from None
    return name


def _has_zones() -> bool:
    """Return whether there are any zones. Windows and slim containers have none but those of tzdata."""
    try:
        ZoneInfo("UTC")
    except ZoneInfoNotFoundError:
        return False
    return True


def use_zone(zone: tzinfo) -> None:
    """Set the zone of all times of this command."""
    _ZONE.set(zone)


def zone() -> tzinfo | None:
    """Return the zone of all times of this command; None is that of this machine."""
    return _ZONE.get()


def day_zone() -> tzinfo:
    """Return the zone in which days begin: that of ``--timezone``, else Nairobi's."""
    from momopay.durable.reconcile import NAIROBI  # loads pydantic

    return zone() or NAIROBI


def local(when: datetime) -> datetime:
    """Return a time in the zone of this command, or unchanged if it is at the edge of the calendar."""
    with suppress(*_AT_THE_EDGE):
        return when.astimezone(_ZONE.get())
    return when


def day_of(text: str, zone: tzinfo | None) -> date | None:
    """Return the date that ``today`` or ``yesterday`` is in a zone; None for any other text."""
    ago = {"today": 0, "yesterday": 1}.get(text.strip().lower())
    return None if ago is None else datetime.now(UTC).astimezone(zone).date() - timedelta(days=ago)


def moment_of(text: str) -> datetime:
    """Parse a time. A date means its beginning; a time without a zone is in the zone of this command."""
    try:
        parsed, zone = datetime.fromisoformat(text), _ZONE.get()
        if parsed.tzinfo is None:
            parsed = parsed.astimezone() if zone is None else parsed.replace(tzinfo=zone)
        parsed.astimezone(UTC)  # raises at the edge of the calendar
    except _AT_THE_EDGE:
        kind = "time" if ":" in text else "date"
        example = "2026-11-30 or 2026-11-30T08:00"
        raise typer.BadParameter(f"{plain(text) or repr(text)} is not a {kind}, such as {example}") from None
    return parsed


def end_of(text: str) -> datetime:
    """Parse a time like `moment_of`, except that a date means its last moment: people mean the whole day."""
    begin = moment_of(text)
    # A millisecond is the smallest step that every ISO 8601 parser reads.
    return begin if len(text) > len("2026-11-30") else begin + timedelta(days=1, milliseconds=-1)


def moment(when: datetime) -> str:
    """Format a time for people, in the zone of this command and with the zone's name, its offset if that is long."""
    shown = local(when)
    name = shown.tzname() or ""
    if " " in name:  # on Windows: E. Africa Standard Time
        name = shown.isoformat()[-len("+03:00") :]
    return f"{shown.replace(tzinfo=None).isoformat(sep=' ', timespec='seconds')} {name}"


def private_file(path: Path) -> TextIO:
    """Open a file to write text that only its owner can read. Its lines are not changed."""
    # Created with its mode: until a later change of the mode, others could read it.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8", newline="")


def status(word: str) -> Text:
    """Return a state or a status, in red if money may have moved."""
    return Text(plain(word), style="bold red" if word == "UNKNOWN" else "")


@dataclass(frozen=True)
class Output:
    """How one command shows its results: as JSON or for people, with phones whole or masked."""

    as_json: bool
    show_phones: bool = False

    def result(self, document: object, *shown: object) -> None:
        """Write a result to stdout: `document` as a line of JSON, or `shown` for people."""
        if self.as_json:
            # `echo` flushes, so that the reader of a pipe gets each line at once, and does nothing if stdout is closed.
            typer.echo(json.dumps(self._as_json(document)))
            return
        console = stdout()
        for each in shown:
            console.show(each)

    def record(self, document: Any, *hidden: str) -> None:
        """Show one record as JSON, or for people as a line for each field that has a value and is not `hidden`."""
        values: dict[str, object] = document.model_dump() if hasattr(document, "model_dump") else document
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        grid.add_column(overflow="fold")
        for name, value in values.items():
            if name not in hidden and not (value is None or value is False or value in ("", (), [], {})):
                label = name.removesuffix("_id").removesuffix("_at").replace("_", " ")
                in_kes = "KES " if isinstance(value, Decimal) else ""
                grid.add_row(label.capitalize(), Text.assemble(in_kes, self._cell(name, value)))
        self.result(document, grid)

    def rows(self, items: Iterable[object], columns: Columns) -> int:
        """Show a list, as a line of JSON for each item as it comes or as a table, and return its length."""
        if not self.as_json:
            items = list(items)
            self.result(None, self.table(items, columns))
            return len(items)
        count = 0
        for item in items:
            self.result(item)
            count += 1
        return count

    def table(self, items: Iterable[object], columns: Columns, title: str | None = None) -> Table:
        """Return a table of records. A cell shows each field of its column on a line of its own.

        On a narrow terminal, each record is shown as lines: the heading of a column, then its cell.
        """

        def cell(item: object, names: str) -> Text:
            found = ((name, _field(item, name)) for name in names.split())
            return Text("\n").join(
                # A fee is shown below its amount and has no heading of its own.
                Text.assemble("fee " if name.endswith("fee") else "", self._cell(name, value))
                for name, value in found
                if value not in (None, "")
            )

        if stdout().width < TABLES_FROM:
            return _stacked(
                ([(heading, cell(item, names)) for heading, names in columns.items()] for item in items), title
            )
        made = Table(
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title, title_justify="left", title_style="bold"
        )
        for heading in columns:
            made.add_column(
                heading,
                justify="right" if heading in _NUMBERS else "left",
                # An id is copied into the next command, so it is never folded.
                min_width=_UUID_WIDTH if heading in _ID_COLUMNS else None,
                no_wrap=heading in _ID_COLUMNS or heading in _NUMBERS,
                overflow="fold",
            )
        for item in items:
            made.add_row(*(cell(item, names) for names in columns.values()))
        return made

    def note(self, text: str | Text | Table) -> None:
        """Write something that is not a result to stderr."""
        stderr().show(text)

    def phone(self, phone: str) -> str:
        """Return a phone, masked unless phones are shown."""
        return phone if self.show_phones else mask_phone(phone)

    def text(self, text: str | None) -> str:
        """Return a text, with the phones in it masked unless phones are shown."""
        return "" if text is None else text if self.show_phones else redact(text)

    def _cell(self, name: str, value: object) -> Text:
        match value:
            case Text():
                shown = value
            case Mapping():
                pairs = cast("Mapping[str, object]", value).items()
                shown = Text(", ").join(
                    Text.assemble(f"{key} ", self._cell(key, each)) for key, each in pairs if each is not None
                )
            case list() | tuple():
                shown = Text("\n").join(self._cell(name, each) for each in cast("Sequence[object]", value))
            case str() if name in {"status", "state"}:
                shown = status(value)
            case str() if name in _PHONE_FIELDS:
                shown = Text(plain(self.phone(value)) or "removed")
            case str():
                shown = Text(plain(value if _is_id(name) else self.text(value)))
            case Decimal():
                shown = Text(kes(value))
            case datetime():
                shown = Text(moment(value))
            case bool():
                shown = Text("yes" if value else "no")
            case _:
                shown = Text("" if value is None else str(value))
        return shown

    def _as_json(self, value: Any, name: str = "") -> Any:
        # An `isinstance` check would load pydantic even for ``--help``.
        if hasattr(value, "model_dump"):
            value = value.model_dump()
        match value:
            case Mapping():
                pairs = cast("Mapping[str, object]", value).items()
                return {key: self._as_json(inner, key) for key, inner in pairs}
            case list() | tuple():
                return [self._as_json(inner, name) for inner in cast("Sequence[object]", value)]
            case Decimal():
                return format_amount(value)
            case date():  # or a datetime
                return value.isoformat()
            case str() if not _is_id(name):
                return self.phone(value) if name in _PHONE_FIELDS else self.text(value)
            case _:
                return value


def _stacked(records: Iterable[Iterable[tuple[str, Text]]], title: str | None) -> Table:
    """Return records as lines of headings and cells, with an empty line between two of them."""
    is_beside = stdout().width >= _HEADINGS_BESIDE_FROM
    made = Table.grid(padding=(0, 2))
    made.title, made.title_justify, made.title_style = title, "left", "bold"
    made.min_width = min(len(title or ""), stdout().width)  # else the title would be broken to the width of the cells
    if is_beside:
        made.add_column()
    made.add_column(overflow="fold")
    for number, record in enumerate(records):
        if number:
            made.add_row()
        for name, cell in record:
            heading = Text(name, "bold")
            if not name:  # the cell names the record
                made.add_row(cell)
            elif cell.plain and is_beside:
                made.add_row(heading, cell)
            elif cell.plain:
                made.add_row(Text("\n").join([heading, cell]))
    if not made.row_count:
        made.add_row("Nothing")
    return made


def _field(item: object, name: str) -> object:
    return cast("Mapping[str, object]", item).get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _is_id(name: str) -> bool:
    # Ids and cursors are never masked: they are sent back to the service, and their digits may look like a phone.
    return name.endswith(("_id", "_ids")) or name in {"id", "next_cursor"}
