"""The journal's database as one process uses it: its connections, its errors, and a new start after a fork.

Thread safety: every thread may call everything here, and a fork may happen at any moment.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from filelock import Timeout
from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from momopay._redaction import clear_frames
from momopay.errors import ConfigurationError, JournalError
from momopay.journal.bounds import LONGEST_WAIT, bounded, holding
from momopay.journal.lease import ProcessRegistry
from momopay.journal.migrations import set_up
from momopay.journal.postgresql import PostgresqlDatabase
from momopay.journal.prepared import Prepared, Result
from momopay.journal.sqlite import SqliteDatabase


class Database(ProcessRegistry, Protocol):
    """What the journal needs of SQLite or PostgreSQL."""

    engine: Engine
    """Commits each statement by itself, durably."""

    def connect(self) -> AbstractContextManager[Connection]:
        """Yield a connection on which each statement commits by itself."""
        ...

    def execute(self, statement: Prepared, values: Mapping[str, object]) -> Result:
        """Execute one statement, which commits by itself."""
        ...

    def connect_for_setup(self, *, create: bool) -> AbstractContextManager[Connection]:
        """Yield a connection while no other process has one from this method; see `set_up`."""
        ...

    def close(self) -> None:
        """End the registration of this process and close all connections."""
        ...


class _Opened:
    """The database as one process opened it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.lock = threading.Lock()
        self.has_schema = False


class ForkSafeDatabase:
    """A database that each process opens for itself. The tables are created at the first use.

    Each method raises JournalError if the database failed.
    """

    def __init__(self, url: URL, *, create: bool = True) -> None:
        self._create = create
        first = _Opened(_open(url))
        self._url = first.database.engine.url  # with an absolute path: a child may have changed its folder
        # By process id. A child must not use its parent's lock, connections and registration, so it finds nothing under
        # its own id and opens the database anew. It does not close what it inherited, as that would close it for the
        # parent. An id comes back only when its process is dead and nobody else uses what is found under it.
        self._opened = {os.getpid(): first}
        self._closed = False

    @property
    def sender(self) -> str | None:
        """The id under which this process is registered as live, None before."""
        return self._own.database.sender

    def register_process(self) -> str:
        """Register this process as live until it ends; return its id."""
        with database_errors(), bounded(LONGEST_WAIT):
            return self._ready().register_process()

    def is_alive(self, sender: str) -> bool:
        """Return whether the process of that id is alive."""
        with database_errors(), bounded(LONGEST_WAIT):
            return self._ready().is_alive(sender)

    def bounded(self, seconds: float) -> AbstractContextManager[None]:
        """Let every use of the database in this thread and context end within so many seconds, with JournalError.

        Without it, each use ends within `LONGEST_WAIT`. A statement whose answer did not come in time may have been
        committed, or may be later: over PostgreSQL by a server that was frozen, once it goes on.
        """
        return bounded(seconds)

    @contextmanager
    def connection(self, *, seconds: float = LONGEST_WAIT) -> Generator[Connection]:
        """Yield a connection on which each statement commits by itself, for so many seconds at most."""
        with database_errors(), bounded(seconds), self._ready().connect() as connection:
            yield connection

    def execute(self, statement: Prepared, values: Mapping[str, object]) -> Result:
        """Execute one statement, which commits by itself."""
        with database_errors(), bounded(LONGEST_WAIT):
            return self._ready().execute(statement, values)

    def close(self) -> None:
        """Close the database. It cannot be used afterwards."""
        own = self._own
        with own.lock:
            self._closed = True
            own.database.close()

    @property
    def _own(self) -> _Opened:
        process = os.getpid()
        if process not in self._opened:
            # `setdefault` is atomic: of a child's threads, one provides what all of them use.
            self._opened.setdefault(process, _Opened(_open(self._url)))
        return self._opened[process]

    def _ready(self) -> Database:
        own = self._own
        with holding(own.lock):  # of this process alone: a child never waits for one that its parent held at the fork
            if self._closed:
                raise ConfigurationError("this journal is closed; open another")
            if not own.has_schema:
                with own.database.connect_for_setup(create=self._create) as connection:
                    set_up(connection, create=self._create)
                own.has_schema = True
            return own.database


def _open(url: URL) -> Database:
    match url.drivername:
        case "sqlite" | "sqlite+pysqlite":
            return SqliteDatabase(url)
        case "postgresql" | "postgresql+psycopg":
            return PostgresqlDatabase(url.set(drivername="postgresql+psycopg"))
        case other:
            raise ConfigurationError(f"a journal is kept in sqlite:/// or postgresql+psycopg://, not in {other}://")


@contextmanager
def transaction(connection: Connection) -> Generator[None]:
    """Commit all statements of the context together if it ends well, else none of them."""
    # Nothing else may be waited for in the context: over SQLite it keeps every other writer out. One that reads first
    # could not write there after another one did, so it begins as a writer.
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.dialect.name == "sqlite" else "BEGIN")
        yield
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        with suppress(SQLAlchemyError):  # the server may be gone, and the transaction with it
            connection.exec_driver_sql("ROLLBACK")
        raise


@contextmanager
def database_errors() -> Generator[None]:
    """Raise a JournalError in place of the database's error, to which it is chained."""
    # Neither may show a password or a statement's values. Engines hide them in messages, `clear_frames` in frames.
    try:
        yield
    # OSError: a lock file. NotImplementedError: a file system without locks.
    except (SQLAlchemyError, Timeout, OSError, NotImplementedError, UnicodeError) as error:
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        if isinstance(error, UnicodeError):
            problem, error.args = "text that no database holds", ()  # the arguments hold the whole text
        clear_frames(error)
        raise JournalError(f"the journal cannot be read or written: {problem}") from error
