"""A durable call that sends a payment: the journal is written first, then the request is sent, then the journal again.

`PayOnce` and `CollectOnce` decide whether anything is sent. The sending itself is the same for both, and is here.

Invariants:
- A payment is sent only by the call whose `Payments.begin` committed its row as SENDING. The commit is on disk before
  the first byte goes out, so a crash at any later moment leaves a row that says that the payment may have been made.
- An outcome is recorded as REFUSED or NOT_SENT only if it is known that no money moved. Whatever else happens,
  interrupts included, leaves UNKNOWN, or a row in SENDING that reads as UNKNOWN once this call has ended.
- No event is delivered between the two while the request may be under way, because an observer may raise: they are held
  until the outcome is recorded, or until a request that was not sent is to be repeated.
- The body of the request is not written after the deadline (by the transport), nor on behalf of a row that another
  call or a person has changed meanwhile.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from random import uniform
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from momopay._core.backend import BackendT
from momopay._core.call import Call, PaymentDetails
from momopay._core.retry import BASE_BACKOFF
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import APIError, JournalError, MomoPayError, OutcomeUnknownError, RateLimitExceededError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import Journal, accounts_of
from momopay.journal.lease import Lease
from momopay.models.payouts import Payout
from momopay.models.requests import PayoutRequest, StkRequest
from momopay.models.stk import StkTransaction
from momopay.resources.journal_access import JournalAccess
from momopay.resources.reconcile import outcome_unknown

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.payments import Payments

logger: logging.Logger = logging.getLogger("momopay")

SentT = TypeVar("SentT", bound=Payout | StkTransaction)

# Seconds for which a lease outlives the deadline of its call, to read the answer and to record it.
_GRACE: Final = 30.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# Seconds after the row was committed for which it is taken to be unchanged when the body is written.
_ROW_IS_FRESH: Final = 1.0


class SendOnce(Generic[BackendT, SentT]):
    """What the durable calls share. A call belongs to one task or thread; calls meet only in the database."""

    _session: Session[BackendT]
    _what: str
    """What is sent, for messages."""
    _wire_reference: str | None = None
    """What the service gets as the reference of a collection."""

    def __init__(
        self,
        session: Session[Any],  # mypy would not accept that of a subclass
        journal: Journal,
        payments: Payments,
        call: Call[SentT],
        reference: str,
        request: PayoutRequest | StkRequest,
        metadata: Mapping[str, object] | None,
    ) -> None:
        self._session = session
        self._payments = payments
        self._accounts = accounts_of(journal)
        self._identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
        self._call = call
        self._reference = reference
        self._metadata = metadata
        self._journal = JournalAccess(session, payments, reference, call.deadline)
        self._limit: RateLimitExceededError | None = None
        self._pause = _FIRST_PAUSE
        self._take(request)

    def _take(self, request: PayoutRequest | StkRequest) -> None:
        """Set what is sent."""
        self._amount, self._phone = request.amount, request.phone
        self._payment = request.payment()
        self._call.body = request.to_json()
        self._call.details = PaymentDetails(self._payment.reference, request.amount, request.phone)
        self._body_hash = hashlib.sha256(self._call.body).hexdigest()

    async def _wait_for(self, entry: JournalEntry) -> None:
        """Sleep until the row of another call that is sending is to be read again."""
        if self._session.backend.now() + self._pause > self._call.deadline:
            raise outcome_unknown(entry, "another call was still sending it at this one's deadline")
        await self._session.backend.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    async def _try_to_send(self, read: JournalEntry | None) -> SentT | None:
        """Send if the row is as it was read; return None if it must be read again."""
        # The slot first: while a call waits for the rate budget, no row says SENDING, so a process that dies in the
        # queue leaves nothing in doubt.
        try:
            await self._call.acquire_slot()
        except MomoPayError as error:
            error.may_have_executed = not await self._is_free()  # another call may have sent it meanwhile
            raise
        operation = self._session.operation
        try:
            with nullcontext() if operation is None else operation.held(), self._payments.leases.lease() as lease:
                began = self._session.backend.now()
                if await self._begin(lease, read) is None:
                    return await self._send(lease, began)
        except RateLimitExceededError as error:
            # Not repeated by the call itself: one search goes before any second send, also after this refusal.
            pause = max(error.retry_after or 0.0, uniform(0, BASE_BACKOFF * 2 ** (self._call.attempts - 1)))  # noqa: S311
            is_last = self._call.attempts >= self._session.limits.max_attempts
            if error.may_have_executed or is_last or self._session.backend.now() + pause >= self._call.deadline:
                raise
            self._limit = error
            self._call.report_retry(pause, error)
            await self._session.backend.sleep(pause)
        self._call.has_slot = False  # it is old when this call sends after all
        return None

    async def _is_free(self) -> bool:
        """Return whether the journal shows that nothing was sent; False if it cannot be read."""
        row = await self._journal.run_or_log(lambda: (self._payments.get(self._reference),))
        return row is not None and (row[0] is None or self._nothing_moved(row[0]))

    def _nothing_moved(self, entry: JournalEntry) -> bool:
        """Return whether an entry shows that no money has moved and none may still."""
        return entry.state in MAY_BE_SENT

    async def _begin(self, lease: Lease, read: JournalEntry | None) -> JournalEntry | None:
        begin = partial(
            self._payments.begin,
            lease,
            reference=self._reference,
            amount=self._amount,
            phone=self._phone,
            body_hash=self._body_hash,
            seconds=self._session.limits.deadline + _GRACE,
            read=read,
            metadata=self._metadata,
            wire_reference=self._wire_reference,
            clock_offset=self._session.clock.offset,
        )
        try:
            forbidding = await self._journal.run(begin)
        except GeneratorExit:  # a coroutine that is thrown away cannot await; its row reads as UNKNOWN
            raise
        except BaseException as error:
            # The statement may be waiting for a lock still, in a thread that was left behind. It undoes itself when it
            # finds the lease ended. If it was committed before it failed, this undoes it.
            self._payments.leases.end(lease)
            await self._journal.finish(partial(self._payments.undo, lease, self._reference), error)
            if isinstance(error, JournalError):
                error.may_have_executed = not await self._is_free()
            raise
        if forbidding is None:
            self._journal.report(None if read is None else read.state, JournalState.SENDING)
        return forbidding

    async def _send(self, lease: Lease, began: float) -> SentT:
        self._call.before_body = partial(self._check_row, lease, began)
        try:
            record = await self._call.run()
        except MomoPayError as error:
            await self._record_failure(lease, error)
            raise
        except GeneratorExit:  # as in `_begin`
            raise
        except BaseException as error:  # a cancellation, an interrupt, or a bug in the user's transport
            state = JournalState.UNKNOWN if self._call.may_have_been_sent else JournalState.NOT_SENT
            outcome = partial(self._payments.record_outcome, lease, self._reference, state)
            if await self._journal.finish(outcome, error):
                self._journal.report(JournalState.SENDING, state)
            raise
        reference = record.reference if isinstance(record, Payout) else record.account_reference
        differing = self._payment.differences(reference, record)
        if differing:
            raise await self._unbelievable(lease, record, f"the service answered with another {', '.join(differing)}")
        accept = partial(self._payments.accept, self._reference, report_of(record), lease=lease)
        is_accepted = await self._journal.run_or_log(partial(accept, clock_offset=self._session.clock.offset))
        if is_accepted is False:
            why = f"the service answered with the transaction of another {self._what}"
            raise await self._unbelievable(lease, record, why)
        if is_accepted:
            self._journal.report(JournalState.SENDING, JournalState.ACCEPTED, record)
        await self._learn_tenant(record)
        return record

    async def _check_row(self, lease: Lease, began: float) -> None:
        """Raise if the row is not this call's any more. It is asked just before the body is written."""
        # A process that was frozen since it wrote the row may be taken for dead, and the row released, meanwhile.
        if self._session.backend.now() - began <= _ROW_IS_FRESH:
            return
        reference = self._reference
        try:
            if await self._journal.run(partial(self._payments.is_sending, lease, reference)):
                return
            entry = await self._journal.run(partial(self._payments.get, reference))
        except JournalError as error:
            error.may_have_executed = False  # without its body the request does nothing
            raise
        if entry is None:
            raise JournalError(f"the row of the {self._what} has disappeared from the journal")
        raise outcome_unknown(entry, "its row was changed while this call was held up, so this call sent nothing")

    async def _unbelievable(self, lease: Lease, record: SentT, why: str) -> OutcomeUnknownError:
        """Record an acceptance that is not this payment's, and return the error for it."""
        await self._record(lease, JournalState.UNKNOWN, transaction_id=record.transaction_id)
        return OutcomeUnknownError(
            f"the {self._what} of reference {self._reference!r} may have been made: {why}",
            sent_at=self._call.sent_at or record.created_at,
            reference=self._reference,
            amount=self._amount,
            phone=self._phone,
            transaction_id=record.transaction_id,
        )

    async def _learn_tenant(self, record: SentT) -> None:
        tenant = record.tenant_id
        if tenant and await self._journal.run_or_log(partial(self._accounts.learn, self._identity, tenant)) is False:
            logger.error(
                "reference %s was sent by tenant %s, to which the journal does not belong: nothing more is sent with"
                " this key",
                redacted_repr(self._reference),
                tenant,
            )

    async def _record_failure(self, lease: Lease, error: MomoPayError) -> None:
        if error.may_have_executed:
            seen = error.transaction_id if isinstance(error, OutcomeUnknownError) else None
            await self._record(lease, JournalState.UNKNOWN, transaction_id=seen)
        elif isinstance(error, APIError):
            await self._record(lease, JournalState.REFUSED, code=error.code)
        else:
            await self._record(lease, JournalState.NOT_SENT)

    async def _record(
        self, lease: Lease, state: JournalState, *, transaction_id: str | None = None, code: str | None = None
    ) -> None:
        record = partial(self._payments.record_outcome, lease, self._reference, state)
        offset = self._session.clock.offset
        record = partial(record, transaction_id=transaction_id, code=code, clock_offset=offset)
        if await self._journal.run_or_log(record):
            self._journal.report(JournalState.SENDING, state)
