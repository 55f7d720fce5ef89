"""Answers from standard input: from a person at a terminal, or from what is piped in. Knows no question."""

from __future__ import annotations

import select
import sys


def is_interactive() -> bool:
    """Tell whether a person sits at a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def is_there_already() -> bool:
    """Tell, without waiting, whether a piped line or the end of the input is there to be read."""
    try:
        descriptor = sys.stdin.fileno()
    except (AttributeError, OSError):  # closed before the start, or text in memory
        return True
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    except OSError:  # Windows knows this of sockets alone
        return False


def read_line() -> str | None:
    """Read a piped line; blanks around it are taken off.

    Returns:
        The line; None at the end of the input: nobody is there.
    """
    try:
        line = sys.stdin.readline()
    except (AttributeError, OSError, UnicodeDecodeError):  # closed before the start, not to be read, or no text
        return None
    return line.strip() if line else None
