"""One call of ``payouts.pay_once``: the journal is written first, then the request is sent, then the journal again.

Invariants:
- A payout is sent only by the call whose `Payments.begin` committed its row as SENDING. The commit is on disk before
  the first byte goes out, so a crash at any later moment leaves a row that says that the payout may have been made.
- An outcome is recorded as REFUSED or NOT_SENT only if it is known that no money moved. Whatever else happens,
  interrupts included, leaves UNKNOWN, or a row in SENDING that reads as UNKNOWN once this call has ended.
- Absence from the service's list changes nothing: UNKNOWN is never sent again by this module.
"""

from __future__ import annotations

import hashlib
import logging
from functools import partial
from typing import Final, Generic

from momopay._core.backend import BackendT
from momopay._core.call import Call, call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import APIError, DuplicatePayoutError, JournalError, MomoPayError, OutcomeUnknownError
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState
from momopay.journal.journal import Journal, payments_of
from momopay.journal.lease import Lease
from momopay.models.payouts import Payout
from momopay.models.requests import PayoutRequest, transaction_path
from momopay.models.transactions import Transaction, TransactionSummary
from momopay.resources.reconcile import outcome_unknown, record_acceptance, search_for, write_or_log
from momopay.resources.search import GET, search

logger: logging.Logger = logging.getLogger("momopay")

# Seconds for which a lease outlives the deadline of its call, to read the answer and to record it.
_GRACE: Final = 30.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


class PayOnce(Generic[BackendT]):
    """One call of ``payouts.pay_once``. It belongs to one task or thread; calls meet only in the database."""

    _session: Session[BackendT]

    def __init__(
        self, session: Session[BackendT], journal: Journal, initiate: Endpoint[Payout], request: PayoutRequest
    ) -> None:
        self._session = session
        self._journal = journal
        self._payments = payments_of(journal)
        self._request = request
        self._body = request.to_json()
        self._body_hash = hashlib.sha256(self._body).hexdigest()
        details = PaymentDetails(reference=request.reference, amount=request.amount, phone=request.phone)
        self._call: Call[Payout] = Call(session, initiate, "/b2c/payouts", body=self._body, details=details)

    async def pay(self) -> Payout | Transaction:
        """Send if the journal allows it, else return what is known of the payout."""
        entry = await self._get_entry()
        pause = _FIRST_PAUSE
        while True:
            if entry is None or entry.state in MAY_BE_SENT:
                if entry is not None:
                    self._check_same_payout(entry)
                # The slot first: while a call waits for the rate budget, no row says SENDING, so a process that dies
                # in the queue leaves nothing in doubt.
                await self._call.acquire_slot()
                with self._payments.leases.lease() as lease:
                    entry = await self._begin(lease)
                    if entry is None:
                        return await self._send(lease)
            self._check_same_payout(entry)
            match entry.state:
                case JournalState.ACCEPTED:
                    return await self._read_accepted(entry)
                case JournalState.UNKNOWN:
                    return await self._reconcile(entry)
                case _:  # another call is sending it
                    if self._session.backend.now() + pause > self._call.deadline:
                        raise outcome_unknown(entry, "another call was still sending it at this one's deadline")
                    await self._session.backend.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
            entry = await self._get_entry(in_doubt=True)

    async def _get_entry(self, *, in_doubt: bool = False) -> JournalEntry | None:
        """Read the row. A failure leaves the payout in doubt if another call was seen sending it."""
        try:
            return await self._session.backend.in_thread(self._payments.get, self._request.reference)
        except JournalError as error:
            error.may_have_executed = in_doubt
            raise

    async def _begin(self, lease: Lease) -> JournalEntry | None:
        begin = partial(
            self._payments.begin,
            lease,
            reference=self._request.reference,
            amount=self._request.amount,
            phone=self._request.phone,
            body_hash=self._body_hash,
            seconds=self._session.limits.deadline + _GRACE,
        )
        try:
            return await self._session.backend.in_thread(begin)
        except GeneratorExit:  # a coroutine that is thrown away cannot await; its row reads as UNKNOWN
            raise
        except BaseException:
            await self._record(lease, JournalState.NOT_SENT)  # the row may have been written before the failure
            raise

    async def _send(self, lease: Lease) -> Payout:
        try:
            payout = await self._call.run()
        except MomoPayError as error:
            await self._record_failure(lease, error)
            raise
        except GeneratorExit:  # as in `_begin`
            raise
        except BaseException:  # a cancellation or an interrupt
            may_be_sent = self._call.may_have_been_sent
            await self._record(lease, JournalState.UNKNOWN if may_be_sent else JournalState.NOT_SENT)
            raise
        if payout.reference and payout.reference != self._request.reference:
            await self._record(lease, JournalState.UNKNOWN, transaction_id=payout.transaction_id)
            raise OutcomeUnknownError(
                f"the payout of reference {self._request.reference!r} may have been made: the service answered with"
                " another reference",
                sent_at=self._call.sent_at or payout.created_at,
                reference=self._request.reference,
                amount=self._request.amount,
                phone=self._request.phone,
                transaction_id=payout.transaction_id,
            )
        await self._record(lease, JournalState.ACCEPTED, transaction_id=payout.transaction_id)
        return payout

    async def _record_failure(self, lease: Lease, error: MomoPayError) -> None:
        if error.may_have_executed:
            seen = error.transaction_id if isinstance(error, OutcomeUnknownError) else None
            await self._record(lease, JournalState.UNKNOWN, transaction_id=seen)
        elif isinstance(error, APIError):
            await self._record(lease, JournalState.REFUSED, code=error.code)
        else:
            await self._record(lease, JournalState.NOT_SENT)

    async def _record(self, lease: Lease, state: JournalState, **known: str | None) -> None:
        reference = self._request.reference
        record = self._payments.record_outcome
        await write_or_log(self._session, lambda: record(lease, reference, state, **known), reference)

    def _check_same_payout(self, entry: JournalEntry) -> None:
        """Raise DuplicatePayoutError if the reference was used with another amount or phone."""
        request = self._request
        if (entry.amount, entry.phone) != (request.amount, request.phone):
            raise DuplicatePayoutError(
                f"reference {entry.reference!r} was used with another amount or phone on {entry.sent_at:%Y-%m-%d}:"
                " give each payout a reference of its own",
                reference=entry.reference,
            )
        # A description or a callback URL may change between two runs of one program. No money depends on it.
        if entry.body_hash != self._body_hash:
            logger.info(
                "reference %s: the first payout counts, and differs in more than money", redacted_repr(entry.reference)
            )

    async def _read_accepted(self, entry: JournalEntry) -> Transaction:
        try:
            return await self._get_transaction(entry)
        except MomoPayError as error:
            error.may_have_executed = True  # the read failed, but the payout was made
            raise

    async def _reconcile(self, entry: JournalEntry) -> Transaction:
        """Search for a payout in doubt, and return it if there is exactly one; else raise OutcomeUnknownError."""
        failure: MomoPayError | None = None
        matches = await self._find_by_id(entry)
        if not matches:
            try:
                (matches,) = await search(self._session, [search_for(entry)], self._call.deadline)
            except MomoPayError as error:
                failure = error
        if len(matches) == 1:
            (found,) = matches
            await record_acceptance(self._session, self._journal, found)
            return found if isinstance(found, Transaction) else Transaction.from_summary(found)
        why = "several transactions fit it" if matches else "the list does not show it, which proves nothing"
        raise outcome_unknown(entry, f"the search failed: {failure.message}" if failure else why, matches) from failure

    async def _find_by_id(self, entry: JournalEntry) -> list[TransactionSummary]:
        """Read the transaction whose id a broken answer showed, if it is this payout; else the list decides."""
        if entry.transaction_id is None:
            return []
        try:
            transaction = await self._get_transaction(entry)
        except MomoPayError:
            return []
        # The answer was broken, so its id may be that of another payment.
        return [transaction] if search_for(entry).fits(transaction) else []

    async def _get_transaction(self, entry: JournalEntry) -> Transaction:
        return await call(self._session, GET, transaction_path(entry.transaction_id), until=self._call.deadline)
