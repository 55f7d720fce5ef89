"""Records what callbacks (webhooks) and reads say, and delivers each end of a transaction to one handler.

`momopay.journal.matching` decides which entry a record belongs to. What a callback says is recorded only with the read
that confirms it. The exceptions are a receipt, and `Journal.record`, whose caller vouches for the callback.

A transaction's id, and `end_of` its status, identify an end. A call that delivers one holds the transaction's row in
``momopay_deliveries`` until the history says how that went: delivered, or failed. If the call's process dies, its lease
ends, and the next call takes the row over. FAILED is not delivered after SUCCESS or REVERSED, which outrank it,
whichever arrives first. Therefore two ends of one transaction are never delivered at the same time: the handler of
FAILED might finish last.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BindParameter, Connection, and_, bindparam, select, update

from momopay._redaction import redacted_repr
from momopay.errors import CallbackError, MomoPayError
from momopay.journal import history, schema
from momopay.journal.database import change
from momopay.journal.entries import HistoryKind, JournalEntry
from momopay.journal.evidence import Evidence, ServiceRecord, differences, is_indexable, is_keepable
from momopay.journal.leases import Lease
from momopay.journal.matching import Matcher, filled, fits, is_shown, mismatch
from momopay.journal.schema import INSERTS, TAKE_LEASE, deliveries
from momopay.journal.store import Store
from momopay.models.callbacks import Callback, CallbackTransaction
from momopay.models.enums import EntryKind, TransactionStatus, TransactionType
from momopay.models.payments import Payment
from momopay.models.transactions import Transaction, TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")

HANDLER_SECONDS: Final = 600.0  # after which a handler counts as dead, even if its process is alive

_ACCOUNT: Final[BindParameter[str]] = bindparam("the_account")
_ID: Final[BindParameter[str]] = bindparam("the_id")
_IS_TRANSACTION: Final = and_(deliveries.c.account == _ACCOUNT, deliveries.c.transaction_id == _ID)
_FIND: Final = select(deliveries).where(_IS_TRANSACTION)
_TAKE_OVER: Final = (
    update(deliveries).where(_IS_TRANSACTION, deliveries.c.claim == bindparam("the_claim")).values(TAKE_LEASE)
)
_HISTORY: Final = schema.history.c
_DELIVERIES: Final = select(_HISTORY.what, _HISTORY.after, _HISTORY.by_whom).where(
    schema.IS_DELIVERY, _HISTORY.account == _ACCOUNT, _HISTORY.transaction_id == _ID
)


class Recorder:
    """Records what the service says of the payments of one account."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._matcher = Matcher(store)

    def settle(self, record: ServiceRecord) -> JournalEntry | None:
        """Record what the service's own record says; return its entry, or None. See `Journal.settle`."""
        # By the reference first: after a broken response, another entry may have the id of this transaction.
        entry = self._matcher.of_reference(record) or self._store.by_transaction(record.transaction_id)
        if entry is None:
            return None
        if fits(entry, record):
            self._record(entry, Evidence.of(record))
            return self._store.get(entry.kind, entry.reference)
        logger.warning(
            "transaction %s and the entry of %s differ: %s",
            redacted_repr(record.transaction_id),
            redacted_repr(entry.reference),
            ", ".join(differences(entry, record)),
        )
        return None

    def entry_of(self, record: ServiceRecord) -> JournalEntry | None:
        """Return the entry that a record belongs to, or None; see `Journal.by_transaction`."""
        return self._matcher.entry_of(record)

    def check(self, record: CallbackTransaction | TransactionSummary, signed: str | None = None) -> JournalEntry | None:
        """Return the entry that a record is about, or None; raise as `Matcher.check` does."""
        return self._matcher.check(record, signed)

    def check_stranger(self, read: Transaction) -> None:
        """Raise CallbackError if a transaction that no entry has may be that of a payment in the journal."""
        if self._matcher.may_be_known(read):
            raise CallbackError(
                f"transaction {read.transaction_id} may be that of a payment in the journal; a sweep looks for it in"
                " the list"
            )

    def record(self, callback: Callback) -> JournalEntry | None:
        """Record what a callback says that the caller vouches for; see `Journal.record`."""
        record = callback.transaction
        entry = self.check(record)
        if entry is None or not fits(entry, record):
            return None
        if entry.kind is EntryKind.COLLECTION and record.id not in entry.transaction_ids:
            # Anybody who knows the URL could invent paid prompts, and so raise the limit of refunds.
            logger.warning(
                "order %s: a callback is about a prompt that the journal does not know; it is recorded once a read of"
                " the service shows it",
                redacted_repr(entry.reference),
            )
            return entry
        self._record(entry, Evidence.of(record))
        return self._store.get(entry.kind, entry.reference)

    def record_read(
        self,
        entry: JournalEntry | None,
        read: Transaction,
        stated: CallbackTransaction,
        service_now: datetime | None,
        signed: str | None = None,
    ) -> tuple[JournalEntry | None, Evidence]:
        """Record the record with which a callback was confirmed, and what that lacks of the callback's own.

        `entry` is the one that has the transaction, if that is known, and `signed` the reference for which the
        callback's URL was signed. Return the entry before, None if the record belongs to none, and the evidence. Raise
        CallbackMismatchError if they differ, and CallbackError if it may be the entry's, and too little shows it.
        """
        if entry is None or read.transaction_id not in entry.transaction_ids:
            entry = self._matcher.check(filled(read, stated), signed, stated.type)
        elif differing := differences(entry, read):
            raise mismatch(read, differing)
        if entry is None:
            return None, Evidence.confirmed(read, stated, service_now)
        if not is_shown(entry, read, stated, is_signed=signed is not None):
            raise CallbackError(
                f"transaction {read.transaction_id} has the reference of a payment in the journal, and too little else"
                " shows that it is that payment; a sweep looks for it in the list"
            )
        known = next((each for each in entry.transactions if each.transaction_id == read.transaction_id), None)
        evidence = Evidence.confirmed(read, stated, service_now, known)
        self._record(entry, evidence)
        return entry, evidence

    def add_receipt(self, entry: JournalEntry, record: CallbackTransaction) -> None:
        """Record the receipt of a paid transaction whose end was recorded before the callback came, and nothing else.

        Nobody has confirmed this callback, so its other fields are not recorded.
        """
        receipt = Evidence.of(record).receipt
        for known in entry.transactions:
            is_its_end = known.is_paid and record.status is TransactionStatus.SUCCESS
            if known.transaction_id == record.id and known.receipt is None and is_its_end and receipt is not None:
                self._record(entry, Evidence(record.id, receipt=receipt, source="callback"))

    def _record(self, entry: JournalEntry, evidence: Evidence) -> None:
        if not is_keepable(evidence.transaction_id) or not self._store.record(entry, evidence):
            logger.error(
                "transaction %s fits reference %s, and is already that of another reference",
                redacted_repr(evidence.transaction_id),
                redacted_repr(entry.reference),
            )


@dataclass(frozen=True)
class End:
    """An end of a transaction, and the payment that it is of."""

    kind: EntryKind
    reference: str
    transaction_id: str
    status: TransactionStatus


def end_in(record: TransactionSummary | CallbackTransaction, entry: JournalEntry | None) -> End:
    """Return the end that a record of the service shows. Without an entry, it has the service's reference."""
    kind = EntryKind.PAYOUT if record.type is TransactionType.B2C else EntryKind.COLLECTION
    known = (kind, record.account_reference or "") if entry is None else (entry.kind, entry.reference)
    # A callback without a status that can be read states no end.
    return End(*known, record.transaction_id, record.status or TransactionStatus.PENDING)


class Deliveries:
    """The deliveries of one account."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def was_delivered(self, transaction_id: str, status: TransactionStatus) -> bool:
        """Return whether an end, or one that outranks it, was delivered."""
        if not is_keepable(transaction_id):
            return False
        with self._store.database.connection() as connection:
            return history.was_delivered(self._read(connection, transaction_id), status)

    @contextmanager
    def handling(self, end: End | Payment) -> Generator[bool]:
        """Hold an end while it is handled; see `Journal.handling`."""
        with self._store.leases.lease() as lease:
            if not self._take(end, lease):
                yield False
                return
            try:
                yield True
            except BaseException:
                try:
                    self._add(end, lease, HistoryKind.DELIVERY_FAILED)
                except MomoPayError as error:
                    # Not raised, so that the caller gets the handler's error. The end of the lease frees the row.
                    logger.error("the end of %s: %s", end.transaction_id, error)  # noqa: TRY400
                raise
            self._add(end, lease, HistoryKind.DELIVERED)

    def _take(self, end: End | Payment, lease: Lease) -> bool:
        """Return False if an end was delivered, else take it. Raise CallbackError if another call has it."""
        key = {"the_account": self._store.account, "the_id": end.transaction_id}
        with self._store.database.connection() as connection:
            columns = self._store.leases.columns(lease, HANDLER_SECONDS)
            new = {"account": self._store.account, "transaction_id": end.transaction_id, **columns}
            if change(connection, INSERTS[deliveries], new):
                return True  # rows are never deleted, so nothing was delivered before
            # In this order: a call that ends after its row was read has added to the history by then, or is busy.
            (row,), ended = self._store.leases.read(connection, _FIND, ("account", self._store.account), key)
            known = self._read(connection, end.transaction_id)
            if history.was_delivered(known, end.status):
                return False
            is_free = row["claim"] in ended or any(each.by_whom == row["claim"] for each in known)
            # The claim is a condition: of several calls that take the row over at the same time, one succeeds.
            if is_free and change(connection, _TAKE_OVER, {**key, **columns, "the_claim": row["claim"]}):
                return True
        raise CallbackError(f"another call is handling the end of {end.transaction_id}; let it come again")

    def _read(self, connection: Connection, transaction_id: str) -> list[Any]:
        return list(connection.execute(_DELIVERIES, {"the_account": self._store.account, "the_id": transaction_id}))

    def _add(self, end: End | Payment, lease: Lease, what: HistoryKind) -> None:
        if not lease.is_own:  # a forked child leaves the end to its parent
            return
        details = {"transaction_id": end.transaction_id, "by_whom": lease.id}
        if not is_indexable(end.reference):  # the service's, of a payment that no entry knows
            details["reference"] = ""
        with self._store.database.connection() as connection:
            history.add(connection, self._store.account, end, [(what, None, end.status)], **details)
