"""A payment that has a row in the journal: search the service's list for it. Nothing here sends a payment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from momopay._core.backend import BackendT
from momopay._core.call import call
from momopay._core.session import Session
from momopay.errors import MomoPayError
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.rules import Finding
from momopay.models.requests import Fit, transaction_path
from momopay.models.transactions import Transaction
from momopay.resources.journal_access import JournalAccess
from momopay.resources.reconcile import describe, outcome_unknown, search_for
from momopay.resources.search import GET, Matches, search

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.payments import Payments


class KnownPayment(ABC, Generic[BackendT]):
    """What payouts and prompts share when they are searched for."""

    _session: Session[BackendT]

    def __init__(
        self,
        session: Session[Any],  # mypy would not accept that of a subclass
        payments: Payments,
        journal: JournalAccess,
    ) -> None:
        self._session = session
        self._payments = payments
        self._journal = journal

    @abstractmethod
    def _finding(self, matches: Matches) -> Finding:
        """Return what a search proves."""

    @abstractmethod
    async def _adopt(self, entry: JournalEntry, matches: Matches) -> Transaction:
        """Record what fits, and return the transaction that the caller gets."""

    async def find_before_sending(self, entry: JournalEntry) -> Transaction | None:
        """Search for what was refused or not sent; return it if it was made after all, None if it is absent.

        Raises:
            OutcomeUnknownError: The list shows a transaction that may be this payment.
        """
        # A refusal may have been a proxy's, and what a transport calls not sent may have been sent.
        # Where it may have been sent by a clock of which nothing is known, no time bounds the search: if the deadline
        # comes before the end of the list, nothing is sent.
        whole_list = entry.attempts > 0 and entry.clock_offset is None
        matches = await self._search(entry, whole_list=whole_list)
        match self._finding(matches):
            case Finding.MADE:
                return await self._adopt(entry, matches)
            case Finding.UNCLEAR:
                if await self._journal.run_or_log(partial(self._payments.sight, entry)):
                    self._journal.report(entry.state, JournalState.UNKNOWN)
                raise outcome_unknown(entry, describe(matches), matches)
            case Finding.ABSENT:
                return None

    async def _find(self, entry: JournalEntry) -> Matches:
        """Return what the service shows of a payment in doubt; raise OutcomeUnknownError if it cannot be searched."""
        matches = await self._find_by_id(entry)
        if matches is None:
            try:
                matches = await self._search(entry)
            except MomoPayError as error:
                raise outcome_unknown(entry, f"the search failed: {error.message}") from error
        return matches

    async def _search(self, entry: JournalEntry, *, whole_list: bool = False) -> Matches:
        # A payment of the other kind may have the same reference.
        others = await self._journal.run(partial(self._payments.others, entry))
        wanted = search_for(entry, others)
        (matches,) = await search(self._session, [wanted], self._journal.deadline, whole_list=whole_list)
        return matches

    async def _find_by_id(self, entry: JournalEntry) -> Matches | None:
        """Read the transaction whose id a broken answer showed; None if it is not this payment: the list decides."""
        known = (prompt.transaction_id for prompt in entry.prompts)
        if entry.transaction_id is None or entry.transaction_id in known:
            return None
        try:
            transaction = await self._get(entry.transaction_id)
        except MomoPayError:
            return None
        # The answer was broken, so its id may be that of another payment.
        return Matches(exact=[transaction]) if search_for(entry).fit(transaction) is Fit.EXACT else None

    async def _get(self, transaction_id: str | None) -> Transaction:
        return await call(self._session, GET, transaction_path(transaction_id), until=self._journal.deadline)
