"""What is read from many entries at once: pages, what a sweep follows, checks; and phones removed.

Memory is bounded by a page, however many rows there are. Pages follow the key (created_at, kind, reference), which
never changes, so that every entry comes once, whatever others write meanwhile.

Which ends are for a sweep's handler: those that were recorded and not handled since `handled_since`, which the first
sweep with a handler sets to a day before. So what ended while nobody swept is delivered however long that was, and
years of history are not. The table of callbacks decides what was handled; `unhandled_since` only says where to look.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection, case, exists, func, select, tuple_, update

from momopay.errors import ConfigurationError, JournalError
from momopay.journal.database import update_one
from momopay.journal.entries import (
    ANONYMISED,
    MAY_BE_SENT,
    UNRESOLVED,
    EntryKind,
    JournalCheck,
    JournalEntry,
    JournalState,
    JournalTransaction,
)
from momopay.journal.schema import (
    HAS_NOT_SETTLED,
    IS_TO_CHECK,
    UNHANDLED,
    VERSION,
    Now,
    accounts,
    callbacks,
    payments,
    transactions,
)
from momopay.journal.statements import AS_READ, IS_ROW, IS_TRANSACTION, Condition
from momopay.journal.store import Store
from momopay.models.enums import FAILURES, TransactionStatus

_PAGE: Final = 500  # rows; databases limit the parameters of a statement
_LONGEST_CHECK: Final = 3600.0  # seconds
# How old the ends may be that the first sweep with a handler delivers.
_HISTORY: Final = timedelta(days=1)
# How long after its end without success a prompt is read once more: a late PIN may have paid it.
LATE: Final = timedelta(minutes=10)

_row: Final = payments.c
_of: Final = transactions.c
_KEY: Final = (_row.created_at, _row.kind, _row.reference)
_end: Final = case((_of.status.in_([each.value for each in FAILURES]), "FAILED"), else_=_of.status)
# An end is also handled once one that outranks it was.
_WAS_HANDLED: Final = exists().where(
    callbacks.c.account == _of.account,
    callbacks.c.transaction_id == _of.transaction_id,
    (callbacks.c.status == _end) | (_end == "FAILED"),
    callbacks.c.handled,
)


@dataclass(frozen=True)
class Followed:
    """A transaction that a sweep reads, its payment, and when the journal learned of its end."""

    entry: JournalEntry
    transaction: JournalTransaction
    learned_at_service: str | None = None  # by the service's clock, if that was known
    known_for: float | None = None  # seconds since then, by the database's clock

    def is_due(self, service_now: datetime | None) -> bool:
        """Return whether it is time to read a prompt that ended without success once more: a late PIN may have paid it.

        Ten minutes must have passed since its end by the service's times, and since the journal learned of it: by the
        service's clock where its responses show that, else by the database's. A clock that is wrong, but goes, makes
        it come no earlier.
        """
        ended = self.transaction.ended_at
        if service_now is not None and ended is not None and service_now - ended < LATE:
            return False
        if service_now is None or self.learned_at_service is None:
            return self.known_for is not None and self.known_for >= LATE.total_seconds()
        return service_now - datetime.fromisoformat(self.learned_at_service) >= LATE


class Reports:
    """The entries of one account, many at once."""

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
        """Yield pages of the entries that are wanted, newest first; a page may be empty. None selects all."""
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
            keys = select(keys.order_by(*newest_first).limit(_PAGE).subquery())  # some take no LIMIT right within IN
            # The connection is free again between two pages: whoever iterates may take long.
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

    # Sweeping

    def open(self) -> list[JournalEntry]:
        """Return the payments with a transaction that has not settled, oldest first."""
        return self._store.having(HAS_NOT_SETTLED)

    def count_open(self) -> tuple[int, datetime | None]:
        """Return how many transactions have not settled, and when the oldest of them was sent."""
        found = select(func.count(), func.min(_of.sent_at)).select_from(transactions)
        with self._database.connection() as connection:
            # With a condition about the time, SQLite uses the index.
            count, oldest = connection.execute(
                found.where(self._is_transaction, _of.sent_at > "", HAS_NOT_SETTLED)
            ).one()
        return count, None if oldest is None else datetime.fromisoformat(oldest)

    def not_settled(self) -> list[Followed]:
        """Return the transactions that have not settled."""
        return self._followed(HAS_NOT_SETTLED)

    def ended_prompts(self) -> dict[str, Followed]:
        """Return the prompts that ended without success and were not read again since, by id."""
        return {each.transaction.transaction_id: each for each in self._followed(IS_TO_CHECK)}

    def mark_checked(self, transaction_ids: Iterable[str]) -> None:
        """Record that prompts that ended without success were read again."""
        of_each = [{"the_account": self._store.account, "the_transaction_id": each} for each in transaction_ids]
        if of_each:
            with self._database.transaction() as connection:
                change = update(transactions).where(IS_TRANSACTION)
                connection.execute(change.values(checked_at=datetime.now(UTC).isoformat()), of_each)

    def released(self) -> list[JournalEntry]:
        """Return the payments that a person released at least ten minutes ago, and that were not searched for since."""
        # The first condition tells PostgreSQL how few there are: it assumes that the second is true of every third row.
        return self._store.select(_row.search_after.is_not(None), _row.search_after <= Now())

    def mark_searched(self, entry: JournalEntry) -> None:
        """Record that a released payment was searched for once more."""
        change = update(payments).where(IS_ROW, AS_READ).values(search_after=None)
        self._store.change(change, self._store.values(entry, the_revision=entry.revision))

    def handled_since(self, now: datetime) -> str:
        """Return from when on ends are for a handler; set it if this is the first sweep with one."""
        is_account = accounts.c.account == self._store.account
        since = (now - _HISTORY).isoformat()
        # One in the future was written by a clock that was ahead. A clock that is behind must not bring history back.
        is_first = accounts.c.handled_since.is_(None) | (accounts.c.handled_since > now.isoformat())
        with self._database.connection() as connection:
            connection.execute(update(accounts).where(is_account, is_first).values(handled_since=since))
            return str(connection.scalar(select(accounts.c.handled_since).where(is_account)))

    def forget_handled(self, since: str) -> None:
        """Clear the marks of ends that the table of callbacks has as handled."""
        handled = (self._is_transaction, UNHANDLED, _of.unhandled_since >= since, _WAS_HANDLED)
        with self._database.connection() as connection:
            connection.execute(update(transactions).where(*handled).values(unhandled_since=None))

    def unhandled(self, since: str) -> list[Followed]:
        """Return the ends that were recorded and are marked as not handled."""
        return self._followed(UNHANDLED, _of.unhandled_since >= since, _of.ended_at >= since)

    def _followed(self, *where: Condition) -> list[Followed]:
        found = select(_of.transaction_id, _of.learned_at_service, Now() - _of.learned_at)
        with self._database.connection() as connection:
            rows = connection.execute(found.where(self._is_transaction, *where))
            learned = {transaction_id: (at_service, known_for) for transaction_id, at_service, known_for in rows}
        return [
            Followed(entry, each, *learned[each.transaction_id])
            for entry in (self._store.having(*where) if learned else ())
            for each in entry.transactions
            if each.transaction_id in learned
        ]

    # Everything

    def check(self) -> JournalCheck:
        """Return what `Journal.check` shows."""
        went_back: str | None = None
        with self._database.connection(seconds=_LONGEST_CHECK) as connection:
            if connection.dialect.name == "sqlite":  # a server checks its pages as it reads them
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
            version=VERSION,
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
        """Yield the payments that were made twice, and not paid back."""
        key = (_of.kind, _of.reference)
        several = select(*key).where(self._is_transaction).group_by(*key).having(func.count() > 1)
        for entry in self._store.select(tuple_(_row.kind, _row.reference).in_(several)):
            is_payout = entry.kind is EntryKind.PAYOUT
            if entry.paid_twice and (is_payout or self._store.refundable(entry.reference).overpaid):
                yield entry

    def anonymise(self, before: datetime, secret: bytes | None) -> int:
        """Remove the phones of what ended before, or replace them by their hashes; return of how many entries."""
        changed = 0
        for page in self.pages(until=before):
            with self._database.transaction() as connection:
                if connection.dialect.name == "sqlite":  # which would leave the phones in unused parts of the file
                    connection.exec_driver_sql("PRAGMA secure_delete=ON").close()
                for entry in page:
                    if not entry.is_anonymised and _ended_before(entry, before):
                        changed += self._anonymise(connection, entry, secret)
        with self._database.connection() as connection:
            if connection.dialect.name == "sqlite":  # and in the log beside it; somebody who reads may hinder this
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close()
        return changed

    def _anonymise(self, connection: Connection, entry: JournalEntry, secret: bytes | None) -> bool:
        # The hash of the body goes too: it is that of the phone and little else, so trying all phones would find it.
        change = update(payments).where(IS_ROW, AS_READ).values(metadata=None, body_hash="", revision=_row.revision + 1)
        change = change.values(search_after=None)  # without its phone, others would match it too
        as_read = self._store.values(entry, the_revision=entry.revision)
        # Whoever sends it again has changed the row, and needs the phone.
        if not update_one(connection, change.values(phone=_anonymous(entry.phone, secret)), as_read):
            return False
        for each in entry.transactions:
            change = update(transactions).where(IS_TRANSACTION).values(phone=_anonymous(each.phone, secret))
            connection.execute(change, as_read | {"the_transaction_id": each.transaction_id})
        return True


def _ended_before(entry: JournalEntry, before: datetime) -> bool:
    if any(each.is_open for each in entry.transactions):
        return False
    if entry.state is JournalState.ACCEPTED and entry.has_settled:
        return (entry.ended_at or entry.sent_at) < before
    return entry.state in MAY_BE_SENT and entry.sent_at < before


def _anonymous(phone: str, secret: bytes | None) -> str:
    return "" if secret is None else ANONYMISED + hmac.new(secret, phone.encode(), "sha256").hexdigest()


def _as_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
