"""Send a payment once: commit its row as SENDING, send the request, record the outcome.

Invariants:
- Only the call whose `Store.begin` committed the row as SENDING sends the payment. The commit is on disk before the
  first byte goes out, so a crash at any later moment leaves a row that says that the payment may have been made.
- REFUSED or NOT_SENT is recorded only if it is known that no money moved. Anything else, interrupts included, leaves
  UNKNOWN, or a row in SENDING that reads as UNKNOWN once this call has ended.
- Events are held while the request may be under way, because an observer may raise. They are delivered once the outcome
  is recorded, or before a request that was not sent is repeated.
- The transport does not write the body after the deadline, nor if another call or a person has changed the row.

`send` returns how it ended; what follows from that is decided in `momopay.durable.decide`.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from momopay import errors
from momopay._core.call import Call
from momopay._core.endpoint import Endpoint, PaymentDetails, Sent
from momopay._core.retry import SEARCHED_FIRST, FailureKind
from momopay._ratelimit.budget import Lane
from momopay._redaction import clear_frames, redacted_repr
from momopay._transport.clock import machine
from momopay.durable.access import JournalAccess, emit_change
from momopay.durable.decide import Result
from momopay.durable.payment import outcome_unknown
from momopay.journal.entries import JournalEntry, JournalState, Moment
from momopay.journal.evidence import Draft, Evidence, reference_of
from momopay.journal.rules import KEYED, payout_key
from momopay.models.enums import EntryKind
from momopay.models.records import Envelope, is_missing
from momopay.models.transactions import Payout, StkTransaction

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.leases import Lease

logger: logging.Logger = logging.getLogger("momopay")

Accepted: TypeAlias = Payout | StkTransaction
"""The service's record of a payment that it has just accepted."""

ENDPOINTS: Final[dict[EntryKind, tuple[Endpoint[Any], str]]] = {
    EntryKind.PAYOUT: (
        Endpoint("payouts.pay_once", "POST", SEARCHED_FIRST, Lane.PAYMENT, Envelope[Payout]),
        "/b2c/payouts",
    ),
    EntryKind.COLLECTION: (
        Endpoint("stk.collect_once", "POST", SEARCHED_FIRST, Lane.PAYMENT, Envelope[StkTransaction], prompts=True),
        "/payments/stk",
    ),
}
"""The endpoint and the path for each kind of payment."""
# Seconds that a lease outlives the deadline of its call, to read the response and record it.
_LEASE_GRACE: Final = 30.0
# Seconds after the commit of a row within which the body is written without reading the row again.
_ROW_IS_FRESH: Final = 1.0

# The times of a response may differ by so much: the ``Date`` header has whole seconds.
_CLOCK_RESOLUTION: Final = timedelta(seconds=2)


# How a send ended, by how its last attempt failed, where the payment may have been executed. All others are LOST.
_UNRESOLVED_RESULTS: Final = {
    FailureKind.OTHER_PAYMENT: Result.OTHER_PAYMENT,
    FailureKind.SENT_BEFORE: Result.SENT_BEFORE,
}
# After these, the service does not know the key as that of this payment's open request.
_NEVER_RESENT: Final = frozenset({Result.OTHER_PAYMENT, Result.SENT_BEFORE})


@dataclass(frozen=True)
class SendOutcome:
    """How a send ended: the service's record if it accepted the payment, else the error to raise if nothing follows."""

    result: Result
    record: Accepted | None = None
    error: errors.MomoPayError | None = None


class Fence:
    """Keeps the body of a request from being written if the payment's row no longer belongs to this call."""

    def __init__(self, journal: JournalAccess, draft: Draft) -> None:
        self._journal = journal
        self._draft = draft
        self._lease: Lease
        self._began: float
        self.has_changed: bool = False

    def begins(self, lease: Lease) -> None:
        """Note the lease under which the row is about to be written."""
        self._lease, self._began = lease, self._journal.session.backend.now()

    async def check(self) -> None:
        """Raise if the row no longer belongs to this call. Called just before the body is written."""
        # While this process was frozen, others may have taken it for dead, and released the row.
        if self._journal.session.backend.now() - self._began <= _ROW_IS_FRESH:
            return
        try:
            entry = await self._journal.run(self._journal.store.get, self._draft.kind, self._draft.reference)
        except errors.JournalError as error:
            error.may_have_executed = False  # without its body the request does nothing
            raise
        if entry is None:
            raise errors.JournalError("the payment's row has disappeared from the journal")
        if entry.claim != self._lease.id or entry.state is not JournalState.SENDING:
            self.has_changed = True
            raise outcome_unknown(entry, "its row was changed while this call was held up, so this call sent nothing")


class Sender:
    """Sends for one durable call, in one task or thread. Calls share nothing but the database."""

    def __init__(self, journal: JournalAccess) -> None:
        self._journal = journal
        self._session = journal.session
        self._store = journal.store
        self._call: Call[Any]  # the latest
        self._began: tuple[datetime, float]  # when the row was written, by the clock as it was then
        self.sent: Sent = Sent(self._session.backend.now())  # what this durable call has sent so far
        self.may_have_been_sent: bool = False  # whether any of it reached the service

    async def send(
        self, draft: Draft, body: bytes, read: JournalEntry | None, *, within: float | None = None, has_slot: bool
    ) -> SendOutcome:
        """Send the payment if its row is unchanged since it was `read`.

        `within`: it is an unresolved payout, which is sent again with its key, and no byte after so many seconds.
        """
        until, earlier = self._journal.deadline, self.sent
        if within is not None and read is not None:
            until = min(until, self._session.backend.now() + within)
            earlier = replace(earlier, may_have_executed=True)  # whatever happens to this request
            draft = replace(draft, is_resend=True, idempotency_key=read.idempotency_key, key_since=read.key_since)
        elif KEYED[draft.kind]:
            draft = self._with_key(draft, read)
        fence, self.sent = Fence(self._journal, draft), earlier
        call = self._call = Call(
            self._session,
            *ENDPOINTS[draft.kind],
            body=body,
            details=PaymentDetails(draft.wire_reference, draft.amount, draft.phone),
            until=until,
            has_slot=has_slot,
            idempotency_key=draft.idempotency_key,
            before_body=fence.check,
            earlier=earlier,
        )
        # Before the row is SENDING: a process that dies while it waits for a slot must leave nothing unresolved.
        await call.acquire_slot()
        events = self._session.events
        with nullcontext() if events is None else events.held(), self._store.leases.lease() as lease:
            fence.begins(lease)
            self._began = self._session.clock.reading()
            try:
                if not await self._begin(lease, draft, read):
                    return SendOutcome(Result.NOT_BEGUN)
            except errors.RequestValidationError as error:
                return SendOutcome(Result.REFERENCE_IN_USE, error=error)
            try:
                record: Accepted = await call.run()
            except errors.MomoPayError as error:
                outcome = SendOutcome(_result_of(error, call, fence), error=error)
                await self._record_failure(lease, draft, outcome)
                return outcome
            except BaseException as error:  # a cancellation, an interrupt, or a bug in the user's transport
                await self._record_interruption(lease, draft, error)
                raise
            finally:
                self.sent = call.sent
                self.may_have_been_sent = self.may_have_been_sent or call.may_have_been_sent
            return await self._record_acceptance(lease, draft, record, read)

    def report_retry(self, seconds: float, error: errors.MomoPayError) -> None:
        """Report to the client's observer, if any, that the payment will be sent again."""
        self._call.report_retry(seconds, error)

    def is_new(self, record: Accepted) -> bool:
        """Return whether this call made the transaction, as far as the service's clock shows.

        A service that honours the key answers a later request with the transaction of an earlier one.
        """
        offset, sent_at = self._session.clock.offset_at(self._began), self.sent.first_at
        if offset is None or sent_at is None or is_missing(record.created_at):
            return True
        return record.created_at - (sent_at - timedelta(seconds=offset)) >= -_CLOCK_RESOLUTION

    def now(self) -> Moment:
        """Return the present by clocks that nobody sets."""
        service_now = self._session.clock.service_now_if_known()
        service = None if service_now is None else service_now.timestamp()
        return Moment(machine(), self._session.backend.now(), service)

    def _with_key(self, draft: Draft, read: JournalEntry | None) -> Draft:
        """Return the draft with the Idempotency-Key of its attempt."""
        number = 1 if read is None else read.key_number
        scope = self._store.accounts.scope(self._session.account.identity)
        key = payout_key(scope, draft.reference, draft.amount, draft.phone, number)
        # A person who released it may be mistaken: the service may have known the key since the first request.
        is_same = read is not None and read.idempotency_key == key
        since = (read.key_since if read is not None and is_same else None) or str(self.now())
        return replace(draft, idempotency_key=key, key_since=since)

    async def _begin(self, lease: Lease, draft: Draft, read: JournalEntry | None) -> bool:
        """Write the row as SENDING. Return whether this call may send: nobody else has changed the row."""
        seconds, now = self._session.limits.deadline + _LEASE_GRACE, self._session.clock.service_now_if_known()
        try:
            may_send = await self._journal.run(self._store.begin, lease, draft, seconds, read=read, service_now=now)
        except BaseException as error:
            # The statement may still wait for a lock in its thread, and rolls back once the lease has ended. If it was
            # committed before it failed, the outcome below undoes it.
            self._store.leases.end(lease)
            # The traceback of an interrupt may hold the connection, whose open transaction keeps out all writers.
            clear_frames(error)
            await self._journal.finish(error, partial(self._store.record_not_sent, lease, draft))
            if isinstance(error, errors.JournalError):
                error.may_have_executed = False  # the caller looks for what an earlier attempt may have done
            raise
        if may_send:
            emit_change(self._session, draft, None if read is None else read.state, JournalState.SENDING)
        return may_send

    async def _record_acceptance(
        self, lease: Lease, draft: Draft, record: Accepted, read: JournalEntry | None
    ) -> SendOutcome:
        """Record the service's response. It may turn out not to be about this attempt."""
        differing, clock = draft.requested.differences(reference_of(record), record), self._session.clock
        is_accepted: bool | None = False
        if differing:
            what = f"another {', '.join(differing)}"
        elif read is not None and record.transaction_id in read.transaction_ids:
            what = "the transaction of an earlier attempt"
        else:
            what = "the transaction of another payment"
            evidence = Evidence.of(record, clock.service_now_if_known(), "answer")
            is_accepted = await self._journal.run_or_log(
                self._store.record, draft, evidence, lease=lease, clock_offset=clock.offset_at(self._began)
            )
        if is_accepted is False:  # None: it could not be recorded
            error = errors.OutcomeUnknownError(
                f"the payment of reference {draft.reference!r} may have been made: the service answered with {what}",
                sent_at=self.sent.first_at or record.created_at,
                reference=draft.reference,
                amount=draft.amount,
                phone=draft.phone,
                transaction_id=record.transaction_id,
            )
            outcome = SendOutcome(Result.OTHER_PAYMENT, error=error)
            await self._record_failure(lease, draft, outcome)
            return outcome
        if is_accepted:
            emit_change(self._session, draft, JournalState.SENDING, JournalState.ACCEPTED, record)
        accounts, key = self._store.accounts, self._session.account.identity
        is_known = accounts.knows(key, record.tenant_id)
        if not is_known and await self._journal.run_or_log(accounts.learn, key, record.tenant_id) is False:
            logger.error(
                "reference %s was sent by tenant %s, to which the journal does not belong: nothing more is sent with"
                " this key",
                redacted_repr(draft.reference),
                record.tenant_id,
            )
        return SendOutcome(Result.ACCEPTED, record)

    async def _record_failure(self, lease: Lease, draft: Draft, outcome: SendOutcome) -> None:
        error, result = cast("errors.MomoPayError", outcome.error), outcome.result
        state, code = JournalState.NOT_SENT, None
        if error.may_have_executed or draft.is_resend:
            state = JournalState.UNKNOWN
        elif isinstance(error, errors.APIError):
            state, code = JournalState.REFUSED, error.code
        await self._record(
            lease,
            draft,
            error,
            state,
            code=code,
            seen_id=error.transaction_id if isinstance(error, errors.OutcomeUnknownError) else None,
            # By the status: any 429 may be a gateway's, and the next call then sends the same attempt.
            ends_attempt=isinstance(error, errors.APIError)
            and state is JournalState.REFUSED
            and error.status_code != HTTPStatus.TOO_MANY_REQUESTS,
            may_resend=result not in _NEVER_RESENT,
        )

    async def _record_interruption(self, lease: Lease, draft: Draft, error: BaseException) -> None:
        is_unsent = not (draft.is_resend or self._call.may_have_been_sent)
        await self._record(lease, draft, error, JournalState.NOT_SENT if is_unsent else JournalState.UNKNOWN)

    async def _record(
        self, lease: Lease, draft: Draft, error: BaseException, state: JournalState, **known: Any
    ) -> None:
        offset = self._session.clock.offset_at(self._began)
        record = partial(self._store.record_outcome, lease, draft, state, clock_offset=offset, **known)
        if await self._journal.finish(error, record):
            emit_change(self._session, draft, JournalState.SENDING, state)


def _result_of(error: errors.MomoPayError, call: Call[Any], fence: Fence) -> Result:
    """Return how a request ended that raised this error."""
    if fence.has_changed:
        return Result.ROW_CHANGED
    if isinstance(error, errors.RateLimitExceededError):
        return Result.RATE_LIMITED
    if isinstance(error, errors.APIError):
        return Result.REFUSED
    if not error.may_have_executed or call.last_failure is None:
        return Result.NOT_SENT
    return _UNRESOLVED_RESULTS.get(call.last_failure.kind, Result.LOST)
