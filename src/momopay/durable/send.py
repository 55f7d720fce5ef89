"""Send a payment once: commit its row as SENDING, send the request, record the outcome.

Invariants:
- Only the call whose `Store.begin` committed the row as SENDING sends the payment. The commit is on disk before the
  first byte goes out, so a crash at any later moment leaves a row that says that the payment may have been made.
- REFUSED or NOT_SENT is recorded only if it is known that no money moved. Anything else, interrupts included, leaves
  UNKNOWN, or a row in SENDING that reads as UNKNOWN once this call has ended.
- Events are held while the request may be under way, because an observer may raise. They are delivered once the outcome
  is recorded, or before a request that was not sent is repeated.
- The transport does not write the body after the deadline, nor if another call or a person has changed the row.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from momopay import errors
from momopay._core.call import Call, Endpoint
from momopay._core.retry import BASE_BACKOFF, SEARCHED_FIRST
from momopay._ratelimit.budget import Lane
from momopay._redaction import clear_frames, redacted_repr
from momopay._transport.clock import machine
from momopay.durable.access import JournalAccess, emit_change
from momopay.durable.payment import outcome_unknown
from momopay.journal.entries import EntryKind, JournalEntry, JournalState, Moment
from momopay.journal.evidence import Draft, Evidence, payout_key, reference_of
from momopay.journal.rules import KEYED
from momopay.models.records import Envelope, is_missing
from momopay.models.transactions import Payout, StkTransaction

if TYPE_CHECKING:  # at run time it needs SQLAlchemy
    from momopay.journal.leases import Lease

logger: logging.Logger = logging.getLogger("momopay")

Sent: TypeAlias = Payout | StkTransaction

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


class Sender:
    """Sends for one durable call, in one task or thread. Calls share nothing but the database."""

    def __init__(self, journal: JournalAccess, call: Call[Any]) -> None:
        self._journal = journal
        self._session = journal.session
        self._store = journal.store
        self._call = call
        self._began: tuple[datetime, float]  # when the row was written, by the clock as it was then

    async def resend(self, draft: Draft, read: JournalEntry, seconds: float) -> Sent | None:
        """Send an unresolved payout again as `try_to_send` does, with its key, and no byte after so many seconds."""
        self._call.end_by(self._session.backend.now() + seconds)
        self._call.may_have_executed = True  # whatever happens to this request, the first one may have executed
        again = replace(draft, is_resend=True, idempotency_key=read.idempotency_key, key_since=read.key_since)
        return await self.try_to_send(again, read)

    async def try_to_send(self, draft: Draft, read: JournalEntry | None) -> Sent | None:
        """Send if the row is unchanged since it was `read`. Return None if it must be read again."""
        if KEYED[draft.kind]:
            draft = self._with_key(draft, read)
        # Before the row is SENDING: a process that dies while it waits for a slot must leave nothing unresolved.
        await self._call.acquire_slot()
        events = self._session.events
        try:
            with nullcontext() if events is None else events.held(), self._store.leases.lease() as lease:
                began, self._began = self._session.backend.now(), self._session.clock.reading()
                if await self._begin(lease, draft, read):
                    self._call.before_body = partial(self._check_row, lease, draft, began)
                    try:
                        record: Sent = await self._call.run()
                    except BaseException as error:
                        await self._record_failure(lease, draft, error)
                        raise
                    await self._record_acceptance(lease, draft, record, read)
                    return record
        except errors.RateLimitExceededError as error:
            # Not repeated by `Call`, because a search must precede any second send, even after this refusal.
            pause, limits = max(error.retry_after or 0.0, BASE_BACKOFF), self._session.limits
            is_last = self._call.attempts >= limits.max_attempts
            is_last = is_last or (limits.max_wait is not None and pause > limits.max_wait)
            if error.may_have_executed or is_last or self._session.backend.now() + pause >= self._call.deadline:
                raise
            self._call.report_retry(pause, error)
            await self._session.backend.sleep(pause)
        return None

    def is_new(self, record: Sent) -> bool:
        """Return whether this call made the transaction, as far as the service's clock shows.

        A service that honours the key answers a later request with the transaction of an earlier one.
        """
        offset, sent_at = self._session.clock.offset_at(self._began), self._call.sent_at
        if offset is None or sent_at is None or is_missing(record.created_at):
            return True
        return record.created_at - (sent_at - timedelta(seconds=offset)) >= -_CLOCK_RESOLUTION

    def now(self) -> Moment:
        """Return the present by clocks that nobody sets."""
        service_now = self._session.clock.service_now_if_known()
        service = None if service_now is None else service_now.timestamp()
        return Moment(machine(), self._session.backend.now(), service)

    def _with_key(self, draft: Draft, read: JournalEntry | None) -> Draft:
        """Return the draft with the Idempotency-Key of its attempt, which the call then sends."""
        key, since = draft.idempotency_key, draft.key_since
        if key is None:
            number = 1 if read is None else read.key_number
            scope = self._store.accounts.scope(self._session.account.identity)
            key = payout_key(scope, draft.reference, draft.amount, draft.phone, number)
            # A person who released it may be mistaken: the service may have known the key since the first request.
            is_same = read is not None and read.idempotency_key == key
            since = (read.key_since if read is not None and is_same else None) or str(self.now())
        self._call.send_key(key)
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

    async def _record_acceptance(self, lease: Lease, draft: Draft, record: Sent, read: JournalEntry | None) -> None:
        """Record the service's response. Raise OutcomeUnknownError if it is not about this attempt."""
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
                sent_at=self._call.sent_at or record.created_at,
                reference=draft.reference,
                amount=draft.amount,
                phone=draft.phone,
                transaction_id=record.transaction_id,
            )
            await self._record_failure(lease, draft, error)
            raise error
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

    async def _check_row(self, lease: Lease, draft: Draft, began: float) -> None:
        """Raise if the row no longer belongs to this call. Called just before the body is written."""
        # While this process was frozen, others may have taken it for dead, and released the row.
        if self._session.backend.now() - began <= _ROW_IS_FRESH:
            return
        try:
            entry = await self._journal.run(self._store.get, draft.kind, draft.reference)
        except errors.JournalError as error:
            error.may_have_executed = False  # without its body the request does nothing
            raise
        if entry is None:
            raise errors.JournalError("the payment's row has disappeared from the journal")
        if entry.claim != lease.id or entry.state is not JournalState.SENDING:
            raise outcome_unknown(entry, "its row was changed while this call was held up, so this call sent nothing")

    async def _record_failure(self, lease: Lease, draft: Draft, error: BaseException) -> None:
        state = JournalState.UNKNOWN if draft.is_resend else JournalState.NOT_SENT
        seen_id = error.transaction_id if isinstance(error, errors.OutcomeUnknownError) else None
        code: str | None = None
        ends_attempt, may_resend = False, True
        if not isinstance(error, errors.MomoPayError):  # a cancellation, an interrupt, or a bug in the user's transport
            state = JournalState.UNKNOWN if self._call.may_have_been_sent else state
        elif error.may_have_executed or draft.is_resend:
            state = JournalState.UNKNOWN
            # A service that answers with another payment does not know the key as this one's.
            is_of_another = isinstance(error, errors.OutcomeUnknownError) and error.__cause__ is None
            may_resend = not is_of_another and not self._call.was_sent_before
        elif isinstance(error, errors.APIError):
            state, code = JournalState.REFUSED, error.code
            ends_attempt = error.status_code != HTTPStatus.TOO_MANY_REQUESTS
        offset = self._session.clock.offset_at(self._began)
        record = partial(self._store.record_outcome, lease, draft, state, seen_id=seen_id, code=code)
        record = partial(record, clock_offset=offset, ends_attempt=ends_attempt, may_resend=may_resend)
        if await self._journal.finish(error, record):
            emit_change(self._session, draft, JournalState.SENDING, state)
