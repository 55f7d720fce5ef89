"""Follow everything in the journal that has not ended, in one bounded pass, and call a handler once for each end.

`momopay.durable.plan` decides what to read. This makes the requests, and records each answer at once, a page of them in
one transaction. Then it delivers the ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from momopay import errors
from momopay._core.config import trace_of
from momopay._core.reads import EVERYTHING, Matches, PageWalk, read_page, read_transaction, search
from momopay._core.session import Session
from momopay._core.state import key_state_for
from momopay._ratelimit.budget import Lane
from momopay._redaction import redacted_repr
from momopay.durable.access import check_account, emit_change
from momopay.durable.lookup import describe, forget_known, is_seen_payment, record_made, search_for
from momopay.durable.payment import payment_of
from momopay.durable.plan import MOST_PAGES, Finding, Plan, is_another_journals
from momopay.durable.receive import Delivery, delivery_to
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.evidence import reference_of
from momopay.journal.journal import Journal, internals
from momopay.journal.rules import is_contested
from momopay.models.enums import end_of, has_settled
from momopay.models.payments import AsyncPaymentHandler, Payment, PaymentHandler
from momopay.models.requests import Fit, Search
from momopay.models.transactions import (
    Transaction,
    TransactionPage,
    TransactionSummary,
    is_whole,
    transaction_from,
)

logger: logging.Logger = logging.getLogger("momopay")

_STRANGER: Final = (
    "transaction %s has the reference %s of a payment in the journal, which did not send it: another journal or program"
    " uses this key, and may have paid it again. Use one journal for both; `momopay reconcile` shows what was paid"
)

_SKIPPED: Final = (
    "%d ends reached no handler within 30 days after the journal learned of them, and are not delivered any more: look"
    " at these payments by hand. The first: %s"
)


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
        skipped: With a handler, how many ends no handler got within 30 days after the journal learned of them. They are
            not delivered any more.
    """

    settled: int = 0
    open: int = 0
    unknown: int = 0
    handled: int = 0
    failed: int = 0
    unread: int = 0
    skipped: int = 0


class Sweep:
    """One sweep. Its methods whose names begin with ``_find`` or ``_record`` use the journal, in a thread."""

    def __init__(
        self, session: Session[Any], journal: Journal, handler: PaymentHandler | AsyncPaymentHandler | None = None
    ) -> None:
        self._session = session
        self._journal = journal
        self._handle = None if handler is None else delivery_to(session, handler)
        self._parts = internals(journal)
        self._plan: Plan  # by what the journal has, before anything is read
        self._unread = set[object]()  # one for each item of the list that could not be read, its id if it has one
        # Changes for the observer, which the sweeping task or thread does after the thread that recorded them.
        self._changes: list[tuple[JournalEntry, JournalState, TransactionSummary]] = []
        self._shown: dict[str, TransactionSummary] = {}  # by id; what was read of transactions that it follows
        self._others: dict[str, TransactionSummary] = {}  # by id; what its pages show beside what it follows
        self._settled = self._handled = self._failed = 0

    async def run(self) -> SweepReport:
        """Sweep once, as `Transactions.sweep` documents it."""
        await check_account(self._session, self._journal)
        failure: errors.MomoPayError | None = None
        try:
            await self._read()
        except errors.MomoPayError as error:  # raised after the ends that were read before it are delivered
            failure = error
        if self._handle is not None and self._shown:
            await self._deliver(self._handle)
        if failure is not None:
            raise failure
        in_thread = self._session.backend.in_thread
        opened, unknown = await in_thread(self._parts.store.unfinished)
        skipped = 0 if self._handle is None else await in_thread(self._count_skipped)
        counts = (self._settled, opened, len(unknown), self._handled, self._failed, len(self._unread), skipped)
        report = SweepReport(*counts)
        if self._session.events is not None:
            self._session.events.sweep_ended(**vars(report))
        return report

    async def reconcile_all(self) -> list[JournalEntry]:
        """Search for all unresolved payments, back to the oldest. Return their entries as they are afterwards.

        Raise ProtocolError if the list is not walked in the deadline of a call; what was found before it is recorded.
        """
        in_thread, store = self._session.backend.in_thread, self._parts.store
        await check_account(self._session, self._journal)
        self._plan = await in_thread(self._find_due)
        if self._plan.searched:
            now = self._session.backend.now
            until = now() + self._session.limits.deadline
            fetch = partial(read_page, self._session, EVERYTHING, until=until)
            await self._search(PageWalk(fetch, now=now, until=until))
        unresolved = [entry for entry, _ in self._plan.searched if entry.state is JournalState.UNKNOWN]
        entries: list[JournalEntry] = await in_thread(
            lambda: [store.get(each.kind, each.reference) or each for each in unresolved]
        )
        return entries

    async def _read(self) -> None:
        """Make the requests of the plan, and record each response at once."""
        in_thread, clock = self._session.backend.in_thread, self._session.clock
        self._plan = await in_thread(self._find_due)
        failure = list_failure = await self._failure_of(self._read_pages())
        for transaction_id in self._plan.reads(clock.service_now_if_known()):
            error = await self._failure_of(self._read_by_id(transaction_id))
            failure = error or failure
            if error is not None and list_failure is not None:
                break  # the service is down: the other reads would fail too, each after its retries
        if self._plan.wants_page_for_receipt:
            await self._failure_of(self._read_page(None))  # whatever happens to it, the payment itself was read
        if self._others:
            await in_thread(self._find_strangers)
        if failure is not None:
            raise failure

    async def _failure_of(self, read: Coroutine[Any, Any, object]) -> errors.MomoPayError | None:
        """Make a read. Return its error if it may concern this transaction alone; raise any other."""
        try:
            await read
        except (errors.APIError, errors.ProtocolError) as error:
            if isinstance(error, errors.InvalidApiKeyError | errors.ThrottledError):
                raise
            return error
        return None

    def _find_due(self) -> Plan:
        due = self._parts.queue.due(has_handler=self._handle is not None)
        searched = list[tuple[JournalEntry, Search]]()
        for entry in due.searched:
            others = self._parts.store.sharing(entry)
            if not is_contested(entry, others):
                searched.append((entry, search_for(entry, others)))
        return Plan(due, searched)

    def _find_strangers(self) -> None:
        """Warn, once for each, of transactions under the journal's references that it did not send."""
        for found in self._parts.queue.strangers(self._others.values()):
            namesakes = self._parts.store.by_wire_reference(reference_of(found) or "")
            if is_another_journals(found, namesakes) and self._session.strangers.add([found.transaction_id]):
                logger.warning(_STRANGER, redacted_repr(found.transaction_id), redacted_repr(found.account_reference))

    async def _read_pages(self) -> None:
        walk, plan = PageWalk(self._read_page, most=MOST_PAGES), self._plan
        if plan.searched:
            await self._search(walk)
        while plan.wants_page and await walk.next() is not None:
            pass

    async def _search(self, walk: PageWalk) -> None:
        """Search the list for unresolved payments. One that is older than the `walk` reaches stays unresolved."""
        found = await search(self._session, [wanted for _, wanted in self._plan.searched], walk=walk)
        for (entry, _), matches in zip(self._plan.searched, found, strict=True):
            if matches.is_complete:
                await self._write_and_notify(self._record_matches, entry, matches)
            else:
                why = "older than a sweep reaches, which reconcile_all searches too"
                logger.info("reference %s stays unknown: %s", redacted_repr(entry.reference), why)
        if walk.failure is not None:
            raise walk.failure

    async def _read_page(self, cursor: str | None) -> TransactionPage:
        self._plan.note_page()
        page = await read_page(self._session, EVERYTHING, cursor, lane=Lane.POLL)
        self._session.clock.observe(page.response.headers)
        self._unread |= {each.id or object() for each in page.unread}
        await self._write_and_notify(self._record, page.items)
        return page

    async def _read_by_id(self, transaction_id: str) -> None:
        try:
            transaction = await read_transaction(self._session, transaction_id, lane=Lane.POLL)
        except errors.TransactionNotFoundError:
            logger.warning("the service knows no transaction %s, which is in the journal", transaction_id)
            return
        self._session.clock.observe(transaction.response.headers)
        await self._write_and_notify(self._record, [transaction])

    async def _write_and_notify(self, record: Callable[..., None], *args: object) -> None:
        """Write to the journal in a thread, then tell the observer, if there is one, what has changed."""
        await self._session.backend.in_thread(record, *args)
        while self._changes and self._session.events is not None:
            entry, new, shown = self._changes.pop(0)
            emit_change(self._session, entry, entry.state, new, shown)

    def _record_matches(self, entry: JournalEntry, matches: Matches) -> None:
        forget_known(self._parts.store, matches)
        self._plan.may_be_searched |= {each.id for each in matches.unread if each.id is not None}
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
            self._plan.note_end(record, needs_code=True)
            self._shown[record.transaction_id] = record
        if made and (kept := self._parts.store.get(entry.kind, entry.reference)) is not None:
            self._plan.follow(kept)

    def _record(self, records: Iterable[TransactionSummary]) -> None:
        """Record what a page or a read by id shows."""
        service_now, findings = self._session.clock.service_now_if_known(), list[Finding]()
        for record in records:
            if record.transaction_id in self._plan.followed and (finding := self._plan.find(record, service_now)):
                findings.append(finding)
            elif isinstance(record, Transaction):
                self._record_found(record)
            else:
                self._others[record.transaction_id] = record
        self._parts.store.record_reads([(each.entry, each.evidence) for each in findings if each.evidence is not None])
        if checked := [each.record.transaction_id for each in findings if each.is_checked]:
            self._parts.queue.mark_checked(checked)
        for each in findings:
            if each.differing:
                self._record_contradiction(each)
                continue
            if each.has_changed:
                self._changes.append((each.entry, each.entry.state, each.record))
                self._settled += has_settled(each.entry.kind.transaction_type, each.record.status)
            shown = self._shown.get(each.record.transaction_id)
            if not isinstance(shown, Transaction) or each.has_changed:  # a read has more than a page
                self._shown[each.record.transaction_id] = each.record

    def _record_found(self, record: Transaction) -> None:
        """Record a transaction whose id was in a broken response, or in an item that could not be read."""
        is_whole_item = record.transaction_id in self._plan.may_be_searched and is_whole(record)
        for entry, wanted in self._plan.searched:
            is_seen = entry.seen_id == record.transaction_id and is_seen_payment(entry, wanted, record)
            if is_seen or (is_whole_item and wanted.fit(record) is Fit.EXACT):
                self._record_matches(entry, Matches(exact=[record]))

    def _record_contradiction(self, found: Finding) -> None:
        entry, record = found.entry, found.record
        text = "transaction %s is not the payment of reference %s: the service's record has another %s"
        logger.error(text, record.transaction_id, redacted_repr(entry.reference), ", ".join(found.differing))
        if self._parts.store.mark_contradicted(entry, record.transaction_id):
            self._changes.append((entry, JournalState.UNKNOWN, record))

    def _count_skipped(self) -> int:
        """Return how many ends are too old for a handler. Warn of them once in a process."""
        count, first = self._parts.queue.skipped()
        state = key_state_for(self._session.account)
        if count and not state.has_warned_of_skipped:
            state.has_warned_of_skipped = True
            logger.warning(_SKIPPED, count, ", ".join(map(redacted_repr, first)))
        return count

    async def _deliver(self, handle: Delivery) -> None:
        """Call the handler for each end that this pass has read, unless it is or was handled elsewhere."""
        for each, refunded in await self._session.backend.in_thread(self._parts.queue.undelivered):
            record, status = self._shown.get(each.transaction.transaction_id), each.transaction.status
            if record is None or status is None or end_of(record.status) is not end_of(status):
                continue  # the next pass reads it
            payment = payment_of(each.entry, transaction_from(record), refunded=refunded)
            try:
                if each.entry.refund_of is not None:  # other refunds of the order may have begun or ended meanwhile
                    now_refunded = await self._session.backend.in_thread(self._parts.store.refunded, each.entry)
                    payment = payment.model_copy(update={"refunded": now_refunded})
                self._handled += await handle(partial(self._held, payment))
            except Exception as error:  # noqa: BLE001  whatever a handler raises, the other ends are delivered
                self._failed += 1
                text = "the handler failed on the end of %s; the next sweep delivers it again\n%s"
                logger.error(text, payment.transaction_id, trace_of(error))  # noqa: TRY400  see `trace_of`

    @contextmanager
    def _held(self, payment: Payment) -> Generator[Payment | None]:
        """Hold an end while it is handled. Yield the payment, or None if it is not to be handled here."""
        with ExitStack() as stack:
            is_first = False
            with suppress(errors.CallbackError):  # on entering: another call is handling it
                is_first = stack.enter_context(self._journal.handling(payment))
            yield payment if is_first else None
