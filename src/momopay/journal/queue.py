"""What a sweep has to do: the transactions to read, the payments to search for, and the ends to deliver.

A sweep's handler gets the ends that the history does not have as delivered. The first sweep with a handler delivers no
end older than a day; later ones go back to a day before the first delivery, but for 30 days at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Connection, exists, func, select, update

from momopay.journal import history, schema
from momopay.journal.entries import HistoryKind, JournalEntry, JournalTransaction
from momopay.journal.evidence import is_keepable, reference_of
from momopay.journal.schema import PAYMENT, TRANSACTION
from momopay.journal.statements import AS_READ, IS_ROW, IS_TRANSACTION, Condition
from momopay.journal.store import Store
from momopay.models.transactions import TransactionSummary

_FIRST: Final = timedelta(days=1)  # how old an end may be for the first sweep with a handler
_LONGEST: Final = timedelta(days=30)  # how old an end may be for any, so that a sweep need not compare all ends
LATE: Final = timedelta(minutes=10)  # how long after an end without success a prompt is read once more

_MOST_VALUES: Final = 500  # databases limit the parameters of a statement

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
    undelivered: Sequence[Followed] = ()  # settled ends that no handler got
    ended_prompts: Sequence[Followed] = ()  # that ended without success, and were not read again since
    searched: Sequence[JournalEntry] = ()  # unresolved, or released ten minutes ago and not searched for since
    since: str | None = None  # ends from then on are for the handler


class Queue:
    """What a sweep has to do for the payments of one account."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database
        self._is_own = TRANSACTION.account == store.account

    def due(self, now: datetime | None = None) -> Due:
        """Return what to read and to search for. Without `now`, no ends are for a handler."""
        with self._database.connection() as connection:
            since = None if now is None else self._deliver_since(connection, now)
            return Due(
                self._followed(connection, schema.HAS_NOT_SETTLED),
                [] if since is None else self._followed(connection, *_undelivered(since)),
                self._followed(connection, schema.IS_TO_CHECK),
                self._searched(connection),
                since,
            )

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

    def undelivered(self, since: str) -> list[tuple[Followed, Decimal]]:
        """Return the settled ends that were not delivered, each with what of its order was refunded, in KES."""
        with self._database.connection() as connection:
            found = self._followed(connection, *_undelivered(since))
            refunded = self._store.refunded_of(connection, [each.entry for each in found])
        return list(zip(found, refunded, strict=True))

    def strangers(self, records: Iterable[TransactionSummary]) -> list[TransactionSummary]:
        """Return the transactions that no entry has, though an entry has their reference."""
        with self._database.connection() as connection:
            by_id = {each.transaction_id: each for each in records}
            known = self._existing(connection, TRANSACTION.transaction_id, by_id)
            references = {each: reference_of(record) for each, record in by_id.items() if each not in known}
            found = self._existing(connection, PAYMENT.wire_reference, set(references.values())) if references else ()
        return [by_id[each] for each, reference in references.items() if reference in found]

    def _existing(self, connection: Connection, column: Column[Any], values: Iterable[str | None]) -> set[str]:
        """Return those of the values that a column of the account has."""
        texts, found = [each for each in values if each], set[str]()
        if not is_keepable("".join(texts)):  # all at once, as it is true of hardly any page
            texts = [each for each in texts if is_keepable(each)]
        for start in range(0, len(texts), _MOST_VALUES):
            is_value = column.in_(texts[start : start + _MOST_VALUES])
            query = select(column).where(column.table.c.account == self._store.account, is_value)
            found.update(connection.scalars(query))
        return found

    def _deliver_since(self, connection: Connection, now: datetime) -> str:
        """Return the time since which ends are for a handler: a day before the first delivery, or else before now."""
        at = schema.history.c.at
        first = select(func.min(at)).where(schema.IS_DELIVERY, schema.history.c.account == self._store.account)
        began = connection.scalar(first)
        known = now if began is None else min(now, datetime.fromtimestamp(began, UTC))
        return max(known - _FIRST, now - _LONGEST).isoformat()

    def _searched(self, connection: Connection) -> list[JournalEntry]:
        # The first condition tells PostgreSQL how few there are; it assumes that a third of all rows match the second.
        is_due = PAYMENT.search_after.is_not(None), PAYMENT.search_after <= schema.Now()
        found = [*self._store.entries(connection, *is_due), *self._store.unresolved_in(connection)]
        return list({(each.kind, each.reference): each for each in found}.values())

    def _followed(self, connection: Connection, *where: Condition) -> list[Followed]:
        found = select(
            TRANSACTION.transaction_id, TRANSACTION.learned_at_service, schema.Now() - TRANSACTION.learned_at
        )
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


def _undelivered(since: str) -> tuple[Condition, ...]:
    return schema.HAS_SETTLED, TRANSACTION.ended_at >= since, ~_WAS_DELIVERED
