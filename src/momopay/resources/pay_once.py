"""One call of ``payouts.pay_once``: the journal is written first, then the request is sent, then the journal again.

Invariants:
- A payout is sent only by the call whose `Payments.begin` committed its row as SENDING. The commit is on disk before
  the first byte goes out, so a crash at any later moment leaves a row that says that the payout may have been made.
- An outcome is recorded as REFUSED or NOT_SENT only if it is known that no money moved. Whatever else happens,
  interrupts included, leaves UNKNOWN, or a row in SENDING that reads as UNKNOWN once this call has ended.
- A reference that was attempted before is sent only after a search, and only if nobody else sent it since the search
  began. Absence from the list never makes UNKNOWN free.
- The body of the request is not written after the deadline (by the transport), nor on behalf of a row that another
  call or a person has changed meanwhile.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from functools import partial
from random import uniform
from typing import TYPE_CHECKING, Final, Generic

from momopay._core.backend import BackendT
from momopay._core.call import Call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.retry import BASE_BACKOFF
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import (
    APIError,
    BudgetExhaustedError,
    DuplicatePayoutError,
    JournalError,
    MomoPayError,
    OutcomeUnknownError,
    RateLimitExceededError,
)
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState
from momopay.journal.evidence import report_of
from momopay.journal.identity import KeyIdentity
from momopay.journal.journal import Journal, accounts_of, payments_of
from momopay.journal.lease import Lease
from momopay.journal.rules import Step, next_step
from momopay.models.enums import TransactionType
from momopay.models.matching import RequestedPayment
from momopay.models.payouts import Payout
from momopay.models.requests import PayoutRequest
from momopay.models.transactions import Transaction
from momopay.resources.journal_access import JournalAccess
from momopay.resources.known_payout import KnownPayout
from momopay.resources.reconcile import check_tenant, outcome_unknown

if TYPE_CHECKING:  # at run time they need SQLAlchemy
    from momopay.journal.payments import Payments
    from momopay.journal.refunds import Refunds

logger: logging.Logger = logging.getLogger("momopay")

# Seconds for which a lease outlives the deadline of its call, to read the answer and to record it.
_GRACE: Final = 30.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# Seconds after the row was committed for which it is taken to be unchanged when the body is written.
_ROW_IS_FRESH: Final = 1.0


class PayOnce(Generic[BackendT]):
    """One call of ``payouts.pay_once``. It belongs to one task or thread; calls meet only in the database."""

    _session: Session[BackendT]

    def __init__(
        self,
        session: Session[BackendT],
        journal: Journal,
        initiate: Endpoint[Payout],
        request: PayoutRequest,
        metadata: Mapping[str, object] | None,
        refunds: Refunds | None = None,
    ) -> None:
        self._session = session
        self._payments: Payments = refunds or payments_of(journal)
        self._accounts = accounts_of(journal)
        self._identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
        self._request = request
        self._metadata = metadata
        self._payment = RequestedPayment(request.reference, request.amount, request.phone, TransactionType.B2C)
        self._body = request.to_json()
        self._body_hash = hashlib.sha256(self._body).hexdigest()
        details = PaymentDetails(reference=request.reference, amount=request.amount, phone=request.phone)
        self._call: Call[Payout] = Call(session, initiate, "/b2c/payouts", body=self._body, details=details)
        self._journal = JournalAccess(session, self._payments, request.reference, self._call.deadline)
        self._limit: RateLimitExceededError | None = None
        self._known: KnownPayout[BackendT] = KnownPayout(session, self._payments, self._journal, self._payment)

    async def pay(self, *, has_slot: bool = False) -> Payout | Transaction:
        """Send if the journal allows it, else return what is known; with `has_slot`, the caller has taken a slot."""
        self._call.has_slot = has_slot
        entry = await self._journal.run(self._check_and_get)
        pause = _FIRST_PAUSE
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
                    if self._session.backend.now() + pause > self._call.deadline:
                        raise outcome_unknown(entry, "another call was still sending it at this one's deadline")
                    await self._session.backend.sleep(pause)
                    pause, paid = min(2 * pause, _LONGEST_PAUSE), None
            if paid is not None:
                return paid
            entry = await self._journal.run(partial(self._payments.get, self._request.reference))

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

    async def _try_to_send(self, read: JournalEntry | None) -> Payout | None:
        """Send if the row is as it was read; return None if it must be read again."""
        # The slot first: while a call waits for the rate budget, no row says SENDING, so a process that dies in the
        # queue leaves nothing in doubt.
        try:
            await self._call.acquire_slot()
        except MomoPayError as error:
            error.may_have_executed = not await self._is_free()  # another call may have sent it meanwhile
            raise
        try:
            with self._payments.leases.lease() as lease:
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
            await self._session.backend.sleep(pause)
        self._call.has_slot = False  # it is old when this call sends after all
        return None

    async def _is_free(self) -> bool:
        """Return whether the journal shows that nothing was sent; False if it cannot be read."""
        row = await self._journal.run_or_log(lambda: (self._payments.get(self._request.reference),))
        return row is not None and (row[0] is None or row[0].state in MAY_BE_SENT)

    def _check_and_get(self) -> JournalEntry | None:
        """Check that the journal is this account's, and return the entry of the reference."""
        reference = self._request.reference
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

    async def _begin(self, lease: Lease, read: JournalEntry | None) -> JournalEntry | None:
        begin = partial(
            self._payments.begin,
            lease,
            reference=self._request.reference,
            amount=self._request.amount,
            phone=self._request.phone,
            body_hash=self._body_hash,
            seconds=self._session.limits.deadline + _GRACE,
            read=read,
            metadata=self._metadata,
            clock_offset=self._session.clock.offset,
        )
        try:
            return await self._journal.run(begin)
        except GeneratorExit:  # a coroutine that is thrown away cannot await; its row reads as UNKNOWN
            raise
        except BaseException as error:
            # The statement may be waiting for a lock still, in a thread that was left behind. It undoes itself when it
            # finds the lease ended. If it was committed before it failed, this undoes it.
            self._payments.leases.end(lease)
            await self._journal.finish(partial(self._payments.undo, lease, self._request.reference), error)
            if isinstance(error, JournalError):
                error.may_have_executed = not await self._is_free()
            raise

    async def _send(self, lease: Lease, began: float) -> Payout:
        self._call.before_body = partial(self._check_row, lease, began)
        try:
            payout = await self._call.run()
        except MomoPayError as error:
            await self._record_failure(lease, error)
            raise
        except GeneratorExit:  # as in `_begin`
            raise
        except BaseException as error:  # a cancellation, an interrupt, or a bug in the user's transport
            state = JournalState.UNKNOWN if self._call.may_have_been_sent else JournalState.NOT_SENT
            record = partial(self._payments.record_outcome, lease, self._request.reference, state)
            await self._journal.finish(record, error)
            raise
        differing = self._payment.differences(payout.reference, payout)
        if differing:
            raise await self._unbelievable(lease, payout, f"the service answered with another {', '.join(differing)}")
        accept = partial(self._payments.accept, self._request.reference, report_of(payout), lease=lease)
        if await self._journal.run_or_log(partial(accept, clock_offset=self._session.clock.offset)) is False:
            raise await self._unbelievable(lease, payout, "the service answered with the transaction of another payout")
        await self._learn_tenant(payout)
        return payout

    async def _check_row(self, lease: Lease, began: float) -> None:
        """Raise if the row is not this call's any more. It is asked just before the body is written."""
        # A process that was frozen since it wrote the row may be taken for dead, and the row released, meanwhile.
        if self._session.backend.now() - began <= _ROW_IS_FRESH:
            return
        reference = self._request.reference
        try:
            if await self._journal.run(partial(self._payments.is_sending, lease, reference)):
                return
            entry = await self._journal.run(partial(self._payments.get, reference))
        except JournalError as error:
            error.may_have_executed = False  # without its body the request does nothing
            raise
        if entry is None:
            raise JournalError("the row of the payout has disappeared from the journal")
        raise outcome_unknown(entry, "its row was changed while this call was held up, so this call sent nothing")

    async def _unbelievable(self, lease: Lease, payout: Payout, why: str) -> OutcomeUnknownError:
        """Record an acceptance that is not this payout's, and return the error for it."""
        await self._record(lease, JournalState.UNKNOWN, transaction_id=payout.transaction_id)
        return OutcomeUnknownError(
            f"the payout of reference {self._request.reference!r} may have been made: {why}",
            sent_at=self._call.sent_at or payout.created_at,
            reference=self._request.reference,
            amount=self._request.amount,
            phone=self._request.phone,
            transaction_id=payout.transaction_id,
        )

    async def _learn_tenant(self, payout: Payout) -> None:
        tenant = payout.tenant_id
        if tenant and await self._journal.run_or_log(partial(self._accounts.learn, self._identity, tenant)) is False:
            logger.error(
                "reference %s was paid by tenant %s, to which the journal does not belong: nothing more is sent with"
                " this key",
                redacted_repr(self._request.reference),
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
        record = partial(self._payments.record_outcome, lease, self._request.reference, state)
        offset = self._session.clock.offset
        await self._journal.run_or_log(partial(record, transaction_id=transaction_id, code=code, clock_offset=offset))
