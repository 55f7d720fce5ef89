"""Record what the service says about a payment, in the entry that it is about.

That is the entry that has the transaction, else the one of the reference. It must have the record's reference, amount
and phone: anybody may have used the reference outside the journal, so it alone identifies nothing.
"""

from __future__ import annotations

import logging
from typing import TypeAlias

from momopay._redaction import redacted_repr
from momopay.errors import CallbackMismatchError
from momopay.journal.collections import Collections
from momopay.journal.entries import EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.lookups import Lookups
from momopay.journal.payments import Payments
from momopay.models.callbacks import Callback, CallbackTransaction
from momopay.models.enums import end_of
from momopay.models.matching import RequestedPayment
from momopay.models.payouts import Payout
from momopay.models.transactions import TransactionSummary

logger: logging.Logger = logging.getLogger("momopay")

ServiceRecord: TypeAlias = TransactionSummary | Payout | CallbackTransaction


class Recorder:
    """Records about the payouts and collections of one account."""

    def __init__(self, payouts: Payments, collections: Collections, lookups: Lookups) -> None:
        self._payouts = payouts
        self._collections = collections
        self._lookups = lookups

    def settle(self, record: ServiceRecord) -> JournalEntry | None:
        """Record what the service's own record says; return the entry, None if it identifies none."""
        entry = self._of_reference(record) or self._lookups.by_transaction(record.transaction_id)
        if entry is None:
            return None
        differing = differences(entry, record)
        if differing or not _is_identified(entry, record):
            if "type" not in differing:  # a collection may have the same reference
                logger.warning(
                    "transaction %s has reference %s, and another amount or phone",
                    record.transaction_id,
                    redacted_repr(entry.reference),
                )
            return None
        return self._accept(entry, record)

    def entry_of(self, record: ServiceRecord) -> JournalEntry | None:
        """Return the entry that a record of the service is about, or None; see `Journal.by_transaction`."""
        # By the transaction first: a list may show another amount or reference than the entry has.
        known = self._lookups.by_transaction(record.transaction_id)
        if known is not None:
            return known
        entry = self._of_reference(record)
        fits = entry is not None and not differences(entry, record) and _is_identified(entry, record)
        return entry if fits else None

    def check(self, callback: Callback) -> JournalEntry | None:
        """Return the entry that a callback is about, None if there is none.

        Raises:
            CallbackMismatchError: It states another amount, phone or reference than the entry.
        """
        record = callback.transaction
        # By the transaction first: under another reference than its entry's it is a mismatch.
        entry = self._lookups.by_transaction(record.transaction_id) or self._of_reference(record)
        differing = [] if entry is None else differences(entry, record)
        if entry is not None and differing:
            raise CallbackMismatchError(
                f"the callback for {record.id} and the journal's entry differ in {', '.join(differing)}",
                transaction_id=record.id,
                fields=differing,
            )
        return entry

    def record(self, callback: Callback) -> JournalEntry | None:
        """Record what a callback says for which the caller vouches; see `Journal.record`."""
        entry = self.check(callback)
        if entry is None or not _is_identified(entry, callback.transaction):
            return None
        return self._accept(entry, callback.transaction)

    def add_receipt(self, callback: Callback) -> None:
        """Record the receipt of an end that was recorded without one: a sweep came before the callback."""
        entry = self.check(callback)
        if entry is None or callback.transaction_id not in entry.transaction_ids:
            return
        known = next((each for each in entry.prompts if each.transaction_id == callback.transaction_id), entry)
        same_end = known.status is not None and end_of(known.status) is end_of(callback.transaction.status)
        if entry.state is JournalState.ACCEPTED and known.receipt is None and same_end:
            self._accept(entry, callback.transaction)

    def _of_reference(self, record: ServiceRecord) -> JournalEntry | None:
        reference = reference_of(record)
        if not reference:
            return None
        entries = filter(None, [self._payouts.get(reference), self._collections.by_wire_reference(reference)])
        fitting = [entry for entry in entries if record.type in {None, entry.kind.transaction_type}]
        # Without a type, the one that has the amount and the phone.
        return min(fitting, key=lambda entry: len(differences(entry, record)), default=None)

    def _accept(self, entry: JournalEntry, record: ServiceRecord) -> JournalEntry | None:
        rows = self._payouts if entry.kind is EntryKind.PAYOUT else self._collections
        if not rows.accept(entry.reference, report_of(record)):
            logger.error(
                "transaction %s fits reference %s, and is already that of another reference",
                record.transaction_id,
                redacted_repr(entry.reference),
            )
        return rows.get(entry.reference)


def reference_of(record: ServiceRecord) -> str | None:
    """Return the reference that a record of the service has."""
    return record.reference if isinstance(record, Payout) else record.account_reference


def differences(entry: JournalEntry, record: ServiceRecord) -> list[str]:
    """Return the names of what a record of the service states differently than an entry."""
    # Without its phone, an entry is identified by its transaction.
    phone = None if entry.is_anonymised and record.transaction_id in entry.transaction_ids else entry.phone
    wanted = RequestedPayment(entry.wire_reference or entry.reference, entry.amount, phone, entry.kind.transaction_type)
    return wanted.differences(reference_of(record), record)


def _is_identified(entry: JournalEntry, record: ServiceRecord) -> bool:
    # The id of an UNKNOWN payout is one that an unclear response showed.
    is_accepted = entry.kind is EntryKind.COLLECTION or entry.state is JournalState.ACCEPTED
    by_id = is_accepted and record.transaction_id in entry.transaction_ids
    return by_id or None not in {record.amount, record.phone}
