"""What a sweep has to do: the transactions to read, the payments to search for, and the ends to deliver.

A sweep's handler gets the ends that the history does not have as delivered, for 30 days from when the journal learned
of an end, by the database's clock. No time of the service counts: it may be old, or wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from sqlalchemy import Connection, exists, func, select, update

from momopay.journal import history, schema
from momopay.journal.entries import HistoryKind, JournalEntry, JournalTransaction
from momopay.journal.evidence import reference_of
from momopay.journal.schema import PAYMENT, TRANSACTION, Now
from momopay.journal.statements import AS_READ, IS_ROW, IS_TRANSACTION, Condition
from momopay.journal.store import Store
from momopay.models.transactions import TransactionSummary

_LONGEST: Final = timedelta(days=30)  # how long an end is for a handler, so that a sweep need not compare all ends
LATE: Final = timedelta(minutes=10)  # how long after an end without success a prompt is read once more

_LONG_COUNT, _SKIPPED_FOR = 0.25, 3600.0  # seconds: a count that takes longer is good for so long
_MOST_NAMED: Final = 5  # references, in a message

_WAS_DELIVERED: Final = exists().where(
    schema.IS_DELIVERY,
    schema.history.c.what == HistoryKind.DELIVERED,
    schema.history.c.account == TRANSACTION.account,
    schema.history.c.transaction_id == TRANSACTION.transaction_id,
    history.delivers(TRANSACTION.status),
)


@dataclass(frozen=True)
class Followed:
    """A transaction that a sweep reads, with its payment, and when the journal learned of its end."""

    entry: JournalEntry
    transaction: JournalTransaction
    learned_at_service: str | None = None  # by the service's clock, if that was known
    known_for: float | None = None  # seconds since then, by the database's clock

    def is_due(self, service_now: datetime | None) -> bool:
        """Return whether to read a prompt that ended without success once more: a late PIN may have paid it.

        Ten minutes must have passed since its end by the service's times, and since the journal learned of the end: by
        the service's clock if its responses show that, else by the database's. A clock that is wrong but advances does
        not shorten this.
        """
        ended = self.transaction.ended_at
        if service_now is not None and ended is not None and service_now - ended < LATE:
            return False
        if service_now is None or self.learned_at_service is None:
            return self.known_for is not None and self.known_for >= LATE.total_seconds()
        return service_now - datetime.fromisoformat(self.learned_at_service) >= LATE


class Due(NamedTuple):
    """What a sweep reads and searches for."""

    not_settled: Sequence[Followed] = ()
    undelivered: Sequence[Followed] = ()  # ends that no handler got
    ended_prompts: Sequence[Followed] = ()  # that ended without success, and were not read again since
    searched: Sequence[JournalEntry] = ()  # unresolved, or released ten minutes ago and not searched for since


class Queue:
    """What a sweep has to do for the payments of one account."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database
        self._is_own = TRANSACTION.account == store.account
        self._skipped: tuple[int, list[str]] = (0, [])
        self._skipped_until = 0.0  # on the monotonic clock; until then, what was counted last counts

    def due(self, *, has_handler: bool = False) -> Due:
        """Return what to read and to search for, without a handler no ends for one."""
        with self._database.connection() as connection:
            return Due(
                self._followed(connection, schema.HAS_NOT_SETTLED),
                self._undelivered(connection) if has_handler else [],
                self._followed(connection, schema.IS_TO_CHECK),
                self._searched(connection),
            )

    def skipped(self) -> tuple[int, list[str]]:
        """Return how many ends no handler got in time, and the first references."""
        now = time.monotonic()
        if now < self._skipped_until:
            return self._skipped
        with self._database.connection() as connection:
            is_old = schema.HAS_ENDED, TRANSACTION.learned_at < _since(connection), ~_WAS_DELIVERED
            count = select(func.count()).select_from(schema.transactions).where(self._is_own, *is_old)
            first = select(TRANSACTION.reference).where(self._is_own, *is_old).order_by(TRANSACTION.learned_at)
            found = connection.scalar(count) or 0
            self._skipped = found, list(connection.scalars(first.limit(_MOST_NAMED))) if found else []
        # It compares all ends of the journal, a million in seconds, and changes slowly.
        took = time.monotonic() - now
        self._skipped_until = now + (_SKIPPED_FOR if took > _LONG_COUNT else 0.0)
        return self._skipped

    def has_delivered(self) -> bool:
        """Return whether any handler of the account ever got an end."""
        of_account = exists().where(schema.IS_DELIVERY, schema.history.c.account == self._store.account)
        with self._database.connection() as connection:
            return bool(connection.scalar(select(of_account)))

    def mark_checked(self, transaction_ids: Iterable[str]) -> None:
        """Record that prompts that ended without success were read again."""
        # In order, so that two sweeps that mark the same prompts never wait for each other.
        ids = sorted(transaction_ids)
        of_each = [{"the_account": self._store.account, "the_transaction_id": each} for each in ids]
        with self._database.transaction() as connection:
            change = update(schema.transactions).where(IS_TRANSACTION)
            connection.execute(change.values(checked_at=datetime.now(UTC).isoformat()), of_each)

    def mark_searched(self, entry: JournalEntry, service_now: datetime | None = None) -> None:
        """Record that a released payment was searched for once more, unless that was early by the service's time."""
        change = update(schema.payments).where(IS_ROW, AS_READ).values(search_after=None)
        if service_now is not None:
            change = change.where(PAYMENT.search_after <= service_now.timestamp())
        with self._database.connection() as connection:
            connection.execute(change, self._store.values(entry, the_revision=entry.revision))

    def undelivered(self) -> list[tuple[Followed, Decimal]]:
        """Return the ends that were not delivered, each with what of its order was refunded, in KES."""
        with self._database.connection() as connection:
            found = self._undelivered(connection)
            refunded = self._store.refunded_of(connection, [each.entry for each in found])
        return list(zip(found, refunded, strict=True))

    def strangers(self, records: Iterable[TransactionSummary]) -> list[TransactionSummary]:
        """Return the transactions that no entry has, though an entry has their reference."""
        with self._database.connection() as connection:
            by_id = {each.transaction_id: each for each in records}
            known = self._store.existing(connection, TRANSACTION.transaction_id, by_id)
            references = {each: reference_of(record) for each, record in by_id.items() if each not in known}
            found = self._store.existing(connection, PAYMENT.wire_reference, set(references.values()))
        return [by_id[each] for each, reference in references.items() if reference in found]

    def _undelivered(self, connection: Connection) -> list[Followed]:
        since = _since(connection)
        found = self._followed(connection, schema.HAS_ENDED, TRANSACTION.learned_at >= since, ~_WAS_DELIVERED)
        # Of a SUCCESS that an earlier version recorded, only the service's time is known. It has an index of its own.
        ended = TRANSACTION.learned_at.is_(None), TRANSACTION.ended_at >= datetime.fromtimestamp(since, UTC).isoformat()
        return found + self._followed(connection, schema.HAS_SETTLED, *ended, ~_WAS_DELIVERED)

    def _searched(self, connection: Connection) -> list[JournalEntry]:
        # The first condition tells PostgreSQL how few there are; it assumes that a third of all rows match the second.
        is_due = PAYMENT.search_after.is_not(None), PAYMENT.search_after <= Now()
        found = [*self._store.entries(connection, *is_due), *self._store.unresolved_in(connection)]
        return list({(each.kind, each.reference): each for each in found}.values())

    def _followed(self, connection: Connection, *where: Condition) -> list[Followed]:
        found = select(TRANSACTION.transaction_id, TRANSACTION.learned_at_service, Now() - TRANSACTION.learned_at)
        rows = connection.execute(found.where(self._is_own, *where))
        learned = {transaction_id: (at_service, known_for) for transaction_id, at_service, known_for in rows}
        if not learned:
            return []
        return [
            Followed(entry, each, *learned[each.transaction_id])
            for entry in self._store.entries(connection, self._store.has(*where))
            for each in entry.transactions
            if each.transaction_id in learned
        ]


def _since(connection: Connection) -> float:
    """Return since when the journal must have learned of an end that is for a handler, in Unix seconds."""
    # Read first, so that PostgreSQL plans the query for this time. It has no index for a clock that advances meanwhile.
    return (connection.scalar(select(Now())) or 0.0) - _LONGEST.total_seconds()
