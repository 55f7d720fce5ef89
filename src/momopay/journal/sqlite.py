"""The journal in a file of SQLite, for the processes of one machine.

A process is alive while it holds the lock on its own lock file, which the kernel releases however the process ends. The
lock files are in a folder beside the database. The folder also shows that a journal existed: if the database is empty
or missing, it must not look like a new journal, or everything would be paid again.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from typing_extensions import override

from momopay._core.journal_url import check_sqlite
from momopay.errors import ConfigurationError, JournalError
from momopay.journal.database import Database, problem_of, seconds_left
from momopay.journal.schema import Now
from momopay.journal.upgrade import NoJournalError, version_in

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOCKED: Final = PermissionError if sys.platform == "win32" else BlockingIOError
_MARKER_TEXT: Final = """\
The file {name} beside this folder is a journal of payments. If it is empty or missing, restore it from a backup.
Delete this folder only if none of those payments must be remembered: then a new journal may begin.
"""
_READER_WAIT: Final = 5000  # milliseconds to wait for those who read an earlier state of the file
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT: Final = 4  # the column of /proc/self/mountinfo
_HARD_LINK: Final = "a hard link: remove it"
_UNUSABLE: Final = ("unable to open", "readonly", "not a database")  # words of SQLite's errors


class SqliteDatabase(Database):
    """A file, and a folder of lock files beside it."""

    table_names: ClassVar[str] = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    locks_rows: ClassVar[bool] = False  # a transaction locks the file

    def __init__(self, url: URL) -> None:
        self._locks: list[FileIO] = []  # several if threads registered at the same time, or the file was deleted
        check_sqlite(url.database, has_options=bool(url.query))
        assert url.database is not None  # noqa: S101  for type checkers
        try:
            url.database.encode()
            self._path = Path(url.database).resolve()  # a symbolic link leads to the same folder
            self._folder = self._path.with_name(self._path.name + "-senders")
            if "\0" in url.database:  # which Windows does not always notice here
                raise ValueError
        except (OSError, RuntimeError, ValueError) as error:
            # A device of Windows, a link to itself, the root, a NUL, or text that is not Unicode.
            raise ConfigurationError(
                f"{url.database!r} cannot be the name of a journal's file; payments.db can"
            ) from error
        self.folder: Path | None = self._folder
        self._given = url.database
        self._named = Path.cwd() / url.database  # as it was given, whatever the working folder is later
        self._marker = self._folder / "README"
        self._file: tuple[int, int] | None = None  # the device and inode of the file that this process uses
        super().__init__(url.set(drivername="sqlite", database=str(self._path)))

    @override
    def renew(self) -> None:
        self.release_locks()
        super().renew()
        _engines.add(self.engines[-1])
        self._own_lock = self._lock_file(self.sender)

    @override
    def connect_args(self) -> dict[str, Any]:
        return {"factory": TrackedConnection}

    @override
    def prepare(self, connection: Connection, driver: Any, *, begin: bool) -> Any:
        driver.execute(f"PRAGMA busy_timeout={int(seconds_left() * 1000)}").close()
        if begin:
            # A transaction that begins as a reader cannot write once another connection has written.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        return driver

    @override
    def check(self) -> None:
        # SQLite would keep using a file that was deleted, and start anew in one that was emptied. VACUUM keeps the
        # inode, as does copying a backup into the file.
        try:
            found = self._path.stat()
        except FileNotFoundError:
            raise self._lost("is missing") from None
        if found.st_size == 0:
            raise self._lost("is empty")
        if self._file is not None and (found.st_dev, found.st_ino) != self._file:
            raise self._lost("was replaced by another file while this process used it")
        if found.st_nlink > 1:
            raise self._second_name(_HARD_LINK)
        if self._named.resolve() != self._path:  # new processes would use another file, or another WAL
            raise self._lost("is a symbolic link by now, which leads elsewhere")

    @override
    @contextmanager
    def connect_for_setup(self, *, create: bool) -> Generator[Connection]:
        with self._opening():
            # Before looking for the tables, because another process may be creating them, and then the marker.
            had_journal = self._marker.exists()
            is_empty = not self._path.exists() or self._path.stat().st_size == 0
            if is_empty and had_journal:
                raise self._lost("is empty or missing")
            if is_empty and not create:
                raise self._no_journal()
            if is_empty:
                self._path.touch(mode=0o600, exist_ok=True)  # it holds phones; an existing file keeps its mode
            if _is_mount_point(self._path):
                raise self._second_name("a mount of this file alone: mount its folder")
            if self._path.is_file() and self._path.stat().st_nlink > 1:  # before it is opened under this name
                raise self._second_name(_HARD_LINK)
            with self.connection(for_setup=True) as connection:
                is_new = not version_in(connection, self.table_names)
                if is_new and had_journal:
                    raise self._lost("has no journal any more")
                is_used = not (is_empty or connection.exec_driver_sql(self.table_names).first())
                if is_used and not self._folder.exists():  # else a creation died, which is finished now
                    raise self._lost("is in use, and has no tables")
                if is_new and not create:
                    raise self._no_journal()
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._switch_to_wal(connection)
            with self.connection(seconds=self.setup_seconds, begin=True, for_setup=True) as connection:
                yield connection
            if not self._marker.exists():
                self._marker.write_text(_MARKER_TEXT.format(name=self._path.name))
            found = self._path.stat()
            self._file = (found.st_dev, found.st_ino)

    @override
    def register_process(self) -> str:
        if not (self._locks and self._own_lock.exists()):
            self._folder.mkdir(exist_ok=True)
            self._locks.append(FileIO(self._own_lock, "a"))
        # Every time, because an interrupt may have come after the file was opened. It may be locked through another of
        # this process's `_locks`, or closed by another thread that closes the journal.
        with suppress(_LOCKED, IndexError, ValueError):
            _lock(self._locks[-1])
        return self.sender

    @override
    def is_alive(self, sender: str, connection: Connection) -> bool:
        path = self._lock_file(sender)
        try:
            with FileIO(path, "r+") as file:
                _lock(file)
        except FileNotFoundError:
            return False
        except _LOCKED:
            return True
        _remove(path)  # else the folder would grow with each killed process
        return False

    @override
    def clear(self, connection: Connection) -> str | None:
        # What was deleted before 0.5 is in free pages, which only a new file has not. It is made once: from then on,
        # `secure_delete` leaves nothing. The schema's cookie changes with each VACUUM, and with a restored file.
        mark = self._folder / "cleared"
        if not (mark.exists() and mark.read_text() == self._file_id(connection)):
            connection.exec_driver_sql("VACUUM").close()
        connection.exec_driver_sql(f"PRAGMA busy_timeout={_READER_WAIT}").close()
        if connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
            return (
                f"in {self._path.name} and {self._path.name}-wal, because another connection reads: close it, or try"
                " when none does, then anonymise again"
            )
        mark.write_text(self._file_id(connection))
        return None

    def _file_id(self, connection: Connection) -> str:
        cookie = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
        return f"{self._path.stat().st_ino} {cookie}"

    @override
    def close(self) -> None:
        super().close()
        if self._locks:
            self.release_locks()
            _remove(self._own_lock)

    def release_locks(self) -> None:
        """Close the lock files. A forked child must do so, too, because its copies would keep a dead parent's locks."""
        while self._locks:
            self._locks.pop().close()

    __del__ = release_locks  # a journal that nobody closed

    def _switch_to_wal(self, connection: Connection) -> None:
        while True:
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL").close()
            except OperationalError as error:
                # If two connections switch at the same time, SQLite refuses one, despite its busy timeout.
                if "locked" not in str(error):
                    raise
                with self.connection(begin=True, for_setup=True):  # waits for the other one
                    pass
            else:
                return

    @contextmanager
    def _opening(self) -> Generator[None]:
        """Raise ConfigurationError if the file cannot be opened, for example because of a wrong path."""
        try:
            yield
        except (OSError, JournalError) as error:
            cause = error.__cause__ if isinstance(error, JournalError) else None
            problem = problem_of(cause) if isinstance(cause, SQLAlchemyError) else getattr(error, "strerror", None)
            if isinstance(error, JournalError) and not any(each in (problem or "") for each in _UNUSABLE):
                raise  # the file is lost or locked, or the disk full
            raise ConfigurationError(
                f"the journal {self._given} cannot be opened: {problem}. It must be a SQLite file, or none yet, in a"
                " folder that exists and where this user may write"
            ) from error

    def _no_journal(self) -> ConfigurationError:
        return NoJournalError(
            f"{self._path} is no journal, and create=False creates none: check the path, or leave create out"
        )

    def _second_name(self, name: str) -> ConfigurationError:
        return ConfigurationError(
            f"the journal's file {self._path} has a second name, {name}. Two names have separate locks, and would pay"
            " twice: remove one of them, and use the other everywhere"
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


def _is_mount_point(path: Path) -> bool:
    try:
        mounts = _MOUNTS.read_text().splitlines()
    except OSError:  # not on Linux
        return False
    return str(path).replace(" ", "\\040") in {line.split()[_MOUNT_POINT] for line in mounts}


def _lock(file: FileIO) -> None:
    """Lock a file for as long as it is open; raise `_LOCKED` if it is locked already."""
    # C functions, because an interrupt within a library's Python code could leave a dead process's lock with this
    # process, and the dead one would count as alive.
    if sys.platform == "win32":
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(path: Path) -> None:
    with suppress(OSError):  # Windows does not delete a file that another process has open
        path.unlink(missing_ok=True)


@compiles(Now, "sqlite")  # type: ignore[no-untyped-call, untyped-decorator, unused-ignore]
def _now(_element: Now, _compiler: object, **_options: object) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


# SQLite records in memory which locks its process holds. A child inherits the memory but not the locks. If it opened a
# file that was open at the fork, it would believe that it holds them, and another process could delete the write-ahead
# log with the child's commits. So idle connections are closed before each fork, and a child refuses a file that another
# thread of its parent was using. Closing connections after each statement instead makes a payment three times as slow.
_engines: WeakSet[Engine] = WeakSet()
_open: WeakSet[TrackedConnection] = WeakSet()
# The parent's connections, which are never closed: that may wait for a thread that the child does not have.
_inherited: list[TrackedConnection] = []


class TrackedConnection(sqlite3.Connection):
    """A connection that is in `_open` as long as its file may be open."""

    path: str

    def __init__(self, database: str, *args: Any, **kwargs: Any) -> None:
        if database in {connection.path for connection in _inherited}:
            raise JournalError(
                "this process was forked while another thread used the journal, so SQLite is not safe in it:"
                " fork before threads begin, or start processes by spawn"
            )
        self.path = database
        _open.add(self)  # before the file is opened, as a fork may come in between
        super().__init__(database, *args, **kwargs | {"timeout": seconds_left()})
        self.execute("PRAGMA synchronous=FULL").close()  # a commit returns only when it is on disk
        # Debian's SQLite does this by itself. Python's own for Windows and macOS leave what was deleted in the file.
        self.execute("PRAGMA secure_delete=ON").close()

    def close(self) -> None:
        """Close the connection."""
        super().close()
        _open.discard(self)

    def __del__(self) -> None:
        """Close a connection that was lost in an interrupt, or in use when a fork began."""
        with suppress(sqlite3.Error):  # it was never opened
            self.close()


def _before_fork() -> None:
    for engine in list(_engines):
        engine.dispose()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before_fork, after_in_child=lambda: _inherited.extend(_open))
