"""What a sweep reads from the service, and records in the journal as it reads it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, zip_longest
from random import sample
from typing import TYPE_CHECKING, Final, Generic, ParamSpec

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redacted_repr
from momopay.errors import TransactionNotFoundError
from momopay.journal.ends import sweeps_of
from momopay.journal.entries import EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.journal import Journal, collections_of, payments_of, rows_of
from momopay.models.enums import has_settled
from momopay.models.matching import RequestedPayment
from momopay.models.requests import CLOCK_TOLERANCE, Fit, Search, TransactionQuery, transaction_path
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary, transaction_from
from momopay.resources.journal_access import report_change
from momopay.resources.reconcile import describe, made_of
from momopay.resources.search import GET, LIST, search, service_times
from momopay.resources.sweep_pages import SweepPages, WithinReach, pages_to

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.sweeps import Target

logger: logging.Logger = logging.getLogger("momopay")

P = ParamSpec("P")

# Requests of one pass, of which some are for what lies deeper than its pages.
_REQUESTS: Final = 14
# How long after its end without success a prompt is read once more: a late PIN may have paid it.
LATE: Final = timedelta(minutes=10)


@dataclass(frozen=True)
class Due:
    """What a sweep has to read, transactions by their id."""

    open: dict[str, Target]
    """Of payouts that have not settled, and prompts that have not ended."""
    unhandled: dict[str, Target]
    """That ended, for a handler that did not handle it yet."""
    to_check: dict[str, Target]
    """Prompts that ended without success, and were not read since."""
    unknown: list[tuple[JournalEntry, Search]]
    """Payments that may have been made, and how to search for them."""
    service_now: Callable[[], datetime]
    """The time by the service's clock."""

    @property
    def is_anything(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.open or self.unhandled or self.unknown or self.to_check)

    def is_late(self, target: Target) -> bool:
        """Return whether it is time to read a prompt that ended without success once more."""
        return target.ended_at is None or target.ended_at + LATE <= self.service_now()


class SweepReader(Generic[BackendT]):
    """The reading of one sweep."""

    _session: Session[BackendT]

    def __init__(self, session: Session[BackendT], journal: Journal, due: Due) -> None:
        self._session = session
        self._due = due
        self._sweeps = sweeps_of(journal)
        self._journal = journal
        self._wanted: dict[str, Target] = due.to_check | due.unhandled | due.open
        self._missing = set(self._wanted)
        self._without_code = set[str]()
        # By the id that an unclear response showed. The search decides; what it does not show is read.
        self._unclear = {entry.transaction_id: (entry, search) for entry, search in due.unknown if entry.transaction_id}
        self._requests = 0
        # Written in a thread, and reported by the task or thread that sweeps.
        self._changes: list[tuple[Target | JournalEntry, JournalState, JournalState, TransactionSummary]] = []
        self.ended: dict[str, Transaction] = {}
        """What was read and has ended."""
        self.settled: int = 0
        """How many ends this pass recorded."""

    async def read(self) -> None:
        """Make the requests of a pass, and record each response at once."""
        # One alone is read by id. For prompts that ended without success, a page also shows the service's time.
        if self._due.unknown or self._due.to_check or len(self._wanted) > 1:
            await self._read_pages()
        for transaction_id in self._in_turns():
            if self._requests == _REQUESTS:
                return
            await self._read_by_id(transaction_id)

    async def _read_pages(self) -> None:
        pages = SweepPages(self.page)
        if self._due.unknown:
            await self._reconcile(pages)
        else:
            await pages.next()
        while pages.last is not None and not pages.is_over and self._is_worth_another(pages.last, pages):
            await pages.next()

    async def _reconcile(self, pages: SweepPages) -> None:
        """Search the pages for what is in doubt. What is older than a pass reaches stays so."""
        wanted = [each for _, each in self._due.unknown]
        found = await search(self._session, wanted, walk=WithinReach(pages, self._session, wanted))
        unknown = zip(self._due.unknown, service_times(self._session, wanted), found, strict=True)
        for (entry, _), each, matches in unknown:
            reached = pages.is_at_end or (pages.last is not None and each.is_past(pages.last))
            made = made_of(entry, matches) if reached else []
            for record in made:
                await self._recorded(self._accept, entry, record)
            if not made:
                why = describe(matches) if reached else "older than a sweep reaches, which reconcile_all searches too"
                logger.info("reference %s stays unknown: %s", redacted_repr(entry.reference), why)

    def _is_worth_another(self, page: TransactionPage, pages: SweepPages) -> bool:
        """Return whether further pages show at least as many as they cost; by id, each costs a request."""
        if not page.items:
            return False
        # What is newer than the end of a page is not on a later one.
        newest = page.items[-1].created_at + CLOCK_TOLERANCE
        sent = (self._wanted[each].sent_at for each in self._missing)
        older = sorted((each for each in sent if each < newest), reverse=True)
        depths = enumerate((pages_to(each, page) for each in older), 1)
        return pages.count <= len(older) and any(depth <= min(number, pages.left) for number, depth in depths)

    def _in_turns(self) -> Iterator[str]:
        """Yield what is still to be read by id, of each kind in turns."""
        # At random, so that nothing is always last, and several sweeps at once do not read the same.
        kinds = [
            self._missing & self._due.open.keys(),
            self._missing & self._due.unhandled.keys(),
            self._without_code,
            {each for each in self._missing & self._due.to_check.keys() if self._due.is_late(self._wanted[each])},
            set(self._unclear),
        ]
        turns = zip_longest(*(sample(sorted(kind), len(kind)) for kind in kinds))
        return (each for each in dict.fromkeys(chain.from_iterable(turns)) if each is not None)

    async def page(self, cursor: str | None) -> TransactionPage:
        """Read a page of the list, and record what it shows."""
        self._requests += 1
        query = TransactionQuery.checked(limit=100, cursor=cursor).to_query()
        page = await call(self._session, LIST, "/transactions" + query, lane=Lane.POLL)
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
        await self._recorded(self._record_all, [transaction])

    async def _recorded(self, record: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Write to the journal in a thread, then report what has changed."""
        await self._session.backend.in_thread(partial(record, *args, **kwargs))
        while self._changes:
            of, old, new, shown = self._changes.pop(0)
            report_change(self._session, of.kind, of.reference, old, new, shown)

    def _record_all(self, records: Iterable[TransactionSummary]) -> None:
        checked = list[str]()
        for record in records:
            target = self._wanted.get(record.transaction_id)
            if target is not None:
                # Whether the list's amount is that of a single read is not specified: if it differs, the read decides.
                if not isinstance(record, Transaction) and _differences(target, record):
                    continue
                self._record(target, record)
                if target.transaction_id in self._due.to_check and self._due.is_late(target):
                    checked.append(target.transaction_id)
            elif record.transaction_id in self._unclear and isinstance(record, Transaction):
                self._record_unclear(record)  # a page is searched as a whole
        self._sweeps.mark_checked(checked)

    def _record(self, target: Target, record: TransactionSummary) -> None:
        self._missing.discard(target.transaction_id)
        if target.transaction_id in self._due.open and (differing := _differences(target, record)):
            logger.error(
                "transaction %s is not the payment of reference %s: the service's record has another %s",
                target.transaction_id,
                redacted_repr(target.reference),
                ", ".join(differing),
            )
            del self._wanted[target.transaction_id]
            rows = rows_of(self._journal, target.kind)
            entry = rows.get(target.reference)
            if entry is None or target.transaction_id not in entry.transaction_ids:
                return
            if rows.contradict(entry.model_copy(update={"transaction_id": target.transaction_id})):
                self._changes.append((target, entry.state, JournalState.UNKNOWN, record))
            return
        has_changed = record.status != target.status
        is_new_code = isinstance(record, Transaction) and (
            target.transaction_id in self._without_code or target.transaction_id in self._due.unhandled
        )
        if has_changed or is_new_code:
            if target.kind is EntryKind.PAYOUT:
                payments_of(self._journal).accept(target.reference, report_of(record))
            else:
                collections_of(self._journal).report(target.reference, report_of(record))
        if has_changed:
            self._changes.append((target, JournalState.ACCEPTED, JournalState.ACCEPTED, record))
            self._wanted[target.transaction_id] = replace(target, status=record.status)
            self.settled += has_settled(target.kind.transaction_type, record.status)
        self._note_end(record, needs_code=has_changed or target.transaction_id in self._due.unhandled)

    def _note_end(self, record: TransactionSummary, *, needs_code: bool) -> None:
        if not record.status.is_terminal:
            return
        if isinstance(record, Transaction):
            self._without_code.discard(record.transaction_id)
        elif record.status.ended_without_success and needs_code:
            self._without_code.add(record.transaction_id)
        self.ended[record.transaction_id] = transaction_from(record)

    def _record_unclear(self, record: TransactionSummary) -> None:
        """Record a transaction whose id an unclear response showed, if it is the payment."""
        entry, search = self._unclear[record.transaction_id]
        if search.fit(record) is Fit.EXACT:
            self._accept(entry, record)

    def _accept(self, entry: JournalEntry, record: TransactionSummary) -> None:
        """Record that a payment in doubt was made."""
        if rows_of(self._journal, entry.kind).accept(entry.reference, report_of(record)):
            self._unclear.pop(entry.transaction_id or "", None)
            self._changes.append((entry, entry.state, JournalState.ACCEPTED, record))
            self.settled += has_settled(entry.kind.transaction_type, record.status)
            self._note_end(record, needs_code=True)


def _differences(target: Target, record: TransactionSummary) -> list[str]:
    wanted = RequestedPayment(target.wire_reference, target.amount, target.phone, target.kind.transaction_type)
    return wanted.differences(record.account_reference, record)
