"""The journal in a file of SQLite, for the processes of one machine.

A process is alive while it holds the lock on a file of its own, which the kernel releases however the process ends. The
lock files lie in a folder beside the database, named after it. The folder also shows that there was a journal: a file
that is empty, or gone, must not look like a new one, or everything would be paid again.

Across a fork: what is open when a process forks must not be opened again in the child. Idle connections are closed
before each fork; a child refuses a file on which another thread of its parent worked.

Thread safety: every thread may call everything here. The hooks run in the thread that forks.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4
from weakref import WeakSet

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from momopay.errors import ConfigurationError, JournalError
from momopay.journal.database import ConnectionStack, problem_of, seconds_left
from momopay.journal.schema import has_tables

_MARKER_TEXT: Final = """\
The file {name} beside this folder is a journal of payments. If it is empty or gone, restore it from a backup.
Delete this folder only if none of those payments must be remembered: then a new journal may begin.
"""
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT: Final = 4  # the column of /proc/self/mountinfo


class SqliteBackend:
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
        self._given = url.database
        self._path = path
        self._marker = self._folder / "README"
        # The device and the inode of the file that this process uses.
        self._file: tuple[int, int] | None = None
        self.sender: str = uuid4().hex
        self._own_lock = str(self._lock_file(self.sender))
        self._lock: FileLock | None = None
        self.engine: Engine = create_engine(
            url.set(database=str(path)),
            connect_args={"factory": TrackedConnection},
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",
            poolclass=ConnectionStack,
        )
        event.listen(self.engine, "do_connect", _connect_in_time)
        event.listen(self.engine, "connect", _make_durable)
        _engines.add(self.engine)

    @contextmanager
    def connect(self) -> Generator[Connection]:
        """Yield a connection on which each statement commits by itself."""
        self._check_file()
        with self.engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            driver.wait_at_most(seconds_left())
            yield connection
        self._check_file()  # what went to a file without a name is lost, so it must not count as written

    @contextmanager
    def connect_for_setup(self, *, create: bool) -> Generator[Connection]:
        """Yield a connection in a transaction, while no other process has one from this method."""
        with self._opening():
            if not create:
                self._check_journal_exists()
            elif self._marker.exists() and not _size(self._path):
                raise self._lost("is empty or gone")
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._path.touch(mode=0o600, exist_ok=True)  # phones are in it; an existing file keeps its mode
            if _is_mount_point(self._path):
                raise self._second_name("a mount of this file alone: mount its folder")
            self._check_links(self._path.stat())  # before the file is opened by this name
            connection = self.engine.connect()
        with connection:
            if self._marker.exists() and not has_tables(connection):
                raise self._lost("has no journal any more")
            with self._opening():
                connection.exec_driver_sql("PRAGMA journal_mode=WAL").close()
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error, OperationalError):
                    connection.exec_driver_sql("ROLLBACK")
                raise
            if not self._marker.exists():
                self._marker.write_text(_MARKER_TEXT.format(name=self._path.name))
            found = self._path.stat()
            self._file = (found.st_dev, found.st_ino)

    def beside(self, name: str) -> Path:
        """Return the path of a small file that every process of the database can use."""
        return self._folder / name

    def register_process(self) -> str:
        """Register this process as live until it ends; return its id."""
        # Somebody may have deleted the files. `Path.exists` takes three times as long.
        if self._lock is None or not os.path.exists(self._own_lock):  # noqa: PTH110
            self._folder.mkdir(exist_ok=True)
            lock = FileLock(self._own_lock, thread_local=False)
            with suppress(Timeout):  # another thread of this process holds it: no other process knows the name
                lock.acquire(timeout=0)
                self._lock = lock
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
        if self._lock is not None:
            self._lock.release()
            _remove(self._lock_file(self.sender))
            self._lock = None

    @contextmanager
    def _opening(self) -> Generator[None]:
        """Raise ConfigurationError where the file cannot be opened, as a wrong path or missing rights."""
        try:
            yield
        except (OSError, OperationalError) as error:
            if (
                isinstance(error, OperationalError)
                and "unable to open" not in str(error)
                and "readonly" not in str(error)
            ):
                raise  # it is locked, or full
            problem = error.strerror if isinstance(error, OSError) else problem_of(error)
            raise ConfigurationError(
                f"the journal {self._given} cannot be opened: {problem}. Its folder must exist, and this user"
                " must be allowed to write there"
            ) from error

    def _check_journal_exists(self) -> None:
        """Raise if the file has no journal. Creates nothing: no file, no folder."""
        if _size(self._path):
            with self.engine.connect() as connection:
                if has_tables(connection):
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
        self._check_links(found)

    def _check_links(self, found: os.stat_result) -> None:
        if found.st_nlink > 1:
            raise self._second_name("a hard link: remove it")

    def _second_name(self, name: str) -> ConfigurationError:
        return ConfigurationError(
            f"the journal's file {self._path} has a second name, {name}. Two names have separate locks, and would pay"
            " twice"
        )

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


def _is_mount_point(path: Path) -> bool:
    try:
        mounts = _MOUNTS.read_text().splitlines()
    except OSError:  # another system than Linux
        return False
    return str(path).replace(" ", "\\040") in {line.split()[_MOUNT_POINT] for line in mounts}


def _remove(path: Path) -> None:
    with suppress(OSError):  # Windows keeps a file that another process has open
        path.unlink(missing_ok=True)


def _connect_in_time(_dialect: object, _record: object, _arguments: object, options: dict[str, Any]) -> None:
    """Let a new connection wait for locks no longer than its thread may."""
    options["timeout"] = seconds_left()


def _make_durable(connection: Any, _record: object) -> None:
    """Let no commit return before it is on disk."""
    connection.execute("PRAGMA synchronous=FULL").close()


# SQLite keeps a file's locks in the memory of its process. A child inherits that memory, but not the locks. If it opens
# a file that was open at the fork, it believes that it holds them. Then another process deletes the write-ahead log,
# and what the child committed is lost. Closing connections after each statement would do without the hooks, and makes a
# payment three times as slow.
_engines: WeakSet[Engine] = WeakSet()
_open: WeakSet[TrackedConnection] = WeakSet()
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
        # In whole seconds, so that most calls find the timeout as they need it.
        seconds = int(seconds) if seconds > 2 else seconds  # noqa: PLR2004
        if seconds != self._longest_wait:
            self.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}").close()
            self._longest_wait = seconds

    def close(self) -> None:
        """Close the connection."""
        super().close()
        _open.discard(self)

    def __del__(self) -> None:
        """Close the connection: one that was lost in an interrupt, or was in use when a fork began."""
        with suppress(sqlite3.Error):  # it was never opened
            self.close()


def _before_fork() -> None:
    for engine in list(_engines):
        engine.dispose()


def _after_fork_in_child() -> None:
    _inherited.extend(_open)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
