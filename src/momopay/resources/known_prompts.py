"""The prompts of an order that has a row in the journal: read them, search for more, and record what is shown."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from momopay._core.backend import BackendT
from momopay._core.session import Session
from momopay.errors import DuplicateCollectionError, MomoPayError
from momopay.journal.collection_rules import Stage, prompts_found, stage_of
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.rules import Finding
from momopay.models.matching import RequestedPayment
from momopay.models.transactions import Transaction, transaction_from
from momopay.resources.journal_access import JournalAccess
from momopay.resources.known_payment import KnownPayment
from momopay.resources.reconcile import describe, outcome_unknown
from momopay.resources.search import Matches

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.collections import Collections


class KnownPrompts(KnownPayment[BackendT]):
    """What one call of ``collect_once`` does about the prompts of its order."""

    def __init__(self, session: Session[BackendT], orders: Collections, journal: JournalAccess) -> None:
        super().__init__(session, orders, journal)
        self._orders = orders

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
            changed = await self._journal.run_or_log(partial(self._orders.contradict, entry, transaction_id))
            if changed:
                self._journal.report(entry.state, JournalState.UNKNOWN)
            why = f"the service's record of transaction {transaction_id} has another {', '.join(differing)}"
            raise outcome_unknown(entry, why)
        (known,) = (prompt for prompt in entry.prompts if prompt.transaction_id == transaction_id)
        if transaction.status != known.status:
            record = partial(self._orders.report, entry.reference, report_of(transaction))
            # Another prompt goes out only if the end of this one is recorded.
            is_ended = stage_of(transaction.status) is Stage.ENDED
            if await (self._journal.run(record) if is_ended else self._journal.run_or_log(record)):
                self._journal.report(entry.state, entry.state, transaction)
        return transaction

    async def reconcile(self, entry: JournalEntry) -> Transaction | None:
        """Search for the prompt of an attempt in doubt; return it, or None if the list does not show it.

        Raises:
            OutcomeUnknownError: The list shows a transaction that may be it, or could not be searched.
        """
        matches = await self._find(entry)
        match self._finding(matches):
            case Finding.MADE:
                return await self._adopt(entry, matches)
            case Finding.UNCLEAR:
                raise outcome_unknown(entry, describe(matches), matches)
            case Finding.ABSENT:
                return None

    async def _search(self, entry: JournalEntry, *, whole_list: bool = False) -> Matches:
        matches = await super()._search(entry, whole_list=whole_list)
        # The page shows the known prompts too: a late PIN may have paid one.
        for found in matches.known:
            if stage_of(found.status) is Stage.PAID:
                await self._journal.run(partial(self._orders.report, entry.reference, report_of(found)))
                if all(each.transaction_id != found.transaction_id or not each.is_paid for each in entry.prompts):
                    self._journal.report(entry.state, entry.state, found)
        return matches

    def _finding(self, matches: Matches) -> Finding:
        return prompts_found(matches.exact, matches.near)

    async def _adopt(self, entry: JournalEntry, matches: Matches) -> Transaction:
        """Record all transactions that fit; return one that was paid, else one that is open, else the newest."""
        stages = {found.transaction_id: stage_of(found.status) for found in matches.exact}
        # As in `read`. Of what is open or paid the caller learns even if it cannot be recorded.
        run = self._journal.run if set(stages.values()) == {Stage.ENDED} else self._journal.run_or_log
        for found in reversed(matches.exact):
            accepted = await run(partial(self._orders.accept, entry.reference, report_of(found)))
            if accepted is False:
                raise outcome_unknown(entry, "a transaction that fits is already that of another reference", matches)
            if accepted:
                self._journal.report(entry.state, JournalState.ACCEPTED, found)
        preferred = [Stage.PAID, Stage.OPEN, Stage.ENDED]
        found = min(matches.exact, key=lambda each: preferred.index(stages[each.transaction_id]))
        return transaction_from(found)


def duplicate(entry: JournalEntry, how: str) -> DuplicateCollectionError:
    """Return the error for an order that was used before."""
    return DuplicateCollectionError(
        f"order {entry.reference!r} of {entry.created_at:%Y-%m-%d} {how}: give each order a reference of its own",
        reference=entry.reference,
    )
