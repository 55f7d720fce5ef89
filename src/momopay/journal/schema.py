"""The journal's tables, and the statements that change one row.

Invariant: every change is one statement whose WHERE clause states the row that it expects. Of many processes that try
the same change, one succeeds. No transaction is held open, least of all while a request is sent.

Each statement is built once, when its module is loaded, with `bindparam` for what varies: SQLAlchemy then finds the
compiled text by the statement object. To build one anew for each call takes longer than to execute it.

All times are text, ISO 8601 in UTC, but for ``lease_until``, which only the database's own clock writes and reads:
several machines have several clocks. `momopay.journal.migrations` creates the tables and changes older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

# Existing databases have the names below, so they change only with the version.
VERSION: Final = 2

metadata: Final = MetaData()

versions: Final = Table("momopay_journal", metadata, Column("version", Integer, primary_key=True))

# What each namespace is bound to, see `momopay.journal.accounts`.
accounts: Final = Table(
    "momopay_accounts",
    metadata,
    Column("account", Text, primary_key=True),
    Column("mode", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("tenant_id", Text),
    Column("bound_at", Text, nullable=False),
    # Ends that were recorded before are not for a handler: when the first one swept, they were history.
    Column("handled_since", Text),
)

# The tenant that an answer showed for an API key, which is kept as a hash.
keys: Final = Table(
    "momopay_keys",
    metadata,
    Column("account", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("tenant_id", Text, nullable=False),
)

payments: Final = Table(
    "momopay_payments",
    metadata,
    Column("account", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("reference", Text, primary_key=True),
    Column("amount", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("transaction_id", Text),
    Column("code", Text),
    Column("attempts", Integer, nullable=False),
    Column("status", Text),
    Column("result_code", Text),
    Column("receipt", Text),
    Column("fee", Text),
    Column("created_at", Text, nullable=False),
    Column("sent_at", Text, nullable=False),
    Column("ended_at", Text),
    Column("released_by", Text),
    Column("released_at", Text),
    Column("metadata", Text),  # JSON
    Column("wire_reference", Text),  # of a collection: what the service has as its reference
    Column("refund_of", Text),  # of a payout: the collection of which it pays something back
    # How often a refund of this collection was begun. Whoever begins one must find the number that it read.
    Column("refunds", Integer, nullable=False, server_default="0"),
    # When an end was recorded that may not be handled yet. A sweep delivers it, and clears what was handled.
    Column("unhandled_since", Text),
    Column("clock_offset", Double),  # seconds by which the payer's clock was ahead of the service's
    # The last three columns are the lease, see `momopay.journal.lease`.
    Column("claim", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("lease_until", Double, nullable=False),
)
_ACCEPTED: Final = and_(payments.c.state == "ACCEPTED", payments.c.transaction_id.is_not(None))
Index("momopay_payments_by_state", payments.c.account, payments.c.state)
# A transaction pays one reference: the second row that is to be ACCEPTED with its id fails with an IntegrityError.
Index(
    "momopay_payments_by_transaction",
    payments.c.account,
    payments.c.transaction_id,
    unique=True,
    sqlite_where=_ACCEPTED,
    postgresql_where=_ACCEPTED,
)


def _index_known(name: str, column: Column[str], *, unique: bool = False) -> None:
    """Index a column where it has a value. Most payouts have none of these when they are written."""
    known = column.is_not(None)
    columns = payments.c.account, column
    Index(f"momopay_payments_{name}", *columns, unique=unique, sqlite_where=known, postgresql_where=known)


# Conditions as text: a partial index serves a statement only where both have the same text, without parameters.
HAS_NOT_SETTLED: Final = text(
    "state = 'ACCEPTED' AND (status IS NULL OR status NOT IN ('SUCCESS', 'REVERSED', 'CANCELLED', 'EXPIRED')"
    " AND (kind <> 'COLLECTION' OR status <> 'FAILED'))"
)
Index(
    "momopay_payments_not_settled",
    payments.c.account,
    payments.c.sent_at,
    sqlite_where=HAS_NOT_SETTLED,
    postgresql_where=HAS_NOT_SETTLED,
)
# Newest first, for reports. A row keeps its place, as none of these columns ever changes.
Index(
    "momopay_payments_by_created_at",
    payments.c.account,
    payments.c.created_at,
    payments.c.kind,
    payments.c.reference,
)
# A prompt is found by it, so no two orders have the same.
_index_known("by_wire_reference", payments.c.wire_reference, unique=True)
_index_known("by_receipt", payments.c.receipt)
_index_known("by_refunded", payments.c.refund_of)

# Every prompt of a collection that the service accepted.
prompts: Final = Table(
    "momopay_prompts",
    metadata,
    Column("account", Text, primary_key=True),
    Column("transaction_id", Text, primary_key=True),
    Column("reference", Text, nullable=False),
    Column("status", Text),
    Column("result_code", Text),
    Column("receipt", Text),
    Column("fee", Text),
    Column("sent_at", Text, nullable=False),
    Column("ended_at", Text),
    # When it was read once more after an end without success: a late PIN may have paid it after all.
    Column("checked_at", Text),
    Column("unhandled_since", Text),  # as for payments
)
PROMPT_IS_OPEN: Final = text(
    "(status IS NULL OR status NOT IN ('SUCCESS', 'REVERSED', 'CANCELLED', 'EXPIRED', 'FAILED'))"
)
PROMPT_IS_TO_CHECK: Final = text("checked_at IS NULL AND status IN ('CANCELLED', 'EXPIRED', 'FAILED')")
Index("momopay_prompts_by_reference", prompts.c.account, prompts.c.reference)
Index("momopay_prompts_by_receipt", prompts.c.account, prompts.c.receipt)
Index(
    "momopay_prompts_open",
    prompts.c.account,
    prompts.c.sent_at,
    sqlite_where=PROMPT_IS_OPEN,
    postgresql_where=PROMPT_IS_OPEN,
)
Index(
    "momopay_prompts_to_check",
    prompts.c.account,
    prompts.c.ended_at,
    sqlite_where=PROMPT_IS_TO_CHECK,
    postgresql_where=PROMPT_IS_TO_CHECK,
)
for _table in (payments, prompts):
    _unhandled = _table.c.unhandled_since.is_not(None)
    Index(
        f"{_table.name}_unhandled",
        _table.c.account,
        _table.c.unhandled_since,
        sqlite_where=_unhandled,
        postgresql_where=_unhandled,
    )

# References of version 1 that are refused now, by the reference that looks the same. Nothing is added later.
look_alikes: Final = Table(
    "momopay_look_alikes",
    metadata,
    Column("account", Text, primary_key=True),
    Column("canonical", Text, primary_key=True),
    Column("reference", Text, nullable=False),
)

callbacks: Final = Table(
    "momopay_callbacks",
    metadata,
    # The default is for processes of version 1, which may still handle callbacks.
    Column("account", Text, primary_key=True, server_default="default"),
    Column("transaction_id", Text, primary_key=True),
    Column("status", Text, primary_key=True),
    Column("seen_at", Text, nullable=False),
    Column("handled", Boolean, nullable=False),
    Column("claim", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("lease_until", Double, nullable=False),
)


class _Now(FunctionElement[float]):
    """The time by the clock of the database, in Unix seconds."""

    type: TypeEngine[float] = Double()
    inherit_cache = True


@compiles(_Now, "sqlite")  # type: ignore[no-untyped-call, untyped-decorator, unused-ignore]
def _now_in_sqlite(_element: _Now, _compiler: object, **_options: object) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(_Now, "postgresql")  # type: ignore[no-untyped-call, untyped-decorator, unused-ignore]
def _now_in_postgresql(_element: _Now, _compiler: object, **_options: object) -> str:
    return "extract(epoch FROM clock_timestamp())::double precision"


# What gives a row to a lease; the parameters are those of `LeaseHolder.columns`.
TAKE_LEASE: Final[Mapping[str, Any]] = {
    "claim": bindparam("claim"),
    "sender": bindparam("sender"),
    "lease_until": _Now() + bindparam("lease_seconds", type_=_Now.type),
}


def lease_left(table: Table) -> ColumnElement[float]:
    """Return the column that `LeaseHolder` reads: the seconds until the lease on a row ends by its time."""
    return (table.c.lease_until - _Now()).label("lease_left")


# Rows are counted and never returned (no RETURNING). SQLite commits a statement that returns rows only when the last
# one was fetched; an interrupt before that would leave the transaction open, and what is written after it uncommitted.
_COUNT_ROWS: Final = {"preserve_rowcount": True}


def existing_tables(connection: Connection) -> set[str]:
    """Return the names of the journal's tables that there are, of any version."""
    # SQLAlchemy's `inspect` would look into the schema that was PostgreSQL's current one at the first connection.
    found = connection.exec_driver_sql(
        "SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v') AND pg_table_is_visible(oid)"
        if connection.dialect.name == "postgresql"
        else "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    )
    return {*metadata.tables, "momopay_payouts"}.intersection(found.scalars())


def insert_statements(table: Table) -> dict[str, Any]:
    """Return the statement that inserts a row unless its key is taken, for each dialect."""
    computed = TAKE_LEASE if "lease_until" in table.c else {}
    return {
        "postgresql": postgresql.insert(table).values(computed).on_conflict_do_nothing(),
        "sqlite": sqlite.insert(table).values(computed).on_conflict_do_nothing(),
    }


_INSERTS: Final = {table: insert_statements(table) for table in metadata.tables.values()}


def update_one(connection: Connection, change: Update, parameters: Mapping[str, object] | None = None) -> bool:
    """Change a row if it is still as the statement expects, and return whether it was."""
    return connection.execute(change, parameters, execution_options=_COUNT_ROWS).rowcount == 1


def insert_new(connection: Connection, table: Table, values: Mapping[str, object]) -> bool:
    """Insert a row unless its key is taken, and return whether it was inserted.

    The values name every column, and ``lease_seconds`` in place of ``lease_until``.
    """
    statement = _INSERTS[table][connection.dialect.name]
    return connection.execute(statement, values, execution_options=_COUNT_ROWS).rowcount == 1
