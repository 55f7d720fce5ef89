"""Follow everything in the journal that has not ended, in one bounded pass; resolve what is unresolved.

The newest pages of the list come first: each shows a hundred transactions for one request. A pass goes on to the next
page as long as pages show what it looks for, or something unresolved may be deeper; what is left is read by id, at
random, so that nothing is always last. What a pass does not reach is left to the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain, zip_longest
from random import sample
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redacted_repr
from momopay.durable.access import check_account, report_change
from momopay.durable.delivery import AsyncTransactionHandler, Delivered, Delivery, TransactionHandler
from momopay.durable.search import (
    GET,
    LIST,
    Matches,
    PageWalk,
    describe,
    search,
    search_for,
    service_times,
)
from momopay.errors import MomoPayError, TransactionNotFoundError
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.evidence import differences, is_keepable, report_of
from momopay.journal.journal import Journal, parts_of
from momopay.journal.rules import Proof, proof
from momopay.models.enums import end_of, has_settled
from momopay.models.requests import Fit, Search, TransactionQuery, transaction_path
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary, transaction_from

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.reports import EndedPrompt, Followed

__all__ = ["SweepReport"]

logger: logging.Logger = logging.getLogger("momopay")

P = ParamSpec("P")

# Requests of one pass, of which some are for what lies deeper than its pages.
_REQUESTS: Final = 14
_PAGES: Final = 12
# A further page is worth its request if the last one showed at least as many as could be read by id instead.
_WORTH_A_PAGE: Final = 2


@dataclass(frozen=True)
class SweepReport:
    """What one sweep did, and what it left.

    Attributes:
        settled: How many payments it found ended and recorded so; each prompt of an order counts.
        open: How many transactions have not settled after it, without what is unresolved.
        unknown: How many entries are unresolved after it.
        handled: How many ends the handler handled.
        failed: For how many ends the handler raised. They are delivered again.
    """

    settled: int = 0
    open: int = 0
    unknown: int = 0
    handled: int = 0
    failed: int = 0


async def sweep(
    session: Session[BackendT], journal: Journal, handler: TransactionHandler | AsyncTransactionHandler | None
) -> SweepReport:
    """Do what `Transactions.sweep` promises."""
    in_thread = session.backend.in_thread
    reports = parts_of(journal).reports
    delivery = None if handler is None else Delivery(session, journal, handler)
    await check_account(session, journal)
    # The earlier one of two clocks that may be wrong.
    now = min(datetime.now(UTC), session.clock.service_now())
    since = None if delivery is None else await in_thread(lambda: reports.handled_since(now))
    pass_ = SweepPass(session, journal, since)
    failure: MomoPayError | None = None
    try:
        await pass_.run()
    except MomoPayError as error:  # what was read before is recorded, and is delivered first
        failure = error
    counts = dict.fromkeys(Delivered, 0)
    if delivery is not None and since is not None:
        for each in await in_thread(partial(reports.unhandled, since)):
            transaction = pass_.ended.get(each.transaction.transaction_id)
            status = each.transaction.status
            # What this pass did not reach is left to the next one.
            if transaction is not None and status is not None and end_of(transaction.status) is end_of(status):
                counts[await delivery.deliver(transaction)] += 1
        await in_thread(partial(reports.forget_handled, since))
    if failure is not None:
        raise failure
    opened, unknown = await in_thread(lambda: (reports.count_open()[0], len(journal.unresolved())))
    report = SweepReport(pass_.settled, opened, unknown, counts[Delivered.HANDLED], counts[Delivered.FAILED])
    if session.operation is not None:
        session.operation.sweep_ended(**vars(report))
    return report


async def reconcile_all(session: Session[BackendT], journal: Journal) -> list[JournalEntry]:
    """Search for all that is unresolved in one walk of the list, and return it as it is then."""
    store, in_thread = parts_of(journal).store, session.backend.in_thread
    await check_account(session, journal)
    entries = await in_thread(journal.unresolved)
    if not entries:
        return []
    wanted = await in_thread(lambda: [search_for(each, store.others(each)) for each in entries])
    for entry, matches in zip(entries, await search(session, wanted), strict=True):
        made = await in_thread(partial(_record_made, journal, entry, matches, session.clock.service_now_if_known()))
        for each in made:
            report_change(session, entry.kind, entry.reference, entry.state, JournalState.ACCEPTED, each)
        if not made:
            logger.warning("reference %s stays unknown: %s", redacted_repr(entry.reference), describe(matches))
    return await in_thread(lambda: [store.get(each.kind, each.reference) or each for each in entries])


def _record_made(
    journal: Journal, entry: JournalEntry, matches: Matches, service_now: datetime | None
) -> list[TransactionSummary]:
    """Record the transactions that a search proves to be those of an entry, oldest first, and return them."""
    store = parts_of(journal).store
    if proof(entry.kind, matches.exact, matches.near) is not Proof.MADE:
        return []
    exact = [each for each in matches.exact[::-1] if is_keepable(each.transaction_id)]
    return [each for each in exact if store.record(entry, report_of(each, service_now))]


@dataclass
class _Due:
    """What a pass has to read."""

    followed: dict[str, Followed] = field(default_factory=dict[str, "Followed"])
    """By id: what is open, what ended for a handler, and what is to be read once more."""
    unhandled: frozenset[str] = frozenset()
    """Of these, the ends that no handler handled yet."""
    ended: dict[str, EndedPrompt] = field(default_factory=dict[str, "EndedPrompt"])
    """Of these, the prompts that ended without success and were not read again since."""
    searched: list[tuple[JournalEntry, Search]] = field(default_factory=list[tuple[JournalEntry, Search]])
    """What is unresolved, or was released by a person ten minutes ago, and how to search for it."""


class SweepPass:
    """The requests of one sweep, and what it records of their responses."""

    def __init__(self, session: Session[Any], journal: Journal, since: str | None) -> None:
        self._session = session
        self._journal = journal
        self._since = since
        self._parts = parts_of(journal)
        self._due = _Due()
        self._missing = set[str]()
        self._without_code = set[str]()
        self._requests = 0
        self._pages = 0
        self._last: TransactionPage | None = None
        self._is_at_end = False
        # Written in a thread, and reported by the task or thread that sweeps.
        self._changes: list[tuple[JournalEntry, JournalState, JournalState, TransactionSummary]] = []
        self.ended: dict[str, Transaction] = {}
        """What was read and has ended."""
        self.settled: int = 0
        """How many ends this pass recorded."""

    async def run(self) -> None:
        """Make the requests of a pass, and record each response at once."""
        await self._session.backend.in_thread(self._find_due)
        self._missing = set(self._due.followed)
        # One alone is read by id. For prompts that ended without success, a page also shows the service's time.
        if self._due.searched or self._due.ended or len(self._missing) > 1:
            await self._read_pages()
        service_now = self._session.clock.service_now_if_known()
        if service_now is not None:
            unknown = [name for name, each in self._due.ended.items() if each.learned_at_service is None]
            note = partial(self._parts.reports.note_service_time, unknown, service_now)
            await self._session.backend.in_thread(note)
        for transaction_id in self._by_turns():
            if self._requests == _REQUESTS:
                return
            await self._read_by_id(transaction_id)

    def _find_due(self) -> None:
        reports, store = self._parts.reports, self._parts.store
        unhandled: list[Followed] = []
        if self._since is not None:
            reports.forget_handled(self._since)  # what callbacks brought need not be read
            unhandled = reports.unhandled(self._since)
        ended = reports.ended_prompts()
        again = [each.followed for each in ended.values()]
        followed = {each.transaction.transaction_id: each for each in [*again, *unhandled, *reports.not_settled()]}
        searched = {(each.kind, each.reference): each for each in [*reports.released(), *self._journal.unresolved()]}
        self._due = _Due(
            followed,
            frozenset(each.transaction.transaction_id for each in unhandled),
            ended,
            [(each, search_for(each, store.others(each))) for each in searched.values()],
        )

    async def _read_pages(self) -> None:
        walk = PageWalk(self._page)

        async def next_page() -> TransactionPage | None:
            if self._pages == _PAGES:
                return None
            page = await walk.next()
            self._is_at_end = page is None or not page.next_cursor
            return page

        before = len(self._missing)
        if self._due.searched:
            await self._search(next_page)
        elif await next_page() is None:
            return
        while self._missing and not self._is_at_end and before - len(self._missing) >= _WORTH_A_PAGE:
            before = len(self._missing)
            if await next_page() is None:
                return

    async def _search(self, next_page: Callable[[], Any]) -> None:
        """Search the pages for what is unresolved. What is older than a pass reaches stays so."""
        wanted = [each for _, each in self._due.searched]
        found = await search(self._session, wanted, walk=_Walk(next_page))
        service_now = self._session.clock.service_now_if_known()
        searched = zip(self._due.searched, service_times(self._session, wanted), found, strict=True)
        for (entry, _), each, matches in searched:
            reached = self._is_at_end or (self._last is not None and each.is_past(self._last))
            if not reached:
                why = "older than a sweep reaches, which reconcile_all searches too"
                logger.info("reference %s stays unknown: %s", redacted_repr(entry.reference), why)
                continue
            await self._recorded(self._record_found, entry, matches, service_now)

    def _record_found(self, entry: JournalEntry, matches: Matches, service_now: datetime | None) -> None:
        made = _record_made(self._journal, entry, matches, service_now)
        for record in made:
            self._changes.append((entry, entry.state, JournalState.ACCEPTED, record))
            self.settled += has_settled(entry.kind.transaction_type, record.status)
            self._note_end(record, needs_code=True)
        if entry.state is not JournalState.UNKNOWN:  # it was released
            self._parts.reports.mark_searched(entry)
        elif not made:
            logger.info("reference %s stays unknown: %s", redacted_repr(entry.reference), describe(matches))

    def _by_turns(self) -> Iterable[str]:
        """Yield what is still to be read by id, of each kind in turns."""
        # At random, so that nothing is always last, and several sweeps at once do not read the same.
        seen = {entry.seen_id for entry, _ in self._due.searched if entry.seen_id}
        unhandled, ended = self._missing & self._due.unhandled, self._missing & self._due.ended.keys()
        late = {each for each in ended if self._is_due_again(each)}
        kinds = [self._missing - unhandled - ended, unhandled, self._without_code, late, seen]
        turns = zip_longest(*(sample(sorted(kind), len(kind)) for kind in kinds))
        return (each for each in dict.fromkeys(chain.from_iterable(turns)) if each is not None)

    async def _page(self, cursor: str | None) -> TransactionPage:
        """Read a page of the list, and record what it shows."""
        self._requests += 1
        self._pages += 1
        query = TransactionQuery.checked(limit=100, cursor=cursor).to_query()
        page = await call(self._session, LIST, "/transactions" + query, lane=Lane.POLL)
        self._last = page
        self._session.clock.observe(page.response.headers)
        await self._recorded(self._record_all, page.items)
        return page

    async def _read_by_id(self, transaction_id: str) -> None:
        self._requests += 1
        try:
            transaction = await call(self._session, GET, transaction_path(transaction_id), lane=Lane.POLL)
        except TransactionNotFoundError:
            logger.warning("the service knows no transaction %s, which is in the journal", transaction_id)
            return
        self._session.clock.observe(transaction.response.headers)
        await self._recorded(self._record_all, [transaction])

    async def _recorded(self, record: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Write to the journal in a thread, then report what has changed."""
        await self._session.backend.in_thread(partial(record, *args, **kwargs))
        while self._changes:
            entry, old, new, shown = self._changes.pop(0)
            report_change(self._session, entry.kind, entry.reference, old, new, shown)

    def _record_all(self, records: Iterable[TransactionSummary]) -> None:
        checked = list[str]()
        for record in records:
            followed = self._due.followed.get(record.transaction_id)
            if followed is not None:
                if not isinstance(record, Transaction) and differences(followed.entry, record):
                    continue  # a page may show another amount, such as one with the fee: it is read by id
                self._missing.discard(record.transaction_id)
                self._record(followed, record)
                if self._is_due_again(record.transaction_id):
                    checked.append(record.transaction_id)
            elif isinstance(record, Transaction):
                self._record_seen(record)  # a page is searched as a whole
        self._parts.reports.mark_checked(checked)

    def _record(self, followed: Followed, record: TransactionSummary) -> None:
        entry, known = followed.entry, followed.transaction
        is_news = record.transaction_id in self._due.unhandled or record.transaction_id in self._without_code
        if known.is_open and (differing := differences(entry, record)):
            logger.error(
                "transaction %s is not the payment of reference %s: the service's record has another %s",
                record.transaction_id,
                redacted_repr(entry.reference),
                ", ".join(differing),
            )
            del self._due.followed[record.transaction_id]
            if self._parts.store.contradict(entry, record.transaction_id):
                self._changes.append((entry, entry.state, JournalState.UNKNOWN, record))
            return
        has_changed = record.status != known.status
        if has_changed or (isinstance(record, Transaction) and is_news):
            report = report_of(record, self._session.clock.service_now_if_known())
            self._parts.store.record(entry, report, may_add=False)
        if has_changed:
            self._changes.append((entry, entry.state, entry.state, record))
            kept = known.model_copy(update={"status": record.status})
            self._due.followed[record.transaction_id] = type(followed)(entry, kept)
            self.settled += has_settled(entry.kind.transaction_type, record.status)
        self._note_end(record, needs_code=has_changed or record.transaction_id in self._due.unhandled)

    def _is_due_again(self, transaction_id: str) -> bool:
        """Return whether it is time to read a prompt that ended without success once more."""
        ended = self._due.ended.get(transaction_id)
        return ended is not None and ended.is_due(self._session.clock.service_now_if_known())

    def _note_end(self, record: TransactionSummary, *, needs_code: bool) -> None:
        if not record.status.is_terminal:
            return
        if isinstance(record, Transaction):
            self._without_code.discard(record.transaction_id)
        elif record.status.ended_without_success and needs_code:
            self._without_code.add(record.transaction_id)
        self.ended[record.transaction_id] = transaction_from(record)

    def _record_seen(self, record: Transaction) -> None:
        """Record a transaction whose id a broken response showed, if it is the payment."""
        for entry, wanted in self._due.searched:
            if entry.seen_id == record.transaction_id and wanted.fit(record) is Fit.EXACT:
                self._record_found(entry, Matches(exact=[record]), self._session.clock.service_now_if_known())


class _Walk:
    """The pages of a pass, for a search."""

    def __init__(self, next_page: Callable[[], Any]) -> None:
        self.next = next_page
