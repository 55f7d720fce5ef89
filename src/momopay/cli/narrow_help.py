"""Help for a terminal that is too narrow for columns: what belongs together is below each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from textwrap import fill
from typing import Any, Final

_WIDE: Final = 60


def write_help(command: Any, context: Any, formatter: Any, in_columns: Callable[[Any, Any], None]) -> None:
    """Write the help of a command or group; `in_columns` does it on a terminal that is wide enough."""
    width = shutil.get_terminal_size().columns
    if width >= _WIDE:
        in_columns(context, formatter)
        return
    parts = [f"Usage: {context.command_path} {' '.join(command.collect_usage_pieces(context))}"]
    parts += (command.help or "").split("\n\n")
    parts += _entries("Options", filter(None, (each.get_help_record(context) for each in command.get_params(context))))
    names = command.list_commands(context) if hasattr(command, "list_commands") else ()
    found = ((name, command.get_command(context, name).get_short_help_str(200)) for name in names)
    parts += _entries("Commands", found)
    parts += filter(None, [_plain(command.epilog or "")])
    formatter.write("\n\n".join(_wrapped(part, width) for part in parts) + "\n")


def _entries(title: str, records: Iterable[tuple[str, str]]) -> Iterator[str]:
    lines = [f"{name}\n    {_plain(text)}" for name, text in records]
    if lines:
        yield "\n".join([f"{title}:", *lines])


def _wrapped(text: str, width: int) -> str:
    # An example is copied as a whole, so it is left to the terminal to wrap it.
    lines = text.split("\n")
    return "\n".join(
        line
        if line.startswith("  momopay ")
        else fill(line, width, subsequent_indent=" " * (len(line) - len(line.lstrip())), break_long_words=False)
        for line in lines
    )


def _plain(text: str) -> str:
    return text.replace("[bold]", "").replace("[/bold]", "").rstrip("\n")
