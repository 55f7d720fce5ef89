"""One call of ``stk.collect_once``: what it does about an order, by what the journal says about it and its prompts.

A new prompt goes out only if every earlier one ended without success, as the service's own record says, or was refused
or not sent and is absent from the list; and only if nobody else sent one, and none was paid, since that was read.
`SendOnce` does the sending.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from momopay._core.backend import BackendT
from momopay._core.call import Call, Endpoint
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import BudgetExhaustedError, JournalError, RequestValidationError
from momopay.journal.collection_rules import CollectStep, Stage, next_collect_step, stage_of
from momopay.journal.entries import JournalEntry, JournalState, Prompt
from momopay.journal.journal import Journal, collections_of
from momopay.models.requests import OrderRequest, StkRequest
from momopay.models.stk import StkTransaction
from momopay.models.transactions import Transaction
from momopay.resources.known_prompts import KnownPrompts, duplicate
from momopay.resources.reconcile import check_tenant, outcome_unknown
from momopay.resources.send_once import SendOnce

logger: logging.Logger = logging.getLogger("momopay")

# The ``Date`` header, by which the service's time is known, has whole seconds.
_DATE_RESOLUTION: Final = timedelta(seconds=1)


class CollectOnce(SendOnce[BackendT, StkTransaction]):
    """One call of ``stk.collect_once``."""

    _what = "prompt"

    def __init__(
        self,
        session: Session[BackendT],
        journal: Journal,
        initiate: Endpoint[StkTransaction],
        order: OrderRequest,
        request: StkRequest,
        metadata: Mapping[str, object] | None,
    ) -> None:
        orders = collections_of(journal)
        call: Call[StkTransaction] = Call(session, initiate, "/payments/stk")
        if request.account_reference is None:
            request = request.renamed(order.wire_reference)
        self._request = request
        super().__init__(session, journal, orders, call, order.reference, request, metadata)
        self._orders = orders
        self._wire_reference = request.account_reference
        self._abandon_after = order.abandon_after
        self._known: KnownPrompts[BackendT] = KnownPrompts(session, orders, self._journal)
        # The open prompts that this call has read and passed over.
        self._abandoned = set[str]()

    async def collect(self) -> StkTransaction | Transaction:
        """Prompt the customer if the journal allows it, else return the prompt that was paid or is open."""
        entry = await self._journal.run(self._check_and_get)
        while True:
            if entry is not None:
                self._check_same_order(entry)
            collected = await self._next(entry)
            if collected is not None:
                return collected
            entry = await self._journal.run(partial(self._orders.get, self._reference))

    async def _next(self, entry: JournalEntry | None) -> StkTransaction | Transaction | None:
        """Do the next step; return None if the row must be read again."""
        if entry is None:
            return await self._try_to_send(None)
        match self._step(entry):
            case CollectStep.SEND | CollectStep.SEARCH_THEN_SEND as step:
                return await self._send_again(entry, search=step is CollectStep.SEARCH_THEN_SEND)
            case CollectStep.WAIT:
                await self._wait_for(entry)
                return None
            case CollectStep.RETURN_PAID:
                paid = [prompt.transaction_id for prompt in entry.prompts if prompt.is_paid]
                # Of several, always the one that the journal learned of first.
                first = entry.transaction_id if entry.transaction_id in paid else paid[0]
                return await self._known.read(entry, first, self._payment)
            case CollectStep.READ_OPEN:
                return await self._read_open(entry)
            case CollectStep.RECONCILE:
                return await self._reconcile(entry)

    def _step(self, entry: JournalEntry) -> CollectStep:
        stages = [stage_of(prompt.status) for prompt in entry.prompts]
        still_open = {prompt.transaction_id for prompt in entry.prompts if prompt.is_open}
        return next_collect_step(entry.state, stages, entry.attempts, abandoned=still_open <= self._abandoned)

    async def _send_again(self, entry: JournalEntry, *, search: bool) -> StkTransaction | Transaction | None:
        """Send as `_try_to_send` does, after a search unless every attempt is accounted for."""
        self._call.has_slot = False  # it would be old after the search
        try:
            await check_tenant(self._session, self._accounts, self._identity, self._call.deadline)
            found = await self._known.find_before_sending(entry) if search else None
            return await self._try_to_send(entry) if found is None else _unless_ended(found)
        except BudgetExhaustedError:
            if self._limit is not None:  # what the service said says more
                raise self._limit from None
            raise

    async def _read_open(self, entry: JournalEntry) -> Transaction | None:
        """Read what is open as far as is known; return a prompt that was paid, else one that blocks the next."""
        blocking: Transaction | None = None
        for prompt in entry.prompts:
            if not prompt.is_open or prompt.transaction_id in self._abandoned:
                continue
            transaction = await self._known.read(entry, prompt.transaction_id, self._payment)
            stage = stage_of(transaction.status)
            if stage is Stage.PAID:
                return transaction
            if stage is Stage.OPEN and self._is_abandoned(prompt, transaction):
                self._abandoned.add(prompt.transaction_id)
            elif stage is Stage.OPEN:
                blocking = transaction
        return blocking

    async def _reconcile(self, entry: JournalEntry) -> StkTransaction | Transaction | None:
        """Search for the prompt of an attempt in doubt, and never prompt again if the list does not show it."""
        await check_tenant(self._session, self._accounts, self._identity, self._call.deadline)
        found = await self._known.reconcile(entry)
        if found is not None:
            return _unless_ended(found)
        # The search may have shown that an earlier prompt was paid.
        again = await self._journal.run(partial(self._orders.get, self._reference))
        if again == entry:
            raise outcome_unknown(entry, "the list does not show it, which proves nothing")
        return None

    def _is_abandoned(self, prompt: Prompt, transaction: Transaction) -> bool:
        """Return whether `abandon_after` has passed since an open prompt was sent."""
        if self._abandon_after is None:
            return False
        # By the service's clock where its responses show it: this machine's may not be the one that sent the prompt.
        clock = self._session.clock
        clock.observe(transaction.response.headers)
        is_known = clock.offset is not None
        age = clock.service_now() - transaction.created_at if is_known else datetime.now(UTC) - prompt.sent_at
        return age + _DATE_RESOLUTION >= timedelta(seconds=self._abandon_after)

    def _nothing_moved(self, entry: JournalEntry) -> bool:
        ended = all(stage_of(prompt.status) is Stage.ENDED for prompt in entry.prompts)
        return ended and entry.state not in {JournalState.SENDING, JournalState.UNKNOWN}

    def _check_and_get(self) -> JournalEntry | None:
        """Check that the journal is this account's, and return the entry of the order."""
        entry = self._orders.get(self._reference)
        try:
            self._accounts.check(self._identity)
        except JournalError as error:
            error.may_have_executed = entry is not None and not self._nothing_moved(entry)
            raise
        other = self._orders.by_wire_reference(self._payment.reference) if entry is None else None
        if other is not None and other.reference != self._reference:
            problem = f"is that of order {other.reference!r}: a prompt is found by it, so each order needs its own"
            raise RequestValidationError({"account_reference": problem})
        return entry

    def _check_same_order(self, entry: JournalEntry) -> None:
        """Raise DuplicateCollectionError if the order was collected before with another amount or phone."""
        if entry.amount != self._amount or (entry.phone != self._phone and not entry.is_anonymised):
            raise duplicate(entry, "has another amount or phone")
        # Of one that was paid, the service's record has the phone, with which this call's is compared.
        if entry.is_anonymised and not any(prompt.is_paid for prompt in entry.prompts):
            raise duplicate(entry, "was anonymised")
        if entry.wire_reference not in {None, self._payment.reference}:
            logger.warning(
                "order %s goes on with its first account_reference, by which its prompts are found",
                redacted_repr(entry.reference),
            )
            self._take(self._request.renamed(entry.wire_reference or entry.reference))


def _unless_ended(found: Transaction) -> Transaction | None:
    """Return a transaction that was paid or is open; None if it ended, so that another prompt may go out."""
    return None if stage_of(found.status) is Stage.ENDED else found
