"""One process's use of the journal's database: bounded waits, connections and errors.

No Python lock is used here. A signal handler (Ctrl-C, Celery's soft time limit) may raise at any instruction, which
must leave nothing locked; and a fork may happen at any moment. The pool limits itself by counting live connections, so
that a connection which an interrupt loses is closed by the garbage collector and no longer counts.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, Table, Update, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from momopay._core.wiring import load
from momopay._redaction import clear_frames
from momopay.errors import ConfigurationError, JournalError
from momopay.journal.schema import INSERTS, set_up

LONGEST_WAIT: Final = 30.0
"""The default limit of one use of the database, in seconds."""

_CONNECTIONS: Final = 15  # per process; other threads wait for one
_PAUSE: Final = 0.002  # seconds
# Statements report a row count and return no rows (no RETURNING). SQLite commits a statement that returns rows only
# when the last row was fetched. An interrupt before that would leave this and later writes uncommitted.
_COUNT_ROWS: Final = {"preserve_rowcount": True}


class _Bounds(threading.local):
    """The deadlines of this thread, on the monotonic clock: one for each `bounded` context that it is in."""

    # Per thread, because the thread that uses a connection does all its waiting: for the connection, for locks, and for
    # each statement. An interrupt may end contexts in any order, so each removes its own deadline and restores none.

    def __init__(self) -> None:
        self.times: dict[object, float] = {}


_bounds: Final = _Bounds()


# A generator, not a class with `__exit__`: if an interrupt prevents the exit, garbage collection ends the generator.
@contextmanager
def bounded(seconds: float) -> Generator[None]:
    """Limit all waits in the context to this many seconds in total. An outer context that ends sooner still applies."""
    times, key = _bounds.times, object()
    try:
        times[key] = time.monotonic() + seconds
        yield
    finally:
        times.pop(key, None)


@contextmanager
def in_use(seconds: float = LONGEST_WAIT) -> Generator[None]:
    """Apply `bounded` to a use of the database, and convert the database's errors to JournalError."""
    # No error may show a password or a statement's values: engines hide them in messages, `clear_frames` in frames.
    times, key = _bounds.times, object()  # not by `bounded`: a second generator for each use of a payment
    try:
        times[key] = time.monotonic() + seconds
        yield
    except (SQLAlchemyError, OSError, UnicodeError) as error:  # OSError: a lock file
        if isinstance(error, StatementError) and not isinstance(error, DBAPIError) and error.orig is not None:
            raise error.orig from None  # SQLAlchemy wraps any exception raised while it prepares a statement
        raise JournalError(f"the journal cannot be read or written: {problem_of(error)}") from error
    except AssertionError as error:
        # SQLAlchemy asserts that it closed a connection. This hides the interrupt that stopped the closing.
        raise (error.__context__ or error) from None
    finally:
        times.pop(key, None)


def problem_of(error: Exception) -> str:
    """Return the message of a database error without the statement's values, and clear the frames that hold those."""
    problem = f"{type(error).__name__}: {error}".partition("\n")[0]
    if isinstance(error, UnicodeError):
        problem, error.args = "text that no database holds", ()  # the arguments hold the whole text
    clear_frames(error)
    return problem


def is_over() -> bool:
    """Return whether this thread's deadline has passed."""
    return time.monotonic() >= min(_bounds.times.values(), default=inf)


def seconds_left() -> float:
    """Return how long this thread may still wait; raise JournalError if its deadline has passed."""
    left = min(_bounds.times.values(), default=inf) - time.monotonic()
    if left <= 0:
        raise JournalError("the journal's database did not answer in time")
    return LONGEST_WAIT if left == inf else left


def pause() -> None:
    """Sleep briefly before another try; raise JournalError if this thread's deadline has passed."""
    seconds_left()
    time.sleep(_PAUSE)


class _PoolSlot:
    """The right to one connection of a pool."""


class ConnectionStack(Pool):
    """A pool that keeps its idle connections on a stack. Unlike SQLAlchemy's own pools, it uses no Python lock."""

    def __init__(self, creator: Any, **options: Any) -> None:
        super().__init__(creator, **options)
        self._idle: deque[ConnectionPoolEntry] = deque()
        self._alive: WeakSet[_PoolSlot] = WeakSet()

    def _do_get(self) -> ConnectionPoolEntry:
        while True:
            with suppress(IndexError):
                return self._idle.pop()
            # Add before counting, so that threads that come here at the same time do not exceed the limit.
            slot = _PoolSlot()
            self._alive.add(slot)
            try:
                if len(self._alive) <= _CONNECTIONS:
                    entry = self._create_connection()
                    info: Any = entry.record_info
                    info["slot"] = slot  # keeps it alive as long as the connection
                    return entry
            except BaseException:
                self._alive.discard(slot)  # which the traceback keeps alive
                raise
            self._alive.discard(slot)
            pause()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        self._idle.append(record)

    def dispose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    def recreate(self) -> ConnectionStack:
        """Return this pool: the engine keeps using it after `dispose`."""
        return self


@contextmanager
def begun(connection: Connection) -> Generator[None]:
    """Run the context in a transaction: commit if it succeeds, else roll back."""
    driver = connection.connection.dbapi_connection
    try:
        # In SQLite, a transaction that begins as a reader cannot write once another connection has written.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.dialect.name == "sqlite" else "BEGIN")
        yield
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        # By the driver, as SQLAlchemy may refuse after an interrupt. If this fails, the server ends the transaction.
        with suppress(Exception):
            if driver is not None:
                driver.rollback()
        raise


class Backend(ABC):
    """One process's access to its database, as far as SQLite and PostgreSQL differ."""

    table_names: ClassVar[str]  # the SQL that lists the existing tables and views
    folder: Path | None = None  # a folder that all processes share, if there is one

    def __init__(self, url: URL, sender: str, connect_args: dict[str, Any]) -> None:
        self.sender = sender  # the id of this process
        self.is_set_up = False  # whether this process has seen the journal's tables
        self.engine: Engine = create_engine(
            url,
            connect_args=connect_args,
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",  # each statement commits by itself, durably
            poolclass=ConnectionStack,
        )

    @abstractmethod
    def connect_for_setup(self, *, create: bool) -> AbstractContextManager[Connection]:
        """Yield a connection in a transaction that one process at a time can hold."""

    def register_process(self) -> None:  # noqa: B027  a server knows its connections
        """Register this process as live until it ends, however it ends."""

    @abstractmethod
    def is_alive(self, sender: str, connection: Connection) -> bool:
        """Return whether a process is alive. A query uses the caller's `connection`."""

    def check(self) -> None:  # noqa: B027  only a file can be replaced
        """Raise if the database is not the one that this process began with."""

    def close(self) -> None:
        """Unregister this process and close all connections."""
        self.engine.dispose()


# Imported when needed, because each module imports its driver. It also compiles `schema.Now` to its database's SQL.
_BACKENDS: Final = {
    "sqlite": "journal.sqlite.SqliteBackend",
    "sqlite+pysqlite": "journal.sqlite.SqliteBackend",
    "postgresql": "journal.postgresql.PostgresqlBackend",
    "postgresql+psycopg": "journal.postgresql.PostgresqlBackend",
}


def _open(url: URL) -> Backend:
    if url.drivername not in _BACKENDS:
        raise ConfigurationError(
            f"journal must be a URL that begins with sqlite:///, postgresql:// or postgresql+psycopg://, not"
            f" {url.drivername}://"
        )
    backend: Backend = load(_BACKENDS[url.drivername])(url)
    return backend


class Database:
    """A database that each process opens for itself. The tables are created at the first use."""

    def __init__(self, url: URL, *, create: bool = True) -> None:
        self._create = create
        first = _open(url)
        self._url = first.engine.url  # with an absolute path, as a child may change its working directory
        # By process id, so that a forked child opens its own backend. It must neither use its parent's connections and
        # registration nor close them, which would close them for the parent. The system reuses the id of a dead process
        # only, so whatever is found under a reused id has no other user.
        self._opened = {os.getpid(): first}
        self._closed = False
        self.under_way: set[str] = set()  # the leases of calls that have begun and not returned

    @property
    def backend(self) -> Backend:
        """The database as this process opened it."""
        process = os.getpid()
        if process not in self._opened:
            # `setdefault` is atomic: all threads of a child use the same backend.
            self._opened.setdefault(process, _open(self._url))
        return self._opened[process]

    def register_process(self) -> str:
        """Register this process as live until it ends; return its id."""
        with in_use():
            backend = self._ready()
            backend.register_process()
            return backend.sender

    @contextmanager
    def connection(self, *, seconds: float = LONGEST_WAIT) -> Generator[Connection]:
        """Yield a connection on which each statement commits by itself, and wait at most this many seconds."""
        with in_use(seconds):
            backend = self._ready()
            backend.check()
            with backend.engine.connect() as connection:
                yield connection
            backend.check()  # a write to a file that was deleted meanwhile is lost, and must raise

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        """Yield a connection in a transaction: it commits if the context succeeds, else it rolls back."""
        # The context must not wait for anything else: it blocks other writers.
        with self.connection() as connection, begun(connection):
            yield connection

    def close(self) -> None:
        """Close the database. It cannot be used afterwards, except by calls that are under way."""
        self._closed = True
        self.backend.close()

    def _ready(self) -> Backend:
        backend = self._opened.get(os.getpid()) or self.backend
        if self._closed and not self.under_way:
            raise ConfigurationError("this journal is closed: make another Journal. Nothing was sent")
        if not backend.is_set_up:
            # Threads that come here at the same time wait for each other in the database.
            with backend.connect_for_setup(create=self._create) as connection:
                set_up(connection, backend.table_names, create=self._create)
            backend.is_set_up = True
        return backend


def update_one(connection: Connection, change: Update, parameters: Mapping[str, object] | None = None) -> bool:
    """Change a row if it is still as the statement expects, and return whether it was."""
    return connection.execute(change, parameters, execution_options=_COUNT_ROWS).rowcount == 1


def insert_new(connection: Connection, table: Table, values: Mapping[str, object]) -> bool:
    """Insert a row; return False if its key is taken."""
    return connection.execute(INSERTS[table], values, execution_options=_COUNT_ROWS).rowcount == 1
