"""What does not agree between the service, the journal and the orders, and what to do about it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from momopay.durable.day_report import BookedOrder, Difference
from momopay.journal.entries import UNRESOLVED, EntryKind, JournalEntry, JournalState
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.transactions import TransactionSummary
from momopay.money import format_amount

_NOT_SOLD: Final = "nobody knows what was sold: find out, or refund"
_NOT_SHIPPED: Final = "paid and not shipped: ship"
_UNLESS_REFUNDED: Final = frozenset({_NOT_SOLD, _NOT_SHIPPED})


@dataclass(frozen=True)
class Seen:
    """One transaction of the service, and what the journal had for it.

    Attributes:
        transaction: The service's record.
        entry: The entry of the transaction, None if there is none.
        namesake: Another entry, which has the reference.
        is_news: The journal did not know the transaction before.
        before: The entry as it was before this was recorded in it, None if the journal did not know the transaction.
    """

    transaction: TransactionSummary
    entry: JournalEntry | None = None
    namesake: JournalEntry | None = None
    is_news: bool = False
    before: JournalEntry | None = None

    @property
    def reference(self) -> str:
        """The caller's reference: the service may have a token of it."""
        known = self.entry or self.namesake
        return (self.transaction.account_reference or "") if known is None else known.reference

    @property
    def is_paid(self) -> bool:
        """Whether the money moved."""
        return self.transaction.status is TransactionStatus.SUCCESS


def total(seen: Iterable[Seen]) -> Decimal:
    """Return the sum of the amounts, KES."""
    return sum((each.transaction.amount for each in seen), Decimal(0))


def compare(
    seen: Sequence[Seen],
    orders: Mapping[str, BookedOrder] | None,
    missing: Iterable[JournalEntry],
    unresolved: Iterable[JournalEntry],
    overpaid: Mapping[str, Decimal],
    unlisted: Mapping[str, JournalEntry],
    refunded: Collection[str],
) -> Iterator[Difference]:
    """Yield the differences.

    Args:
        seen: The service's transactions.
        orders: The merchant's own, None if they were not given.
        missing: Entries with a transaction that the service does not have.
        unresolved: Entries that read as UNKNOWN.
        overpaid: What was paid too often of orders, and not paid back, KES.
        unlisted: The entries of orders of which these days have no transaction.
        refunded: The orders that were paid, and paid back.
    """
    collections: defaultdict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        if each.transaction.type is TransactionType.STK:
            collections[each.reference].append(each)
    booked = orders or {}
    for reference in sorted(collections.keys() | booked.keys()):
        entry = next((each.entry for each in collections[reference] if each.entry), unlisted.get(reference))
        is_known = orders is None or reference in booked
        remedy = _of_order(booked.get(reference), collections[reference], entry, overpaid, is_known=is_known)
        if remedy and not (reference in refunded and remedy in _UNLESS_REFUNDED):
            yield _difference(reference, booked.get(reference), collections[reference], remedy)
    for each in seen:
        if each.transaction.type is TransactionType.B2C and (remedy := _of_payout(each)):
            yield _difference(each.reference, None, [each], remedy)
    for entry in missing:
        remedy = "the service does not have it: look into the account console"
        yield Difference(entry.reference, _ours(None, entry), "nothing", remedy, " ".join(entry.transaction_ids))
    for entry in unresolved:
        remedy = "it may have been paid: look into the account console, then release what was not paid"
        yield Difference(entry.reference, _ours(None, entry), "nothing", remedy, "")


def _of_payout(seen: Seen) -> str:
    entry = seen.entry
    if entry is None:
        if seen.namesake is not None:
            return "not the payout that we sent under this reference: paid twice, or another amount or phone"
        return "not in our journal: find out who sent it"
    again = "refund" if entry.refund_of else "pay"
    if seen.transaction.status is TransactionStatus.REVERSED:
        return f"the money came back: {again} under a new reference"
    if seen.transaction.status is TransactionStatus.FAILED:
        return f"it failed: once it is REVERSED, {again} under a new reference"
    return "now ACCEPTED in the journal: nothing to do" if seen.is_news else ""


def _of_order(  # noqa: PLR0911  one for each remedy
    booked: BookedOrder | None,
    seen: Sequence[Seen],
    entry: JournalEntry | None,
    overpaid: Mapping[str, Decimal],
    *,
    is_known: bool,
) -> str:
    paid = [each for each in seen if each.is_paid]
    reference = seen[0].reference if seen else ""
    if paid and booked is None and not (is_known and entry is not None):
        return _NOT_SOLD
    if overpaid.get(reference):
        return f"paid more than once: refund KES {format_amount(overpaid[reference])}"
    if entry is None and len(paid) > 1:
        return "paid more than once: refund the rest"
    wanted = booked.amount if booked is not None else entry.amount if entry is not None else None
    if any(each.transaction.amount != wanted for each in paid):
        return "another amount was paid: ask the customer, or refund"
    if any(each.entry is None and each.namesake is not None for each in paid):
        return "paid from another phone than we asked, or not by our prompt: find out"
    if booked is not None and (remedy := _of_books(booked, seen, entry)):
        return remedy
    return "now in the journal: nothing to do" if any(each.is_news for each in seen) else ""


def _of_books(booked: BookedOrder, seen: Sequence[Seen], entry: JournalEntry | None) -> str:
    # It may have been paid on another day.
    if any(each.is_paid for each in seen) or _was_paid(entry):
        return "" if booked.state == "PAID" else _NOT_SHIPPED
    if booked.state == "FAILED":
        return ""
    if not all(each.transaction.status.is_terminal for each in seen) or _may_be_paid(entry):
        return "check again tomorrow"
    return "never paid: close" if booked.state == "WAITING" else "shipped and not paid: ask the customer"


def _was_paid(entry: JournalEntry | None) -> bool:
    return entry is not None and entry.status is TransactionStatus.SUCCESS


def _may_be_paid(entry: JournalEntry | None) -> bool:
    if entry is None:
        return False
    return entry.state in UNRESOLVED or any(each.is_open for each in entry.transactions)


def _difference(reference: str, booked: BookedOrder | None, seen: Sequence[Seen], remedy: str) -> Difference:
    entry = next((known for each in seen if (known := each.entry or each.namesake) is not None), None)
    theirs = ", ".join(f"{each.transaction.status} {format_amount(each.transaction.amount)}" for each in seen)
    ids = " ".join(each.transaction.transaction_id for each in seen)
    return Difference(reference, _ours(booked, entry), theirs or "nothing", remedy, ids)


def _ours(booked: BookedOrder | None, entry: JournalEntry | None) -> str:
    """Return what the orders have, else what the journal has."""
    if booked is not None:
        return f"{booked.state} {format_amount(booked.amount)}"
    if entry is None:
        return "nothing"
    paid = entry.status if entry.state is JournalState.ACCEPTED and entry.status is not None else entry.state
    return f"{paid} {format_amount(entry.amount)}"


def kind_of(transaction: TransactionSummary) -> EntryKind | None:
    """Return which kind of entry a transaction belongs to; None for a top-up, or a type that is new."""
    return next((kind for kind in EntryKind if kind.transaction_type is transaction.type), None)
