"""Compare days of the service's list with the journal and the merchant's orders; see `momopay.durable.remedies`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from momopay._core.reads import PageWalk, read_page, read_transaction
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay.durable.access import check_account, emit_change
from momopay.durable.lookup import search_for
from momopay.durable.remedies import EARLIER, BookedOrder, Difference, Remedy, Seen, find_differences
from momopay.errors import (
    APIError,
    ProtocolError,
    RequestValidationError,
    ServerError,
    TransactionNotFoundError,
    moment_or_none,
)
from momopay.journal.entries import JournalEntry
from momopay.journal.journal import Journal
from momopay.models.enums import EntryKind, TransactionStatus, TransactionType
from momopay.models.requests import Fit, TransactionQuery, oldest_time
from momopay.models.transactions import TransactionSummary, UnreadTransaction
from momopay.spreadsheets.writer import write_csv

logger: logging.Logger = logging.getLogger("momopay.reconcile")  # the command line shows its warnings

_NO_FILTER: Final = frozenset({400, 422})  # statuses for an unknown parameter
# Within these, neither the next day nor a time zone overflows a datetime.
_YEARS: Final = range(1970, 9999)
NAIROBI: Final = timezone(timedelta(hours=3), "EAT")
"""The zone of the days of a reconciliation, unless another one is given."""


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
        fees: Sum of the fees that the service reports. The wallet may have paid more: see `without_fee`.
        came_back: Sum of the payouts that were reversed.
        open: How many transactions have not ended.
        unread: How many items of the list could not be read. They are in no sum, and each is a difference.
        differences: What does not agree.
        without_fee: How many transactions ended without success and show no fee. The service takes a fee from the
            service wallet when a payment begins, gives none back, and shows 0 once it has failed.
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
    without_fee: int = 0

    @property
    def agrees(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def write_csv(self, path: str | PathLike[str]) -> None:
        """Write the differences to a CSV file, as spreadsheets read it: a header, then one line for each."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            write_csv(file, [each.name for each in fields(Difference)], (astuple(each) for each in self.differences))


def day_bounds(day: date, last_day: date | None, zone: tzinfo | None = None) -> tuple[datetime, datetime]:
    """Return the begin and the end of the days, by default of Nairobi. Raise RequestValidationError if invalid."""
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
    after = (last_day or day) + timedelta(days=1)
    return datetime.combine(day, time(), zone or NAIROBI), datetime.combine(after, time(), zone or NAIROBI)


async def reconcile_days(
    session: Session[BackendT],
    journal: Journal,
    *,
    day: date,
    last_day: date | None,
    orders: Iterable[BookedOrder] | None,
    zone: tzinfo | None,
) -> DayReport:
    """Reconcile days as `Transactions.reconcile` documents it."""
    days = since, until = day_bounds(day, last_day, zone)
    booked = None if orders is None else {each.reference: each for each in orders}
    in_thread = session.backend.in_thread
    await check_account(session, journal, restored=True)
    try:
        theirs, unread = await _listed(session, since, until, is_filtered=True)
    except APIError as error:
        if error.status_code not in _NO_FILTER:
            raise
        logger.warning("reconcile: the service does not filter by time (%s): reading its list back to %s", error, since)
        theirs, unread = await _listed(session, since, until, is_filtered=False)
    missing: list[tuple[JournalEntry, Remedy]] = []
    unseen = await in_thread(_unseen, journal, since, until, {each.transaction_id for each in theirs})
    for entry, transaction_id in unseen:
        try:
            found = await read_transaction(session, transaction_id)
        except (TransactionNotFoundError, ProtocolError, ServerError) as error:  # perhaps for this transaction alone
            is_absent = isinstance(error, TransactionNotFoundError)
            missing.append((entry, Remedy.ABSENT if is_absent else Remedy.UNREADABLE))
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
    differences = find_differences(journal, seen, booked, missing, unread.values(), days)  # reads the journal
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
        differences=await in_thread(tuple[Difference, ...], differences),
        without_fee=sum(each.status.ended_without_success and not each.transaction_fee for each in theirs),
    )


async def _listed(
    session: Session[BackendT], since: datetime, until: datetime, *, is_filtered: bool
) -> tuple[list[TransactionSummary], dict[object, UnreadTransaction]]:
    """Return the transactions of the days by their own times, and the items of the list that cannot be read."""
    days: dict[str, Any] = {"from_": since, "to": until} if is_filtered else {}
    query = TransactionQuery.checked(page_size=100, **days)
    walk = PageWalk(partial(read_page, session, query))
    found: dict[str, TransactionSummary] = {}  # by id, because a list that grows during the walk shows some twice
    unread: dict[object, UnreadTransaction] = {}
    while (page := await walk.next()) is not None:
        session.clock.observe(page.response.headers)
        found |= {each.transaction_id: each for each in page.items if since <= each.created_at < until}
        oldest = oldest_time(page)
        unread |= {
            each.id or object(): each
            for each in page.unread
            # Without a filter, pages have other days' items. One whose time is unknown may be of these days.
            if is_filtered or since <= (_created(each) or oldest or since) < until
        }
        if oldest is not None and oldest < since:
            break
    return list(found.values()), unread


def _created(item: UnreadTransaction) -> datetime | None:
    """Return when a transaction was created that could not be read as a whole; None if that is what is unreadable."""
    match item.raw:
        case {"createdAt": text} | {"created_at": text}:
            return moment_or_none(text)
        case _:
            return None


def _unseen(journal: Journal, since: datetime, until: datetime, ids: set[str]) -> list[tuple[JournalEntry, str]]:
    """Return the journal's transactions that were sent on the days and are not listed, each after its entry."""
    return [
        (entry, each.transaction_id)
        for entry in journal.entries(since=since - EARLIER, until=until)
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
