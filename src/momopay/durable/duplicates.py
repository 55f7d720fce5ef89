"""Refuse a reference that was used before for another payment. No I/O.

A payout's reference stays with its amount, phone and refund for ever. An order keeps its amount; its phone may change
once no prompt is open.
"""

from __future__ import annotations

from datetime import UTC

from momopay import errors
from momopay._redaction import mask_phone
from momopay.journal.entries import MAY_BE_SENT, JournalEntry
from momopay.journal.evidence import Draft
from momopay.models.enums import EntryKind, Stage, stage_of
from momopay.models.transactions import Transaction
from momopay.phones import same_phone


def check_entry(entry: JournalEntry, draft: Draft) -> None:
    """Raise DuplicatePayoutError or DuplicateCollectionError if the row's payment is not the draft's."""
    is_payout = entry.kind is EntryKind.PAYOUT
    if entry.amount != draft.amount:
        raise _duplicate(entry, f"was used with another amount, KES {entry.amount}")
    # A refund must not be repeated as a plain payout, which has no refund limit, nor a plain payout as a refund.
    if entry.refund_of != draft.refund_of:
        raise _duplicate(entry, "was used for another refund, or for none")
    if entry.is_anonymised:
        # If it was made, `check_phone` compares the phone with the service's record. Else nothing shows the phone.
        was_made = entry.state not in MAY_BE_SENT if is_payout else any(each.is_paid for each in entry.transactions)
        if not was_made:
            raise _duplicate(entry, "was anonymised")
    elif is_payout and entry.phone != draft.phone:
        raise _duplicate(entry, "was used with another phone")


def check_phone(entry: JournalEntry, draft: Draft, transaction: Transaction) -> None:
    """Raise as `check_entry` if a transaction of the row, as the service shows it, is of another phone."""
    is_payout = entry.kind is EntryKind.PAYOUT
    phones = {each.transaction_id: each.phone for each in entry.transactions}
    # The journal's, because a read may mask the phone, and so hide that it is another one.
    phone = transaction.phone if entry.is_anonymised else phones.get(transaction.transaction_id, entry.phone)
    if phone is None:  # of an anonymised entry, if the read has none
        if is_payout:
            raise _duplicate(entry, "was anonymised, and the service does not show its phone")
    elif not same_phone(draft.phone, phone):
        # The phone of a payout can differ here only if it was anonymised: `check_entry` has compared the others.
        if is_payout or entry.is_anonymised:
            raise _duplicate(entry, "was used with another phone")
        if stage_of(transaction.status) is Stage.OPEN:
            since = f"{(transaction.created_at or entry.sent_at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            how = f"has an open prompt on {mask_phone(phone)} since {since}; wait for its end"
            raise _duplicate(entry, how, remedy="")


def _duplicate(
    entry: JournalEntry, how: str, *, remedy: str = ": give each {} a reference of its own"
) -> errors.MomoPayError:
    is_payout = entry.kind is EntryKind.PAYOUT
    error = errors.DuplicatePayoutError if is_payout else errors.DuplicateCollectionError
    message = f"reference {entry.reference!r} of {entry.created_at:%Y-%m-%d} {how}"
    return error(message + remedy.format("payout" if is_payout else "order"), reference=entry.reference)
