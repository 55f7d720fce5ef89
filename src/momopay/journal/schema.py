"""The journal's tables, and how they come to be. Every change of a row is one statement that states its condition."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from filelock import Timeout
from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Double,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    Update,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from momopay.errors import ConfigurationError, JournalError

VERSION: Final = 1

metadata: Final = MetaData()

versions: Final = Table("momopay_journal", metadata, Column("version", Integer, primary_key=True))

payouts: Final = Table(
    "momopay_payouts",
    metadata,
    Column("reference", Text, primary_key=True),
    Column("amount", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("transaction_id", Text),
    Column("code", Text),
    Column("sent_at", Text, nullable=False),
    Column("released", Boolean, nullable=False),
    Column("claim", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("lease_until", Double, nullable=False),
    Index("momopay_payouts_by_state", "state"),
)

callbacks: Final = Table(
    "momopay_callbacks",
    metadata,
    Column("transaction_id", Text, primary_key=True),
    Column("status", Text, primary_key=True),
    Column("seen_at", Text, nullable=False),
    Column("handled", Boolean, nullable=False),
    Column("claim", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("lease_until", Double, nullable=False),
)


class Database(Protocol):
    """What the journal needs of a database beyond SQL: who of those that wrote a row is still alive."""

    engine: Engine
    """Commits each statement by itself, and durably."""
    sender: str | None
    """The name under which this process appeared, None before."""

    def set_up_alone(self) -> AbstractContextManager[Connection]:
        """Keep other processes from setting up at the same time."""
        ...

    def register_process(self) -> str:
        """Be known as alive until this process ends, however it ends; give the name for it."""
        ...

    def is_alive(self, sender: str) -> bool:
        """Tell whether the process of that name still lives."""
        ...

    def close(self) -> None:
        """Disappear and let go of all connections."""
        ...


def create_schema(database: Database) -> None:
    """Create what is missing.

    Raises:
        ConfigurationError: A later version of this package made the tables.
    """
    with database.set_up_alone() as connection:
        for table in metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))
        found = connection.scalar(select(versions.c.version))
        if found is None:
            connection.execute(versions.insert().values(version=VERSION))
        elif found != VERSION:
            raise ConfigurationError(f"the journal has version {found}, and this momopay reads version {VERSION}")


_COUNTED = {"preserve_rowcount": True}
"""Rows are counted, never given back: SQLite commits a statement that gives rows only once they are fetched, and an
interrupt before that would leave it open, and with it all that is written after it."""


def update_one(connection: Connection, change: Update) -> bool:
    """Change a row if it is still as the statement expects; tell whether it was."""
    return connection.execute(change, execution_options=_COUNTED).rowcount == 1


def insert_new(connection: Connection, table: Table, values: dict[str, object]) -> bool:
    """Insert a row unless its key is taken; tell whether it was."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    new = insert(table).values(values).on_conflict_do_nothing()
    return connection.execute(new, execution_options=_COUNTED).rowcount == 1


@contextmanager
def database_errors() -> Generator[None]:
    """Turn a database's failure into a JournalError that shows no password and no statement's values."""
    try:
        yield
    except UnicodeError:  # its text shows the value
        problem = "text that no database holds"
    except (SQLAlchemyError, Timeout, OSError, NotImplementedError) as error:  # the last: no locks on such files
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
    else:
        return
    told = JournalError(f"the journal cannot be read or written: {problem}")
    try:
        raise told
    finally:
        told.__context__ = None  # the database's own error has the statement's values in its frames
