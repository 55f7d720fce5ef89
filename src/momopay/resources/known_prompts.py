"""The prompts of an order that has a row in the journal: read them, search for more, and record what is shown."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.session import Session
from momopay.errors import DuplicateCollectionError, MomoPayError
from momopay.journal.collection_rules import Stage, prompts_found, stage_of
from momopay.journal.entries import JournalEntry
from momopay.journal.evidence import report_of
from momopay.journal.rules import Finding
from momopay.models.matching import RequestedPayment
from momopay.models.requests import Fit, transaction_path
from momopay.models.transactions import Transaction, transaction_from
from momopay.resources.journal_access import JournalAccess
from momopay.resources.reconcile import describe, outcome_unknown, search_for
from momopay.resources.search import GET, Matches, search

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.collections import Collections


class KnownPrompts(Generic[BackendT]):
    """What one call of ``collect_once`` does about the prompts of its order. Nothing here sends a prompt."""

    _session: Session[BackendT]

    def __init__(self, session: Session[BackendT], orders: Collections, journal: JournalAccess) -> None:
        self._session = session
        self._orders = orders
        self._journal = journal

    async def read(self, entry: JournalEntry, transaction_id: str, payment: RequestedPayment) -> Transaction:
        """Read a known prompt and record its status; raise OutcomeUnknownError if it is another payment."""
        try:
            transaction = await self._get(transaction_id)
        except MomoPayError as error:
            error.may_have_executed = True  # the read failed, but the customer was prompted
            raise
        differing = payment.differences(transaction.account_reference, transaction)
        if transaction.transaction_id != transaction_id:
            differing.append("id")
        if differing == ["phone"] and entry.is_anonymised:  # this call's phone is wrong, not the journal
            raise duplicate(entry, "has another phone")
        if differing:
            await self._journal.run_or_log(partial(self._orders.contradict, entry, transaction_id))
            why = f"the service's record of transaction {transaction_id} has another {', '.join(differing)}"
            raise outcome_unknown(entry, why)
        (known,) = (prompt for prompt in entry.prompts if prompt.transaction_id == transaction_id)
        if transaction.status != known.status:
            record = partial(self._orders.report, entry.reference, report_of(transaction))
            # Another prompt goes out only if the end of this one is recorded.
            is_ended = stage_of(transaction.status) is Stage.ENDED
            await (self._journal.run(record) if is_ended else self._journal.run_or_log(record))
        return transaction

    async def find_before_sending(self, entry: JournalEntry) -> Transaction | None:
        """Search for prompts that are not known; return one if there is any, None if they are absent.

        Raises:
            OutcomeUnknownError: The list shows a transaction that may be a prompt of the order.
        """
        # A refusal may have been a proxy's, and what a transport calls not sent may have been sent. Where a clock of
        # which nothing is known has dated it, no time bounds the search.
        whole_list = entry.attempts > 0 and entry.clock_offset is None
        matches = await self._search(entry, whole_list=whole_list)
        match prompts_found(matches.exact, matches.near):
            case Finding.MADE:
                return await self._adopt(entry, matches)
            case Finding.UNCLEAR:
                await self._journal.run_or_log(partial(self._orders.sight, entry))
                raise outcome_unknown(entry, describe(matches), matches)
            case Finding.ABSENT:
                return None

    async def reconcile(self, entry: JournalEntry) -> Transaction | None:
        """Search for the prompt of an attempt in doubt; return it, or None if the list does not show it.

        Raises:
            OutcomeUnknownError: The list shows a transaction that may be it, or could not be searched.
        """
        matches = await self._find_by_id(entry)
        if matches is None:
            try:
                matches = await self._search(entry)
            except MomoPayError as error:
                raise outcome_unknown(entry, f"the search failed: {error.message}") from error
        match prompts_found(matches.exact, matches.near):
            case Finding.MADE:
                return await self._adopt(entry, matches)
            case Finding.UNCLEAR:
                raise outcome_unknown(entry, describe(matches), matches)
            case Finding.ABSENT:
                return None

    async def _search(self, entry: JournalEntry, *, whole_list: bool = False) -> Matches:
        # A payout may have the same reference, and is another payment.
        others = await self._journal.run(partial(self._orders.others, entry))
        wanted = search_for(entry, others)
        (matches,) = await search(self._session, [wanted], self._journal.deadline, whole_list=whole_list)
        # The page shows the known prompts too: a late PIN may have paid one.
        for found in matches.known:
            if stage_of(found.status) is Stage.PAID:
                await self._journal.run(partial(self._orders.report, entry.reference, report_of(found)))
        return matches

    async def _adopt(self, entry: JournalEntry, matches: Matches) -> Transaction:
        """Record all transactions that fit; return one that was paid, else one that is open, else the newest."""
        stages = {found.transaction_id: stage_of(found.status) for found in matches.exact}
        # As in `read`. Of what is open or paid the caller learns even if it cannot be recorded.
        run = self._journal.run if set(stages.values()) == {Stage.ENDED} else self._journal.run_or_log
        for found in reversed(matches.exact):
            if await run(partial(self._orders.accept, entry.reference, report_of(found))) is False:
                raise outcome_unknown(entry, "a transaction that fits is already that of another reference", matches)
        preferred = [Stage.PAID, Stage.OPEN, Stage.ENDED]
        found = min(matches.exact, key=lambda each: preferred.index(stages[each.transaction_id]))
        return found if isinstance(found, Transaction) else transaction_from(found)

    async def _find_by_id(self, entry: JournalEntry) -> Matches | None:
        """Read the transaction whose id a broken answer showed; None if it is no prompt of this order."""
        if entry.transaction_id is None or entry.transaction_id in entry.transaction_ids:
            return None
        try:
            transaction = await self._get(entry.transaction_id)
        except MomoPayError:
            return None
        # The answer was broken, so its id may be that of another payment.
        return Matches(exact=[transaction]) if search_for(entry).fit(transaction) is Fit.EXACT else None

    async def _get(self, transaction_id: str) -> Transaction:
        return await call(self._session, GET, transaction_path(transaction_id), until=self._journal.deadline)


def duplicate(entry: JournalEntry, how: str) -> DuplicateCollectionError:
    """Return the error for an order that was used before."""
    return DuplicateCollectionError(
        f"order {entry.reference!r} of {entry.created_at:%Y-%m-%d} {how}: give each order a reference of its own",
        reference=entry.reference,
    )
