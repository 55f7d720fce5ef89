"""Work on many entries at once: pages of entries, what a sweep reads, checks, and anonymising.

Pages follow the key (created_at, kind, reference). It never changes, so each entry comes once, whatever others write
meanwhile.

A sweep's handler gets the ends that the history does not have as delivered. The first sweep with a handler delivers no
end older than a day; later ones go back to a day before the first delivery, but for 30 days at most.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Final

from sqlalchemy import Connection, and_, exists, func, select, tuple_, update

from momopay.errors import ConfigurationError, JournalError
from momopay.journal import history, schema
from momopay.journal.activity import JUDGED, ActivityDay, ActivitySum
from momopay.journal.database import update_one
from momopay.journal.entries import (
    ANONYMISED,
    MAY_BE_SENT,
    UNRESOLVED,
    EntryKind,
    HistoryEntry,
    HistoryKind,
    JournalCheck,
    JournalEntry,
    JournalState,
    JournalTransaction,
)
from momopay.journal.evidence import is_keepable
from momopay.journal.statements import AS_READ, IS_ROW, IS_TRANSACTION, Condition
from momopay.journal.store import Store
from momopay.models.enums import TransactionStatus

_PAGE: Final = 500  # rows; databases limit the parameters of a statement
_LONGEST_CHECK: Final = 3600.0  # seconds
_FIRST: Final = timedelta(days=1)  # how old an end may be for the first sweep with a handler
_LONGEST: Final = timedelta(days=30)  # how old an end may be for any, so that a sweep need not compare all ends
LATE: Final = timedelta(minutes=10)  # how long after an end without success a prompt is read once more

_row: Final = schema.payments.c
_of: Final = schema.transactions.c
_KEY: Final = (_row.created_at, _row.kind, _row.reference)
_WAS_DELIVERED: Final = exists().where(
    schema.IS_DELIVERY,
    schema.history.c.what == HistoryKind.DELIVERED,
    schema.history.c.account == _of.account,
    schema.history.c.transaction_id == _of.transaction_id,
    history.delivers(_of.status),
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


class Reports:
    """Reads and changes many entries of one account at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = store.database
        self._is_payment = _row.account == store.account
        self._is_transaction = _of.account == store.account

    def pages(
        self,
        kind: EntryKind | None = None,
        state: JournalState | None = None,
        status: TransactionStatus | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[list[JournalEntry]]:
        """Yield pages of the selected entries, newest first; a page may be empty. None selects all."""
        conditions: list[Condition] = []
        if kind is not None:
            conditions.append(_row.kind == kind)
        if state is not None:  # a row in SENDING may read as UNKNOWN
            conditions.append(_row.state.in_(list(UNRESOLVED if state in UNRESOLVED else {state})))
        if since is not None:
            conditions.append(_row.created_at >= _as_text(since))
        if until is not None:
            conditions.append(_row.created_at < _as_text(until))
        newest_first = [each.desc() for each in _KEY]
        older: list[Condition] = []
        while True:
            keys = select(_row.kind, _row.reference).where(self._is_payment, *conditions, *older)
            keys = select(keys.order_by(*newest_first).limit(_PAGE).subquery())  # some allow no LIMIT directly in IN
            # No connection is held between two pages, as the caller may take long.
            page = self._store.select(tuple_(_row.kind, _row.reference).in_(keys))[::-1]
            yield [each for each in page if state in {None, each.state} and status in {None, each.status}]
            if len(page) < _PAGE:
                return
            last = page[-1]
            older = [tuple_(*_KEY) < tuple_(_as_text(last.created_at), last.kind, last.reference)]

    def to_phones(self, phones: Iterable[str]) -> Iterator[JournalEntry]:
        """Yield the payouts to these phones, in any state."""
        wanted = list(phones)
        is_payout = _row.kind == EntryKind.PAYOUT
        for start in range(0, len(wanted), _PAGE):
            yield from self._store.select(is_payout, _row.phone.in_(wanted[start : start + _PAGE]))

    def open(self) -> list[JournalEntry]:
        """Return the payments with a transaction that has not settled, oldest first."""
        return self._store.having(schema.HAS_NOT_SETTLED)

    def count_open(self) -> tuple[int, datetime | None]:
        """Return how many transactions have not settled, and when the oldest of them was sent."""
        found = select(func.count(), func.min(_of.sent_at)).select_from(schema.transactions)
        # The condition on the time makes SQLite use the index.
        found = found.where(self._is_transaction, _of.sent_at > "", schema.HAS_NOT_SETTLED)
        with self._database.connection() as connection:
            count, oldest = connection.execute(found).one()
        return count, None if oldest is None else datetime.fromisoformat(oldest)

    def not_settled(self) -> list[Followed]:
        """Return the transactions that have not settled."""
        return self._followed(schema.HAS_NOT_SETTLED)

    def ended_prompts(self) -> dict[str, Followed]:
        """Return, by id, the prompts that ended without success and were not read again since."""
        return {each.transaction.transaction_id: each for each in self._followed(schema.IS_TO_CHECK)}

    def mark_checked(self, transaction_ids: Iterable[str]) -> None:
        """Record that prompts that ended without success were read again."""
        of_each = [{"the_account": self._store.account, "the_transaction_id": each} for each in transaction_ids]
        if of_each:
            with self._database.transaction() as connection:
                change = update(schema.transactions).where(IS_TRANSACTION)
                connection.execute(change.values(checked_at=datetime.now(UTC).isoformat()), of_each)

    def released(self) -> list[JournalEntry]:
        """Return the payments that a person released at least ten minutes ago, and that were not searched for since."""
        # The first condition tells PostgreSQL how few there are; it assumes that a third of all rows match the second.
        return self._store.select(_row.search_after.is_not(None), _row.search_after <= schema.Now())

    def mark_searched(self, entry: JournalEntry, service_now: datetime | None = None) -> None:
        """Record that a released payment was searched for once more, unless that was early by the service's time."""
        change = update(schema.payments).where(IS_ROW, AS_READ).values(search_after=None)
        if service_now is not None:
            change = change.where(_row.search_after <= service_now.timestamp())
        self._store.change(change, self._store.values(entry, the_revision=entry.revision))

    def history(self, reference: str, kind: EntryKind | None) -> list[HistoryEntry]:
        """Return what happened to a payment, in order."""
        if not is_keepable(reference):
            return []
        with self._database.connection() as connection:
            found = connection.execute(history.of_payment(self._store.account, reference, kind))
            return list(map(history.entry_of, found))

    def deliver_since(self, now: datetime) -> str:
        """Return the time since which ends are for a handler: a day before the first delivery, or else before now."""
        at = schema.history.c.at
        first = select(func.min(at)).where(schema.IS_DELIVERY, schema.history.c.account == self._store.account)
        with self._database.connection() as connection:
            began = connection.scalar(first)
        known = now if began is None else min(now, datetime.fromtimestamp(began, UTC))
        return max(known - _FIRST, now - _LONGEST).isoformat()

    def undelivered(self, since: str) -> list[Followed]:
        """Return the settled ends that were not delivered."""
        return self._followed(schema.HAS_SETTLED, _of.ended_at >= since, ~_WAS_DELIVERED)

    def _followed(self, *where: Condition) -> list[Followed]:
        found = select(_of.transaction_id, _of.learned_at_service, schema.Now() - _of.learned_at)
        with self._database.connection() as connection:
            rows = connection.execute(found.where(self._is_transaction, *where))
            learned = {transaction_id: (at_service, known_for) for transaction_id, at_service, known_for in rows}
        return [
            Followed(entry, each, *learned[each.transaction_id])
            for entry in (self._store.having(*where) if learned else ())
            for each in entry.transactions
            if each.transaction_id in learned
        ]

    def days(self, last: date, count: int, zone: tzinfo | None) -> Iterator[ActivityDay]:
        """Yield what ended on each of the days up to the last one; see `Journal.activity`."""
        first = last - timedelta(days=count - 1)
        has_ended = and_(self._is_transaction, schema.HAS_SETTLED, _of.ended_at.is_not(None))
        latest = select(_of.status).where(has_ended, _of.kind == EntryKind.COLLECTION, _of.ended_at < _day(first, zone))
        with self._database.connection() as connection:
            earlier = connection.scalars(latest.order_by(_of.ended_at.desc()).limit(JUDGED)).all()
        judged = deque((status == TransactionStatus.SUCCESS for status in reversed(earlier)), JUDGED)
        ends = select(_of.kind, _of.status, _of.amount, _row.refund_of).join(
            schema.payments, and_(_row.account == _of.account, _row.kind == _of.kind, _row.reference == _of.reference)
        )
        # By a query for each day, so that memory does not grow with their number.
        for day in (first + timedelta(days=number) for number in range(count)):
            of_day = and_(
                has_ended, _of.ended_at >= _day(day, zone), _of.ended_at < _day(day + timedelta(days=1), zone)
            )
            with self._database.connection() as connection:
                rows = connection.execute(ends.where(of_day).order_by(_of.ended_at)).all()
            sums = dict.fromkeys(("collected", "refunded", "failed"), ActivitySum())
            for kind, status, amount, refund_of in rows:
                is_paid = status == TransactionStatus.SUCCESS
                if kind == EntryKind.COLLECTION:
                    judged.append(is_paid)
                    sums["collected" if is_paid else "failed"] += ActivitySum(1, Decimal(amount))
                elif is_paid and refund_of is not None:
                    sums["refunded"] += ActivitySum(1, Decimal(amount))
            rate = sum(judged) / len(judged) if judged else None
            yield ActivityDay(day, **sums, success_rate=rate, judged=len(judged))

    def check(self) -> JournalCheck:
        """Check the whole journal; see `Journal.check`."""
        went_back: str | None = None
        with self._database.connection(seconds=_LONGEST_CHECK) as connection:
            if connection.dialect.name == "sqlite":  # PostgreSQL checks its pages as it reads them
                problem = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
                if problem != "ok":
                    raise JournalError(f"the journal's file is damaged; restore it from a backup: {problem}")
            try:
                self._store.watermark.check(connection)
            except ConfigurationError as error:
                went_back = str(error)
            bound = self._store.accounts.bound(connection)
            states = select(_row.kind, _row.state, func.count()).group_by(_row.kind, _row.state)
            counts = connection.execute(states.where(self._is_payment)).all()
        return JournalCheck(
            account=self._store.account,
            version=schema.VERSION,
            mode=bound.get("mode"),
            host=bound.get("host"),
            tenant_id=bound.get("tenant_id"),
            counts={(EntryKind(kind), JournalState(state)): number for kind, state, number in counts},
            unresolved=tuple(entry.reference for entry in self._store.unresolved()),
            not_settled=self.count_open()[0],
            paid_twice=tuple(entry.reference for entry in self._paid_twice()),
            went_back=went_back,
        )

    def _paid_twice(self) -> Iterator[JournalEntry]:
        """Yield the payments that were made twice and not paid back."""
        key = (_of.kind, _of.reference)
        several = select(*key).where(self._is_transaction).group_by(*key).having(func.count() > 1)
        for entry in self._store.select(tuple_(_row.kind, _row.reference).in_(several)):
            is_payout = entry.kind is EntryKind.PAYOUT
            if entry.paid_twice and (is_payout or self._store.refundable(entry.reference).overpaid):
                yield entry

    def anonymise(self, before: datetime, secret: bytes | None) -> int:
        """Remove or hash the phones of the entries that ended before; return the number of changed entries."""
        changed = 0
        for page in self.pages(until=before):
            with self._database.transaction() as connection:
                if connection.dialect.name == "sqlite":  # which otherwise leaves the phones in free pages
                    connection.exec_driver_sql("PRAGMA secure_delete=ON").close()
                for entry in page:
                    if not entry.is_anonymised and _ended_before(entry, before):
                        changed += self._anonymise(connection, entry, secret)
        with self._database.connection() as connection:
            if connection.dialect.name == "sqlite":  # and in the WAL, unless a reader prevents it
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close()
        return changed

    def _anonymise(self, connection: Connection, entry: JournalEntry, secret: bytes | None) -> bool:
        change = update(schema.payments).where(IS_ROW, AS_READ).values(metadata=None, revision=_row.revision + 1)
        # Whoever knows the other fields of a key could try all phones until it fits.
        change = change.values(idempotency_key=None, key_since=None)
        change = change.values(search_after=None)  # a search without the phone would match other payments
        as_read = self._store.values(entry, the_revision=entry.revision)
        # If the row has changed, the payment may be sent again, which needs the phone.
        if not update_one(connection, change.values(phone=_anonymous(entry.phone, secret)), as_read):
            return False
        for each in entry.transactions:
            change = update(schema.transactions).where(IS_TRANSACTION).values(phone=_anonymous(each.phone, secret))
            connection.execute(change, as_read | {"the_transaction_id": each.transaction_id})
        history.add(connection, [history.event(self._store.account, entry, HistoryKind.ANONYMISED)])
        return True


def _ended_before(entry: JournalEntry, before: datetime) -> bool:
    if any(each.is_open for each in entry.transactions):
        return False
    if entry.state is JournalState.ACCEPTED and entry.has_settled:
        return (entry.ended_at or entry.sent_at) < before
    return entry.state in MAY_BE_SENT and entry.sent_at < before


def _anonymous(phone: str, secret: bytes | None) -> str:
    return "" if secret is None else ANONYMISED + hmac.new(secret, phone.encode(), "sha256").hexdigest()


def _day(day: date, zone: tzinfo | None) -> str:
    """Return the beginning of a day as the journal's text; the zone None is this machine's."""
    return datetime.combine(day, time.min, zone).astimezone(UTC).isoformat()


def _as_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
