"""Send a payment once: the journal is written first, then the request is sent, then the journal again.

Invariants:
- A payment is sent only by the call whose `Store.begin` committed its row as SENDING. The commit is on disk before the
  first byte goes out, so a crash at any later moment leaves a row that says that the payment may have been made.
- An outcome is recorded as REFUSED or NOT_SENT only if it is known that no money moved. Whatever else happens,
  interrupts included, leaves UNKNOWN, or a row in SENDING that reads as UNKNOWN once this call has ended.
- No event is delivered between the two while the request may be under way, because an observer may raise: they are held
  until the outcome is recorded, or until a request that was not sent is to be repeated.
- The body of the request is not written after the deadline (by the transport), nor on behalf of a row that another
  call or a person has changed meanwhile.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from functools import partial
from random import uniform
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from momopay._core.call import Call, Endpoint
from momopay._core.retry import BASE_BACKOFF, SEARCHED_FIRST
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import clear_frames, redacted_repr
from momopay.durable.access import JournalAccess
from momopay.durable.search import outcome_unknown
from momopay.errors import APIError, JournalError, MomoPayError, OutcomeUnknownError, RateLimitExceededError
from momopay.journal.entries import EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import Draft, KeyIdentity, report_of
from momopay.journal.lease import Lease
from momopay.journal.rules import may_have_executed
from momopay.models.records import Envelope
from momopay.models.requests import RequestedPayment
from momopay.models.transactions import Payout, StkTransaction

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.store import Store

logger: logging.Logger = logging.getLogger("momopay")

Sent: TypeAlias = Payout | StkTransaction

_PAYOUT: Final = Endpoint("POST", SEARCHED_FIRST, Lane.PAYMENT, Envelope[Payout])
_PROMPT: Final = Endpoint("POST", SEARCHED_FIRST, Lane.PAYMENT, Envelope[StkTransaction], prompts=True)
# Seconds for which a lease outlives the deadline of its call, to read the answer and to record it.
_GRACE: Final = 30.0
# Seconds after the row was committed for which it is taken to be unchanged when the body is written.
_ROW_IS_FRESH: Final = 1.0


def new_call(session: Session[Any], kind: EntryKind) -> Call[Any]:
    """Return the call that sends a payment of this kind."""
    if kind is EntryKind.PAYOUT:
        return Call(session, _PAYOUT, "/b2c/payouts")
    return Call(session, _PROMPT, "/payments/stk")


class Sender:
    """The sending of one durable call. It belongs to one task or thread; calls meet only in the database."""

    def __init__(
        self,
        session: Session[Any],
        store: Store,
        journal: JournalAccess,
        call: Call[Any],
        identity: KeyIdentity,
    ) -> None:
        self._session = session
        self._store = store
        self._journal = journal
        self._call = call
        self._identity = identity
        self.limit: RateLimitExceededError | None = None
        """The last 429 after which this call tried again."""

    async def try_to_send(self, draft: Draft, payment: RequestedPayment, read: JournalEntry | None) -> Sent | None:
        """Send if the row is as it was read; return None if it must be read again."""
        # The slot first: while a call waits for the rate budget, no row says SENDING, so a process that dies in the
        # queue leaves nothing unresolved.
        try:
            await self._call.acquire_slot()
        except MomoPayError as error:
            error.may_have_executed = not await self.is_free(draft)  # another call may have sent it meanwhile
            raise
        operation = self._session.operation
        try:
            with nullcontext() if operation is None else operation.held(), self._store.leases.lease() as lease:
                began = self._session.backend.now()
                if await self._begin(lease, draft, read) is None:
                    return await self._send(lease, draft, payment, began)
        except RateLimitExceededError as error:
            # Not repeated by the call itself: one search goes before any second send, also after this refusal.
            pause = max(error.retry_after or 0.0, uniform(0, BASE_BACKOFF * 2 ** (self._call.attempts - 1)))  # noqa: S311
            is_last = self._call.attempts >= self._session.limits.max_attempts
            if error.may_have_executed or is_last or self._session.backend.now() + pause >= self._call.deadline:
                raise
            self.limit = error
            self._call.report_retry(pause, error)
            await self._session.backend.sleep(pause)
        self._call.has_slot = False  # it is old when this call sends after all
        return None

    async def is_free(self, draft: Draft) -> bool:
        """Return whether the journal shows that nothing was sent; False if it cannot be read."""
        row = await self._journal.run_or_log(lambda: (self._store.get(draft.kind, draft.reference),))
        return row is not None and (row[0] is None or not may_have_executed(row[0]))

    async def _begin(self, lease: Lease, draft: Draft, read: JournalEntry | None) -> JournalEntry | None:
        seconds, offset = self._session.limits.deadline + _GRACE, self._session.clock.offset
        begin = partial(self._store.begin, lease, draft, seconds, read=read, clock_offset=offset)
        try:
            forbidding = await self._journal.run(begin)
        except GeneratorExit:  # a coroutine that is thrown away cannot await; its row reads as UNKNOWN
            raise
        except BaseException as error:
            # The statement may be waiting for a lock still, in a thread that was left behind. It undoes itself when it
            # finds the lease ended. If it was committed before it failed, this undoes it.
            self._store.leases.end(lease)
            # An interrupt may have struck while the row was written: the frames of its traceback then hold the
            # connection whose transaction keeps all writers out.
            clear_frames(error)
            await self._journal.finish(partial(self._store.undo, lease, draft), error)
            if isinstance(error, JournalError):
                error.may_have_executed = not await self.is_free(draft)
            raise
        if forbidding is None:
            self._journal.report(None if read is None else read.state, JournalState.SENDING)
        return forbidding

    async def _send(self, lease: Lease, draft: Draft, payment: RequestedPayment, began: float) -> Sent:
        self._call.before_body = partial(self._check_row, lease, draft, began)
        try:
            record: Sent = await self._call.run()
        except MomoPayError as error:
            await self._record_failure(lease, draft, error)
            raise
        except GeneratorExit:  # as in `_begin`
            raise
        except BaseException as error:  # a cancellation, an interrupt, or a bug in the user's transport
            state = JournalState.UNKNOWN if self._call.may_have_been_sent else JournalState.NOT_SENT
            outcome = partial(self._store.record_outcome, lease, draft, state)
            if await self._journal.finish(outcome, error):
                self._journal.report(JournalState.SENDING, state)
            raise
        reference = record.reference if isinstance(record, Payout) else record.account_reference
        differing = payment.differences(reference, record)
        if differing:
            why = f"the service answered with another {', '.join(differing)}"
            raise await self._unbelievable(lease, draft, record, why)
        clock = self._session.clock
        report = report_of(record, clock.service_now_if_known())
        accept = partial(self._store.record, draft, report, lease=lease, clock_offset=clock.offset)
        is_accepted = await self._journal.run_or_log(accept)
        if is_accepted is False:
            why = "the service answered with the transaction of another payment"
            raise await self._unbelievable(lease, draft, record, why)
        if is_accepted:
            self._journal.report(JournalState.SENDING, JournalState.ACCEPTED, record)
        await self._learn_tenant(record, draft)
        return record

    async def _check_row(self, lease: Lease, draft: Draft, began: float) -> None:
        """Raise if the row is not this call's any more. It is asked just before the body is written."""
        # A process that was frozen since it wrote the row may be taken for dead, and the row released, meanwhile.
        if self._session.backend.now() - began <= _ROW_IS_FRESH:
            return
        try:
            if await self._journal.run(partial(self._store.is_sending, lease, draft)):
                return
            entry = await self._journal.run(partial(self._store.get, draft.kind, draft.reference))
        except JournalError as error:
            error.may_have_executed = False  # without its body the request does nothing
            raise
        if entry is None:
            raise JournalError("the payment's row has disappeared from the journal")
        raise outcome_unknown(entry, "its row was changed while this call was held up, so this call sent nothing")

    async def _unbelievable(self, lease: Lease, draft: Draft, record: Sent, why: str) -> OutcomeUnknownError:
        """Record an acceptance that is not this payment's, and return the error for it."""
        await self._record(lease, draft, JournalState.UNKNOWN, seen_id=record.transaction_id)
        return OutcomeUnknownError(
            f"the payment of reference {draft.reference!r} may have been made: {why}",
            sent_at=self._call.sent_at or record.created_at,
            reference=draft.reference,
            amount=draft.amount,
            phone=draft.phone,
            transaction_id=record.transaction_id,
        )

    async def _learn_tenant(self, record: Sent, draft: Draft) -> None:
        accounts = self._store.accounts
        if accounts.knows(self._identity, record.tenant_id):
            return
        if await self._journal.run_or_log(partial(accounts.learn, self._identity, record.tenant_id)) is False:
            logger.error(
                "reference %s was sent by tenant %s, to which the journal does not belong: nothing more is sent with"
                " this key",
                redacted_repr(draft.reference),
                record.tenant_id,
            )

    async def _record_failure(self, lease: Lease, draft: Draft, error: MomoPayError) -> None:
        if error.may_have_executed:
            seen = error.transaction_id if isinstance(error, OutcomeUnknownError) else None
            await self._record(lease, draft, JournalState.UNKNOWN, seen_id=seen)
            return
        state = JournalState.REFUSED if isinstance(error, APIError) else JournalState.NOT_SENT
        code = error.code if isinstance(error, APIError) else None
        if not await self._record(lease, draft, state, code=code):
            # The row is another call's by now: this one was frozen, and taken for dead.
            error.may_have_executed = not await self.is_free(draft)

    async def _record(
        self,
        lease: Lease,
        draft: Draft,
        state: JournalState,
        *,
        seen_id: str | None = None,
        code: str | None = None,
    ) -> bool:
        record = partial(self._store.record_outcome, lease, draft, state, seen_id=seen_id, code=code)
        is_recorded = await self._journal.run_or_log(partial(record, clock_offset=self._session.clock.offset))
        if is_recorded:
            self._journal.report(JournalState.SENDING, state)
        return bool(is_recorded)
