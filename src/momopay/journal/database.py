"""The journal's database as one process uses it: bounded waits, connections, errors, and a new start after a fork.

No lock of Python is held here: an exception out of a signal handler (Ctrl-C, Celery's soft time limit) may strike at
any instruction, and must leave nothing locked. The pool is bounded by counting the connections that are alive, so one
that is lost in an interrupt is closed by the garbage collector and no longer counts.

Thread safety: every thread may call everything here, and a fork may happen at any moment.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import WeakSet

from filelock import Timeout
from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from momopay._redaction import clear_frames
from momopay.errors import ConfigurationError, JournalError
from momopay.journal.lease import ProcessRegistry
from momopay.journal.schema import set_up

LONGEST_WAIT: Final = 30.0
"""For how many seconds one use of the database waits where nothing shorter is set."""

# How many threads of a process use the database at once. The others wait until their own bounds.
_CONNECTIONS: Final = 15
_PAUSE: Final = 0.002
_TOO_LATE: Final = "the journal's database did not answer in time"


class _Bounds(threading.local):
    """Until when a thread waits, on the monotonic clock: the times of the contexts that it is in."""

    # The thread that uses a connection does all the waiting: for a connection, to connect, for locks, for each
    # statement. After an interrupt the contexts may end in any order, so each removes its own time and restores none.

    def __init__(self) -> None:
        self.times: dict[object, float] = {}

    @property
    def until(self) -> float | None:
        return min(self.times.values(), default=None)


_bounds: Final = _Bounds()


# A generator and not a class: an interrupt may come just before a context ends, and a generator that nobody holds any
# more still ends it.
@contextmanager
def bounded(seconds: float) -> Generator[None]:
    """Let everything within the context end in so many seconds, and no later than the contexts around it."""
    times, key = _bounds.times, object()
    try:
        times[key] = time.monotonic() + seconds
        yield
    finally:
        times.pop(key, None)


def is_over() -> bool:
    """Return whether this thread must wait no more."""
    until = _bounds.until
    return until is not None and time.monotonic() >= until


def seconds_left() -> float:
    """Return for how long this thread may still wait; raise JournalError if its time is over."""
    until = _bounds.until
    left = LONGEST_WAIT if until is None else until - time.monotonic()
    if left <= 0:
        raise JournalError(_TOO_LATE)
    return left


class _Place:
    """The right to one connection of a pool."""


class ConnectionStack(Pool):
    """A pool whose idle connections are a stack, which needs no lock: SQLAlchemy's own pools take some in Python."""

    def __init__(self, creator: Any, **options: Any) -> None:
        super().__init__(creator, **options)
        self._idle: deque[ConnectionPoolEntry] = deque()
        self._alive: WeakSet[_Place] = WeakSet()

    def _do_get(self) -> ConnectionPoolEntry:
        while True:
            with suppress(IndexError):
                return self._idle.pop()
            # Taken before it is counted: of threads that come at once, none passes beyond the bound.
            place = _Place()
            self._alive.add(place)
            try:
                if len(self._alive) <= _CONNECTIONS:
                    entry = self._create_connection()
                    info: Any = entry.record_info
                    info["place"] = place  # for as long as the connection lives
                    return entry
            except BaseException:
                self._alive.discard(place)  # the traceback would keep it
                raise
            self._alive.discard(place)
            seconds_left()
            time.sleep(_PAUSE)

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        self._idle.append(record)

    def dispose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def recreate(self) -> ConnectionStack:
        """Return the pool that an engine uses after `dispose`: this one."""
        return self

    def status(self) -> str:
        """Return how many connections there are."""
        return f"{len(self._alive)} connections, {len(self._idle)} idle"


class Backend(ProcessRegistry, Protocol):
    """What the journal needs of SQLite or PostgreSQL."""

    engine: Engine
    """Commits each statement by itself, durably."""

    def connect(self) -> AbstractContextManager[Connection]:
        """Yield a connection on which each statement commits by itself."""
        ...

    def connect_for_setup(self, *, create: bool) -> AbstractContextManager[Connection]:
        """Yield a connection in a transaction, while no other process has one from this method."""
        ...

    def beside(self, name: str) -> Path | None:
        """Return the path of a small file that every process of the database can use, None if there is none."""
        ...

    def close(self) -> None:
        """End the registration of this process and close all connections."""
        ...


class _Opened:
    """The database as one process opened it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.has_schema = False


class Database:
    """A database that each process opens for itself. The tables are created at the first use.

    Each method raises JournalError if the database failed.
    """

    def __init__(self, url: URL, *, create: bool = True) -> None:
        self._create = create
        first = _Opened(_open(url))
        self._url = first.backend.engine.url  # with an absolute path: a child may have changed its folder
        # By process id. A child must not use its parent's connections and registration, so it finds nothing under its
        # own id and opens the database anew. It does not close what it inherited, as that would close it for the
        # parent. An id comes back only when its process is dead and nobody else uses what is found under it.
        self._opened = {os.getpid(): first}
        self._closed = False

    @property
    def sender(self) -> str:
        """The id of this process."""
        return self._own.backend.sender

    def register_process(self) -> str:
        """Register this process as live until it ends; return its id."""
        with database_errors(), bounded(LONGEST_WAIT):
            return self._ready().register_process()

    def is_alive(self, sender: str) -> bool:
        """Return whether the process of that id is alive."""
        with database_errors(), bounded(LONGEST_WAIT):
            return self._ready().is_alive(sender)

    @contextmanager
    def connection(self, *, seconds: float = LONGEST_WAIT) -> Generator[Connection]:
        """Yield a connection on which each statement commits by itself, for so many seconds at most."""
        with database_errors(), bounded(seconds), self._ready().connect() as connection:
            yield connection

    @contextmanager
    def transaction(self, *, seconds: float = LONGEST_WAIT) -> Generator[Connection]:
        """Yield a connection whose statements are committed together if the context ends well, else not at all."""
        # Nothing else may be waited for in the context: it keeps other writers out.
        with self.connection(seconds=seconds) as connection:
            driver = connection.connection.dbapi_connection
            try:
                # One that reads first could not write over SQLite after another one did, so it begins as a writer.
                connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.dialect.name == "sqlite" else "BEGIN")
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                # By the driver: after an interrupt SQLAlchemy may refuse. The server may be gone, and the transaction
                # with it.
                with suppress(Exception):
                    if driver is not None:
                        driver.rollback()
                raise

    def beside(self, name: str) -> Path | None:
        """Return the path of a small file that every process of the database can use, None if there is none."""
        return self._own.backend.beside(name)

    def close(self) -> None:
        """Close the database. It cannot be used afterwards."""
        self._closed = True
        self._own.backend.close()

    @property
    def _own(self) -> _Opened:
        process = os.getpid()
        if process not in self._opened:
            # `setdefault` is atomic: of a child's threads, one provides what all of them use.
            self._opened.setdefault(process, _Opened(_open(self._url)))
        return self._opened[process]

    def _ready(self) -> Backend:
        own = self._own
        if self._closed:
            raise ConfigurationError("this journal is closed; open another")
        if not own.has_schema:
            # Threads that come here at once wait for each other in the database.
            with own.backend.connect_for_setup(create=self._create) as connection:
                set_up(connection, create=self._create)
            own.has_schema = True
        return own.backend


def _open(url: URL) -> Backend:
    match url.drivername:
        case "sqlite" | "sqlite+pysqlite":
            from momopay.journal.sqlite import SqliteBackend  # noqa: PLC0415  each database loads its own driver

            return SqliteBackend(url)
        case "postgresql" | "postgresql+psycopg":
            from momopay.journal.postgresql import PostgresqlBackend  # noqa: PLC0415  as above

            return PostgresqlBackend(url.set(drivername="postgresql+psycopg"))
        case other:
            raise ConfigurationError(f"a journal is kept in sqlite:/// or postgresql+psycopg://, not in {other}://")


@contextmanager
def database_errors() -> Generator[None]:
    """Raise a JournalError in place of the database's error, to which it is chained."""
    # Neither may show a password or a statement's values. Engines hide them in messages, `clear_frames` in frames.
    try:
        yield
    # OSError: a lock file. NotImplementedError: a file system without locks.
    except (SQLAlchemyError, Timeout, OSError, NotImplementedError, UnicodeError) as error:
        raise JournalError(f"the journal cannot be read or written: {problem_of(error)}") from error
    except AssertionError as error:
        # SQLAlchemy asserts that it closed a connection, and so hides the interrupt that broke the closing off.
        raise (error.__context__ or error) from None


def problem_of(error: Exception) -> str:
    """Return what an error of the database says, without values, and clear its frames of them."""
    problem = f"{type(error).__name__}: {error}".partition("\n")[0]
    if isinstance(error, UnicodeError):
        problem, error.args = "text that no database holds", ()  # the arguments hold the whole text
    clear_frames(error)
    return problem
