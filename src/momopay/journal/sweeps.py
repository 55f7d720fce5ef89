"""What a sweep reads from the journal, and what it writes beside the ends themselves.

Which ends are for a handler: those that were recorded and not handled since `handled_since`, which the first sweep with
a handler sets to a day before. So what ended while nobody swept is delivered however long that was, and years of
history are not. The table of callbacks decides what was handled; `unhandled_since` only says where to look.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Select,
    and_,
    bindparam,
    case,
    distinct,
    exists,
    func,
    literal,
    null,
    select,
    union_all,
    update,
)

from momopay.journal.database import ForkSafeDatabase, transaction
from momopay.journal.entries import EntryKind
from momopay.journal.schema import (
    HAS_NOT_SETTLED,
    PROMPT_IS_OPEN,
    PROMPT_IS_TO_CHECK,
    accounts,
    callbacks,
    payments,
    prompts,
)
from momopay.models.enums import FAILURES, TransactionStatus

# Ends of this time before the first sweep with a handler are delivered by it.
HISTORY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Target:
    """A transaction that a sweep wants to read.

    Attributes:
        kind: Of its entry.
        reference: Of its entry.
        wire_reference: The reference that the service has.
        amount: KES.
        phone: ``254XXXXXXXXX``.
        transaction_id: The service's id.
        status: The last one that is known.
        sent_at: By the service's clock, as far as that is known.
        ended_at: By the service's clock.
    """

    kind: EntryKind
    reference: str
    wire_reference: str
    amount: Decimal
    phone: str
    transaction_id: str
    status: TransactionStatus | None
    sent_at: datetime
    ended_at: datetime | None


_COLUMNS: Final = ("transaction_id", "status", "sent_at", "ended_at")
_row: Final = payments.c
_OF_ACCOUNT: Final = _row.account == bindparam("the_account")
# Payouts have their transaction themselves. The columns that a text condition names are those of one table here.
_PAYOUTS: Final = select(payments).where(_OF_ACCOUNT, _row.kind == EntryKind.PAYOUT.value)
_PROMPTS: Final = select(prompts).where(prompts.c.account == bindparam("the_account"))


def _targets_of_prompts(where: Select[Any]) -> Select[Any]:
    found = where.subquery()
    of_order = and_(
        payments.c.account == found.c.account,
        payments.c.kind == EntryKind.COLLECTION.value,
        payments.c.reference == found.c.reference,
    )
    order = [_row[name] for name in ("kind", "reference", "wire_reference", "amount", "phone", "clock_offset")]
    return select(*order, *(found.c[name] for name in _COLUMNS)).join_from(found, payments, of_order)


def _unhandled(of: Select[Any], columns: Any, ends: Iterable[str]) -> Select[Any]:
    since: BindParameter[Any] = bindparam("since")
    recorded = (columns.unhandled_since >= since, columns.ended_at >= since, columns.status.in_(tuple(ends)))
    return of.where(*recorded).order_by(columns.unhandled_since)


# Without the order, SQLite reads the whole account.
_OPEN: Final = (
    _PAYOUTS.where(HAS_NOT_SETTLED).order_by(_row.sent_at),
    _targets_of_prompts(_PROMPTS.where(PROMPT_IS_OPEN)),
)
# What `Journal.open` returns, as a number: thousands of entries would be built only to be counted. The conditions on
# `sent_at` are for SQLite, as the order above.
_open_keys: Final = union_all(
    select(_row.kind, _row.reference, _row.sent_at).where(_OF_ACCOUNT, _row.sent_at > "", HAS_NOT_SETTLED),
    select(literal(EntryKind.COLLECTION.value), prompts.c.reference, prompts.c.sent_at).where(
        prompts.c.account == bindparam("the_account"), prompts.c.sent_at > "", PROMPT_IS_OPEN
    ),
).subquery()
_COUNT_OPEN: Final = select(  # an order and its prompt are one entry
    func.count(distinct(_open_keys.c.kind + " " + _open_keys.c.reference)), func.min(_open_keys.c.sent_at)
)
_TO_CHECK: Final = _targets_of_prompts(_PROMPTS.where(PROMPT_IS_TO_CHECK))
_ENDS: Final = ("SUCCESS", "REVERSED", *sorted(FAILURES))
_UNHANDLED: Final = (
    _unhandled(_PAYOUTS, _row, [end for end in _ENDS if end != "FAILED"]),  # it is REVERSED later
    _targets_of_prompts(_unhandled(_PROMPTS, prompts.c, _ENDS)),
)


def _handled(table: Any) -> Any:
    """Return the statement that forgets where to look, where the table of callbacks says that it was handled."""
    columns = table.c
    end = case((columns.status.in_(sorted(FAILURES)), literal("FAILED")), else_=columns.status)
    was_handled = exists().where(
        callbacks.c.account == columns.account,
        callbacks.c.transaction_id == columns.transaction_id,
        callbacks.c.status == end,
        callbacks.c.handled,
    )
    recorded = (columns.account == bindparam("the_account"), columns.unhandled_since >= bindparam("since"))
    return update(table).where(*recorded, was_handled).values(unhandled_since=null())


_FORGET_HANDLED: Final = (_handled(payments), _handled(prompts))
_BEGIN_HANDLING: Final = (
    update(accounts)
    .where(accounts.c.account == bindparam("the_account"), accounts.c.handled_since.is_(None))
    .values(handled_since=bindparam("since"))
)
_HANDLED_SINCE: Final = select(accounts.c.handled_since).where(accounts.c.account == bindparam("the_account"))
_CHECKED: Final = (
    update(prompts)
    .where(
        prompts.c.account == bindparam("the_account"),
        prompts.c.transaction_id == bindparam("the_transaction"),
    )
    .values(checked_at=bindparam("now"))
)


class Sweeps:
    """The journal of one account, as a sweep uses it."""

    def __init__(self, database: ForkSafeDatabase, account: str) -> None:
        self._database = database
        self._account = account

    def open(self) -> list[Target]:
        """Return the payouts that have not settled, and the prompts that have not ended."""
        return [target for statement in _OPEN for target in self._targets(statement)]

    def count_open(self) -> tuple[int, datetime | None]:
        """Return how many entries `Journal.open` returns, and when the oldest of them was sent."""
        with self._database.connection() as connection:
            count, oldest = connection.execute(_COUNT_OPEN, {"the_account": self._account}).one()
        return count, None if oldest is None else datetime.fromisoformat(oldest)

    def to_check(self) -> list[Target]:
        """Return the prompts that ended without success and were not read again since."""
        return self._targets(_TO_CHECK)

    def handled_since(self, now: datetime) -> str:
        """Return from when on ends are for a handler; set it if this is the first sweep with one."""
        parameters = {"the_account": self._account, "since": (now - HISTORY).isoformat()}
        with self._database.connection() as connection:
            connection.execute(_BEGIN_HANDLING, parameters)
            return str(connection.scalar(_HANDLED_SINCE, parameters))

    def forget_handled(self, since: str) -> None:
        """Clear the marks of ends that the table of callbacks has as handled."""
        parameters = {"the_account": self._account, "since": since}
        with self._database.connection() as connection:
            for statement in _FORGET_HANDLED:
                connection.execute(statement, parameters)

    def unhandled(self, since: str) -> list[Target]:
        """Return the ends that were recorded and are marked as not handled, those first that were recorded first."""
        return [target for statement in _UNHANDLED for target in self._targets(statement, since=since)]

    def mark_checked(self, transaction_ids: Iterable[str]) -> None:
        """Record that prompts that ended without success were read again."""
        now = datetime.now(UTC).isoformat()
        checked = [{"the_account": self._account, "the_transaction": each, "now": now} for each in transaction_ids]
        if checked:
            with self._database.connection() as connection, transaction(connection):
                connection.execute(_CHECKED, checked)

    def _targets(self, statement: Select[Any], **parameters: object) -> list[Target]:
        with self._database.connection() as connection:
            rows = connection.execute(statement, {"the_account": self._account, **parameters}).mappings().all()
        # Version 1 has accepted payouts of which it did not know the transaction.
        return [_target(row) for row in rows if row["transaction_id"] is not None]


def _target(row: Any) -> Target:
    ahead = timedelta(seconds=row["clock_offset"] or 0.0)
    return Target(
        kind=EntryKind(row["kind"]),
        reference=row["reference"],
        wire_reference=row["wire_reference"] or row["reference"],
        amount=Decimal(row["amount"]),
        phone=row["phone"],
        transaction_id=row["transaction_id"],
        status=None if row["status"] is None else TransactionStatus(row["status"]),
        sent_at=datetime.fromisoformat(row["sent_at"]) - ahead,
        ended_at=None if row["ended_at"] is None else datetime.fromisoformat(row["ended_at"]),
    )
