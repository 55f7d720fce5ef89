"""SQLite across a fork: what is open when a process forks must not be opened again in the child.

Idle connections are closed before each fork; a child refuses a file on which another thread of its parent worked.

Thread safety: every thread may open and close connections. The hooks run in the thread that forks.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from sqlalchemy import Engine

from momopay.errors import JournalError

# SQLite keeps a file's locks in the memory of its process. A child inherits that memory, but not the locks. If it opens
# a file that was open at the fork, it believes that it holds them. Then another process deletes the write-ahead log,
# and what the child committed is lost. Closing connections after each statement would do without the hooks, and makes a
# payment three times as slow.
_engines: WeakSet[Engine] = WeakSet()
# Connections of the parent. They are kept for ever: closing one may wait for a thread that the child does not have.
_inherited: list[TrackedConnection] = []


class TrackedConnection(sqlite3.Connection):
    """A connection that is listed for as long as its file may be open, and that knows how long it waits for locks."""

    path: str

    def __init__(self, database: str, *args: Any, **kwargs: Any) -> None:
        if database in {connection.path for connection in _inherited}:
            raise JournalError(
                "this process was forked while another thread used the journal, so SQLite is not safe in it:"
                " fork before threads begin, or start processes by spawn"
            )
        self.path = database
        _open.add(self)  # before the file is opened, as a fork may come between the two
        super().__init__(database, *args, **kwargs)
        self._longest_wait: float | None = None

    def wait_at_most(self, seconds: float) -> None:
        """Let each statement wait for another process's lock for so many seconds at most."""
        if seconds != self._longest_wait:
            self.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}").close()
            self._longest_wait = seconds

    def close(self) -> None:
        """Close the connection."""
        super().close()
        _open.discard(self)

    def __del__(self) -> None:
        """Close the connection: a pool drops one that was in use when a fork began."""
        with suppress(sqlite3.Error):  # it was never opened
            self.close()


_open: WeakSet[TrackedConnection] = WeakSet()


def close_before_fork(engine: Engine) -> None:
    """Close the engine's idle connections whenever this process is about to fork."""
    _engines.add(engine)


def _before_fork() -> None:
    for engine in list(_engines):
        engine.dispose()


def _after_fork_in_child() -> None:
    _inherited.extend(_open)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
