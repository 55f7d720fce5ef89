"""The journal's tables, how they are created, and the statements that change one row.

Invariant: every change is one statement whose WHERE clause states the row that it expects. Of many processes that try
the same change, one succeeds. No transaction is held open, least of all while a request is sent.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, Connection, Double, Index, Integer, MetaData, Table, Text, Update, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from momopay.errors import ConfigurationError

# Existing databases have the names below, so they change only with the version.
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
    # The last three columns are the lease, see `momopay.journal.lease`.
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

# Rows are counted and never returned (no RETURNING). SQLite commits a statement that returns rows only when the last
# one was fetched; an interrupt before that would leave the transaction open, and what is written after it uncommitted.
_COUNT_ROWS: Final = {"preserve_rowcount": True}


def create_schema(connection: Connection) -> None:
    """Create the tables that are missing; raise ConfigurationError if a later version of this package made them."""
    # Two processes that created them at once could fail, so the caller excludes others (`connect_for_setup`).
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in table.indexes:
            connection.execute(CreateIndex(index, if_not_exists=True))
    found = connection.scalar(select(versions.c.version))
    if found is None:
        connection.execute(versions.insert().values(version=VERSION))
    elif found != VERSION:
        raise ConfigurationError(f"the journal has version {found}, and this momopay reads version {VERSION}")


def update_one(connection: Connection, change: Update) -> bool:
    """Change a row if it is still as the statement expects, and return whether it was."""
    return connection.execute(change, execution_options=_COUNT_ROWS).rowcount == 1


def insert_new(connection: Connection, table: Table, values: dict[str, object]) -> bool:
    """Insert a row unless its key is taken, and return whether it was inserted."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    new = insert(table).values(values).on_conflict_do_nothing()
    return connection.execute(new, execution_options=_COUNT_ROWS).rowcount == 1
