"""The journal in a file of SQLite, for the processes of one machine.

A process is alive while it holds the lock on a file of its own, which the kernel releases however the process ends. The
lock files lie in a folder beside the database, named after it.

Thread safety: every thread may call everything here; two that register at once get the same id.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, create_engine, event

from momopay.errors import ConfigurationError
from momopay.journal.sqlite_fork import TrackedConnection, close_before_fork

# Seconds to wait for another process's write.
_TIMEOUT: Final = 30.0


class SqliteDatabase:
    """A file, and a folder of lock files beside it, as one process uses them."""

    def __init__(self, url: URL) -> None:
        if not url.database or url.database == ":memory:" or url.query:
            raise ConfigurationError('a journal needs a file that outlives the process: "sqlite:///payouts.db"')
        path = Path(url.database).resolve()  # a link to the file leads to the same folder
        self._path = path
        self._folder = path.with_name(path.name + "-senders")
        self._registering = threading.Lock()
        self._lock: FileLock | None = None
        self.sender: str | None = None
        self.engine: Engine = create_engine(
            url.set(database=str(path)),
            connect_args={"timeout": _TIMEOUT, "factory": TrackedConnection},
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",
        )
        event.listen(self.engine, "connect", _make_durable)
        close_before_fork(self.engine)

    @contextmanager
    def connect_for_setup(self) -> Generator[Connection]:
        """Yield a connection, within a transaction, while no other process has one from this method."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._path.touch(mode=0o600, exist_ok=True)  # phones are in it; an existing file keeps its mode
        with FileLock(self._folder / "set-up.lock", timeout=_TIMEOUT), self.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins no transaction for DDL
            try:
                yield connection
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    def register_process(self) -> str:
        """Register this process as live until it ends; return its id."""
        # With two ids, the rows of the first would look as if their process had died.
        with self._registering:
            if self.sender is None or not self._lock_file(self.sender).exists():  # somebody may have deleted the files
                sender = self.sender or uuid4().hex
                if self._lock is not None:
                    self._lock.release()
                self._folder.mkdir(exist_ok=True)
                self._lock = FileLock(self._lock_file(sender), thread_local=False)
                self._lock.acquire(timeout=_TIMEOUT)
                self.sender = sender
            return self.sender

    def is_alive(self, sender: str) -> bool:
        """Return whether the process of that id is alive."""
        path = self._lock_file(sender)
        if not path.exists():
            return False
        lock = FileLock(path, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        _remove(path)  # else the folder would grow by a file for each process that was killed
        return False

    def close(self) -> None:
        """End the registration of this process and close all connections."""
        self.engine.dispose()
        with self._registering:
            if self._lock is not None and self.sender is not None:
                self._lock.release()
                _remove(self._lock_file(self.sender))
                self._lock = self.sender = None

    def _lock_file(self, sender: str) -> Path:
        return self._folder / f"{sender}.lock"


def _remove(path: Path) -> None:
    with suppress(OSError):  # Windows keeps a file that another process has open
        path.unlink(missing_ok=True)


def _make_durable(connection: Any, _record: object) -> None:
    """Let no commit return before it is on disk."""
    connection.execute("PRAGMA synchronous=FULL").close()
