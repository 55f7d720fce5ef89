"""Find the differences between the service, the journal and the merchant's orders, and say what to do about each.

A payment that nobody knows is paired with the unpaid orders that it may be of. That is a proposal for a person: no
order counts as paid because of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Final, Literal, Self, TypeAlias, cast, get_args

from momopay.errors import RequestValidationError
from momopay.journal.entries import UNRESOLVED, JournalEntry, JournalState
from momopay.journal.journal import Journal, internals
from momopay.models.enums import EntryKind, TransactionStatus, TransactionType
from momopay.models.transactions import TransactionSummary, UnreadTransaction
from momopay.money import format_amount, parse_amount
from momopay.phones import same_phone

OrderState = Literal["PAID", "FAILED", "WAITING"]
# Entries are selected by when they were created. One that was created earlier may have been sent on the day.
EARLIER: Final = timedelta(days=7)
_NEAR: Final = timedelta(days=1)  # between an order and a payment that may be its own
_MOST_PROPOSED: Final = 3  # for one payment


class Remedy(Enum):
    """Each difference: what it means, and what to do about it."""

    UNKNOWN_PAYMENT = "nobody knows what was sold", "find out, or refund"
    OVERPAID = "paid more than once", "refund KES {amount}"
    PAID_TWICE = "paid more than once", "refund the rest"
    OTHER_AMOUNT = "another amount was paid", "ask the customer, or refund"
    OTHER_PHONE = "paid from another phone than we asked, or not by our prompt", "find out"
    NOT_SHIPPED = "paid and not shipped", "ship"
    NOT_PAID = "shipped and not paid", "ask the customer"
    NEVER_PAID = "never paid", "close"
    NOT_ENDED = "it may still be paid", "check again tomorrow"
    NEW_COLLECTION = "now in the journal", "nothing to do"
    OTHER_PAYOUT = "not the payout that we sent under this reference", "find out who sent it, as it may be paid twice"
    UNKNOWN_PAYOUT = "not in our journal", "find out who sent it"
    PAYOUT_TWICE = "paid more than once", "ask the recipient for the rest back"
    REVERSED = "the money came back", "{pay} under a new reference"
    CANCELLED = "it was cancelled", "{pay} under a new reference"
    FAILED = "it failed", "once it is REVERSED, {pay} under a new reference"
    NEW_PAYOUT = "now ACCEPTED in the journal", "nothing to do"
    ABSENT = "the service does not have it", "look into the account console"
    UNREADABLE = "the service's record of it cannot be read", "look into the account console"
    UNREAD_ITEM = "cannot be read ({problem})", "look into the account console"
    UNRESOLVED = "it may have been paid", "look into the account console, then release what was not paid"

    def of(self, **values: str) -> Advice:
        """Return the remedy with its sentence for these values."""
        return self, ": ".join(self.value).format(**values)


Advice: TypeAlias = tuple[Remedy, str]


@dataclass(frozen=True)
class BookedOrder:
    """One order in the merchant's own books.

    Attributes:
        reference: The collection's reference.
        amount: KES.
        state: ``PAID`` if you shipped it, ``WAITING`` if it waits for its payment, ``FAILED`` if you gave it up.

    Raises:
        RequestValidationError: The amount is no ``int`` or ``Decimal`` from 0, or the state is another text.
    """

    reference: str
    amount: Decimal | int
    state: OrderState

    def __post_init__(self) -> None:
        try:
            parse_amount(self.amount, minimum=0)
        except ValueError as error:
            raise RequestValidationError({"amount": str(error)}) from None
        if self.state not in get_args(OrderState):
            raise RequestValidationError({"state": "must be PAID, FAILED or WAITING"})

    @classmethod
    def read(cls, path: str | PathLike[str], *, sheet: str | None = None) -> list[Self]:
        """Read orders from a file: CSV, or .xlsx with the extra ``excel``.

        The first row names the columns ``reference``, ``amount`` and ``state``, in any order and case; other columns
        are ignored. Rows of an .xlsx file that are hidden are read as well, and logged at WARNING.

        Args:
            path: The file.
            sheet: The name of the sheet of an .xlsx file. By default the one that has the columns.

        Raises:
            FaultyFileError: Anything is wrong with the file. The one error has every fault, with its line, column,
                value and remedy.
            ModuleNotFoundError: An .xlsx file without the extra ``excel``.
            OSError: The file cannot be read.
        """
        from momopay.spreadsheets.rows import log_notes, read_orders  # noqa: PLC0415  few programs need it

        rows, notes = read_orders(path, sheet)
        log_notes(Path(path).name, notes)
        return [cls(each.reference, each.amount, cast("OrderState", each.state)) for each in rows]

    @classmethod
    def read_csv(cls, path: str | PathLike[str]) -> list[Self]:
        """Read orders as `read` does."""
        return cls.read(path)


@dataclass(frozen=True)
class Difference:
    """A difference between the service, the journal and the orders.

    Attributes:
        reference: Your own reference.
        ours: What your orders have, else what the journal has.
        theirs: What the service has.
        remedy: What it means, and what to do about it.
        transactions: The ids of the service's transactions, separated by spaces.
        kind: Which difference it is, such as ``not_shipped``, for a program.
        proposal: Which unpaid orders a payment that nobody knows may be of, or which such payments may be of an order.
            They have the same phone or amount, within a day. A person must decide.
    """

    reference: str
    ours: str
    theirs: str
    remedy: str
    transactions: str
    kind: str = ""
    proposal: str = ""


@dataclass(frozen=True)
class Seen:
    """One transaction of the service, and what the journal has for it."""

    transaction: TransactionSummary
    entry: JournalEntry | None = None  # the transaction's own
    before: JournalEntry | None = None  # `entry` as it was before this run, None if it did not have the transaction
    namesake: JournalEntry | None = None  # another entry with the transaction's reference

    @property
    def known(self) -> JournalEntry | None:
        """The transaction's entry, else another one with its reference."""
        return self.entry or self.namesake

    @property
    def reference(self) -> str:
        """The caller's reference: the service may have a token instead."""
        return (self.transaction.account_reference or "") if self.known is None else self.known.reference

    @property
    def is_new(self) -> bool:
        """Whether this run added the transaction to the journal."""
        return self.entry is not None and self.before is None

    @property
    def is_paid(self) -> bool:
        """Whether the money moved."""
        return self.transaction.status is TransactionStatus.SUCCESS


def find_differences(
    journal: Journal,
    seen: Iterable[Seen],
    orders: Mapping[str, BookedOrder] | None,
    missing: Iterable[tuple[JournalEntry, Remedy]],
    unread: Iterable[UnreadTransaction],
    days: tuple[datetime, datetime],
) -> Iterator[Difference]:
    """Yield the differences. `missing` are entries with a transaction that the service does not show."""
    collections: defaultdict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        if each.transaction.type is TransactionType.STK:
            collections[each.reference].append(each)
    proposals = _proposals(journal, chain.from_iterable(collections.values()), orders or {}, days)
    for reference in sorted(collections.keys() | (orders or {}).keys()):
        booked, prompts = None if orders is None else orders.get(reference), collections[reference]
        if advice := _of_order(journal, reference, booked, prompts, has_books=orders is not None):
            found = _difference(reference, booked, prompts, advice)
            yield replace(found, proposal="; ".join(proposals.get(reference, ())))
    # By the last transaction of each payout that was looked up, as one may change the entry of an earlier one.
    latest = {each.entry.reference: each.entry for each in seen if each.entry and each.entry.kind is EntryKind.PAYOUT}
    for each in seen:
        if each.transaction.type is TransactionType.B2C and (advice := _of_payout(journal, each, latest)):
            yield _difference(each.reference, None, [each], advice)
    for entry, remedy in missing:
        yield _made(remedy.of(), entry.reference, _ours(None, entry), "nothing", " ".join(entry.transaction_ids))
    for item in unread:
        advice = Remedy.UNREAD_ITEM.of(problem=item.problem)
        yield _made(advice, item.reference or "", "nothing", "an item of the list", item.id or "")
    for entry in journal.entries(state=JournalState.UNKNOWN, until=days[1]):
        yield _made(Remedy.UNRESOLVED.of(), entry.reference, _ours(None, entry), "nothing", "")


def _of_payout(journal: Journal, seen: Seen, latest: Mapping[str, JournalEntry]) -> Advice | None:
    entry, status = seen.entry and latest[seen.entry.reference], seen.transaction.status
    if entry is None:
        return (Remedy.UNKNOWN_PAYOUT if seen.namesake is None else Remedy.OTHER_PAYOUT).of()
    if entry.paid_twice:
        return Remedy.PAYOUT_TWICE.of()
    if status.ended_without_success and not entry.counting and entry.state not in UNRESOLVED:
        store, of = internals(journal).store, entry.refund_of
        if of is not None and store.refundable(of, entry.reference).left <= 0:
            return None  # another refund has paid it back since
        remedies = {TransactionStatus.REVERSED: Remedy.REVERSED, TransactionStatus.CANCELLED: Remedy.CANCELLED}
        return remedies.get(status, Remedy.FAILED).of(pay="refund" if of else "pay")
    return Remedy.NEW_PAYOUT.of() if seen.is_new else None


def _of_order(  # noqa: PLR0911  one for each remedy
    journal: Journal, reference: str, booked: BookedOrder | None, seen: Sequence[Seen], *, has_books: bool
) -> Advice | None:
    paid = [each for each in seen if each.is_paid]
    entry = next((each.entry for each in reversed(seen) if each.entry is not None), None)
    if not seen:  # it may be unresolved, or paid on another day
        entry = journal.get(reference, EntryKind.COLLECTION)
    refundable = partial(internals(journal).store.refundable, reference)

    def unless_refunded(remedy: Remedy) -> Advice | None:
        return None if any(each.entry is not None for each in paid) and not refundable().left else remedy.of()

    if paid and booked is None and (has_books or entry is None):
        return unless_refunded(Remedy.UNKNOWN_PAYMENT)
    if seen and entry is not None and entry.paid_twice and (overpaid := refundable().overpaid):
        return Remedy.OVERPAID.of(amount=format_amount(overpaid))
    if entry is None and len(paid) > 1:
        return Remedy.PAID_TWICE.of()
    wanted = booked.amount if booked is not None else entry.amount if entry is not None else None
    if any(each.transaction.amount != wanted for each in paid):
        return Remedy.OTHER_AMOUNT.of()
    if any(each.entry is None and each.namesake is not None for each in paid):
        return Remedy.OTHER_PHONE.of()
    was_paid = bool(paid) or (entry is not None and entry.status is TransactionStatus.SUCCESS)
    if booked is not None and was_paid and booked.state != "PAID":
        return unless_refunded(Remedy.NOT_SHIPPED)
    if booked is not None and not was_paid and (remedy := _of_unpaid(booked, seen, entry)):
        return remedy.of()
    return Remedy.NEW_COLLECTION.of() if any(each.is_new for each in seen) else None


def _of_unpaid(booked: BookedOrder, seen: Sequence[Seen], entry: JournalEntry | None) -> Remedy | None:
    if booked.state == "FAILED":
        return None
    is_open = entry is not None and (entry.state in UNRESOLVED or any(each.is_open for each in entry.transactions))
    if is_open or not all(each.transaction.status.is_terminal for each in seen):
        return Remedy.NOT_ENDED
    return Remedy.NEVER_PAID if booked.state == "WAITING" else Remedy.NOT_PAID


def _proposals(
    journal: Journal, prompts: Iterable[Seen], orders: Mapping[str, BookedOrder], days: tuple[datetime, datetime]
) -> Mapping[str, Sequence[str]]:
    """Return, by reference, the orders that a payment may be of, and the payments that may be of an order."""
    proposals: defaultdict[str, list[str]] = defaultdict(list)
    paid = [each for each in prompts if each.is_paid]
    strangers = [each.transaction for each in paid if each.known is None and each.reference not in orders]
    unpaid = list(_unpaid(journal, {each.reference for each in paid}, orders, days)) if strangers else []
    for payment in strangers:
        fits = [(_in_common(payment, *each), *each) for each in unpaid]
        most = max((len(names) for names, *_ in fits), default=0)
        best = [each for each in fits if each[0] and len(each[0]) == most]
        for names, reference, *_ in sorted(best, key=lambda each: _apart(payment, each[3]))[:_MOST_PROPOSED]:
            why = f"it has the same {' and '.join(names)}"
            proposals[payment.account_reference or ""].append(f"perhaps of {reference}: {why}")
            proposals[reference].append(f"perhaps paid by {payment.transaction_id}: {why}")
    return proposals


def _unpaid(
    journal: Journal, paid: Container[str], orders: Mapping[str, BookedOrder], days: tuple[datetime, datetime]
) -> Iterator[tuple[str, Decimal | int, JournalEntry | None]]:
    """Yield the reference, the amount and the entry of each order of the books and the journal that was not paid."""
    since, until = days[0] - EARLIER - _NEAR, days[1] + _NEAR
    entries = {each.reference: each for each in journal.entries(EntryKind.COLLECTION, since=since, until=until)}
    for reference in orders.keys() | entries.keys():
        entry = entries.get(reference) or journal.get(reference, EntryKind.COLLECTION)
        known = orders.get(reference) or entry
        if known is not None and reference not in paid and not (entry is not None and entry.counting):
            yield reference, known.amount, entry


def _in_common(
    payment: TransactionSummary, _reference: str, amount: Decimal | int, entry: JournalEntry | None
) -> list[str]:
    """Return the names of what a payment and an order have in common, if they are of about the same time."""
    if _apart(payment, entry) > _NEAR:
        return []
    has_phone = entry is not None and not entry.is_anonymised and same_phone(entry.phone, payment.phone)
    return ["phone"] * has_phone + ["amount"] * (amount == payment.amount)


def _apart(payment: TransactionSummary, entry: JournalEntry | None) -> timedelta:
    """Return the time between a payment and an order's first or last attempt; the books alone have none."""
    if entry is None:
        return _NEAR
    return min(abs(payment.created_at - each) for each in (entry.created_at, entry.sent_at))


def _difference(reference: str, booked: BookedOrder | None, seen: Sequence[Seen], advice: Advice) -> Difference:
    entry = next((each.known for each in seen if each.known is not None), None)
    theirs = ", ".join(f"{each.transaction.status} {format_amount(each.transaction.amount)}" for each in seen)
    ids = " ".join(each.transaction.transaction_id for each in seen)
    return _made(advice, reference, _ours(booked, entry), theirs or "nothing", ids)


def _made(advice: Advice, reference: str, ours: str, theirs: str, transactions: str) -> Difference:
    remedy, sentence = advice
    return Difference(reference, ours, theirs, sentence, transactions, remedy.name.lower())


def _ours(booked: BookedOrder | None, entry: JournalEntry | None) -> str:
    if booked is not None:
        return f"{booked.state} {format_amount(Decimal(booked.amount))}"
    if entry is None:
        return "nothing"
    paid = entry.status if entry.state is JournalState.ACCEPTED and entry.status is not None else entry.state
    return f"{paid} {format_amount(entry.amount)}"
