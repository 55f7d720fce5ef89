"""One process's use of the journal's database: bounded waits, connections and errors.

A signal handler (Ctrl-C, Celery's soft time limit) may raise at any instruction. It must leave no lock held, no
connection lost and no wait without its bound. This is all that it takes:

- No Python lock is used, as SQLAlchemy's own pools do. The pool counts live connections instead, so that one which an
  interrupt loses is closed by the garbage collector and no longer counts.
- Contexts are generators, not classes with `__exit__`: if an interrupt prevents the exit, garbage collection ends the
  generator. Contexts may end in any order, so each removes its own bound and restores none.
- Statements outside a transaction report a row count and return no rows (no RETURNING). SQLite commits a statement
  that returns rows only when the last row was fetched. An interrupt before that would leave it and later writes
  uncommitted.
- A transaction that fails is rolled back by the driver, as SQLAlchemy may refuse after an interrupt.

All journals of a process that have one URL share one `Database`: see `momopay.journal.sharing`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Final, TypeVar
from uuid import uuid4
from weakref import WeakSet

from sqlalchemy import URL, Connection, Dialect, Engine, Select, UpdateBase, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from momopay._fork import renew_in_child
from momopay._redaction import clear_frames
from momopay.errors import ConfigurationError, JournalError
from momopay.journal.upgrade import set_up

T = TypeVar("T")

LONGEST_WAIT: Final = 30.0
"""The default limit of one use of the database, in seconds."""

_CONNECTIONS: Final = 15  # per process and URL; other threads wait for one
_LONGEST_TURN: Final = 0.5  # seconds after which a thread looks whether a connection was lost
SERVER_IS_FULL: Final = (
    "too many clients",
    "too many connections",
    "remaining connection slots",
)
"""Parts of what PostgreSQL and pools of connections say if they take no further connection."""


class _Bounds(threading.local):
    """The deadlines of this thread, on the monotonic clock: one for each `bounded` context that it is in."""

    # Per thread, because the thread that uses a connection does all its waiting: for the connection, for locks, and for
    # each statement.

    def __init__(self) -> None:
        self.times: dict[object, float] = {}


_bounds: Final = _Bounds()


@contextmanager
def bounded(seconds: float = LONGEST_WAIT) -> Generator[None]:
    """Limit all waits for the database to this many seconds in total, and convert its errors to JournalError.

    An outer context that ends sooner still applies.
    """
    # No error may show a password or a statement's values: engines hide them in messages, `clear_frames` in frames.
    times, key = _bounds.times, object()
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


def seconds_left() -> float:
    """Return how long this thread may still wait; raise JournalError if its deadline has passed."""
    left = min(_bounds.times.values(), default=inf) - time.monotonic()
    if left <= 0:
        raise JournalError("the journal's database did not answer in time")
    return LONGEST_WAIT if left == inf else left


class _PoolSlot:
    """The right to one connection of a pool."""


class ConnectionQueue(Pool):
    """A pool that keeps its idle connections in a queue of C, and waits for one no longer than the thread may."""

    def __init__(self, creator: Any, **options: Any) -> None:
        super().__init__(creator, **options)
        self._idle: SimpleQueue[ConnectionPoolEntry] = SimpleQueue()
        self._alive: WeakSet[_PoolSlot] = WeakSet()
        self._do_return_conn: Any = self._idle.put  # of C: an interrupt within Python code would lose the connection

    def _do_get(self) -> ConnectionPoolEntry:
        wait = 0.0
        while True:
            with suppress(Empty):
                entry = self._idle.get(wait > 0, wait)
                if _works(entry) or self._idle.empty():
                    return entry
                continue  # it would be connected anew, although another one works
            # Add before counting, so that threads that come here at the same time do not exceed the limit.
            slot = _PoolSlot()
            self._alive.add(slot)
            try:
                if len(self._alive) <= _CONNECTIONS:
                    entry = self._create_connection()
                    info: Any = entry.record_info
                    info["slot"] = slot  # keeps it alive as long as the connection
                    return entry
            except BaseException as error:
                self._alive.discard(slot)  # which the traceback keeps alive
                if not (self._alive and any(text in str(error) for text in SERVER_IS_FULL)):
                    raise  # else another thread's connection will do
            self._alive.discard(slot)
            wait = min(_LONGEST_TURN, seconds_left())

    def dispose(self) -> None:
        """Close the idle connections."""
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def recreate(self) -> ConnectionQueue:
        """Return this pool: the engine keeps using it after `dispose`."""
        return self


def _works(entry: ConnectionPoolEntry) -> bool:
    driver: Any = entry.dbapi_connection
    return driver is not None and not getattr(driver, "closed", False)


class Database(ABC):
    """A database, as far as SQLite and PostgreSQL do not differ, for all journals of this process with its URL.

    The tables are created at the first use.
    """

    table_names: ClassVar[str]  # the SQL that lists the existing tables and views
    locks_rows: ClassVar[bool] = True  # by SELECT ... FOR UPDATE
    folder: Path | None = None  # a folder that all processes share, if there is one
    setup_seconds: float = LONGEST_WAIT  # the limit of creating or upgrading the tables

    def __init__(self, url: URL) -> None:
        self._url = url
        self.refusal: ConfigurationError | None = None  # why this process can read the journal, and cannot write
        self.leases: set[str] = set()  # of this process's calls: see `momopay.journal.leases`
        self.users: WeakSet[object] = WeakSet()  # the journals that have it open
        # The last one is this process's. A forked child opens its own: it must neither use its parent's connections nor
        # close them, which would close them for the parent.
        self.engines: list[Engine] = []
        self.renew()
        renew_in_child(self.renew)

    def renew(self) -> None:
        """Open the database for this process."""
        self.sender: str = f"momopay-{uuid4().hex}"  # the id of this process
        self._is_set_up = False  # whether this process has seen the journal's tables
        engine = create_engine(
            self._url,
            connect_args=self.connect_args(),
            hide_parameters=True,
            isolation_level="AUTOCOMMIT",  # each statement commits by itself, durably
            poolclass=ConnectionQueue,
        )
        self.engines.append(engine)

    @abstractmethod
    def connect_args(self) -> dict[str, Any]:
        """Return the driver's arguments for a connection of this process."""

    @abstractmethod
    def prepare(self, connection: Connection, driver: Any, *, begin: bool) -> Any:
        """Limit a connection's waits to what this thread has left, and begin a transaction if asked to.

        Return the driver's connection, another one if `driver` does not work any more.
        """

    @abstractmethod
    def connect_for_setup(self, *, create: bool) -> AbstractContextManager[Connection]:
        """Yield a connection in a transaction that one process at a time can hold."""

    def explain(self, error: JournalError) -> ConfigurationError | None:  # noqa: ARG002
        """Return why the database cannot be opened, with a remedy; None if that is not known to be so."""
        return None

    @abstractmethod
    def is_alive(self, sender: str, connection: Connection) -> bool:
        """Return whether a process is alive. A query uses the caller's `connection`."""

    def check_writable(self) -> None:
        """Raise ConfigurationError if, at the first use, this process could read the journal and not write into it."""
        if self.refusal is not None:
            self._is_set_up = False  # somebody may grant the right while this process runs
            raise ConfigurationError(self.refusal.message)

    def set_search_path(self, connection: Connection) -> None:  # noqa: B027  only a server has schemas
        """Find the journal's tables in a transaction that is not of `connection`, as that of a copy."""

    def check(self) -> None:  # noqa: B027  only a file can be replaced
        """Raise if the database is not the one that this process began with."""

    def clear(self, connection: Connection) -> str | None:  # noqa: ARG002
        """Remove what was overwritten from the database's files. Return where it stays and why; None if nowhere."""
        return None

    def register_process(self) -> str:
        """Register this process as live until it ends, however it ends; return its id. Call it within a connection."""
        return self.sender  # a server knows its connections

    @contextmanager
    def connection(
        self, *, seconds: float = LONGEST_WAIT, begin: bool = False, create: bool = True, for_setup: bool = False
    ) -> Generator[Connection]:
        """Yield a connection, and wait at most this many seconds.

        Each statement commits by itself. With `begin`, all commit together if the context succeeds, else none. If
        `create` is false, there must be a journal.
        """
        with bounded(seconds):
            if not for_setup:
                if not self._is_set_up:
                    self._set_up(create=create)
                self.check()
            with self.engines[-1].connect() as connection:
                driver: Any = connection.connection.dbapi_connection
                try:
                    driver = self.prepare(connection, driver, begin=begin)
                    yield connection
                    if begin and not getattr(driver, "is_committed", False):  # by `change_and_commit`
                        connection.exec_driver_sql("COMMIT")
                except BaseException:
                    with suppress(Exception):  # if this fails, the server ends the transaction
                        driver.rollback()
                    raise
            if begin and not for_setup:
                self.check()  # what was committed to a file that was deleted meanwhile is lost, and must raise

    def close(self) -> None:
        """Close the connections, as no journal uses them any more. Calls that are under way open new ones."""
        self.engines[-1].dispose()

    def rehearse(self) -> None:
        """Raise ConfigurationError if a first payment could not create the tables. Leave the database as it is."""
        with suppress(_RehearsalOverError), bounded(), self.opening(create=True) as connection:
            set_up(connection, self.table_names, create=True)
            raise _RehearsalOverError

    def _set_up(self, *, create: bool) -> None:
        # Threads that come here at the same time wait for each other in the database.
        with self.opening(create=create) as connection:
            set_up(connection, self.table_names, create=create)
        self._is_set_up = True
        _used.add(self.key)

    @contextmanager
    def opening(self, *, create: bool) -> Generator[Connection]:
        """Yield what `connect_for_setup` does. Raise ConfigurationError if the database cannot be used."""
        try:
            with self.connect_for_setup(create=create) as connection:
                yield connection
        except JournalError as error:
            # Once this process has used the database, a failure is an outage, of which a payment may have been part.
            refusal = None if self.key in _used else self.explain(error)
            if refusal is None:
                raise
            raise refusal from error

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self._url.set(password=None).difference_update_query(["password"]).render_as_string()

    @property
    def key(self) -> str:
        """What journals of one database have in common: the whole URL, which may hold a password."""
        return self._url.render_as_string(hide_password=False)


class _RehearsalOverError(Exception):
    """Rolls back what a rehearsal did."""


_used: Final = set[str]()  # the URLs of the databases in which this process has seen a journal


def change(connection: Connection, statement: UpdateBase, parameters: Mapping[str, object]) -> bool:
    """Execute a statement, a constant without IN, and return whether it changed or inserted a row."""
    return connection.exec_driver_sql(*_executable(connection, statement, parameters)).rowcount > 0


def defer(connection: Connection, statement: UpdateBase | Select[Any], parameters: Mapping[str, object]) -> None:
    """Execute a statement, a constant without IN, whose result nobody needs.

    PostgreSQL gets it in one round trip with the next statement of the transaction, or with its COMMIT.
    """
    text, values = _executable(connection, statement, parameters)
    driver: Any = connection.connection.dbapi_connection
    if not (hasattr(driver, "defer") and driver.defer(text, values)):
        connection.exec_driver_sql(text, values).close()


def change_and_commit(connection: Connection, statement: UpdateBase, parameters: Mapping[str, object]) -> bool:
    """Execute the last statement of a transaction as `change` does. PostgreSQL gets the COMMIT in the same round trip.

    The context that began the transaction need not commit it again.
    """
    driver: Any = connection.connection.dbapi_connection
    if hasattr(driver, "commits_next"):
        driver.commits_next = True
    return change(connection, statement, parameters)


def _executable(
    connection: Connection, statement: UpdateBase | Select[Any], parameters: Mapping[str, object]
) -> tuple[str, Any]:
    # Compiled once: SQLAlchemy's own preparation takes as long as the execution. IN would be expanded at each one.
    dialect: Any = type(connection.dialect)
    compiled = _compiled(statement, dialect, tuple(parameters))
    values: dict[str, Any] = compiled.construct_params(parameters)
    order: list[str] | None = compiled.positiontup  # of the values, if the driver takes them by position
    return compiled.string, values if order is None else tuple(map(values.__getitem__, order))


@lru_cache(256)  # for all journals of a process, of which each has a dialect of its own
def _compiled(statement: UpdateBase | Select[Any], dialect: type[Dialect], names: tuple[str, ...]) -> Any:
    return statement.compile(dialect=dialect(), column_keys=names)
