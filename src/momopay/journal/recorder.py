"""Record what the service says about a payment, in the entry that it is about.

That is the entry that has the transaction, else the one of the reference. It must have the record's reference, amount
and phone: anybody may have used the reference outside the journal, so it alone identifies nothing.
"""

from __future__ import annotations

import logging

from momopay._redaction import redacted_repr
from momopay.errors import CallbackMismatchError
from momopay.journal.entries import UNRESOLVED, EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import ServiceRecord, differences, is_keepable, reference_of, report_of
from momopay.journal.store import Store
from momopay.models.callbacks import Callback, is_confirmed
from momopay.models.enums import end_of

logger: logging.Logger = logging.getLogger("momopay")


class Recorder:
    """Records about the payments of one account."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle(self, record: ServiceRecord) -> JournalEntry | None:
        """Record what the service's own record says; return the entry, None if it identifies none."""
        entry = self._of_reference(record) or self._by_transaction(record)
        if entry is None:
            return None
        differing = differences(entry, record)
        if differing or not _is_identified(entry, record):
            if "type" not in differing:  # a collection may have the same reference
                logger.warning(
                    "transaction %s has reference %s, and another amount or phone",
                    redacted_repr(record.transaction_id),
                    redacted_repr(entry.reference),
                )
            return None
        return self._record(entry, record)

    def entry_of(self, record: ServiceRecord) -> JournalEntry | None:
        """Return the entry that a record of the service is about, or None; see `Journal.by_transaction`."""
        # By the transaction first: a list may show another amount or reference than the entry has.
        known = self._by_transaction(record)
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
        # By the transaction first: under another reference than its entry's it is a mismatch; unless a broken response
        # gave that entry the id of another payment, which is unresolved and fits the callback.
        entry, owner = self._by_transaction(record), self._of_reference(record)
        is_owners = owner is not None and owner.state in UNRESOLVED and not differences(owner, record)
        if entry is None or (is_owners and differences(entry, record)):
            entry = owner
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
        entry, record = self.check(callback), callback.transaction
        if entry is None or not _is_identified(entry, record):
            return None
        is_new_prompt = entry.kind is EntryKind.COLLECTION and record.id not in entry.transaction_ids
        if is_new_prompt and not is_confirmed(callback):
            # Whoever has the URL could invent prompts, and raise the limit of refunds.
            logger.warning(
                "order %s: a callback is about a prompt that the journal does not know; it is recorded once a read of"
                " the service shows it",
                redacted_repr(entry.reference),
            )
            return entry
        return self._record(entry, record)

    def add_receipt(self, callback: Callback) -> None:
        """Record the receipt of an end that was recorded without one: a sweep came before the callback."""
        entry = self.check(callback)
        if entry is None:
            return
        known = next((each for each in entry.transactions if each.transaction_id == callback.transaction_id), None)
        if known is None or known.receipt is not None or known.status is None:
            return
        if end_of(known.status) is end_of(callback.transaction.status):
            self._record(entry, callback.transaction)

    def _by_transaction(self, record: ServiceRecord) -> JournalEntry | None:
        return self._store.by_transaction(record.transaction_id) if is_keepable(record.transaction_id) else None

    def _of_reference(self, record: ServiceRecord) -> JournalEntry | None:
        reference = reference_of(record)
        if not reference or not is_keepable(reference):
            return None
        found = self._store.by_wire_reference(reference)
        fitting = [entry for entry in found if record.type in {None, entry.kind.transaction_type}]
        # Of orders that share a reference, the one that has the transaction; else the one that differs least and has
        # not ended. Two that are open never have the same amount.
        return min(
            fitting,
            key=lambda entry: (
                record.transaction_id not in entry.transaction_ids,
                len(differences(entry, record)),
                entry.state is JournalState.ACCEPTED and entry.has_settled,
            ),
            default=None,
        )

    def _record(self, entry: JournalEntry, record: ServiceRecord) -> JournalEntry | None:
        if not is_keepable(record.transaction_id) or not self._store.record(entry, report_of(record)):
            logger.error(
                "transaction %s fits reference %s, and is already that of another reference",
                redacted_repr(record.transaction_id),
                redacted_repr(entry.reference),
            )
        return self._store.get(entry.kind, entry.reference)


def _is_identified(entry: JournalEntry, record: ServiceRecord) -> bool:
    by_id = record.transaction_id in entry.transaction_ids
    return by_id or None not in {record.amount, record.phone}
