"""A payment that has a row in the journal: read its transactions, and search the service's list for more.

Nothing here sends a payment.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from momopay._core.call import call
from momopay._core.session import Session
from momopay.durable.access import JournalAccess
from momopay.durable.search import GET, Matches, describe, outcome_unknown, search, search_for
from momopay.errors import MomoPayError, OutcomeUnknownError
from momopay.journal.entries import JournalEntry, JournalState, JournalTransaction
from momopay.journal.evidence import Report, is_keepable, report_of, requested
from momopay.journal.rules import Proof, Stage, blocks, proof, stage_of
from momopay.models.requests import Fit, transaction_path
from momopay.models.transactions import Transaction, TransactionSummary, transaction_from

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.store import Store

# Of several transactions of one order, the one that the caller gets.
_PREFERRED: Final = (Stage.PAID, Stage.OPEN, Stage.ENDED)


class KnownPayment:
    """What one call does about a payment that was attempted before."""

    def __init__(self, session: Session[Any], store: Store, journal: JournalAccess) -> None:
        self._session = session
        self._store = store
        self._journal = journal

    async def read(self, entry: JournalEntry, known: JournalTransaction) -> Transaction:
        """Read a known transaction and record its status; raise OutcomeUnknownError if it is another payment."""
        try:
            transaction = await self._get(known.transaction_id)
        except MomoPayError as error:
            error.may_have_executed = True  # the read failed, but the payment was accepted
            raise
        differing = requested(entry, known.transaction_id).differences(transaction.account_reference, transaction)
        if transaction.transaction_id != known.transaction_id:
            differing.append("id")
        if differing:
            changed = await self._journal.run_or_log(partial(self._store.contradict, entry, known.transaction_id))
            if changed:
                self._journal.report(entry.state, JournalState.UNKNOWN)
            why = f"the service's record of transaction {known.transaction_id} has another {', '.join(differing)}"
            raise outcome_unknown(entry, why)
        if transaction.status != known.status:
            # Another attempt goes out only if the end of this one is recorded.
            is_free = not blocks(entry.kind, stage_of(transaction.status))
            run = self._journal.run if is_free else self._journal.run_or_log
            if await run(partial(self._store.record, entry, self._report(transaction), may_add=False)):
                self._journal.report(entry.state, entry.state, transaction)
        return transaction

    async def find_before_sending(self, entry: JournalEntry) -> Transaction | None:
        """Search for what was refused or not sent; return it if it was made after all, None if it is absent.

        Raises:
            OutcomeUnknownError: The list shows a transaction that may be this payment.
        """
        # A refusal may have been a proxy's, and what a transport calls not sent may have been sent. If the clock's
        # offset was unknown when it may have been sent, no time bounds the search: if the deadline comes before the end
        # of the list, nothing is sent.
        matches = await self._search(entry, whole_list=entry.attempts > 0 and entry.clock_offset is None)
        match proof(entry.kind, matches.exact, matches.near):
            case Proof.MADE:
                return await self._adopt(entry, matches)
            case Proof.UNRESOLVED:
                if await self._journal.run_or_log(partial(self._store.sight, entry)):
                    self._journal.report(entry.state, JournalState.UNKNOWN)
                raise outcome_unknown(entry, describe(matches), matches)
            case Proof.ABSENT:
                return None

    async def reconcile(self, entry: JournalEntry) -> Transaction | None:
        """Search for an attempt that is unresolved; return it, or None if the list does not show it.

        Raises:
            OutcomeUnknownError: The list shows a transaction that may be it, or could not be searched.
        """
        matches = await self._find_by_id(entry)
        if matches is None:
            try:
                matches = await self._search(entry)
            except MomoPayError as error:
                raise outcome_unknown(entry, f"the search failed: {error.message}") from error
        match proof(entry.kind, matches.exact, matches.near):
            case Proof.MADE:
                return await self._adopt(entry, matches)
            case Proof.UNRESOLVED:
                raise outcome_unknown(entry, describe(matches), matches)
            case Proof.ABSENT:
                return None

    async def refresh(self, entry: JournalEntry) -> None:
        """Read what has not ended, and search for what is unresolved, without raising for an unknown outcome."""
        try:
            if entry.state is JournalState.UNKNOWN:
                await self.reconcile(entry)
            for known in entry.transactions:
                if known.is_open:
                    await self.read(entry, known)
        except OutcomeUnknownError:
            return

    async def _search(self, entry: JournalEntry, *, whole_list: bool = False) -> Matches:
        # Another payment may have the same reference.
        others = await self._journal.run(partial(self._store.others, entry))
        wanted = search_for(entry, others)
        (matches,) = await search(self._session, [wanted], self._journal.deadline, whole_list=whole_list)
        # The pages show the known transactions too: a late PIN may have paid one.
        paid = {each.transaction_id for each in entry.transactions if each.is_paid}
        for found in matches.known:
            is_own = found.transaction_id in entry.transaction_ids
            if is_own and stage_of(found.status) is Stage.PAID and found.transaction_id not in paid:
                await self._journal.run(partial(self._store.record, entry, self._report(found), may_add=False))
                self._journal.report(entry.state, entry.state, found)
        return matches

    async def _find_by_id(self, entry: JournalEntry) -> Matches | None:
        """Read the transaction whose id a broken response showed; None if it is not this payment: the list decides."""
        if entry.seen_id is None or entry.seen_id in entry.transaction_ids:
            return None
        try:
            transaction = await self._get(entry.seen_id)
        except MomoPayError:
            return None
        # The response was broken, so its id may be that of another payment.
        return Matches(exact=[transaction]) if search_for(entry).fit(transaction) is Fit.EXACT else None

    async def _adopt(self, entry: JournalEntry, matches: Matches) -> Transaction:
        """Record all transactions that fit; return one that was paid, else one that is open, else the newest."""
        stages = {found.transaction_id: stage_of(found.status) for found in matches.exact}
        # As in `read`. Of what is open or paid the caller learns even if it cannot be recorded.
        is_free = not any(blocks(entry.kind, stage) for stage in stages.values())
        run = self._journal.run if is_free else self._journal.run_or_log
        for found in reversed(matches.exact):
            accepted = is_keepable(found.transaction_id) and await run(
                partial(self._store.record, entry, self._report(found))
            )
            if accepted is False:
                raise outcome_unknown(entry, "a transaction that fits is already that of another reference", matches)
            if accepted:
                self._journal.report(entry.state, JournalState.ACCEPTED, found)
        return transaction_from(min(matches.exact, key=lambda each: _PREFERRED.index(stages[each.transaction_id])))

    def _report(self, record: TransactionSummary) -> Report:
        return report_of(record, self._session.clock.service_now_if_known())

    async def _get(self, transaction_id: str) -> Transaction:
        transaction = await call(self._session, GET, transaction_path(transaction_id), until=self._journal.deadline)
        self._session.clock.observe(transaction.response.headers)
        return transaction
