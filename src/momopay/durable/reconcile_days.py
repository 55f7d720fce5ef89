"""Compare days of the service's list with the journal and the orders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.session import Session
from momopay.durable.access import check_account, report_change
from momopay.durable.day_report import BookedOrder, DayReport, day_bounds
from momopay.durable.day_rules import Seen, compare, kind_of, total
from momopay.durable.search import GET, PageWalk, page_at
from momopay.errors import TransactionNotFoundError
from momopay.journal.entries import EntryKind, JournalEntry, JournalState
from momopay.journal.journal import Journal, parts_of
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.requests import TransactionQuery, transaction_path
from momopay.models.transactions import TransactionSummary

# An entry whose reference was first used so long before may have been sent on the day.
_EARLIER: Final = timedelta(days=7)
# How many transactions that the list does not show are read by id.
_MOST_READS: Final = 100


async def reconcile_days(
    session: Session[BackendT],
    journal: Journal,
    *,
    day: date,
    last_day: date | None,
    orders: Iterable[BookedOrder] | None,
    utc: bool,
) -> DayReport:
    """Do what `Transactions.reconcile` promises."""
    since, until = day_bounds(day, last_day, utc=utc)
    booked = None if orders is None else {each.reference: each for each in orders}
    in_thread = session.backend.in_thread
    # The list of another account would show nothing of what is in this journal.
    await check_account(session, journal, restored=True)
    theirs = await _listed(session, since, until)
    missing: list[JournalEntry] = []
    unseen = await in_thread(partial(_unseen, journal, since, until, {each.transaction_id for each in theirs}))
    for number, (entry, transaction_id) in enumerate(unseen):
        found = await _read(session, transaction_id) if number < _MOST_READS else None
        if found is None:
            missing.append(entry)
        elif since <= found.created_at < until:
            theirs.append(found)
    seen = await in_thread(lambda: [_look_up(journal, each) for each in theirs])
    for each in seen:
        if each.entry is not None and (each.before is None or each.before.status != each.entry.status):
            old = None if each.before is None else each.before.state
            report_change(session, each.entry.kind, each.entry.reference, old, each.entry.state, each.transaction)
    unresolved = await in_thread(lambda: list(journal.entries(state=JournalState.UNKNOWN, until=until)))
    overpaid = await in_thread(partial(_overpaid, journal, seen))
    unlisted = await in_thread(partial(_unlisted, journal, booked or {}, seen))
    refunded = await in_thread(partial(_refunded, journal, booked, seen))
    payouts = [each for each in seen if each.transaction.type is TransactionType.B2C]
    paid = [each for each in payouts if each.is_paid]
    refunds = [each for each in paid if each.entry is not None and each.entry.refund_of]
    return DayReport(
        since=since,
        until=until,
        transactions=len(theirs),
        collected=total(each for each in seen if each.is_paid and each.transaction.type is TransactionType.STK),
        paid_out=total(paid) - total(refunds),
        refunded=total(refunds),
        fees=sum((each.transaction_fee or Decimal(0) for each in theirs), Decimal(0)),
        came_back=total(each for each in payouts if each.transaction.status is TransactionStatus.REVERSED),
        open=sum(not each.status.is_terminal for each in theirs),
        differences=tuple(compare(seen, booked, missing, unresolved, overpaid, unlisted, refunded)),
    )


async def _listed(session: Session[BackendT], since: datetime, until: datetime) -> list[TransactionSummary]:
    """Return the transactions of the days. The formats of the filters are not specified, so they are compared again."""
    query = TransactionQuery.checked(page_size=100, from_=since, to=until)
    walk = PageWalk(partial(page_at, session, query))
    found: dict[str, TransactionSummary] = {}  # by id: a list that grows while it is walked shows some twice
    while (page := await walk.next()) is not None:
        found |= {each.transaction_id: each for each in page.items if since <= each.created_at < until}
        if page.items and page.items[-1].created_at < since:
            break
    return list(found.values())


async def _read(session: Session[BackendT], transaction_id: str) -> TransactionSummary | None:
    try:
        return await call(session, GET, transaction_path(transaction_id))
    except TransactionNotFoundError:
        return None


def _unseen(journal: Journal, since: datetime, until: datetime, ids: set[str]) -> list[tuple[JournalEntry, str]]:
    """Return the transactions that were sent on the days, as far as the journal knows, and are not listed."""
    return [
        (entry, each.transaction_id)
        for entry in journal.entries(since=since - _EARLIER, until=until)
        for each in entry.transactions
        if since <= each.sent_at < until and each.transaction_id not in ids
    ]


def _look_up(journal: Journal, transaction: TransactionSummary) -> Seen:
    """Return what the journal has for a transaction. An outcome that is unknown there is thereby resolved."""
    kind = kind_of(transaction)
    if kind is None:
        return Seen(transaction)
    before = parts_of(journal).store.by_transaction(transaction.transaction_id)
    settled = journal.settle(transaction)
    if settled is not None and transaction.transaction_id in settled.transaction_ids:
        return Seen(transaction, settled, is_news=before is None, before=before)
    reference = transaction.account_reference
    namesake = settled or before or (None if not reference else journal.get(reference, kind))
    return Seen(transaction, namesake=namesake)


def _overpaid(journal: Journal, seen: Iterable[Seen]) -> dict[str, Decimal]:
    """Return, by order, what was paid beyond one payment and not paid back, KES."""
    entries = (each.entry for each in seen if each.entry is not None and each.entry.paid_twice)
    orders = {entry.reference for entry in entries if entry.kind is EntryKind.COLLECTION}
    overpaid: dict[str, Decimal] = {}
    for reference in orders:
        overpaid[reference] = parts_of(journal).store.refundable(reference).overpaid
    return overpaid


def _unlisted(journal: Journal, booked: Iterable[str], seen: Iterable[Seen]) -> dict[str, JournalEntry]:
    """Return the entries of orders that have no transaction: they may have been paid on another day, or be in doubt."""
    others = set(booked).difference(each.reference for each in seen)
    entries = (journal.get(reference, EntryKind.COLLECTION) for reference in others)
    return {entry.reference: entry for entry in entries if entry is not None}


def _refunded(journal: Journal, booked: Mapping[str, BookedOrder] | None, seen: Iterable[Seen]) -> set[str]:
    """Return the orders that were paid, though not booked so, and of which nothing is left to refund."""
    if booked is None:
        return set()
    shipped = {each.reference for each in booked.values() if each.state == "PAID"}
    entries = (each.entry for each in seen if each.entry is not None and each.is_paid)
    paid = {entry.reference for entry in entries if entry.kind is EntryKind.COLLECTION} - shipped
    return {reference for reference in paid if not parts_of(journal).store.refundable(reference).left}
