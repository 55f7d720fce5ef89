"""The journal's tables, and the pieces of SQL that several modules use.

Here the tables are only described, for the statements. `momopay.journal.upgrade` makes them, by the frozen SQL of each
version; a test holds the two together.

Every change of a payment is one statement whose WHERE clause has the expected state of the row, so that of several
processes that try the same change, one succeeds. No transaction is open while a request is sent.

Times are text, ISO 8601 in UTC. Those that are compared with the present are of type Double, in Unix seconds by the
database's clock, because the clocks of several machines differ. Leases have clocks of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from momopay.journal.rules import REPEATS
from momopay.models.enums import EntryKind, TransactionStatus, has_settled

metadata: Final = sa.MetaData()


def _lease() -> list[sa.Column[Any]]:
    """Return the columns of a lease: see `momopay.journal.leases.LeaseHolder`."""
    texts = [sa.Column(name, sa.Text, nullable=False) for name in ("claim", "sender", "machine")]
    return [*texts, *(sa.Column(name, sa.Double, nullable=False) for name in ("lease_seconds", "lease_until"))]


# Has one row. Its columns stay those of version 1, by which processes of that version recognise it.
journal: Final = sa.Table(
    "momopay_journal",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True),
    # The mark of version 1, for all accounts; only its processes raise it. Added to each account's own mark.
    sa.Column("restored", sa.Integer, nullable=False),
    sa.Column("sequence", sa.Integer, nullable=False),
)

# Each version that the tables came to, and the oldest version whose processes may still write then.
versions: Final = sa.Table(
    "momopay_versions",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("oldest_writer", sa.Integer, nullable=False),
    sa.Column("since", sa.Text, nullable=False),
)

# What each namespace is bound to: see `momopay.journal.guards`.
accounts: Final = sa.Table(
    "momopay_accounts",
    metadata,
    sa.Column("account", sa.Text, primary_key=True),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("tenant_id", sa.Text),
    sa.Column("bound_at", sa.Text, nullable=False),
    # The account's mark, which `momopay.journal.guards` compares with the values that it saw before: the number of
    # payments begun, below 0 while nobody may pay, and how often a person accepted a journal that went back in time.
    sa.Column("sequence", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("restored", sa.Integer, nullable=False, server_default=sa.text("0")),
    # 1 once it is known that the account had no payments before this journal, or a person accepted that; else 0.
    sa.Column("checked", sa.Integer, nullable=False, server_default=sa.text("1")),
)

# Who accepted that an account's journal may not know all of its payments.
acceptances: Final = sa.Table(
    "momopay_acceptances",
    metadata,
    sa.Column("account", sa.Text, primary_key=True),
    sa.Column("at", sa.Text, primary_key=True),
    sa.Column("by_whom", sa.Text, nullable=False),
)

# Each move between this database, which is its "source" or "target", and another one.
moves: Final = sa.Table(
    "momopay_moves",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("other", sa.Text, nullable=False),  # the URL of the other database, without its password
    sa.Column("begun_at", sa.Text, nullable=False),
    sa.Column("done_at", sa.Text),
    sa.Column("undone_at", sa.Text),
)

# The tenant that a response showed for an API key. The key is stored as a hash.
keys: Final = sa.Table(
    "momopay_keys",
    metadata,
    sa.Column("account", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    # The tenant if the wallet shows it to this key, else the key's hash: see `momopay.journal.rules.payout_key`.
    sa.Column("scope", sa.Text, nullable=False),
)

payments: Final = sa.Table(
    "momopay_payments",
    metadata,
    sa.Column("account", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("reference", sa.Text, primary_key=True),
    sa.Column("amount", sa.Text, nullable=False),
    sa.Column("phone", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("seen_id", sa.Text),  # the transaction id that a broken response showed
    sa.Column("code", sa.Text),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("idempotency_key", sa.Text),  # that a payout was last sent with
    sa.Column("key_since", sa.Text),  # a `momopay.journal.entries.Moment`: when it was first sent with that key
    # The number of the attempt, for its key. A definite refusal raises it.
    sa.Column("key_number", sa.Integer, nullable=False, server_default="1"),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("sent_at", sa.Text, nullable=False),
    sa.Column("released_by", sa.Text),
    sa.Column("released_at", sa.Text),
    sa.Column("search_after", sa.Double),  # when to search once more for a payment that a person released
    sa.Column("metadata", sa.Text),  # JSON
    sa.Column("wire_reference", sa.Text, nullable=False),  # the reference that the service has
    sa.Column("refund_of", sa.Text),  # the collection that this payout refunds
    sa.Column("paid_before", sa.Text),  # what had been paid of that collection when the refund began, in KES
    sa.Column("clock_offset", sa.Double),  # seconds by which the payer's clock was ahead of the service's
    sa.Column("revision", sa.Integer, nullable=False),  # raised by each change of the payment or its transactions
    *_lease(),
)

# Every transaction that the service accepted. The key ensures that a transaction belongs to one payment only.
transactions: Final = sa.Table(
    "momopay_transactions",
    metadata,
    sa.Column("account", sa.Text, primary_key=True),
    sa.Column("transaction_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reference", sa.Text, nullable=False),
    sa.Column("amount", sa.Text, nullable=False),
    sa.Column("phone", sa.Text, nullable=False),
    sa.Column("status", sa.Text),
    sa.Column("result_code", sa.Text),
    sa.Column("receipt", sa.Text),
    sa.Column("fee", sa.Text),
    sa.Column("sent_at", sa.Text, nullable=False),
    sa.Column("ended_at", sa.Text),
    # When the journal learned of the end: by the database's clock and, if known, by the service's. The first is NULL
    # for payments that an earlier version of momopay recorded as SUCCESS.
    sa.Column("learned_at", sa.Double),
    sa.Column("learned_at_service", sa.Text),
    # When it was read once more after an end without success, as a late PIN may have paid it.
    sa.Column("checked_at", sa.Text),
)

PAYMENT: Final = payments.c
TRANSACTION: Final = transactions.c

# What happened to payments, in order; see `momopay.journal.history`. Rows are only added.
history: Final = sa.Table(
    "momopay_history",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reference", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("service_time", sa.Text),
    sa.Column("what", sa.Text, nullable=False),
    sa.Column("before", sa.Text),
    sa.Column("after", sa.Text),
    sa.Column("transaction_id", sa.Text),
    sa.Column("attempt", sa.Integer),
    sa.Column("source", sa.Text),
    sa.Column("by_whom", sa.Text),
)

# The latest call that delivers an end of a transaction; see `momopay.journal.delivery`.
deliveries: Final = sa.Table(
    "momopay_deliveries",
    metadata,
    sa.Column("account", sa.Text, primary_key=True),
    sa.Column("transaction_id", sa.Text, primary_key=True),
    *_lease(),
)


def quoted(statuses: Iterable[TransactionStatus]) -> str:
    """Return statuses as a list in SQL."""
    return ", ".join(f"'{status.value}'" for status in statuses)


def _not_settled(kind: EntryKind) -> str:
    settled = quoted(status for status in TransactionStatus if has_settled(kind.transaction_type, status))
    return f"(momopay_transactions.kind = '{kind}' AND (status IS NULL OR status NOT IN ({settled})))"


# As text, because a partial index serves a statement only if both have the same condition without parameters.
HAS_NOT_SETTLED: Final = sa.text(f"({' OR '.join(map(_not_settled, EntryKind))})")
# NOT IN, because with "=" SQLite would read all orders by another index.
_not_repeating: Final = ", ".join(f"'{kind}'" for kind, repeats in REPEATS.items() if not repeats)
_ended_without_success: Final = quoted(status for status in TransactionStatus if status.ended_without_success)
IS_TO_CHECK: Final = sa.text(
    f"(checked_at IS NULL AND momopay_transactions.kind NOT IN ({_not_repeating})"
    f" AND status IN ({_ended_without_success}))"
)
HAS_SETTLED: Final = sa.text(f"(status IS NOT NULL AND NOT {HAS_NOT_SETTLED.text})")
HAS_ENDED: Final = sa.text(f"(status IN ({quoted(status for status in TransactionStatus if status.is_terminal)}))")
IS_DELIVERY: Final = sa.text("what IN ('delivered', 'delivery failed')")


def _index(name: str, *columns: sa.Column[Any], where: Any = None) -> None:
    sa.Index(f"momopay_{name}", *columns, sqlite_where=where, postgresql_where=where)


_index("payments_by_state", PAYMENT.account, PAYMENT.state)
# For reports. A row keeps its place, because these columns never change.
_index("payments_by_time", PAYMENT.account, PAYMENT.created_at, PAYMENT.kind, PAYMENT.reference)
_index("payments_by_wire_reference", PAYMENT.account, PAYMENT.wire_reference)
_index("payments_by_phone", PAYMENT.account, PAYMENT.phone)
_index("refunds", PAYMENT.account, PAYMENT.refund_of, where=PAYMENT.refund_of.is_not(None))
_index("payments_to_search", PAYMENT.account, PAYMENT.search_after, where=PAYMENT.search_after.is_not(None))
_index("transactions_of", TRANSACTION.account, TRANSACTION.kind, TRANSACTION.reference)
_index("transactions_by_receipt", TRANSACTION.account, TRANSACTION.receipt, where=TRANSACTION.receipt.is_not(None))
_index("transactions_not_settled", TRANSACTION.account, TRANSACTION.sent_at, where=HAS_NOT_SETTLED)
_index("transactions_to_check", TRANSACTION.account, TRANSACTION.ended_at, where=IS_TO_CHECK)
_index("transactions_by_end", TRANSACTION.account, TRANSACTION.ended_at, where=HAS_SETTLED)
_index("transactions_by_learning", TRANSACTION.account, TRANSACTION.learned_at, where=HAS_ENDED)
_index("history_of", history.c.account, history.c.reference)
_index("history_of_deliveries", history.c.account, history.c.transaction_id, where=IS_DELIVERY)
_index("history_by_delivery", history.c.account, history.c.at, where=IS_DELIVERY)


class Now(FunctionElement[float]):
    """The time by the clock of the database, in Unix seconds. Its SQL differs between the databases."""

    type: TypeEngine[float] = sa.Double()
    inherit_cache: bool | None = True


# Gives a row to a lease. `LeaseHolder.columns` returns the parameters.
TAKE_LEASE: Final[Mapping[str, Any]] = {column.name: sa.bindparam(column.name) for column in _lease()}


class InsertNew(sa.Insert):
    """An INSERT that does nothing if the key of the row is taken."""

    inherit_cache: bool | None = True


@compiles(InsertNew)  # type: ignore[no-untyped-call, untyped-decorator, unused-ignore]
def _insert_new(statement: InsertNew, compiler: Any, **options: Any) -> str:
    return f"{compiler.visit_insert(statement, **options)} ON CONFLICT DO NOTHING"


INSERTS: Final = {table: InsertNew(table) for table in metadata.tables.values()}
