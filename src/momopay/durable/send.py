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
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

import momopay
from momopay._core.call import Call, Endpoint
from momopay._core.operation import run_sync
from momopay._core.reads import read_balance
from momopay._core.retry import BASE_BACKOFF, SEARCHED_FIRST
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay._redaction import clear_frames, redacted_repr
from momopay.durable.search import outcome_unknown
from momopay.errors import APIError, JournalError, MomoPayError, OutcomeUnknownError, RateLimitExceededError
from momopay.journal.entries import EntryKind, JournalEntry, JournalState
from momopay.journal.evidence import Draft, KeyIdentity, reference_of, report_of
from momopay.journal.journal import Journal, parts_of
from momopay.journal.rules import may_have_executed
from momopay.models.records import Envelope
from momopay.models.transactions import Payout, StkTransaction

if TYPE_CHECKING:  # at run time they need SQLAlchemy
    from momopay.journal.database import Lease
    from momopay.journal.store import Store

logger: logging.Logger = logging.getLogger("momopay")

P = ParamSpec("P")
T = TypeVar("T")
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
"""How each kind of payment is sent, and its path."""
# Seconds for which a lease outlives the deadline of its call, to read the answer and to record it.
_GRACE: Final = 30.0
# Seconds after the row was committed for which it is taken to be unchanged when the body is written.
_ROW_IS_FRESH: Final = 1.0
# Seconds for a write after the deadline: the answer that came just before it should still be recorded.
_LEAST_SECONDS: Final = 0.5


async def check_account(
    session: Session[Any], journal: Journal, reference: str = "", *, restored: bool = False
) -> JournalAccess:
    """Raise ConfigurationError if the journal must not be used with the client's key; nothing was sent then.

    With `restored`, one that went back in time may be used: for what compares it with the service. Return access to
    the journal, about a payment if it has a reference, for what is left of the call's deadline.
    """
    access = JournalAccess(session, journal, reference)
    identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
    if not await access.run(access.store.check, identity, restored=restored):
        await learn_tenant(access, identity)
    return access


def check_client(client: momopay.Client, journal: Journal) -> None:
    """Raise ConfigurationError if the journal is not that of the client's account, as every durable call does.

    For a check without a payment. Whether the journal went back in time, ``journal.check`` says.
    """
    session = client._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    run_sync(check_account(session, journal, restored=True))


async def learn_tenant(access: JournalAccess, identity: KeyIdentity) -> None:
    """Ask the service for the tenant of a key that the journal does not know; raise ConfigurationError for another's.

    It costs a request the first time that a key is used with a journal.
    """
    tenant_id: str | None = None
    try:
        balance = await read_balance(access.session, lane=Lane.PAYMENT, until=access.deadline)  # a payment waits for it
        tenant_id = balance.tenant_id
    except APIError as error:
        # A key that may pay and not read the wallet shows its tenant with its first payment.
        if error.status_code != HTTPStatus.FORBIDDEN:
            raise
    await access.run(access.store.accounts.learn, identity, tenant_id)
    await access.run(access.store.check, identity, restored=True)  # that it did not go back in time was checked before


def report_change(
    session: Session[Any],
    payment: JournalEntry | Draft,
    old: JournalState | None,
    new: JournalState,
    record: object = None,
) -> None:
    """Report to the client's observer, if there is one, that an entry's state or the status of its transaction changed.

    `record` is the service's.
    """
    if session.operation is not None:
        session.operation.journal_changed(payment.kind, payment.reference, old, new, record)


class JournalAccess:
    """The journal for one call about one payment: from its event loop or thread, and no longer than its deadline.

    The deadline is on the backend's monotonic clock, by default that of a call that begins now.
    """

    def __init__(self, session: Session[Any], journal: Journal, reference: str, deadline: float | None = None) -> None:
        self.session = session
        self.store: Store = parts_of(journal).store
        self.deadline: float = session.backend.now() + session.limits.deadline if deadline is None else deadline
        self._reference = reference

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something with the database, which ends by the deadline with JournalError at the latest."""
        result: T = await self.session.backend.in_thread(self._bounded, 0.0, work, args, kwargs)
        return result

    async def run_or_log(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Write and return the result; log a failure and return None."""
        # A failure is never raised: the caller has an answer of the service to return or to raise, which would be lost.
        # A row that could not be written stays in SENDING, and reads as UNKNOWN when its lease ends.
        write = partial(self.session.backend.in_thread, self._bounded, _LEAST_SECONDS, work, args, kwargs)
        try:
            result: T = await write()
        except MomoPayError as error:
            self._log(error)
            return None
        except Exception as error:
            # Out of a signal handler, such as Celery's time limit: it is raised once the answer is written. Or an error
            # in SQLAlchemy, which comes again, and must not lose the answer either.
            try:
                await write()
            except Exception:  # noqa: BLE001
                self._log(error)
                return None
            raise
        return result

    async def finish(self, cause: BaseException, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Write the outcome of a call that ends with an exception; log a failure, and return whether it was written."""
        if isinstance(cause, Exception):
            return bool(await self.run_or_log(work, *args, **kwargs))
        # A cancelled task does not wait for a locked database. The write goes on in its thread.
        done = list[object]()
        write = partial(self._bounded, _LEAST_SECONDS, work, args, kwargs)
        try:
            await self.session.backend.finish_in_thread(lambda: done.append(write()))
        except Exception as error:  # noqa: BLE001  as above
            self._log(error)
        return any(done)

    def _bounded(self, least: float, work: Callable[..., T], args: Any, kwargs: Any) -> T:
        # Computed here, because the work may have waited for a thread.
        with self.store.bounded(max(self.deadline - self.session.backend.now(), least)):
            return work(*args, **kwargs)

    def _log(self, error: Exception) -> None:
        # A JournalError, or the journal was closed meanwhile. Of anything else a trace or a text may show values.
        problem = str(error) if isinstance(error, MomoPayError) else f"not recorded: {type(error).__name__}"
        logger.error("reference %s: %s", redacted_repr(self._reference), problem)


class Sender:
    """The sending of one durable call. It belongs to one task or thread; calls meet only in the database."""

    def __init__(self, journal: JournalAccess, call: Call[Any], identity: KeyIdentity) -> None:
        self._journal = journal
        self._session = journal.session
        self._store = journal.store
        self._call = call
        self._identity = identity

    async def try_to_send(self, draft: Draft, read: JournalEntry | None) -> Sent | None:
        """Send if the row is as it was read; return None if it must be read again."""
        # The slot first: while a call waits for the rate budget, no row says SENDING, so a process that dies in the
        # queue leaves nothing unresolved.
        await self._call.acquire_slot()
        operation = self._session.operation
        try:
            with nullcontext() if operation is None else operation.held(), self._store.leases.lease() as lease:
                began = self._session.backend.now()
                if await self._begin(lease, draft, read):
                    self._call.before_body = partial(self._check_row, lease, draft, began)
                    try:
                        record: Sent = await self._call.run()
                    except GeneratorExit:  # a coroutine that is thrown away cannot await; its row reads as UNKNOWN
                        raise
                    except BaseException as error:
                        await self._record_failure(lease, draft, error)
                        raise
                    await self._record_acceptance(lease, draft, record)
                    return record
        except RateLimitExceededError as error:
            # Not repeated by the call itself: one search goes before any second send, also after this refusal.
            pause = max(error.retry_after or 0.0, BASE_BACKOFF)
            is_last = self._call.attempts >= self._session.limits.max_attempts
            if error.may_have_executed or is_last or self._session.backend.now() + pause >= self._call.deadline:
                raise
            self._call.report_retry(pause, error)
            await self._session.backend.sleep(pause)
        return None

    async def is_free(self, draft: Draft) -> bool:
        """Return whether the journal shows that nothing was sent; False if it cannot be read."""
        row = await self._journal.run_or_log(lambda: (self._store.get(draft.kind, draft.reference),))
        return row is not None and (row[0] is None or not may_have_executed(row[0]))

    async def _begin(self, lease: Lease, draft: Draft, read: JournalEntry | None) -> bool:
        """Write the row as SENDING; return whether this call may send, as nobody else changed it."""
        seconds, service_now = self._session.limits.deadline + _GRACE, self._session.clock.service_now_if_known()
        try:
            may_send = await self._journal.run(
                self._store.begin, lease, draft, seconds, read=read, service_now=service_now
            )
        except GeneratorExit:  # as above
            raise
        except BaseException as error:
            # The statement may be waiting for a lock still, in a thread that was left behind. It undoes itself when it
            # finds the lease ended. If it was committed before it failed, this undoes it.
            self._store.leases.end(lease)
            # An interrupt may have struck while the row was written: the frames of its traceback then hold the
            # connection whose transaction keeps all writers out.
            clear_frames(error)
            await self._journal.finish(error, self._store.record_outcome, lease, draft, JournalState.NOT_SENT)
            if isinstance(error, JournalError):
                error.may_have_executed = not await self.is_free(draft)
            raise
        if may_send:
            report_change(self._session, draft, None if read is None else read.state, JournalState.SENDING)
        return may_send

    async def _record_acceptance(self, lease: Lease, draft: Draft, record: Sent) -> None:
        """Record the service's answer; raise OutcomeUnknownError if it is not about this payment."""
        differing, clock = draft.requested.differences(reference_of(record), record), self._session.clock
        is_accepted: bool | None = False
        if not differing:
            report = report_of(record, clock.service_now_if_known())
            is_accepted = await self._journal.run_or_log(
                self._store.record, draft, report, lease=lease, clock_offset=clock.offset
            )
        if is_accepted is False:  # None: it could not be recorded
            what = f"another {', '.join(differing)}" if differing else "the transaction of another payment"
            error = OutcomeUnknownError(
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
            report_change(self._session, draft, JournalState.SENDING, JournalState.ACCEPTED, record)
        accounts = self._store.accounts
        if accounts.knows(self._identity, record.tenant_id):
            return
        if await self._journal.run_or_log(accounts.learn, self._identity, record.tenant_id) is False:
            logger.error(
                "reference %s was sent by tenant %s, to which the journal does not belong: nothing more is sent with"
                " this key",
                redacted_repr(draft.reference),
                record.tenant_id,
            )

    async def _check_row(self, lease: Lease, draft: Draft, began: float) -> None:
        """Raise if the row is not this call's any more. Called just before the body is written."""
        # A process that was frozen since it wrote the row may be taken for dead, and the row released, meanwhile.
        if self._session.backend.now() - began <= _ROW_IS_FRESH:
            return
        try:
            entry = await self._journal.run(self._store.get, draft.kind, draft.reference)
        except JournalError as error:
            error.may_have_executed = False  # without its body the request does nothing
            raise
        if entry is None:
            raise JournalError("the payment's row has disappeared from the journal")
        if entry.claim != lease.id or entry.state is not JournalState.SENDING:
            raise outcome_unknown(entry, "its row was changed while this call was held up, so this call sent nothing")

    async def _record_failure(self, lease: Lease, draft: Draft, error: BaseException) -> None:
        state = JournalState.NOT_SENT
        seen_id: str | None = None
        code: str | None = None
        if not isinstance(error, MomoPayError):  # a cancellation, an interrupt, or a bug in the user's transport
            state = JournalState.UNKNOWN if self._call.may_have_been_sent else state
        elif error.may_have_executed:
            state = JournalState.UNKNOWN
            seen_id = error.transaction_id if isinstance(error, OutcomeUnknownError) else None
        elif isinstance(error, APIError):
            state, code = JournalState.REFUSED, error.code
        offset = self._session.clock.offset
        record = partial(self._store.record_outcome, seen_id=seen_id, code=code, clock_offset=offset)
        if await self._journal.finish(error, record, lease, draft, state):
            report_change(self._session, draft, JournalState.SENDING, state)
        elif isinstance(error, MomoPayError) and not error.may_have_executed:
            # The row is another call's by now: this one was frozen, and taken for dead.
            error.may_have_executed = not await self.is_free(draft)
