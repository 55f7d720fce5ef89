"""The journal in a file of SQLite, for the processes of one machine.

A lock on a file of its own shows that a process lives: the kernel lets go of it however the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, create_engine, event

from momopay.errors import ConfigurationError
from momopay.journal.sqlite_fork import TrackedConnection, check_not_inherited, close_before_fork

PATIENCE = 30.0
"""Seconds to wait for another process's write."""


class SqliteDatabase:
    """A file, and a folder of lock files beside it."""

    def __init__(self, url: URL) -> None:
        if not url.database or url.database == ":memory:" or url.query:
            raise ConfigurationError('a journal needs a file that outlives the process: "sqlite:///payouts.db"')
        path = Path(url.database).resolve()  # by whatever name it is opened, one file has one folder
        self._path = path
        self._folder = path.with_name(path.name + "-senders")
        self._appearing = threading.Lock()
        self._lock: FileLock | None = None
        self.sender: str | None = None
        self.engine: Engine = create_engine(
            url.set(database=str(path)),
            connect_args={"timeout": PATIENCE, "factory": TrackedConnection},
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",
        )
        event.listen(self.engine, "do_connect", check_not_inherited)
        event.listen(self.engine, "connect", _make_durable)
        close_before_fork(self.engine)

    @contextmanager
    def set_up_alone(self) -> Generator[Connection]:
        """Keep other processes from setting up at the same time."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._path.touch(mode=0o600, exist_ok=True)  # phones are in it; a journal that is there keeps its mode
        with FileLock(self._folder / "set-up.lock", timeout=PATIENCE), self.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            yield connection

    def register_process(self) -> str:
        """Be known as alive until this process ends; give the name for it."""
        with self._appearing:  # a second name would make the first one's rows a dead process's
            if self.sender is None or not self._lock_file(self.sender).exists():  # somebody may have cleaned up
                name = self.sender or uuid4().hex
                if self._lock is not None:
                    self._lock.release()
                self._folder.mkdir(exist_ok=True)
                self._lock = FileLock(self._lock_file(name), thread_local=False)
                self._lock.acquire(timeout=PATIENCE)
                self.sender = name
            return self.sender

    def is_alive(self, sender: str) -> bool:
        """Tell whether the process of that name still lives; tidy up after it if it does not."""
        path = self._lock_file(sender)
        if not path.exists():
            return False
        lock = FileLock(path, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        _tidy(path)
        return False

    def close(self) -> None:
        """Disappear and let go of all connections."""
        self.engine.dispose()
        if self._lock is not None and self.sender is not None:
            self._lock.release()
            _tidy(self._lock_file(self.sender))
            self._lock = self.sender = None

    def _lock_file(self, sender: str) -> Path:
        return self._folder / f"{sender}.lock"


def _tidy(path: Path) -> None:
    with suppress(OSError):  # somebody may be looking at it
        path.unlink(missing_ok=True)


def _make_durable(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
