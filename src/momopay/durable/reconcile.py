"""Compare days of the service's list with the journal and the merchant's orders; say what to do about differences."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Final, Literal, Self, cast

from momopay._core.reads import PageWalk, read_page, read_transaction
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._redaction import redacted_repr
from momopay.durable.access import check_account, emit_change
from momopay.durable.lookup import search_for
from momopay.errors import ProtocolError, RequestValidationError, ServerError, TransactionNotFoundError
from momopay.journal.entries import UNRESOLVED, EntryKind, JournalEntry, JournalState
from momopay.journal.journal import Journal, internals
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.requests import Fit, TransactionQuery, oldest_time
from momopay.models.transactions import TransactionSummary, UnreadTransaction
from momopay.money import format_amount

OrderState = Literal["PAID", "FAILED", "WAITING"]
_STATES: Final = frozenset({"PAID", "FAILED", "WAITING"})
# Within these, neither the next day nor a time zone overflows a datetime.
_YEARS: Final = range(1970, 9999)
_NAIROBI: Final = timezone(timedelta(hours=3))
# A spreadsheet takes a text that begins so for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
# Entries are selected by when they were created. One that was created earlier may have been sent on the day.
_EARLIER: Final = timedelta(days=7)


@dataclass(frozen=True)
class BookedOrder:
    """One order in the merchant's own books.

    Attributes:
        reference: The collection's reference.
        amount: KES.
        state: ``PAID`` if you shipped it, ``WAITING`` if it waits for its payment, ``FAILED`` if you gave it up.
    """

    reference: str
    amount: Decimal | int
    state: OrderState

    @classmethod
    def read_csv(cls, path: str | PathLike[str]) -> list[Self]:
        """Read orders from a CSV file with the columns reference, amount and state.

        Raises:
            RequestValidationError: The file is not UTF-8, a line cannot be read, or two lines have one reference.
            OSError: The file cannot be read.
        """
        orders: dict[str, Self] = {}
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
            reader = csv.DictReader(io.StringIO(text, newline=""))
            rows = [(reader.line_num, row) for row in reader]
        except (UnicodeDecodeError, csv.Error):
            raise RequestValidationError({"orders": "must be CSV in UTF-8"}) from None
        if not {each.name for each in fields(cls)} <= {*(reader.fieldnames or ())}:  # else it would pass for no orders
            raise RequestValidationError({"orders": "line 1 must name the columns reference, amount and state"})
        for number, row in rows:
            reference, state = (row.get("reference") or "").strip(), (row.get("state") or "").strip().upper()
            try:
                amount = Decimal((row.get("amount") or "").strip())
            except InvalidOperation:
                amount = Decimal("NaN")
            if not reference or reference in orders or state not in _STATES or not amount.is_finite():
                problem = "needs a reference of its own, an amount, and a state: PAID, FAILED or WAITING"
                shown = ", ".join(redacted_repr(row[each.name]) for each in fields(cls))
                raise RequestValidationError({"orders": f"line {number} {problem}; it has {shown}"})
            orders[reference] = cls(reference, amount, cast("OrderState", state))
        return list(orders.values())


@dataclass(frozen=True)
class Difference:
    """A difference between the service, the journal and the orders.

    Attributes:
        reference: Your own reference.
        ours: What your orders have, else what the journal has.
        theirs: What the service has.
        remedy: What to do about it.
        transactions: The ids of the service's transactions, separated by spaces.
    """

    reference: str
    ours: str
    theirs: str
    remedy: str
    transactions: str


@dataclass(frozen=True)
class DayReport:
    """The comparison of one or several days. Sums are in KES.

    Attributes:
        since: When the days begin.
        until: When they end (exclusive).
        transactions: How many transactions the service has.
        collected: Sum of the collections that succeeded.
        paid_out: Sum of the payouts that succeeded, without refunds.
        refunded: Sum of the refunds that succeeded.
        fees: Sum of the fees that the service reports.
        came_back: Sum of the payouts that were reversed.
        open: How many transactions have not ended.
        unread: How many items of the list could not be read. They are in no sum, and each is a difference.
        differences: What does not agree.
    """

    since: datetime
    until: datetime
    transactions: int
    collected: Decimal
    paid_out: Decimal
    refunded: Decimal
    fees: Decimal
    came_back: Decimal
    open: int
    unread: int
    differences: tuple[Difference, ...]

    @property
    def agrees(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write the differences to a CSV file: a header, then one line for each."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(each.name for each in fields(Difference))
            for each in self.differences:
                lines.writerow(f"'{text}" if text.startswith(_FORMULA) else text for text in astuple(each))


def day_bounds(day: date, last_day: date | None, *, utc: bool) -> tuple[datetime, datetime]:
    """Return the begin and the end of the days, of Nairobi unless `utc`. Raise RequestValidationError if invalid."""
    problems: dict[str, str] = {}
    for name, each in ({"day": day} | ({} if last_day is None else {"last_day": last_day})).items():
        if isinstance(each, datetime) or not isinstance(each, date):
            problems[name] = "must be a date without a time"
        elif each.year not in _YEARS:
            problems[name] = f"must be in the years {_YEARS.start} to {_YEARS.stop - 1}"
    if not problems and last_day is not None and last_day < day:
        problems["last_day"] = "is before the first day"
    if problems:
        raise RequestValidationError(problems)
    zone = UTC if utc else _NAIROBI
    begin, end = (datetime.combine(each, time(), zone) for each in (day, last_day or day))
    return begin, end + timedelta(days=1)


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


async def reconcile_days(
    session: Session[BackendT],
    journal: Journal,
    *,
    day: date,
    last_day: date | None,
    orders: Iterable[BookedOrder] | None,
    utc: bool,
) -> DayReport:
    """Reconcile days as `Transactions.reconcile` documents it."""
    since, until = day_bounds(day, last_day, utc=utc)
    booked = None if orders is None else {each.reference: each for each in orders}
    in_thread = session.backend.in_thread
    await check_account(session, journal, restored=True)
    theirs, unread = await _listed(session, since, until)
    missing: list[tuple[JournalEntry, str]] = []
    unseen = await in_thread(_unseen, journal, since, until, {each.transaction_id for each in theirs})
    for entry, transaction_id in unseen:
        try:
            found = await read_transaction(session, transaction_id)
        except (TransactionNotFoundError, ProtocolError, ServerError) as error:  # perhaps for this transaction alone
            is_absent = isinstance(error, TransactionNotFoundError)
            problem = "the service does not have it" if is_absent else "the service's record of it cannot be read"
            missing.append((entry, problem))
        else:
            unread.pop(transaction_id, None)
            if found.created_at is None or since <= found.created_at < until:
                theirs.append(found.model_copy(update={"type": found.type or entry.kind.transaction_type}))
    seen = await in_thread(lambda: [_record_and_look_up(journal, each, session.clock.ahead) for each in theirs])
    for each in seen:
        if each.entry is not None and (each.before is None or each.before.status != each.entry.status):
            old = None if each.before is None else each.before.state
            emit_change(session, each.entry, old, each.entry.state, each.transaction)
    payouts = [each for each in seen if each.transaction.type is TransactionType.B2C]
    paid = [each for each in payouts if each.is_paid]
    refunds = [each for each in paid if each.entry is not None and each.entry.refund_of]
    return DayReport(
        since=since,
        until=until,
        transactions=len(theirs),
        collected=_total(each for each in seen if each.is_paid and each.transaction.type is TransactionType.STK),
        paid_out=_total(paid) - _total(refunds),
        refunded=_total(refunds),
        fees=sum((each.transaction_fee or Decimal(0) for each in theirs), Decimal(0)),
        came_back=_total(each for each in payouts if each.transaction.status is TransactionStatus.REVERSED),
        open=sum(not each.status.is_terminal for each in theirs),
        unread=len(unread),
        differences=await in_thread(lambda: tuple(_differences(journal, seen, booked, missing, unread, until))),
    )


async def _listed(
    session: Session[BackendT], since: datetime, until: datetime
) -> tuple[list[TransactionSummary], dict[object, UnreadTransaction]]:
    """Return the transactions of the days by their own times, and the items of the list that cannot be read."""
    query = TransactionQuery.checked(page_size=100, from_=since, to=until)
    walk = PageWalk(partial(read_page, session, query))
    found: dict[str, TransactionSummary] = {}  # by id, because a list that grows during the walk shows some twice
    unread: dict[object, UnreadTransaction] = {}
    while (page := await walk.next()) is not None:
        session.clock.observe(page.response.headers)
        found |= {each.transaction_id: each for each in page.items if since <= each.created_at < until}
        unread |= {each.id or (len(unread), place): each for place, each in enumerate(page.unread)}
        oldest = oldest_time(page)
        if oldest is not None and oldest < since:
            break
    return list(found.values()), unread


def _unseen(journal: Journal, since: datetime, until: datetime, ids: set[str]) -> list[tuple[JournalEntry, str]]:
    """Return the journal's transactions that were sent on the days and are not listed, each after its entry."""
    return [
        (entry, each.transaction_id)
        for entry in journal.entries(since=since - _EARLIER, until=until)
        for each in entry.transactions
        if since <= each.sent_at < until and each.transaction_id not in ids
    ]


def _record_and_look_up(journal: Journal, transaction: TransactionSummary, ahead: float) -> Seen:
    """Record a transaction in the journal, which may resolve an unknown outcome. Return what the journal has for it."""
    kind = next((each for each in EntryKind if each.transaction_type is transaction.type), None)
    if kind is None:  # a top-up, or a new type
        return Seen(transaction)
    found = journal.by_transaction(transaction)
    before = found if found is not None and transaction.transaction_id in found.transaction_ids else None
    # The time counts, too: one from before the first attempt was made without the journal. See `ServiceClock.ahead`.
    if found is not None and before is None and search_for(found).shifted(ahead).fit(transaction) is not Fit.EXACT:
        return Seen(transaction, namesake=found)
    settled = journal.settle(transaction)
    if settled is not None and transaction.transaction_id in settled.transaction_ids:
        return Seen(transaction, settled, before)
    reference = transaction.account_reference
    return Seen(transaction, namesake=settled or before or (journal.get(reference, kind) if reference else None))


def _total(seen: Iterable[Seen]) -> Decimal:
    return sum((each.transaction.amount for each in seen), Decimal(0))


def _differences(
    journal: Journal,
    seen: Iterable[Seen],
    orders: Mapping[str, BookedOrder] | None,
    missing: Iterable[tuple[JournalEntry, str]],
    unread: Mapping[object, UnreadTransaction],
    until: datetime,
) -> Iterator[Difference]:
    """Yield the differences. `missing` are entries with a transaction that the service does not show, and why."""
    collections: defaultdict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        if each.transaction.type is TransactionType.STK:
            collections[each.reference].append(each)
    for reference in sorted(collections.keys() | (orders or {}).keys()):
        booked, prompts = None if orders is None else orders.get(reference), collections[reference]
        if remedy := _of_order(journal, reference, booked, prompts, has_books=orders is not None):
            yield _difference(reference, booked, prompts, remedy)
    # By the last transaction of each payout that was looked up, as one may change the entry of an earlier one.
    latest = {each.entry.reference: each.entry for each in seen if each.entry and each.entry.kind is EntryKind.PAYOUT}
    for each in seen:
        if each.transaction.type is TransactionType.B2C and (remedy := _of_payout(journal, each, latest)):
            yield _difference(each.reference, None, [each], remedy)
    for entry, problem in missing:
        remedy = f"{problem}: look into the account console"
        yield Difference(entry.reference, _ours(None, entry), "nothing", remedy, " ".join(entry.transaction_ids))
    for item in unread.values():
        remedy = f"cannot be read ({item.problem}): look into the account console"
        yield Difference(item.reference or "", "nothing", "an item of the list", remedy, item.id or "")
    for entry in journal.entries(state=JournalState.UNKNOWN, until=until):
        remedy = "it may have been paid: look into the account console, then release what was not paid"
        yield Difference(entry.reference, _ours(None, entry), "nothing", remedy, "")


def _of_payout(journal: Journal, seen: Seen, latest: Mapping[str, JournalEntry]) -> str:
    entry, status = seen.entry and latest[seen.entry.reference], seen.transaction.status
    if entry is None:
        if seen.namesake is not None:
            return "not the payout that we sent under this reference: paid twice, or another amount or phone"
        return "not in our journal: find out who sent it"
    if entry.paid_twice:
        return "paid more than once: ask the recipient for the rest back"
    if status.ended_without_success and not entry.counting and entry.state not in UNRESOLVED:
        store, of = internals(journal).store, entry.refund_of
        if of is not None and store.refundable(of, entry.reference).left <= 0:
            return ""  # another refund has paid it back since
        why = {TransactionStatus.REVERSED: "the money came back:", TransactionStatus.CANCELLED: "it was cancelled:"}
        return f"{why.get(status, 'it failed: once it is REVERSED,')} {'refund' if of else 'pay'} under a new reference"
    return "now ACCEPTED in the journal: nothing to do" if seen.is_new else ""


def _of_order(  # noqa: PLR0911  one for each remedy
    journal: Journal, reference: str, booked: BookedOrder | None, seen: Sequence[Seen], *, has_books: bool
) -> str:
    paid = [each for each in seen if each.is_paid]
    entry = next((each.entry for each in reversed(seen) if each.entry is not None), None)
    if not seen:  # it may be unresolved, or paid on another day
        entry = journal.get(reference, EntryKind.COLLECTION)
    refundable = partial(internals(journal).store.refundable, reference)

    def unless_refunded(remedy: str) -> str:
        return "" if any(each.entry is not None for each in paid) and not refundable().left else remedy

    if paid and booked is None and (has_books or entry is None):
        return unless_refunded("nobody knows what was sold: find out, or refund")
    if seen and entry is not None and entry.paid_twice and (overpaid := refundable().overpaid):
        return f"paid more than once: refund KES {format_amount(overpaid)}"
    if entry is None and len(paid) > 1:
        return "paid more than once: refund the rest"
    wanted = booked.amount if booked is not None else entry.amount if entry is not None else None
    if any(each.transaction.amount != wanted for each in paid):
        return "another amount was paid: ask the customer, or refund"
    if any(each.entry is None and each.namesake is not None for each in paid):
        return "paid from another phone than we asked, or not by our prompt: find out"
    was_paid = bool(paid) or (entry is not None and entry.status is TransactionStatus.SUCCESS)
    if booked is not None and was_paid and booked.state != "PAID":
        return unless_refunded("paid and not shipped: ship")
    if booked is not None and not was_paid and (remedy := _of_unpaid(booked, seen, entry)):
        return remedy
    return "now in the journal: nothing to do" if any(each.is_new for each in seen) else ""


def _of_unpaid(booked: BookedOrder, seen: Sequence[Seen], entry: JournalEntry | None) -> str:
    if booked.state == "FAILED":
        return ""
    is_open = entry is not None and (entry.state in UNRESOLVED or any(each.is_open for each in entry.transactions))
    if is_open or not all(each.transaction.status.is_terminal for each in seen):
        return "check again tomorrow"
    return "never paid: close" if booked.state == "WAITING" else "shipped and not paid: ask the customer"


def _difference(reference: str, booked: BookedOrder | None, seen: Sequence[Seen], remedy: str) -> Difference:
    entry = next((each.known for each in seen if each.known is not None), None)
    theirs = ", ".join(f"{each.transaction.status} {format_amount(each.transaction.amount)}" for each in seen)
    ids = " ".join(each.transaction.transaction_id for each in seen)
    return Difference(reference, _ours(booked, entry), theirs or "nothing", remedy, ids)


def _ours(booked: BookedOrder | None, entry: JournalEntry | None) -> str:
    if booked is not None:
        return f"{booked.state} {format_amount(Decimal(booked.amount))}"
    if entry is None:
        return "nothing"
    paid = entry.status if entry.state is JournalState.ACCEPTED and entry.status is not None else entry.state
    return f"{paid} {format_amount(entry.amount)}"
