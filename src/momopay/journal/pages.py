"""Reads the entries of one account: one, some, or all in pages; and the history of a payment.

Pages follow the key (created_at, kind, reference). It never changes, so each entry comes once, whatever others write
meanwhile.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, and_, func, or_, select, tuple_

from momopay.errors import ConfigurationError, JournalError, RequestValidationError
from momopay.journal import history, schema
from momopay.journal import statements as sql
from momopay.journal.activity import JUDGED, ActivityDay, ActivitySum
from momopay.journal.entries import (
    UNRESOLVED,
    HistoryEntry,
    JournalCheck,
    JournalEntry,
    JournalState,
    JournalTransaction,
)
from momopay.journal.evidence import Draft, is_keepable
from momopay.journal.guards import Accounts, Mark, Watermark
from momopay.journal.leases import LeaseHolder
from momopay.journal.rules import Refundable, refunded
from momopay.journal.schema import PAYMENT, TRANSACTION
from momopay.journal.sharing import OpenDatabase
from momopay.journal.structure import differing_indexes
from momopay.models.enums import EntryKind, TransactionStatus
from momopay.models.receipts import receipt_key, receipts_in

_PAGE: Final = 500  # rows; databases limit the parameters of a statement
_LONGEST_CHECK: Final = 3600.0  # seconds
_transaction_in: Final = itemgetter(*(f"of_{name}" for name in JournalTransaction.model_fields))
_SENDING: Final = ("state", JournalState.SENDING)  # a row has a lease while it is in this state
_IS_UNRESOLVED: Final = or_(*(PAYMENT.state == state for state in UNRESOLVED))
_NO_SPACES: Final = func.replace(TRANSACTION.receipt, " ", "")
_RECEIPT_KEY: Final = func.upper(func.replace(func.replace(_NO_SPACES, ".", ""), "-", ""))
_KEY: Final = (PAYMENT.created_at, PAYMENT.kind, PAYMENT.reference)


class Entries:
    """Reads the entries of one account."""

    def __init__(self, database: OpenDatabase, account: str) -> None:
        self.database = database
        self.account = account
        self.leases: LeaseHolder = LeaseHolder(database)
        self.accounts: Accounts = Accounts(database, account)
        self.watermark: Watermark = Watermark(database, account)
        self._is_payment = PAYMENT.account == account
        self._is_transaction = TRANSACTION.account == account

    def get(self, kind: EntryKind, reference: str) -> JournalEntry | None:
        """Return the entry of a reference, or None."""
        if not is_keepable(reference):
            return None
        with self.database.connection() as connection:
            return self.entry(connection, kind, reference)

    def by_transaction(self, transaction_id: str) -> JournalEntry | None:
        """Return the entry that has a transaction, or None."""
        if not is_keepable(transaction_id):
            return None
        return next(iter(self.having(TRANSACTION.transaction_id == transaction_id)), None)

    def known_ids(self, transaction_ids: Iterable[str | None]) -> set[str]:
        """Return those of the ids that are of transactions in the journal."""
        with self.database.connection() as connection:
            return self.existing(connection, TRANSACTION.transaction_id, transaction_ids)

    def existing(self, connection: Connection, column: Column[Any], values: Iterable[str | None]) -> set[str]:
        """Return those of the values that a column of the account has."""
        texts, found = [each for each in values if each], set[str]()
        if not is_keepable("".join(texts)):  # all at once, as it is true of hardly any page
            texts = [each for each in texts if is_keepable(each)]
        for start in range(0, len(texts), _PAGE):
            is_value = column.in_(texts[start : start + _PAGE])
            query = select(column).where(column.table.c.account == self.account, is_value)
            found.update(connection.scalars(query))
        return found

    def by_receipt(self, text: str) -> list[JournalEntry]:
        """Return the entries with the receipt in a text, newest first; several only if the provider repeats it."""
        keys = receipts_in(text)
        # Providers write capitals, and the index finds those. Only what is not found is searched for in all receipts.
        return self._with_receipts(TRANSACTION.receipt, keys) or self._with_receipts(_RECEIPT_KEY, keys)

    def _with_receipts(self, column: ColumnElement[Any], keys: Iterable[str]) -> list[JournalEntry]:
        """Return the entries with the first of these receipts that any has, newest first."""
        wanted = [each for each in keys if each and is_keepable(each)]
        found = self.having(TRANSACTION.receipt.is_not(None), column.in_(wanted))[::-1] if wanted else []
        known = [{receipt_key(each.receipt or "") for each in entry.transactions} for entry in found]
        first = next((key for key in wanted if any(key in keys for keys in known)), None)
        return [entry for entry, keys in zip(found, known, strict=True) if first in keys]

    def by_reference(self, reference: str) -> list[JournalEntry]:
        """Return the entries of a reference: a payout, an order, or both."""
        # With all kinds, because the key of the table has the kind before the reference.
        is_named = PAYMENT.kind.in_(list(EntryKind)), PAYMENT.reference == reference
        return self.select(*is_named) if is_keepable(reference) else []

    def by_wire_reference(self, wire_reference: str) -> list[JournalEntry]:
        """Return the entries that the service knows by a reference."""
        return self.select(PAYMENT.wire_reference == wire_reference) if is_keepable(wire_reference) else []

    def unresolved(self) -> list[JournalEntry]:
        """Return the entries that read as UNKNOWN, oldest first."""
        with self.database.connection() as connection:
            return self.unresolved_in(connection)

    def unresolved_or_sending(self) -> list[JournalEntry]:
        """Return the entries whose latest attempt may still become a transaction, oldest first."""
        return self.select(_IS_UNRESOLVED)

    def unresolved_in(self, connection: Connection) -> list[JournalEntry]:
        """Return the same as `unresolved`."""
        return [each for each in self.entries(connection, _IS_UNRESOLVED) if each.state is JournalState.UNKNOWN]

    def sharing(self, entry: JournalEntry) -> list[JournalEntry]:
        """Return the other entries that the service knows by the same reference."""
        found = self.by_wire_reference(entry.wire_reference)
        return [each for each in found if (each.kind, each.reference) != (entry.kind, entry.reference)]

    def having(self, *transaction: sql.Condition) -> list[JournalEntry]:
        """Return the entries with a transaction that meets the conditions, oldest first."""
        return self.select(self.has(*transaction))

    def has(self, *transaction: sql.Condition) -> ColumnElement[bool]:
        """Return the condition that a payment has a transaction that meets the conditions."""
        keys = select(TRANSACTION.kind, TRANSACTION.reference).where(self._is_transaction, *transaction)
        return tuple_(PAYMENT.kind, PAYMENT.reference).in_(keys)

    def select(self, *where: sql.Condition) -> list[JournalEntry]:
        """Return the entries of the account that meet the conditions, oldest first."""
        with self.database.connection() as connection:
            return self.entries(connection, *where)

    def entries(self, connection: Connection, *where: sql.Condition) -> list[JournalEntry]:
        """Return the entries of the account that meet the conditions, oldest first."""
        statement = sql.ENTRIES.where(PAYMENT.account == self.account, *where)
        return _entries_in(*self.leases.read(connection, statement, _SENDING))

    def entry(self, connection: Connection, kind: EntryKind, reference: str) -> JournalEntry | None:
        """Return the entry of a reference, or None."""
        key = {"the_account": self.account, "the_kind": kind, "the_reference": reference}
        return next(iter(_entries_in(*self.leases.read(connection, sql.ENTRY, _SENDING, key))), None)

    def mark_and_entry(
        self, connection: Connection, kind: EntryKind, reference: str
    ) -> tuple[Mark, JournalEntry | None]:
        """Return how far the journal came, and the entry of a reference, or None, both by one statement."""
        key = {"the_account": self.account, "the_kind": kind, "the_reference": reference}
        rows, ended = self.leases.read(connection, sql.ENTRY_AND_MARK, _SENDING, key)
        if not rows:
            raise JournalError("the journal's database has lost its table momopay_journal, or what was in it")
        entry = None if rows[0]["reference"] is None else _entries_in(rows, ended)[0]
        return Mark(rows[0]["restored"], rows[0]["sequence"]), entry

    def pages(
        self,
        kind: EntryKind | None = None,
        state: JournalState | None = None,
        status: TransactionStatus | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[list[JournalEntry]]:
        """Yield pages of the selected entries, newest first; a page may be empty. None selects all."""
        conditions: list[sql.Condition] = []
        if kind is not None:
            conditions.append(PAYMENT.kind == kind)
        if state is not None:  # a row in SENDING may read as UNKNOWN
            conditions.append(PAYMENT.state.in_(list(UNRESOLVED if state in UNRESOLVED else {state})))
        if since is not None:
            conditions.append(PAYMENT.created_at >= _as_text(since))
        if until is not None:
            conditions.append(PAYMENT.created_at < _as_text(until))
        newest_first = [each.desc() for each in _KEY]
        older: list[sql.Condition] = []
        while True:
            keys = select(PAYMENT.kind, PAYMENT.reference).where(self._is_payment, *conditions, *older)
            keys = select(keys.order_by(*newest_first).limit(_PAGE).subquery())  # some allow no LIMIT directly in IN
            # No connection is held between two pages, as the caller may take long.
            page = self.select(tuple_(PAYMENT.kind, PAYMENT.reference).in_(keys))[::-1]
            yield [each for each in page if state in {None, each.state} and status in {None, each.status}]
            if len(page) < _PAGE:
                return
            last = page[-1]
            older = [tuple_(*_KEY) < tuple_(_as_text(last.created_at), last.kind, last.reference)]

    def to_phones(self, phones: Iterable[str]) -> Iterator[JournalEntry]:
        """Yield the payouts to these phones, in any state."""
        wanted = list(phones)
        is_payout = PAYMENT.kind == EntryKind.PAYOUT
        for start in range(0, len(wanted), _PAGE):
            yield from self.select(is_payout, PAYMENT.phone.in_(wanted[start : start + _PAGE]))

    def open(self) -> list[JournalEntry]:
        """Return the payments with a transaction that has not settled, oldest first."""
        return self.having(schema.HAS_NOT_SETTLED)

    def unfinished(self) -> tuple[int, list[JournalEntry]]:
        """Return how many transactions have not settled, and the entries that read as UNKNOWN."""
        found = select(func.count()).select_from(schema.transactions)
        # The condition on the time makes SQLite use the index.
        found = found.where(self._is_transaction, TRANSACTION.sent_at > "", schema.HAS_NOT_SETTLED)
        with self.database.connection() as connection:
            return connection.execute(found).scalar_one(), self.unresolved_in(connection)

    def refundable(self, of: str, besides: str = "", *, connection: Connection | None = None) -> Refundable:
        """Return what may be refunded of a collection; raise RequestValidationError if it is not in the journal."""
        if connection is None:
            with self.database.connection() as own:
                return self.refundable(of, besides, connection=own)
        order = self.entry(connection, EntryKind.COLLECTION, of)
        if order is None:
            raise RequestValidationError({"of": "is no collection in this journal; check the reference"})
        return Refundable(order, self.entries(connection, PAYMENT.refund_of == of), besides)

    def refunded(self, entry: JournalEntry) -> Decimal:
        """Return what was paid back, or is under way, of a collection, or of the one that a refund is of, in KES."""
        if not (entry.counting if entry.kind is EntryKind.COLLECTION else entry.refund_of):
            return Decimal(0)
        with self.database.connection() as connection:
            return self.refunded_of(connection, [entry])[0]

    def refunded_of(self, connection: Connection, entries: Iterable[JournalEntry]) -> list[Decimal]:
        """Return the same as `refunded`, for each entry."""
        orders = [each.reference if each.kind is EntryKind.COLLECTION else each.refund_of for each in entries]
        sums = dict.fromkeys(orders, Decimal(0))
        wanted = [each for each in sums if each is not None]
        for start in range(0, len(wanted), _PAGE):
            for refund in self.entries(connection, PAYMENT.refund_of.in_(wanted[start : start + _PAGE])):
                sums[refund.refund_of] += refunded(refund)
        return [sums[each] for each in orders]

    def history(self, reference: str, kind: EntryKind | None) -> list[HistoryEntry]:
        """Return what happened to a payment, in order."""
        if not is_keepable(reference):
            return []
        with self.database.connection() as connection:
            return history.of_payment(connection, self.account, reference, kind)

    def days(self, last: date, count: int, zone: tzinfo | None) -> Iterator[ActivityDay]:
        """Yield what ended on each of the days up to the last one; see `Journal.activity`."""
        first = last - timedelta(days=count - 1)
        has_ended = and_(self._is_transaction, schema.HAS_SETTLED, TRANSACTION.ended_at.is_not(None))
        latest = select(TRANSACTION.status).where(
            has_ended, TRANSACTION.kind == EntryKind.COLLECTION, TRANSACTION.ended_at < _day(first, zone)
        )
        with self.database.connection() as connection:
            earlier = connection.scalars(latest.order_by(TRANSACTION.ended_at.desc()).limit(JUDGED)).all()
        judged = deque((status == TransactionStatus.SUCCESS for status in reversed(earlier)), JUDGED)
        ends = select(TRANSACTION.kind, TRANSACTION.status, TRANSACTION.amount, PAYMENT.refund_of).join(
            schema.payments, sql.IS_TRANSACTION_OF_ROW
        )
        # By a query for each day, so that memory does not grow with their number.
        for day in (first + timedelta(days=number) for number in range(count)):
            ended_at, following = TRANSACTION.ended_at, day + timedelta(days=1)
            of_day = ends.where(has_ended, ended_at >= _day(day, zone), ended_at < _day(following, zone))
            with self.database.connection() as connection:
                rows = connection.execute(of_day.order_by(ended_at)).all()
            sums = dict.fromkeys(("collected", "paid_out", "refunded", "reversed", "failed"), ActivitySum())
            for kind, status, amount, refund_of in rows:
                is_paid = status == TransactionStatus.SUCCESS
                if kind == EntryKind.COLLECTION:
                    judged.append(is_paid)
                    sums["collected" if is_paid else "failed"] += ActivitySum(1, Decimal(amount))
                elif is_paid:
                    sums["paid_out" if refund_of is None else "refunded"] += ActivitySum(1, Decimal(amount))
                elif status == TransactionStatus.REVERSED:
                    sums["reversed"] += ActivitySum(1, Decimal(amount))
            rate = sum(judged) / len(judged) if judged else None
            yield ActivityDay(day, **sums, success_rate=rate, judged=len(judged))

    def inspect(self) -> JournalCheck:
        """Check the whole journal; see `Journal.check`."""
        went_back: str | None = None
        with self.database.connection(seconds=_LONGEST_CHECK) as connection:
            if connection.dialect.name == "sqlite":  # PostgreSQL checks its pages as it reads them
                problem = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
                if problem != "ok":
                    raise JournalError(f"the journal's file is damaged; restore it from a backup: {problem}")
            try:
                self.watermark.check(connection)
            except ConfigurationError as error:
                went_back = str(error)
            bound = self.accounts.bound(connection)
            version: int = connection.execute(select(schema.journal.c.version)).scalar_one()
            states = select(PAYMENT.kind, PAYMENT.state, func.count()).group_by(PAYMENT.kind, PAYMENT.state)
            counts = connection.execute(states.where(self._is_payment)).all()
        with self.database.transaction(seconds=_LONGEST_CHECK) as connection:
            differing = tuple(sorted(differing_indexes(connection)))
        not_settled, unresolved = self.unfinished()
        return JournalCheck(
            account=self.account,
            version=version,
            mode=bound.get("mode") or None,
            host=bound.get("host") or None,
            tenant_id=bound.get("tenant_id"),
            counts={(EntryKind(kind), JournalState(state)): number for kind, state, number in counts},
            unresolved=tuple(entry.reference for entry in unresolved),
            not_settled=not_settled,
            paid_twice=tuple(entry.reference for entry in self._paid_twice()),
            went_back=went_back,
            differing=differing,
        )

    def _paid_twice(self) -> Iterator[JournalEntry]:
        """Yield the payments that were made twice and not paid back."""
        key = (TRANSACTION.kind, TRANSACTION.reference)
        several = select(*key).where(self._is_transaction).group_by(*key).having(func.count() > 1)
        for entry in self.select(tuple_(PAYMENT.kind, PAYMENT.reference).in_(several)):
            is_payout = entry.kind is EntryKind.PAYOUT
            if entry.paid_twice and (is_payout or self.refundable(entry.reference).overpaid):
                yield entry

    def values(self, of: JournalEntry | Draft, **values: object) -> dict[str, object]:
        """Return the parameters with which a statement finds the row of a payment, and other parameters."""
        return {"the_account": self.account, "the_kind": of.kind, "the_reference": of.reference, **values}


def _entries_in(found: Iterable[Mapping[Any, Any]], ended: Container[str]) -> list[JournalEntry]:
    """Return the entries in the rows of `sql.ENTRIES`; `ended` has the ids of leases that have ended."""
    fields_of: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found:
        key = row["kind"], row["reference"]
        if key not in fields_of:
            fields_of[key] = {**row, "transactions": []}
        if row["of_transaction_id"] is not None:  # a payment without transactions has one row, too
            values = zip(JournalTransaction.model_fields, _transaction_in(row), strict=True)
            fields_of[key]["transactions"].append(dict(values))
    entries = list[JournalEntry]()
    for fields in fields_of.values():
        if fields["state"] == JournalState.SENDING and fields["claim"] in ended:
            fields["state"] = JournalState.UNKNOWN
        fields["metadata"] = None if fields["metadata"] is None else json.loads(fields["metadata"])
        fields["transactions"].sort(key=itemgetter("sent_at", "transaction_id"))
        entries.append(JournalEntry.model_validate(fields))
    # Not by ORDER BY, for which SQLite would read the whole account by another index.
    return sorted(entries, key=attrgetter("created_at", "kind", "reference"))


def _day(day: date, zone: tzinfo | None) -> str:
    """Return the beginning of a day as the journal's text; the zone None is this machine's."""
    return datetime.combine(day, time.min, zone).astimezone(UTC).isoformat()


def _as_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
