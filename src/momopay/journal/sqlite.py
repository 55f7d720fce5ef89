"""The journal in a file of SQLite, for the processes of one machine.

A process is alive while it holds the lock on a file of its own, which the kernel releases however the process ends. The
lock files lie in a folder beside the database, named after it. The folder also shows that there was a journal: a file
that is empty, or gone, must not look like a new one, or everything would be paid again.

Thread safety: every thread may call everything here; two that register at once get the same id.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, create_engine, event

from momopay.errors import ConfigurationError, JournalError
from momopay.journal.bounds import holding, seconds_left
from momopay.journal.prepared import Prepared, Result
from momopay.journal.schema import existing_tables
from momopay.journal.sqlite_fork import TrackedConnection, close_before_fork

# How many threads use the file at once. The rest wait until their own bounds, which the pool does not know.
_CONNECTIONS: Final = 15
_MARKER_TEXT: Final = """\
The file {name} beside this folder is a journal of payments. If it is empty or gone, restore it from a backup.
Delete this folder only if none of those payments must be remembered: then a new journal may begin.
"""


class SqliteDatabase:
    """A file, and a folder of lock files beside it, as one process uses them."""

    def __init__(self, url: URL) -> None:
        if not url.database or url.database == ":memory:" or url.query:
            raise ConfigurationError('a journal needs a file that outlives the process: "sqlite:///payouts.db"')
        try:
            url.database.encode()
            path = Path(url.database).resolve()  # a link to the file leads to the same folder
            self._folder = path.with_name(path.name + "-senders")
        except ValueError as error:  # the root, a NUL, or text that is not Unicode
            raise ConfigurationError(f"{url.database!r} cannot be the name of a journal's file") from error
        self._path = path
        self._marker = self._folder / "README"
        # The device and the inode of the file that this process uses.
        self._file: tuple[int, int] | None = None
        self._registering = threading.Lock()
        self._lock: FileLock | None = None
        self._own_lock = ""
        self.sender: str | None = None
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        self.engine: Engine = create_engine(
            url.set(database=str(path)),
            connect_args={"factory": TrackedConnection},
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",
            max_overflow=-1,
        )
        event.listen(self.engine, "do_connect", _connect_in_time)
        event.listen(self.engine, "connect", _make_durable)
        event.listen(self.engine, "before_cursor_execute", _end_in_time)
        close_before_fork(self.engine)

    @contextmanager
    def connect(self) -> Generator[Connection]:
        """Yield a connection on which each statement commits by itself."""
        with holding(self._slots):
            self._check_file()
            with self.engine.connect() as connection:
                yield connection
            self._check_file()  # what went to a file without a name is lost, so it must not count as written

    def execute(self, statement: Prepared, values: Mapping[str, object]) -> Result:
        """Execute one statement, which commits by itself."""
        with holding(self._slots):
            self._check_file()
            result = statement.execute(self.engine, values, _wait_in_time)
            self._check_file()  # as in `connect`
            return result

    @contextmanager
    def connect_for_setup(self, *, create: bool) -> Generator[Connection]:
        """Yield a connection while no other process has one from this method.

        A transaction that the caller begins is committed at the end.
        """
        if not create:
            self._check_journal_exists()
        elif self._marker.exists() and not _size(self._path):
            raise self._lost("is empty or gone")
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._path.touch(mode=0o600, exist_ok=True)  # phones are in it; an existing file keeps its mode
        with FileLock(self._folder / "set-up.lock", timeout=seconds_left()), self.engine.connect() as connection:
            if self._marker.exists() and not existing_tables(connection):
                raise self._lost("has no journal any more")
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            try:
                yield connection
            except BaseException:
                _end_transaction(connection, "ROLLBACK")
                raise
            _end_transaction(connection, "COMMIT")
            if not self._marker.exists():
                self._marker.write_text(_MARKER_TEXT.format(name=self._path.name))
            found = self._path.stat()
            self._file = (found.st_dev, found.st_ino)

    def register_process(self) -> str:
        """Register this process as live until it ends; return its id."""
        # With two ids, the rows of the first would look as if their process had died.
        with holding(self._registering):
            # Somebody may have deleted the files. `Path.exists` takes three times as long.
            if self.sender is None or not os.path.exists(self._own_lock):  # noqa: PTH110
                sender = self.sender or uuid4().hex
                if self._lock is not None:
                    self._lock.release()
                self._folder.mkdir(exist_ok=True)
                self._own_lock = str(self._lock_file(sender))
                self._lock = FileLock(self._own_lock, thread_local=False)
                self._lock.acquire(timeout=seconds_left())
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

    def _check_journal_exists(self) -> None:
        """Raise if the file has no journal. Creates nothing: no file, no folder."""
        if _size(self._path):
            with self.engine.connect() as connection:
                if existing_tables(connection):
                    return
            self.engine.dispose()
        if self._marker.exists():
            raise self._lost("is empty or gone, or has no journal any more")
        raise ConfigurationError(f"{self._path} is no journal, and create=False creates none")

    def _check_file(self) -> None:
        """Raise JournalError unless the file is the one that this process began with, and not empty."""
        # SQLite would go on with a file that was deleted, and make a new one of one that was cut to nothing. VACUUM,
        # and a backup that is restored by copying it into the file, keep the inode.
        try:
            found = os.stat(self._path)  # noqa: PTH116  takes a third of the time of Path.stat
        except FileNotFoundError:
            raise self._lost("is gone") from None
        if found.st_size == 0:
            raise self._lost("is empty")
        if self._file is not None and (found.st_dev, found.st_ino) != self._file:
            raise self._lost("was replaced by another file while this process used it")

    def _lost(self, what: str) -> JournalError:
        path = self._path
        return JournalError(
            f"the journal's file {path} {what}. Stop all processes that use it, delete {path.name}-wal and -shm if they"
            " are there, restore the journal from a backup, and start the processes again. Only if it held no payment,"
            f" delete {self._folder} and begin anew"
        )

    def _lock_file(self, sender: str) -> Path:
        return self._folder / f"{sender}.lock"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _end_transaction(connection: Connection, word: str) -> None:
    if getattr(connection.connection.dbapi_connection, "in_transaction", False):
        connection.exec_driver_sql(word)


def _remove(path: Path) -> None:
    with suppress(OSError):  # Windows keeps a file that another process has open
        path.unlink(missing_ok=True)


def _connect_in_time(_dialect: object, _record: object, _arguments: object, options: dict[str, Any]) -> None:
    """Let a new connection wait for locks no longer than its thread may."""
    options["timeout"] = seconds_left()


def _end_in_time(_connection: object, cursor: Any, *_rest: object) -> None:
    _wait_in_time(cursor)


def _wait_in_time(cursor: Any) -> None:
    """Let a statement wait for locks no longer than its thread may."""
    left = seconds_left()
    # In whole seconds, so that most statements find the timeout as they need it.
    cursor.connection.wait_at_most(int(left) if left > 2 else left)  # noqa: PLR2004


def _make_durable(connection: Any, _record: object) -> None:
    """Let no commit return before it is on disk."""
    connection.execute("PRAGMA synchronous=FULL").close()
