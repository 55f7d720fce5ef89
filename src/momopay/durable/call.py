"""One call of ``pay_once``, ``collect_once`` or ``refund``: take the steps that `decide` returns, and keep the memory.

What is sent, and when, is decided in `momopay.durable.decide` alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import Any, Generic, cast

from momopay import errors
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._redaction import redacted_repr
from momopay.durable import decide as step
from momopay.durable.access import JournalAccess, learn_tenant
from momopay.durable.decide import Memory, Policy, Shown, decide
from momopay.durable.duplicates import check_entry, check_phone
from momopay.durable.lookup import PaymentLookup
from momopay.durable.past import check_past
from momopay.durable.payment import outcome_unknown, payment_in, payment_of
from momopay.durable.send import ENDPOINTS, Accepted, Sender
from momopay.journal.entries import JournalEntry, JournalState
from momopay.journal.evidence import Draft
from momopay.journal.journal import Journal
from momopay.journal.rules import KEYED
from momopay.models.arguments import checked_metadata
from momopay.models.enums import EntryKind, stage_of
from momopay.models.payments import Payment
from momopay.models.records import is_missing
from momopay.models.requests import PayoutRequest, StkRequest
from momopay.models.transactions import Transaction

logger: logging.Logger = logging.getLogger("momopay")


class DurableCall(Generic[BackendT]):
    """One call of ``pay_once``, ``collect_once`` or ``refund``, used by one task or thread."""

    _session: Session[BackendT]

    def __init__(
        self,
        session: Session[BackendT],
        journal: Journal,
        reference: str,
        request: PayoutRequest | StkRequest,
        *,
        metadata: Mapping[str, object] | None = None,
        refund_of: str | None = None,
        abandon_after: float | None = None,
        until: float = inf,
    ) -> None:
        """Prepare the call. An open prompt stops blocking another one `abandon_after` seconds after it was sent."""
        self._session = session
        is_payout, limits = isinstance(request, PayoutRequest), session.limits
        self._kind = kind = EntryKind.PAYOUT if is_payout else EntryKind.COLLECTION
        self._policy = Policy(
            kind,
            payout_keys=KEYED[kind] and session.payout_keys,
            abandon_after=inf if abandon_after is None else abandon_after,
            max_attempts=limits.max_attempts,
            max_wait=inf if limits.max_wait is None else limits.max_wait,
            least_seconds=ENDPOINTS[kind][0].least_seconds(session),
        )
        self._journal = JournalAccess(session, journal, reference, min(session.backend.now() + limits.deadline, until))
        self._store = self._journal.store
        self._sender = Sender(self._journal)
        self._lookup = PaymentLookup(self._journal)
        self._request: Any = request
        wire_reference = request.reference if isinstance(request, PayoutRequest) else request.account_reference or ""
        kept = checked_metadata(metadata)
        self._draft = Draft(kind, reference, request.amount, request.phone, wire_reference, kept, refund_of)
        # What the steps have brought, which a later step returns or raises.
        self._accepted: Accepted
        self._shown = dict[str, Transaction]()
        self._error: errors.MomoPayError  # of the latest send or search
        self._unknown: errors.OutcomeUnknownError | None = None  # of the latest send whose outcome is unknown

    async def run(self, *, has_slot: bool = False) -> Payment:
        """Send if the journal allows it, else return the known payment. `has_slot`: a rate slot was taken already."""
        if self._session.hooks.before_payment is not None:
            self._session.hooks.before_payment(self._draft.reference)
        entry, is_tenant_known = await self._journal.run(
            self._store.open_call, self._session.account.identity, self._kind, self._draft.reference
        )
        try:
            await check_past(self._journal)
            if not is_tenant_known:
                await learn_tenant(self._journal)
            # After other requests, the slot would be too old to send.
            return await self._follow(entry, has_slot=has_slot and entry is None)
        except errors.MomoPayError as error:
            error.may_have_executed = error.may_have_executed or self._sender.sent.may_have_executed
            await self._journal.note_earlier_attempts(error, self._kind, self._draft.reference)
            raise

    async def _follow(  # noqa: C901, PLR0912  a case for each step
        self, entry: JournalEntry | None, *, has_slot: bool
    ) -> Payment:
        """Take one step after the other until there is a payment or an error."""
        memory = Memory()
        self._check(entry)
        while True:
            now = self._sender.now() if self._policy.payout_keys else None
            memory = replace(memory, now=now, seconds_left=self._journal.deadline - self._session.backend.now())
            match decide(entry, memory, self._policy):
                case step.Send(within):
                    memory = await self._send(entry, memory, within, has_slot=has_slot)
                    has_slot = False
                case step.ReadRow(may_fail):
                    run = self._journal.run_or_log if may_fail else self._journal.run
                    entry = await run(self._store.get, self._kind, self._draft.reference)
                    memory = memory.after_reading_row(entry)
                    if not may_fail:  # else the call ends with its own error or payment
                        self._check(entry)
                case step.Search(searched, whole_list):
                    memory = await self._search(searched, memory, whole_list=whole_list)
                case step.ReadTransaction(read, transaction_id):
                    memory = await self._read(read, transaction_id, memory)
                case step.ReadOthers():
                    await self._read_others()
                    memory = replace(memory.after_step(), has_read_others=True)
                case step.Wait(seconds, is_retry):
                    if is_retry:
                        self._sender.report_retry(seconds, self._error)
                    await self._session.backend.sleep(seconds)
                    memory = memory.after_step()
                case step.ReturnSent():
                    return payment_of(self._draft, self._accepted, is_new=self._sender.is_new(self._accepted))
                case step.ReturnFound(known, transaction_id):
                    check_phone(known, self._draft, self._shown[transaction_id])
                    return await self._with_refunds(known, payment_of(known, self._shown[transaction_id]))
                case step.ReturnRow(accepted):
                    payment = cast("Payment", payment_in(accepted))
                    if self._sender.may_have_been_sent:
                        return payment.model_copy(update={"is_new": True})
                    return await self._with_refunds(accepted, payment)
                case step.Fail():
                    raise self._error
                case step.FailUnknown(unresolved, why):
                    raise self._unknown or outcome_unknown(unresolved, why)

    def _check(self, entry: JournalEntry | None) -> None:
        """Raise Duplicate...Error if the row is another payment's. An order keeps its first account_reference."""
        if entry is None:
            return
        check_entry(entry, self._draft)
        if entry.wire_reference != self._draft.wire_reference:
            text = "order %s goes on with its first account_reference, by which its prompts are found"
            logger.warning(text, redacted_repr(entry.reference))
            self._request = self._request.model_copy(update={"account_reference": entry.wire_reference})
            self._draft = replace(self._draft, wire_reference=entry.wire_reference)

    async def _send(
        self, entry: JournalEntry | None, memory: Memory, within: float | None, *, has_slot: bool
    ) -> Memory:
        body = self._request.to_json()
        outcome = await self._sender.send(self._draft, body, entry, within=within, has_slot=has_slot)
        shown_id, retry_after = None, 0.0
        if outcome.record is not None:
            self._accepted = outcome.record
        if outcome.error is not None:
            self._error = outcome.error
        if isinstance(outcome.error, errors.OutcomeUnknownError):
            self._unknown, shown_id = outcome.error, outcome.error.transaction_id
        if isinstance(outcome.error, errors.ThrottledError):
            retry_after = outcome.error.retry_after or 0.0
        attempts = self._sender.sent.attempts
        return memory.after_send(outcome.result, attempts=attempts, shown_id=shown_id, retry_after=retry_after)

    async def _search(self, entry: JournalEntry, memory: Memory, *, whole_list: bool) -> Memory:
        try:
            if entry.state is JournalState.UNKNOWN:
                searched = await self._lookup.reconcile(entry)
            else:
                searched = await self._lookup.search(entry, whole_list=whole_list)
        except errors.RequestValidationError as error:  # another order with its account_reference is unresolved
            self._error = error
            return replace(memory, result=step.Result.REFERENCE_IN_USE)
        if searched.doubt is not None:
            self._error = searched.doubt
        found = None if searched.found is None else self._note(searched.found)
        return memory.after_search(entry, found=found, is_doubtful=searched.doubt is not None)

    async def _read(self, entry: JournalEntry, transaction_id: str, memory: Memory) -> Memory:
        known = next(each for each in entry.transactions if each.transaction_id == transaction_id)
        transaction = await self._lookup.read(entry, known)
        # By the service's clock if its responses show it: another machine may have sent the prompt.
        now = self._session.clock.service_now_if_known()
        if now is None or transaction.created_at is None or is_missing(transaction.created_at):
            age = datetime.now(UTC) - known.sent_at
        else:
            age = now - transaction.created_at
        return memory.after_reading(self._note(transaction, age.total_seconds()))

    def _note(self, transaction: Transaction, age: float = 0.0) -> Shown:
        self._shown[transaction.transaction_id] = transaction
        return Shown(transaction.transaction_id, stage_of(transaction.status), age)

    async def _read_others(self) -> None:
        """Read the other orders with the same account_reference: as far as the journal knows, one of them is open."""
        for other in await self._journal.run(self._store.by_wire_reference, self._draft.wire_reference):
            if other.kind is EntryKind.COLLECTION and other.reference != self._draft.reference:
                await self._lookup.refresh(other)

    async def _with_refunds(self, entry: JournalEntry, payment: Payment) -> Payment:
        if not payment.is_paid:
            return payment
        return payment.model_copy(update={"refunded": await self._journal.run(self._store.refunded, entry)})
