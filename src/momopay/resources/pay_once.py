"""One call of ``payouts.pay_once``: what it does about a reference, by what the journal says about it.

A reference that was attempted before is sent only after a search, and only if nobody else sent it since the search
began. Absence from the list never makes UNKNOWN free. `SendOnce` does the sending.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from momopay._core.backend import BackendT
from momopay._core.call import Call, Endpoint
from momopay._core.session import Session
from momopay.errors import BudgetExhaustedError, DuplicatePayoutError, JournalError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry
from momopay.journal.journal import Journal, payments_of
from momopay.journal.rules import Step, next_step
from momopay.models.payouts import Payout
from momopay.models.requests import PayoutRequest
from momopay.models.transactions import Transaction
from momopay.resources.known_payout import KnownPayout
from momopay.resources.reconcile import check_tenant
from momopay.resources.send_once import SendOnce

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.refunds import Refunds


class PayOnce(SendOnce[BackendT, Payout]):
    """One call of ``payouts.pay_once``."""

    _what = "payout"

    def __init__(
        self,
        session: Session[BackendT],
        journal: Journal,
        initiate: Endpoint[Payout],
        request: PayoutRequest,
        metadata: Mapping[str, object] | None,
        refunds: Refunds | None = None,
    ) -> None:
        payments = refunds or payments_of(journal)
        call: Call[Payout] = Call(session, initiate, "/b2c/payouts")
        super().__init__(session, journal, payments, call, request.reference, request, metadata)
        self._known: KnownPayout[BackendT] = KnownPayout(session, payments, self._journal, self._payment)

    async def pay(self, *, has_slot: bool = False) -> Payout | Transaction:
        """Send if the journal allows it, else return what is known; with `has_slot`, the caller has taken a slot."""
        self._call.has_slot = has_slot
        entry = await self._journal.run(self._check_and_get)
        paid: Payout | Transaction | None
        while True:
            if entry is not None:
                self._known.check_same_payout(entry, self._body_hash)
            match next_step(None if entry is None else entry.state):
                case Step.SEND:
                    paid = await self._try_to_send(None)
                case Step.SEARCH_THEN_SEND:
                    assert entry is not None  # noqa: S101  only an entry leads here, and to the next steps
                    paid = await self._search_and_try_to_send(entry)
                case Step.READ:
                    assert entry is not None  # noqa: S101
                    return await self._known.read_accepted(entry)
                case Step.RECONCILE:
                    assert entry is not None  # noqa: S101
                    return await self._known.reconcile(entry)
                case Step.WAIT:
                    assert entry is not None  # noqa: S101
                    await self._wait_for(entry)
                    paid = None
            if paid is not None:
                return paid
            entry = await self._journal.run(partial(self._payments.get, self._reference))

    async def _search_and_try_to_send(self, entry: JournalEntry) -> Payout | Transaction | None:
        """Return the payout if it was made after all, else send it as `_try_to_send` does."""
        self._call.has_slot = False  # it would be old after the search
        try:
            await check_tenant(self._session, self._accounts, self._identity, self._call.deadline)
            return await self._known.find_before_sending(entry) or await self._try_to_send(entry)
        except BudgetExhaustedError:
            if self._limit is not None:  # what the service said says more
                raise self._limit from None
            raise

    def _check_and_get(self) -> JournalEntry | None:
        """Check that the journal is this account's, and return the entry of the reference."""
        reference = self._reference
        entry = self._payments.get(reference)
        old = self._payments.look_alike(reference) if entry is None else None
        if old is not None:
            raise DuplicatePayoutError(
                f"reference {reference!r} looks like {old.reference!r}, which momopay 0.2 put into the journal:"
                f" {old.state}, KES {old.amount}. If that is this payout, it was handled there; else use another"
                " reference",
                reference=old.reference,
            )
        try:
            self._accounts.check(self._identity)
        except JournalError as error:
            error.may_have_executed = entry is not None and entry.state not in MAY_BE_SENT
            raise
        return entry
