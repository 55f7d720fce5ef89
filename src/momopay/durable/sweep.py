"""Follow everything in the journal that has not ended, in one bounded pass, and call a handler once for each end.

A pass reads the newest pages of the list first, because one request shows a hundred transactions. It reads further
pages while they show transactions that it follows, or while an unresolved payment may be deeper. Then it reads others
by id, in random order, so that none is always last. The next pass takes what this one does not reach.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, zip_longest
from random import sample
from typing import TYPE_CHECKING, Any, Final

from momopay import errors
from momopay._core.config import trace_of
from momopay._core.reads import EVERYTHING, Matches, PageWalk, read_page, read_transaction, search
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import redacted_repr
from momopay.durable.access import check_account, emit_change
from momopay.durable.lookup import describe, forget_known, record_made, search_for
from momopay.durable.payment import AsyncPaymentHandler, Payment, PaymentHandler
from momopay.durable.receive import check_handler, deliver, payment_for
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.evidence import Evidence, differences
from momopay.journal.journal import Journal, internals
from momopay.journal.rules import is_contested
from momopay.models.enums import end_of, has_settled
from momopay.models.requests import Fit, Search
from momopay.models.transactions import (
    Transaction,
    TransactionPage,
    TransactionSummary,
    UnreadTransaction,
    is_whole,
    transaction_from,
)

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.queue import Followed

logger: logging.Logger = logging.getLogger("momopay")

# Requests of one pass. Fewer of them are for pages, so that some reads by id are left.
_REQUESTS: Final = 14
_PAGES: Final = 12
# Read a further page only if the last one showed at least so many transactions that this pass follows.
_WORTH_A_PAGE: Final = 2


@dataclass(frozen=True)
class SweepReport:
    """What one sweep did, and what it left.

    Attributes:
        settled: How many transactions it found and recorded as settled.
        open: How many known transactions have still not settled.
        unknown: How many entries are still unresolved.
        handled: For how many ends the handler succeeded.
        failed: For how many ends the handler raised. They are delivered again.
        unread: How many items of the list could not be read.
    """

    settled: int = 0
    open: int = 0
    unknown: int = 0
    handled: int = 0
    failed: int = 0
    unread: int = 0


class Sweep:
    """One sweep. Its methods whose names begin with ``_record`` write to the journal, in a thread."""

    def __init__(
        self,
        session: Session[Any],
        journal: Journal,
        handler: PaymentHandler | AsyncPaymentHandler | None = None,
    ) -> None:
        if handler is not None:
            check_handler(session, handler)
        self._session = session
        self._journal = journal
        self._handler = handler
        self._since: str | None = None  # ends from then on are for the handler
        self._parts = internals(journal)
        self._followed: dict[str, Followed] = {}  # by id; all that this pass wants to read
        # Of these, the ends that no handler has handled, and the ended prompts to read once more.
        self._undelivered = frozenset[str]()
        self._ended_prompts: dict[str, Followed] = {}
        self._searched: list[tuple[JournalEntry, Search]] = []
        self._unread = set[str]()  # ids that this pass has still to read, from a page or by id
        self._bad_items = list[UnreadTransaction]()
        self._may_be_searched = set[str]()  # the ids of those items that may be an unresolved payment
        self._without_code = set[str]()  # ids that a page showed, to be read by id for the result code
        self._requests = 0
        # Changes for the observer, which the sweeping task or thread does after the thread that recorded them.
        self._changes: list[tuple[JournalEntry, JournalState, TransactionSummary]] = []
        self._ends: dict[str, Transaction] = {}  # by id; what this pass read and has ended
        self._settled = self._handled = self._failed = 0

    async def run(self) -> SweepReport:
        """Sweep once, as `Transactions.sweep` documents it."""
        in_thread, queue = self._session.backend.in_thread, self._parts.queue
        await check_account(self._session, self._journal)
        if self._handler is not None:
            self._since = await in_thread(queue.deliver_since, datetime.now(UTC))
        failure: errors.MomoPayError | None = None
        try:
            await self._read()
        except errors.MomoPayError as error:  # raised after the ends that were read before it are delivered
            failure = error
        if self._handler is not None and self._since is not None:
            for each in await in_thread(queue.undelivered, self._since):
                transaction = self._ends.get(each.transaction.transaction_id)
                status = each.transaction.status
                # The next pass delivers the ends that this one did not read.
                if transaction is not None and status is not None and end_of(transaction.status) is end_of(status):
                    await self._deliver(each.entry, transaction, self._handler)
        if failure is not None:
            raise failure
        opened, unknown = await in_thread(lambda: (self._parts.store.count_open()[0], len(self._journal.unresolved())))
        counted = [each.id for each in self._bad_items if each.id is not None]
        unread = len(self._bad_items) - len(counted) + len(set(counted))
        report = SweepReport(self._settled, opened, unknown, self._handled, self._failed, unread)
        if self._session.events is not None:
            self._session.events.sweep_ended(**vars(report))
        return report

    async def reconcile_all(self) -> list[JournalEntry]:
        """Search for all unresolved payments, back to the oldest. Return their entries as they are afterwards.

        Raise ProtocolError if the list is not walked in the deadline of a call; what was found before it is recorded.
        """
        in_thread, store = self._session.backend.in_thread, self._parts.store
        await check_account(self._session, self._journal)
        await in_thread(self._find_searched)
        if self._searched:
            now = self._session.backend.now
            until = now() + self._session.limits.deadline
            fetch = partial(read_page, self._session, EVERYTHING, until=until)
            await self._search(PageWalk(fetch, now=now, until=until))
        unresolved = [entry for entry, _ in self._searched if entry.state is JournalState.UNKNOWN]
        entries: list[JournalEntry] = await in_thread(
            lambda: [store.get(each.kind, each.reference) or each for each in unresolved]
        )
        return entries

    async def _read(self) -> None:
        """Make the requests, and record each response at once."""
        await self._session.backend.in_thread(self._find_due)
        failure: errors.MomoPayError | None = None
        # A single transaction is read by id, unless an ended prompt needs the service's time, which a page shows first.
        if self._searched or self._ended_prompts or len(self._unread) > 1:
            failure = await self._failure_of(self._read_pages())
        shows_list = failure is None
        for transaction_id in self._to_read_by_id()[: _REQUESTS - self._requests]:
            error = await self._failure_of(self._read_by_id(transaction_id))
            failure = error or failure
            if error is not None and not shows_list:
                break  # the service is down: the other reads would fail too, each after its retries
        if failure is not None:
            raise failure

    async def _failure_of(self, read: Coroutine[Any, Any, None]) -> errors.MomoPayError | None:
        """Make a read. Return its error if it may concern this transaction alone; raise any other."""
        try:
            await read
        except (errors.APIError, errors.ProtocolError) as error:
            if isinstance(error, errors.InvalidApiKeyError | errors.ThrottledError):
                raise
            return error
        return None

    def _find_due(self) -> None:
        queue = self._parts.queue
        undelivered: list[Followed] = []
        if self._since is not None:
            undelivered = queue.undelivered(self._since)
        self._undelivered = frozenset(each.transaction.transaction_id for each in undelivered)
        self._ended_prompts = queue.ended_prompts()
        followed = [*self._ended_prompts.values(), *undelivered, *queue.not_settled()]
        self._followed = {each.transaction.transaction_id: each for each in followed}
        self._unread = set(self._followed)
        self._find_searched()

    def _find_searched(self) -> None:
        """Find the payments that are unresolved, or were released ten minutes ago, each with its search."""
        store, released = self._parts.store, self._parts.queue.released()
        entries = {(each.kind, each.reference): each for each in [*released, *store.unresolved()]}
        shared = [(each, store.sharing(each)) for each in entries.values()]
        self._searched = [(each, search_for(each, others)) for each, others in shared if not is_contested(each, others)]

    async def _read_pages(self) -> None:
        walk = PageWalk(self._read_page, most=_PAGES)
        unread = len(self._unread)
        if self._searched:
            await self._search(walk)
        else:
            await walk.next()
        while self._unread and unread - len(self._unread) >= _WORTH_A_PAGE:
            unread = len(self._unread)
            await walk.next()  # after the last page, this shows nothing, which ends the loop

    async def _search(self, walk: PageWalk) -> None:
        """Search the list for unresolved payments. One that is older than the `walk` reaches stays unresolved."""
        found = await search(self._session, [wanted for _, wanted in self._searched], walk=walk)
        for (entry, _), matches in zip(self._searched, found, strict=True):
            if matches.is_complete:
                await self._write_and_notify(self._record_matches, entry, matches)
            else:
                why = "older than a sweep reaches, which reconcile_all searches too"
                logger.info("reference %s stays unknown: %s", redacted_repr(entry.reference), why)
        if walk.failure is not None:
            raise walk.failure

    def _to_read_by_id(self) -> list[str]:
        """Return the ids that are still to be read, of each kind in turn."""
        # In random order, so that none is always last, and sweeps at the same time read different ones.
        undelivered, ended = self._unread & self._undelivered, self._unread & self._ended_prompts.keys()
        kinds = [
            self._unread - undelivered - ended,
            undelivered,
            self._without_code,
            {each for each in ended if self._is_due_again(each)},
            self._may_be_searched | {entry.seen_id for entry, _ in self._searched if entry.seen_id},
        ]
        turns = zip_longest(*(sample(sorted(kind), len(kind)) for kind in kinds))
        return [each for each in dict.fromkeys(chain.from_iterable(turns)) if each is not None]

    async def _read_page(self, cursor: str | None) -> TransactionPage:
        self._requests += 1
        page = await read_page(self._session, EVERYTHING, cursor, lane=Lane.POLL)
        self._session.clock.observe(page.response.headers)
        self._bad_items += page.unread
        await self._write_and_notify(self._record_rows, page.items)
        return page

    async def _read_by_id(self, transaction_id: str) -> None:
        try:
            transaction = await read_transaction(self._session, transaction_id, lane=Lane.POLL)
        except errors.TransactionNotFoundError:
            logger.warning("the service knows no transaction %s, which is in the journal", transaction_id)
            return
        self._session.clock.observe(transaction.response.headers)
        await self._write_and_notify(self._record_rows, [transaction])

    async def _write_and_notify(self, record: Callable[..., None], *args: object) -> None:
        """Write to the journal in a thread, then tell the observer what has changed."""
        await self._session.backend.in_thread(record, *args)
        while self._changes:
            entry, new, shown = self._changes.pop(0)
            emit_change(self._session, entry, entry.state, new, shown)

    def _record_matches(self, entry: JournalEntry, matches: Matches) -> None:
        forget_known(self._parts.store, matches)
        self._may_be_searched |= {each.id for each in matches.unread if each.id is not None}
        service_now = self._session.clock.service_now_if_known()
        made = record_made(self._parts.store, entry, matches, service_now)
        is_released = entry.state is not JournalState.UNKNOWN
        if is_released:
            self._parts.queue.mark_searched(entry, service_now)
        if not made and (matches.exact or matches.blocking or not is_released):
            what = "was released, and may have been made" if is_released else "stays unknown"
            level = logging.WARNING if is_released else logging.INFO
            logger.log(level, "reference %s %s: %s", redacted_repr(entry.reference), what, describe(matches))
        for record in made:
            self._changes.append((entry, JournalState.ACCEPTED, record))
            self._settled += has_settled(entry.kind.transaction_type, record.status)
            self._note_end(record, needs_code=True)

    def _record_rows(self, records: Iterable[TransactionSummary]) -> None:
        """Record what a page or a read by id shows."""
        checked = list[str]()
        for record in records:
            followed = self._followed.get(record.transaction_id)
            if followed is not None:
                if not isinstance(record, Transaction) and differences(followed.entry, record):
                    continue  # a page may show a different amount, such as one with the fee, so it is read by id
                self._unread.discard(record.transaction_id)
                self._record_change(followed, record)
                # One that reads as open again may still be paid: it is not marked, so later sweeps read it again.
                if record.status.is_terminal and self._is_due_again(record.transaction_id):
                    checked.append(record.transaction_id)
            elif isinstance(record, Transaction):  # its id was in a broken response, or in an item that is unread
                is_whole_item = record.transaction_id in self._may_be_searched and is_whole(record)
                for entry, wanted in self._searched:
                    is_seen = entry.seen_id == record.transaction_id
                    if (is_seen or is_whole_item) and wanted.fit(record) is Fit.EXACT:
                        self._record_matches(entry, Matches(exact=[record]))
        self._parts.queue.mark_checked(checked)

    def _record_change(self, followed: Followed, record: TransactionSummary) -> None:
        entry, known = followed.entry, followed.transaction
        if (known.is_open or record.status != known.status) and (differing := differences(entry, record)):
            text = "transaction %s is not the payment of reference %s: the service's record has another %s"
            logger.error(text, record.transaction_id, redacted_repr(entry.reference), ", ".join(differing))
            if self._parts.store.mark_contradicted(entry, record.transaction_id):
                self._changes.append((entry, JournalState.UNKNOWN, record))
            return
        is_undelivered = record.transaction_id in self._undelivered
        has_changed = record.status != known.status
        has_more = isinstance(record, Transaction) and (is_undelivered or record.transaction_id in self._without_code)
        if has_changed or has_more:
            evidence = Evidence.of(record, self._session.clock.service_now_if_known(), "sweep")
            self._parts.store.record(entry, evidence, may_add=False)
        if has_changed:
            self._changes.append((entry, entry.state, record))
            kept = known.model_copy(update={"status": record.status})
            self._followed[record.transaction_id] = replace(followed, transaction=kept)
            self._settled += has_settled(entry.kind.transaction_type, record.status)
        self._note_end(record, needs_code=has_changed or is_undelivered)

    def _is_due_again(self, transaction_id: str) -> bool:
        """Return whether it is time to read a prompt that ended without success once more."""
        ended = self._ended_prompts.get(transaction_id)
        return ended is not None and ended.is_due(self._session.clock.service_now_if_known())

    def _note_end(self, record: TransactionSummary, *, needs_code: bool) -> None:
        if not record.status.is_terminal:
            return
        if isinstance(record, Transaction):
            self._without_code.discard(record.transaction_id)
        elif record.status.ended_without_success and needs_code:
            self._without_code.add(record.transaction_id)
        self._ends[record.transaction_id] = transaction_from(record)

    async def _deliver(
        self, entry: JournalEntry, transaction: Transaction, handler: PaymentHandler | AsyncPaymentHandler
    ) -> None:
        """Call the handler, unless the end is or was handled elsewhere."""
        try:
            self._handled += await deliver(self._session, partial(self._held, entry, transaction), handler)
        except Exception as error:  # noqa: BLE001  whatever a handler raises, the other ends are delivered
            self._failed += 1
            text = "the handler failed on the end of %s; the next sweep delivers it again\n%s"
            logger.error(text, transaction.transaction_id, trace_of(error))  # noqa: TRY400  see `trace_of`

    @contextmanager
    def _held(self, entry: JournalEntry, transaction: Transaction) -> Generator[Payment | None]:
        """Hold an end while it is handled. Yield the payment, or None if it is not to be handled here."""
        payment = payment_for(self._journal, entry, transaction)
        with ExitStack() as stack:
            is_first = False
            with suppress(errors.CallbackError):  # on entering: another call is handling it
                is_first = stack.enter_context(self._journal.handling(payment))
            yield payment if is_first else None
