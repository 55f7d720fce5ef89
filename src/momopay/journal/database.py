"""The journal's database as one process uses it: bounded waits, connections, errors, forks, and who is alive.

No lock of Python is held here: an exception out of a signal handler (Ctrl-C, Celery's soft time limit) may strike at
any instruction, and must leave nothing locked. The pool is bounded by counting the connections that are alive, so one
that is lost in an interrupt is closed by the garbage collector and no longer counts.

Thread safety: every thread may call everything here, and a fork may happen at any moment.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4
from weakref import WeakSet

from sqlalchemy import URL, Connection, Engine, Select, Table, Update, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from momopay._core.wiring import load
from momopay._redaction import clear_frames
from momopay.errors import ConfigurationError, JournalError
from momopay.journal.schema import INSERTS, set_up

LONGEST_WAIT: Final = 30.0
"""For how many seconds one use of the database waits where nothing shorter is set."""

# How many threads of a process use the database at once. The others wait until their own bounds.
_CONNECTIONS: Final = 15
_PAUSE: Final = 0.002
# Rows are counted and never returned (no RETURNING). SQLite commits a statement that returns rows only when the last
# one was fetched; an interrupt before that would leave the transaction open, and what is written after it uncommitted.
_COUNT_ROWS: Final = {"preserve_rowcount": True}


# Bounds


class _Bounds(threading.local):
    """Until when a thread waits, on the monotonic clock: the times of the contexts that it is in."""

    # The thread that uses a connection does all the waiting: for a connection, to connect, for locks, for each
    # statement. After an interrupt the contexts may end in any order, so each removes its own time and restores none.

    def __init__(self) -> None:
        self.times: dict[object, float] = {}


_bounds: Final = _Bounds()


# Generators and not classes: an interrupt may come just before a context ends, and a generator that nobody holds any
# more still ends it.
@contextmanager
def bounded(seconds: float) -> Generator[None]:
    """Limit all waits within the context to so many seconds from now, or less where a context around it ends sooner."""
    times, key = _bounds.times, object()
    try:
        times[key] = time.monotonic() + seconds
        yield
    finally:
        times.pop(key, None)


@contextmanager
def in_use(seconds: float = LONGEST_WAIT) -> Generator[None]:
    """Use the database: as `bounded`, and raise a JournalError in place of its error, to which it is chained."""
    # Neither may show a password or a statement's values. Engines hide them in messages, `clear_frames` in frames.
    times, key = _bounds.times, object()
    try:
        times[key] = time.monotonic() + seconds
        yield
    except (SQLAlchemyError, OSError, UnicodeError) as error:  # OSError: a lock file
        if isinstance(error, StatementError) and not isinstance(error, DBAPIError) and error.orig is not None:
            raise error.orig from None  # SQLAlchemy wraps what strikes while it prepares a statement
        raise JournalError(f"the journal cannot be read or written: {problem_of(error)}") from error
    except AssertionError as error:
        # SQLAlchemy asserts that it closed a connection, and so hides the interrupt that broke the closing off.
        raise (error.__context__ or error) from None
    finally:
        times.pop(key, None)


def problem_of(error: Exception) -> str:
    """Return what an error of the database says, without values, and clear its frames of them."""
    problem = f"{type(error).__name__}: {error}".partition("\n")[0]
    if isinstance(error, UnicodeError):
        problem, error.args = "text that no database holds", ()  # the arguments hold the whole text
    clear_frames(error)
    return problem


def is_over() -> bool:
    """Return whether this thread must wait no more."""
    return time.monotonic() >= min(_bounds.times.values(), default=inf)


def seconds_left() -> float:
    """Return for how long this thread may still wait; raise JournalError if its time is over."""
    left = min(_bounds.times.values(), default=inf) - time.monotonic()
    if left <= 0:
        raise JournalError("the journal's database did not answer in time")
    return LONGEST_WAIT if left == inf else left


def pause() -> None:
    """Sleep for a moment before another try; raise JournalError if this thread's time is over."""
    seconds_left()
    time.sleep(_PAUSE)


# Connections


class _PoolSlot:
    """The right to one connection of a pool."""


class ConnectionStack(Pool):
    """A pool whose idle connections are a stack, which needs no lock: SQLAlchemy's own pools take some in Python."""

    def __init__(self, creator: Any, **options: Any) -> None:
        super().__init__(creator, **options)
        self._idle: deque[ConnectionPoolEntry] = deque()
        self._alive: WeakSet[_PoolSlot] = WeakSet()

    def _do_get(self) -> ConnectionPoolEntry:
        while True:
            with suppress(IndexError):
                return self._idle.pop()
            # Taken before it is counted: of threads that come at once, none passes beyond the bound.
            slot = _PoolSlot()
            self._alive.add(slot)
            try:
                if len(self._alive) <= _CONNECTIONS:
                    entry = self._create_connection()
                    info: Any = entry.record_info
                    info["slot"] = slot  # for as long as the connection lives
                    return entry
            except BaseException:
                self._alive.discard(slot)  # the traceback would keep it
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
        """Return the pool that an engine uses after `dispose`: this one."""
        return self


@contextmanager
def begun(connection: Connection) -> Generator[None]:
    """Commit the statements of the context together if it ends well, else none of them."""
    driver = connection.connection.dbapi_connection
    try:
        # One that reads first could not write over SQLite after another one did, so it begins as a writer.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.dialect.name == "sqlite" else "BEGIN")
        yield
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        # By the driver: after an interrupt SQLAlchemy may refuse. The server may be away, and the transaction with it.
        with suppress(Exception):
            if driver is not None:
                driver.rollback()
        raise


class Backend(ABC):
    """What differs between the databases, as one process uses one of them."""

    table_names: ClassVar[str]  # the SQL that lists the tables and views that are there
    folder: Path | None = None  # a folder that every process of the database can use, None if there is none

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
        """Yield a connection in a transaction, while no other process has one from this method."""

    def register_process(self) -> None:  # noqa: B027  a server knows its connections
        """Register this process as live until it ends, however it ends."""

    @abstractmethod
    def is_alive(self, sender: str, connection: Connection) -> bool:
        """Return whether the process of that id is alive; `connection` is the caller's."""

    def check(self) -> None:  # noqa: B027  a server keeps its files
        """Raise if the database is not the one that this process began with."""

    def close(self) -> None:
        """End the registration of this process and close all connections."""
        self.engine.dispose()


# Each module loads the driver of its database. Beside its backend, it has what differs in the database's SQL.
_BACKENDS: Final = {
    "sqlite": "journal.sqlite.SqliteBackend",
    "sqlite+pysqlite": "journal.sqlite.SqliteBackend",
    "postgresql": "journal.postgresql.PostgresqlBackend",
    "postgresql+psycopg": "journal.postgresql.PostgresqlBackend",
}


def _open(url: URL) -> Backend:
    if url.drivername not in _BACKENDS:
        raise ConfigurationError(
            f"journal must be a URL that begins with sqlite:/// or postgresql+psycopg://, not {url.drivername}://"
        )
    backend: Backend = load(_BACKENDS[url.drivername])(url)
    return backend


class Database:
    """A database that each process opens for itself. The tables are created at the first use.

    Each method raises JournalError if the database failed.
    """

    def __init__(self, url: URL, *, create: bool = True) -> None:
        self._create = create
        first = _open(url)
        self._url = first.engine.url  # with an absolute path: a child may have changed its folder
        # By process id. A child must not use its parent's connections and registration, so it finds nothing under its
        # own id and opens the database anew. It does not close what it inherited, as that would close it for the
        # parent. An id comes back only when its process is dead and nobody else uses what is found under it.
        self._opened = {os.getpid(): first}
        self._closed = False

    @property
    def backend(self) -> Backend:
        """The database as this process opened it."""
        process = os.getpid()
        if process not in self._opened:
            # `setdefault` is atomic: of a child's threads, one provides what all of them use.
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
        """Yield a connection on which each statement commits by itself, for so many seconds at most."""
        with in_use(seconds):
            backend = self._ready()
            backend.check()
            with backend.engine.connect() as connection:
                yield connection
            backend.check()  # what went to a file without a name is lost, so it must not count as written

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        """Yield a connection whose statements are committed together if the context ends well, else not at all."""
        # Nothing else may be waited for in the context: it keeps other writers out.
        with self.connection() as connection, begun(connection):
            yield connection

    def close(self) -> None:
        """Close the database. It cannot be used afterwards."""
        self._closed = True
        self.backend.close()

    def _ready(self) -> Backend:
        backend = self._opened.get(os.getpid()) or self.backend
        if self._closed:
            raise ConfigurationError("this journal is closed: make another Journal. Nothing was sent")
        if not backend.is_set_up:
            # Threads that come here at once wait for each other in the database.
            with backend.connect_for_setup(create=self._create) as connection:
                set_up(connection, backend.table_names, create=self._create)
            backend.is_set_up = True
        return backend


def update_one(connection: Connection, change: Update, parameters: Mapping[str, object] | None = None) -> bool:
    """Change a row if it is still as the statement expects, and return whether it was."""
    return connection.execute(change, parameters, execution_options=_COUNT_ROWS).rowcount == 1


def insert_new(connection: Connection, table: Table, values: Mapping[str, object]) -> bool:
    """Insert a row unless its key is taken, and return whether it was inserted.

    The values name every column, and ``lease_seconds`` in place of ``lease_until``.
    """
    return connection.execute(INSERTS[table], values, execution_options=_COUNT_ROWS).rowcount == 1


# Leases


@dataclass(frozen=True)
class Lease:
    """The right of one call to change the row that carries this id."""

    id: str = field(default_factory=lambda: uuid4().hex)
    process: int = field(default_factory=os.getpid)

    @property
    def is_own(self) -> bool:
        """Whether this process took it. A forked child inherits its parent's leases, and must not use them."""
        return self.process == os.getpid()


class LeaseHolder:
    """The leases of this process's calls: which call may change a row, and whether that call is still alive.

    A lease is three columns of a row: ``claim`` is the id of the lease, ``sender`` the process that holds it, and
    ``lease_until`` its latest end by the database's clock, in Unix seconds. It ends with the first of these:

    - The call returns. Its own process knows this by this class; other processes read the row's next state.
    - The process dies. Its lock on a file, or its connections to a server, then end.
    - Its time is over. This covers a process that is frozen, or a server that does not notice a cut connection.

    Invariant: the end of a lease sends nothing. A row in SENDING without a live lease reads as UNKNOWN, which only a
    search or a person can change. A wrong belief about who is alive costs time, or a search, but no second payment.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        # Changes of a set are atomic. A lock could be copied by a fork while another thread holds it.
        self._leases: set[str] = set()

    @contextmanager
    def lease(self) -> Generator[Lease]:
        """Yield a new lease, which ends with this context at the latest."""
        lease = Lease()
        self._leases.add(lease.id)
        try:
            yield lease
        finally:
            self._leases.discard(lease.id)

    def holds(self, lease: Lease) -> bool:
        """Return whether the lease has not ended and is this process's own."""
        return lease.is_own and lease.id in self._leases

    def end(self, lease: Lease) -> None:
        """End a lease before its context ends: the call gave up, and what it began must not stay."""
        self._leases.discard(lease.id)

    def columns(self, lease: Lease, seconds: float) -> dict[str, object]:
        """Return the parameters of `schema.TAKE_LEASE`: they give a row to the lease, for so many seconds."""
        return {"claim": lease.id, "sender": self._database.register_process(), "lease_seconds": seconds}

    def read(
        self,
        connection: Connection,
        statement: Select[Any],
        held: tuple[str, object],
        parameters: Mapping[str, object] | None = None,
    ) -> tuple[Sequence[Mapping[Any, Any]], set[str]]:
        """Return rows, and which of their leases have ended; `held` is the column and the value of one with a lease."""
        column, value = held
        found, ended = list(connection.execute(statement, parameters).mappings()), set[str]()
        for row in found:
            if row[column] == value and self._has_ended(row, connection):
                ended.add(row["claim"])
        if ended:  # a call records its outcome before its lease ends: perhaps since its row was read
            found = list(connection.execute(statement, parameters).mappings())
        return found, ended

    def _has_ended(self, row: Mapping[Any, Any], connection: Connection) -> bool:
        # In its own process a call is alive until it returns, however long that takes and whatever the clock says.
        backend = self._database.backend
        if row["sender"] == backend.sender:
            return row["claim"] not in self._leases
        # By the connection that the caller has: threads that each wait for a second one would wait for each other.
        return row["lease_left"] <= 0 or not backend.is_alive(row["sender"], connection)
