"""Records what callbacks (webhooks) and reads report, each in the entry that it belongs to.

A record of the service belongs to the entry that has its transaction, else to the entry that has its reference, amount
and phone. The reference alone does not identify an entry: it may have been used outside the journal.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from momopay._redaction import redacted_repr
from momopay.errors import CallbackMismatchError
from momopay.journal.entries import UNRESOLVED, EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import (
    Report,
    ServiceRecord,
    confirmed_report,
    differences,
    is_keepable,
    reference_of,
    report_of,
)
from momopay.journal.store import Store
from momopay.models.callbacks import Callback, CallbackTransaction
from momopay.models.enums import end_of
from momopay.models.transactions import Transaction, TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")


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
            self._record(entry, report_of(record))
            return self._store.get(entry.kind, entry.reference)
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
            raise _mismatch(record, differing)
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
        self._record(entry, report_of(record))
        return self._store.get(entry.kind, entry.reference)

    def record_read(
        self, entry: JournalEntry | None, read: Transaction, stated: CallbackTransaction, service_now: datetime | None
    ) -> tuple[JournalEntry | None, Report]:
        """Record the record with which a callback was confirmed, and what that lacks of the callback's own.

        `entry` is the one that has the transaction, if that is known. Return the entry before, None if the record
        belongs to none, and what was reported. Raise CallbackMismatchError if they differ.
        """
        if entry is None or read.transaction_id not in entry.transaction_ids:
            entry = self.check(read)
        elif differing := differences(entry, read):
            raise _mismatch(read, differing)
        report = confirmed_report(read, stated, service_now)
        if entry is None or not _identifies(entry, read):
            return None, report
        # A receipt that is known stays: anybody may have sent a later callback.
        known = {each.transaction_id: each.receipt for each in entry.transactions}.get(read.transaction_id)
        report = replace(report, receipt=None) if known else report
        self._record(entry, report)
        return entry, replace(report, receipt=known or report.receipt)

    def add_receipt(self, entry: JournalEntry, record: CallbackTransaction) -> None:
        """Record the receipt of an end that a sweep recorded before the callback came."""
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

    def _record(self, entry: JournalEntry, report: Report) -> None:
        if not is_keepable(report.transaction_id) or not self._store.record(entry, report):
            shown = redacted_repr(report.transaction_id), redacted_repr(entry.reference)
            logger.error("transaction %s fits reference %s, and is already that of another reference", *shown)


def _fits(entry: JournalEntry, record: ServiceRecord) -> bool:
    """Return whether a record of the service identifies an entry, and contradicts it in nothing."""
    return _identifies(entry, record) and not differences(entry, record)


def _identifies(entry: JournalEntry, record: ServiceRecord) -> bool:
    """Return whether a record of the service with an entry's reference shows enough to be the entry's."""
    return record.transaction_id in entry.transaction_ids or None not in {record.amount, record.phone}


def _mismatch(record: CallbackTransaction | TransactionSummary, differing: Sequence[str]) -> CallbackMismatchError:
    return CallbackMismatchError(
        f"the callback for {record.transaction_id} and the journal's entry differ in {', '.join(differing)}",
        transaction_id=record.transaction_id,
        fields=differing,
    )
