"""SQLite across a fork. Its library keeps a file's locks in memory, and a child inherits that memory, not the locks.

A child that then opens the same file believes that it holds them. Another process deletes the write-ahead log under
it, and what the child committed is gone. So nothing is open when a fork begins; where something is, the child refuses.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from sqlalchemy import Engine

from momopay.errors import JournalError

_engines: WeakSet[Engine] = WeakSet()
_inherited: list[TrackedConnection] = []
"""Never closed here: that may wait forever for a thread that the child does not have."""


class TrackedConnection(sqlite3.Connection):
    """A connection that is known for as long as its file may be open."""

    def __init__(self, database: str, *args: Any, **kwargs: Any) -> None:
        self.path = database
        _open.add(self)
        super().__init__(database, *args, **kwargs)

    def close(self) -> None:
        """Close it."""
        super().close()
        _open.discard(self)

    def __del__(self) -> None:
        """Close it: a pool drops a connection that was in use when a fork began."""
        with suppress(sqlite3.Error):  # it was never opened
            self.close()


_open: WeakSet[TrackedConnection] = WeakSet()


def close_before_fork(engine: Engine) -> None:
    """Close the engine's connections at rest whenever this process is about to fork."""
    _engines.add(engine)


def check_not_inherited(_dialect: object, _record: object, arguments: Any, _keywords: object) -> None:
    """Refuse to open a file that the parent had open when it forked.

    Raises:
        JournalError: It had.
    """
    if arguments[0] in {connection.path for connection in _inherited}:
        raise JournalError(
            "this process was forked while another thread used the journal, so SQLite is not safe in it:"
            " fork before threads begin, or start processes by spawn"
        )


def _before() -> None:
    for engine in list(_engines):
        engine.dispose()


def _in_child() -> None:
    _inherited.extend(_open)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
