"""Records what callbacks (webhooks) and reads report, each in the entry that it belongs to, and handles each end once.

`Recorder`: a record of the service belongs to the entry that has its transaction, else to the entry that has its
reference, amount and phone. The reference alone does not identify an entry: it may have been used outside the journal.

`Callbacks`: taking an end inserts a row, which is marked as handled when the handler returns. A handler that raises
deletes its row. If its process dies, the row stays, and the next delivery takes it over. FAILED is not handled after
SUCCESS or REVERSED, which outrank it, whichever arrives first. Therefore two ends of one transaction are never handled
at the same time: the handler of FAILED might finish last.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, and_, delete, select, update

from momopay._redaction import redacted_repr
from momopay.errors import CallbackError, CallbackMismatchError, MomoPayError
from momopay.journal.database import insert_new
from momopay.journal.entries import UNRESOLVED, EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import Report, ServiceRecord, differences, is_keepable, reference_of, report_of
from momopay.journal.leases import Lease
from momopay.journal.schema import TAKE_LEASE, callbacks
from momopay.journal.store import Store
from momopay.models.callbacks import Callback, CallbackTransaction
from momopay.models.enums import TransactionStatus, end_of, outranks
from momopay.models.transactions import Transaction, TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")

_Ended: TypeAlias = Callback | TransactionSummary

HANDLER_SECONDS: Final = 600.0  # after which a handler counts as dead, even if its process is alive


class Recorder:
    """Matches the service's records to the entries of one account, and records what they say."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle(self, record: ServiceRecord) -> JournalEntry | None:
        """Record what the service's own record says; return its entry, or None. See `Journal.settle`."""
        # By the reference first: after a broken response, another entry may have the id of this transaction.
        entry = self._of_reference(record) or self._store.by_transaction(record.transaction_id)
        if entry is None:
            return None
        if _fits(entry, record):
            return self._record(entry, report_of(record))
        if "type" not in differences(entry, record):  # a collection may have the same reference
            shown = redacted_repr(record.transaction_id), redacted_repr(entry.reference)
            logger.warning("transaction %s has reference %s, and another amount or phone", *shown)
        return None

    def entry_of(self, record: ServiceRecord) -> JournalEntry | None:
        """Return the entry that a record belongs to, or None; see `Journal.by_transaction`."""
        # By the transaction first: a list may show another amount or reference than the entry has.
        known = self._store.by_transaction(record.transaction_id)
        if known is not None:
            return known
        entry = self._of_reference(record)
        return entry if entry is not None and _fits(entry, record) else None

    def check(self, record: CallbackTransaction | TransactionSummary) -> JournalEntry | None:
        """Return the entry that a record belongs to, or None; raise CallbackMismatchError if they differ."""
        # By the transaction first, so that another reference than its entry's is a mismatch. The exception: a broken
        # response gave that entry the id of another payment, which is still unresolved and which the callback fits.
        entry = self._store.by_transaction(record.transaction_id)
        differing = [] if entry is None else differences(entry, record)
        if entry is None or differing:
            owner = self._of_reference(record)
            others = [] if owner is None else differences(owner, record)
            if entry is None or (owner is not None and owner.state in UNRESOLVED and not others):
                entry, differing = owner, others
        if differing:
            raise CallbackMismatchError(
                f"the callback for {record.transaction_id} and the journal's entry differ in {', '.join(differing)}",
                transaction_id=record.transaction_id,
                fields=differing,
            )
        return entry

    def record(self, callback: Callback) -> JournalEntry | None:
        """Record what a callback says that the caller vouches for; see `Journal.record`."""
        record = callback.transaction
        entry = self.check(record)
        if entry is None or not _fits(entry, record):
            return None
        if entry.kind is EntryKind.COLLECTION and record.id not in entry.transaction_ids:
            # Anybody who knows the URL could invent paid prompts, and so raise the limit of refunds.
            logger.warning(
                "order %s: a callback is about a prompt that the journal does not know; it is recorded once a read of"
                " the service shows it",
                redacted_repr(entry.reference),
            )
            return entry
        return self._record(entry, report_of(record))

    def record_read(
        self, read: Transaction, stated: CallbackTransaction, service_now: datetime | None
    ) -> JournalEntry | None:
        """Record the record with which a callback was confirmed, and what that lacks of the callback's own.

        Return the entry, or None if the record belongs to none.
        """
        entry = self.check(read)
        if entry is None or not _fits(entry, read):
            return None
        report, said = report_of(read, service_now), report_of(stated)
        if end_of(read.status) is end_of(stated.status):
            # A receipt that is known stays: anybody may have sent a later callback.
            known = {each.transaction_id: each.receipt for each in entry.transactions}.get(read.transaction_id)
            receipt = None if known else report.receipt or said.receipt
            code, fee = report.result_code or said.result_code, report.fee or said.fee
            report = replace(report, receipt=receipt, result_code=code, fee=fee)
        return self._record(entry, report)

    def add_receipt(self, callback: Callback) -> None:
        """Record the receipt of an end that a sweep recorded before the callback came."""
        record = callback.transaction
        entry = self.check(record)
        if entry is None:
            return
        for known in entry.transactions:
            is_its_end = known.status is not None and end_of(known.status) is end_of(record.status)
            if known.transaction_id == record.id and known.receipt is None and is_its_end:
                self._record(entry, report_of(record))

    def _of_reference(self, record: ServiceRecord) -> JournalEntry | None:
        reference = reference_of(record)
        found = self._store.by_wire_reference(reference) if reference else []
        fitting = [entry for entry in found if record.type in {None, entry.kind.transaction_type}]
        if record.type is None and len({entry.kind for entry in fitting}) > 1:  # it may be either kind's
            fitting = [entry for entry in fitting if record.transaction_id in entry.transaction_ids]
        # Orders may share a reference: prefer the one that has the transaction, then the one that differs least, then
        # one that is unresolved or has not ended. Two open ones never have the same amount.
        return min(
            fitting,
            key=lambda entry: (
                record.transaction_id not in entry.transaction_ids,
                len(differences(entry, record)),
                entry.state not in UNRESOLVED,
                entry.state is JournalState.ACCEPTED and entry.has_settled,
            ),
            default=None,
        )

    def _record(self, entry: JournalEntry, report: Report) -> JournalEntry | None:
        if not is_keepable(report.transaction_id) or not self._store.record(entry, report):
            shown = redacted_repr(report.transaction_id), redacted_repr(entry.reference)
            logger.error("transaction %s fits reference %s, and is already that of another reference", *shown)
        return self._store.get(entry.kind, entry.reference)


def _fits(entry: JournalEntry, record: ServiceRecord) -> bool:
    """Return whether a record of the service identifies an entry, and contradicts it in nothing."""
    is_identified = record.transaction_id in entry.transaction_ids or None not in {record.amount, record.phone}
    return is_identified and not differences(entry, record)


def _end_of(record: _Ended) -> str:
    return str(end_of(record.transaction.status if isinstance(record, Callback) else record.status))


class Callbacks:
    """The ends that were or are being handled. A transaction's id, and `end_of` its status, identify an end."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def first_seen(self, record: _Ended) -> bool:
        """Record an end as handled, and return whether it was new; see `Journal.first_seen`."""
        with self._store.leases.lease() as lease:
            if not self._insert(record, lease, handled=True):
                return False
            try:
                return not self._is_outranked(record)
            except CallbackError:
                self._delete(record, lease)  # so that it counts as new when it comes again
                raise

    @contextmanager
    def handling(self, record: _Ended) -> Generator[bool]:
        """Hold an end while it is handled; see `Journal.handling`."""
        with self._store.leases.lease() as lease:
            if not self._take(record, lease):
                yield False
                return
            try:
                # After the insert: of two ends that arrive at the same time, one then finds the row of the other.
                yield not self._is_outranked(record)
            except BaseException:
                try:
                    self._delete(record, lease)
                except MomoPayError as error:
                    # Not raised, so that the caller gets the handler's error. The end of the lease frees the row.
                    logger.error("the end of %s: %s", record.transaction_id, error)  # noqa: TRY400
                raise
            if lease.is_own:  # a forked child leaves the row to its parent
                self._store.change(update(callbacks).where(self._is_held(record, lease.id)).values(handled=True))

    def was_handled(self, record: _Ended) -> bool:
        """Return whether an end was handled."""
        row = self._ends(record).get(_end_of(record))
        return row is not None and bool(row["handled"])

    def _is_outranked(self, record: _Ended) -> bool:
        """Return whether an end that outranks this one was handled; raise CallbackError if another is being handled."""
        own = TransactionStatus(_end_of(record))
        others = {end: row for end, row in self._ends(record).items() if end != own}
        if not all(row["is_free"] for row in others.values()):
            raise _busy(record)
        return any(row["handled"] and outranks(TransactionStatus(end), own) for end, row in others.items())

    def _take(self, record: _Ended, lease: Lease) -> bool:
        """Return True if this call may handle it, False if it was handled; raise CallbackError if another call is."""
        if self._insert(record, lease, handled=False):
            return True
        row = self._ends(record).get(_end_of(record))
        if row is not None and row["handled"]:
            return False
        if row is not None and row["is_free"]:
            # The ended lease is a condition: of several calls that take the row over at the same time, one succeeds.
            take_over = update(callbacks).where(self._is_held(record, row["claim"]), ~callbacks.c.handled)
            if self._store.change(take_over.values(TAKE_LEASE), self._store.leases.columns(lease, HANDLER_SECONDS)):
                return True
        raise _busy(record)

    def _insert(self, record: _Ended, lease: Lease, *, handled: bool) -> bool:
        values: dict[str, object] = {"account": self._store.account, "transaction_id": record.transaction_id}
        values |= {"status": _end_of(record), "handled": handled, "seen_at": datetime.now(UTC).isoformat()}
        values |= self._store.leases.columns(lease, HANDLER_SECONDS)
        with self._store.database.connection() as connection:
            return insert_new(connection, callbacks, values)

    def _delete(self, record: _Ended, lease: Lease) -> None:
        if lease.is_own:  # as above
            with self._store.database.connection() as connection:
                connection.execute(delete(callbacks).where(self._is_held(record, lease.id)))

    def _ends(self, record: _Ended) -> Mapping[str, Mapping[Any, Any]]:
        """Return the rows of the transaction by its ends; ``is_free`` is whether no call is handling that end."""
        found = select(callbacks).where(self._is_transaction(record))
        with self._store.database.connection() as connection:
            rows, ended = self._store.leases.read(connection, found, ("handled", False))
        return {row["status"]: {**row, "is_free": row["handled"] or row["claim"] in ended} for row in rows}

    def _is_transaction(self, record: _Ended) -> ColumnElement[bool]:
        return and_(callbacks.c.account == self._store.account, callbacks.c.transaction_id == record.transaction_id)

    def _is_held(self, record: _Ended, claim: str) -> ColumnElement[bool]:
        """Return the condition that a lease holds the row of an end."""
        # A handler that counted as dead, but continues, must not change the row of its successor.
        is_end = callbacks.c.status == _end_of(record)
        return and_(self._is_transaction(record), is_end, callbacks.c.claim == claim)


def _busy(record: _Ended) -> CallbackError:
    return CallbackError(f"another call is handling the end of {record.transaction_id}; let it come again")
