"""Which payment of the journal a record of the service belongs to.

A record belongs to the entry that has its transaction's id. A new transaction belongs to the entry of its reference if
nothing contradicts it and enough is known of it. The service's records may lack a reference, a phone or a type. A gap
contradicts nothing, and proves nothing either: what fills it is said by the callback, or by the reference for which the
callback's URL was signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from momopay.errors import CallbackMismatchError, ForgedCallbackError
from momopay.journal.entries import UNRESOLVED, JournalEntry, JournalState
from momopay.journal.evidence import ServiceRecord, differences, reference_of
from momopay.models.callbacks import CallbackTransaction
from momopay.models.enums import TransactionType, is_known_type
from momopay.models.transactions import Transaction, TransactionSummary
from momopay.phones import is_same_phone_if_known, may_be_phone

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.pages import Entries

OTHER_REFERENCE: Final = "the callback URL was signed for another payment"


class Matcher:
    """Matches the service's records to the entries of one account. It only reads."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def entry_of(self, record: ServiceRecord) -> JournalEntry | None:
        """Return the entry that a record belongs to, or None; see `Journal.by_transaction`."""
        # By the transaction first: a list may show another amount or reference than the entry has.
        known = self._entries.by_transaction(record.transaction_id)
        if known is not None:
            return known
        entry = self.of_reference(record)
        return entry if entry is not None and fits(entry, record) else None

    def check(
        self,
        record: CallbackTransaction | TransactionSummary,
        signed: str | None = None,
        kind: TransactionType | None = None,
    ) -> JournalEntry | None:
        """Return the entry that a record is about, or None. Raise CallbackMismatchError if they differ.

        `signed` is the reference for which the URL of the callback was signed. Raise ForgedCallbackError if the record
        is about another payment. `kind` is the type that the callback states, where the record has none: it may choose
        between a payout and an order of one reference, and excludes neither.
        """
        # By the transaction first, so that another reference than its entry's is a mismatch.
        entry = self._entries.by_transaction(record.transaction_id)
        differing = [] if entry is None else differences(entry, record)
        if entry is None or differing:
            owner = self._owner(record, signed, kind)
            others = [] if owner is None else differences(owner, record)
            # A broken response may have given another entry the id of the owner's payment, which is then unresolved.
            if entry is None or (owner is not None and owner.state in UNRESOLVED and not others):
                entry, differing = owner, others
        # A URL may be signed for the reference that the service has, but not for another payment's own.
        if (
            entry is not None
            and signed is not None
            and signed != entry.reference
            and (signed != entry.wire_reference or self._entries.by_reference(signed))
        ):
            raise ForgedCallbackError(OTHER_REFERENCE)
        if differing:
            raise mismatch(record, differing)
        return entry

    def of_reference(self, record: ServiceRecord, kind: TransactionType | None = None) -> JournalEntry | None:
        """Return the entry that the service knows by a record's reference, or None."""
        reference = reference_of(record)
        return _closest(self._entries.by_wire_reference(reference) if reference else [], record, kind)

    def may_be_known(self, record: ServiceRecord) -> bool:
        """Return whether a record that no entry has may be that of a payment in the journal, for all that is known."""
        reference = reference_of(record)
        if reference:
            return bool(self._entries.by_wire_reference(reference))
        return any(not differences(entry, record) for entry in self._entries.unresolved_or_sending())

    def _owner(self, record: ServiceRecord, signed: str | None, kind: TransactionType | None) -> JournalEntry | None:
        """Return the entry that a record may be about by its reference, or by the one that its URL was signed for."""
        named, of_reference = self._signed_for(record, signed, kind), self.of_reference(record, kind)
        if named is None or of_reference is None or of_reference.reference == named.reference:
            return named or of_reference
        # Orders may share a reference: what the other one waits for is not this one's.
        waits = of_reference.state in UNRESOLVED and named.state not in UNRESOLVED
        return of_reference if waits and not differences(of_reference, record) else named

    def _signed_for(
        self, record: ServiceRecord, signed: str | None, kind: TransactionType | None
    ) -> JournalEntry | None:
        """Return the entry of the reference for which a URL was signed; None if there is none.

        The service may know an order by another reference: by a token if the reference is longer than the service
        allows, or by an `account_reference`. Raise ForgedCallbackError if the record has neither.
        """
        if signed is None:
            return None
        reference = reference_of(record)
        named = self._entries.by_reference(signed)
        if reference:
            named = [entry for entry in named if entry.wire_reference == reference]
        # A payout may have the same reference as the prompts of an order.
        named = [entry for entry in named if _may_be_of(entry, record.type)]
        if not named and reference not in {None, signed}:
            raise ForgedCallbackError(OTHER_REFERENCE)
        return _closest(named, record, kind)


def _may_be_of(entry: JournalEntry, kind: TransactionType | None) -> bool:
    """Return whether a transaction of this type may be an entry's: no type, or an unknown one, says nothing."""
    return not is_known_type(kind) or kind == entry.kind.transaction_type


def _closest(found: Sequence[JournalEntry], record: ServiceRecord, kind: TransactionType | None) -> JournalEntry | None:
    """Return the one of several entries that a record may be about, or None."""
    fitting = [entry for entry in found if _may_be_of(entry, record.type)]
    if len({entry.kind for entry in fitting}) > 1:  # it may be either kind's
        own = [entry for entry in fitting if record.transaction_id in entry.transaction_ids]
        fitting = own or [entry for entry in fitting if kind == entry.kind.transaction_type]
    # Orders may share a reference: prefer the one that has the transaction, then the one that differs least, then one
    # that is unresolved or has not ended. Two open ones never have the same amount.
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


def filled(read: Transaction, stated: CallbackTransaction) -> Transaction:
    """Return a read in which what the service left out comes from the callback that it confirms."""
    missing: dict[str, object] = {}
    if reference_of(read) is None:
        missing["account_reference"] = stated.external_reference
    if read.phone is None or not may_be_phone(read.phone):
        missing["phone"] = stated.phone_number
    return read.model_copy(update=missing) if missing else read


def is_shown(entry: JournalEntry, read: Transaction, stated: CallbackTransaction, *, is_signed: bool) -> bool:
    """Return whether a confirmed callback shows enough to be about an entry, which nothing in it contradicts.

    Anybody may have sent a callback without a signed URL, so what the read itself shows counts more.
    """
    if read.transaction_id in entry.transaction_ids:
        return True
    shows_phone = read.phone is not None and may_be_phone(read.phone)
    if entry.state in UNRESOLVED:  # it waits for a transaction
        return reference_of(read) is not None or is_signed or (shows_phone and reference_of(stated) is not None)
    is_phone_known = shows_phone or (stated.phone is not None and is_same_phone_if_known(entry.phone, stated.phone))
    return reference_of(read) is not None and is_phone_known


def fits(entry: JournalEntry, record: ServiceRecord) -> bool:
    """Return whether a record of the service identifies an entry, and contradicts it in nothing."""
    is_identified = record.transaction_id in entry.transaction_ids or None not in {record.amount, record.phone}
    return is_identified and not differences(entry, record)


def mismatch(record: CallbackTransaction | TransactionSummary, differing: Sequence[str]) -> CallbackMismatchError:
    """Return the error for a record that differs from its entry."""
    return CallbackMismatchError(
        f"the callback for {record.transaction_id} and the journal's entry differ in {', '.join(differing)}",
        transaction_id=record.transaction_id,
        fields=differing,
    )
