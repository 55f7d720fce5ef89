"""Paying a reference once: the journal first, then the network, then the journal again.

Nothing here ever sends a reference that the journal does not say may be sent.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from momopay._core.backend import BackendT
from momopay._core.call import Call, call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.session import Session
from momopay._redaction import redacted_repr
from momopay.errors import (
    APIError,
    DuplicatePayoutError,
    JournalError,
    MomoPayError,
    OutcomeUnknownError,
)
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState
from momopay.journal.journal import Journal, payments_of
from momopay.journal.lease import Lease
from momopay.models.enums import TransactionType
from momopay.models.payouts import Payout
from momopay.models.requests import PayoutRequest, Search, transaction_path
from momopay.models.transactions import Transaction, TransactionSummary
from momopay.resources.listing import GET, search

T = TypeVar("T")
logger: logging.Logger = logging.getLogger("momopay")

_GRACE = 30.0
"""Seconds that a claim outlives the deadline of the call that made it."""
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class PayOnce(Generic[BackendT]):
    """One call of ``payouts.pay_once``."""

    _session: Session[BackendT]

    def __init__(
        self, session: Session[BackendT], journal: Journal, initiate: Endpoint[Payout], request: PayoutRequest
    ) -> None:
        self._session = session
        self._journal = journal
        self._rows = payments_of(journal)
        self._request = request
        self._body = request.to_json()
        self._body_hash = hashlib.sha256(self._body).hexdigest()
        details = PaymentDetails(reference=request.reference, amount=request.amount, phone=request.phone)
        self._call: Call[Payout] = Call(session, initiate, "/b2c/payouts", body=self._body, details=details)

    async def pay(self) -> Payout | Transaction:
        """Send if the journal allows it; else say what is known."""
        entry = await self._look()
        pause = _FIRST_PAUSE
        while True:
            if entry is None or entry.state in MAY_BE_SENT:
                if entry is not None:
                    self._check_same(entry)
                # A process that dies while it waits for the budget leaves nothing in doubt: no row says SENDING yet.
                await self._call.acquire_slot()
                with self._rows.claiming() as claim:
                    entry = await self._begin(claim)
                    if entry is None:
                        return await self._send(claim)
            self._check_same(entry)
            match entry.state:
                case JournalState.ACCEPTED:
                    return await self._read(entry)
                case JournalState.UNKNOWN:
                    return await self._reconcile(entry)
                case _:  # another call is at it
                    if self._session.backend.now() + pause > self._call.deadline:
                        raise _unknown(entry, "another call was still sending it when this one's deadline passed")
                    await self._session.backend.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
            entry = await self._look(in_doubt=True)

    async def _look(self, *, in_doubt: bool = False) -> JournalEntry | None:
        """Look the reference up; a failure leaves it in doubt where another call was seen to be sending it."""
        try:
            return await self._session.backend.in_thread(self._rows.get, self._request.reference)
        except JournalError as error:
            error.may_have_executed = in_doubt
            raise

    async def _begin(self, claim: Lease) -> JournalEntry | None:
        def begin() -> JournalEntry | None:
            return self._rows.begin(
                claim,
                reference=self._request.reference,
                amount=self._request.amount,
                phone=self._request.phone,
                body_hash=self._body_hash,
                lease=self._session.limits.deadline + _GRACE,
            )

        try:
            return await self._session.backend.in_thread(begin)
        except GeneratorExit:
            raise
        except BaseException:
            await self._end(claim, JournalState.NOT_SENT)  # if the row was written all the same
            raise

    async def _send(self, claim: Lease) -> Payout:
        try:
            payout = await self._call.run()
        except MomoPayError as error:
            await self._end_badly(claim, error)
            raise
        except GeneratorExit:
            raise
        except BaseException:
            left = self._call.may_have_been_sent
            await self._end(claim, JournalState.UNKNOWN if left else JournalState.NOT_SENT)
            raise
        if payout.reference and payout.reference != self._request.reference:
            await self._end(claim, JournalState.UNKNOWN, transaction_id=payout.transaction_id)
            raise self._not_ours(payout)
        await self._end(claim, JournalState.ACCEPTED, transaction_id=payout.transaction_id)
        return payout

    def _not_ours(self, payout: Payout) -> OutcomeUnknownError:
        request = self._request
        return OutcomeUnknownError(
            f"the payout of reference {request.reference!r} may have been made: the service answered with another"
            " reference",
            sent_at=self._call.sent_at or payout.created_at,
            reference=request.reference,
            amount=request.amount,
            phone=request.phone,
            transaction_id=payout.transaction_id,
        )

    async def _end_badly(self, claim: Lease, error: MomoPayError) -> None:
        if error.may_have_executed:
            seen = error.transaction_id if isinstance(error, OutcomeUnknownError) else None
            await self._end(claim, JournalState.UNKNOWN, transaction_id=seen)
        elif isinstance(error, APIError):
            await self._end(claim, JournalState.REFUSED, code=error.code)
        else:
            await self._end(claim, JournalState.NOT_SENT)

    async def _end(self, claim: Lease, state: JournalState, **known: str | None) -> None:
        """Note what became of it. If that fails the row stays in SENDING, which will read as UNKNOWN."""

        def record() -> None:
            self._rows.record_outcome(claim, self._request.reference, state, **known)

        await _or_log(self._session.backend.in_thread, record, self._request.reference)

    def _check_same(self, entry: JournalEntry) -> None:
        request = self._request
        if (entry.amount, entry.phone) != (request.amount, request.phone):
            raise DuplicatePayoutError(
                f"reference {entry.reference!r} stands for another amount or phone since {entry.sent_at:%Y-%m-%d}:"
                " give each payout a reference of its own",
                reference=entry.reference,
            )
        if entry.body_hash != self._body_hash:
            logger.info(
                "reference %s: the first payout stands, and differs in more than money", redacted_repr(entry.reference)
            )

    async def _read(self, entry: JournalEntry) -> Transaction:
        """Read what was accepted; however that fails, the money has moved."""
        try:
            return await self._get(entry)
        except MomoPayError as error:
            error.may_have_executed = True
            raise

    async def _reconcile(self, entry: JournalEntry) -> Transaction:
        """Look for a payout in doubt at the service, and settle it if exactly one is found.

        Raises:
            OutcomeUnknownError: None was found, or several, or the search failed.
        """
        failure: MomoPayError | None = None
        matches = await self._by_id(entry)
        if not matches:
            try:
                (matches,) = await search(self._session, [_wanted(entry)], self._call.deadline)
            except MomoPayError as error:
                failure = error
        if len(matches) == 1:
            await _settle(self._session, self._journal, matches[0])
            found = matches[0]
            return found if isinstance(found, Transaction) else Transaction.from_summary(found)
        said = "several transactions fit it" if matches else "the list does not show it, which proves nothing"
        raise _unknown(entry, f"the search failed: {failure.message}" if failure else said, matches) from failure

    async def _by_id(self, entry: JournalEntry) -> list[TransactionSummary]:
        """Read the transaction whose id came with a broken answer, if it did and is the one; else the list decides."""
        if entry.transaction_id is None:
            return []
        try:
            transaction = await self._get(entry)
        except MomoPayError:
            return []
        return [transaction] if _wanted(entry).fits(transaction) else []

    async def _get(self, entry: JournalEntry) -> Transaction:
        return await call(self._session, GET, transaction_path(entry.transaction_id), until=self._call.deadline)


async def reconcile_all(session: Session[BackendT], journal: Journal) -> list[JournalEntry]:
    """Look for all payouts in doubt, in one walk of the list, and settle those of which exactly one is found."""
    entries = await session.backend.in_thread(journal.unresolved)
    if not entries:
        return []
    for entry, matches in zip(entries, await search(session, [_wanted(entry) for entry in entries]), strict=True):
        if len(matches) == 1:
            await _settle(session, journal, matches[0])
        else:
            logger.warning(
                "reference %s stays unknown: %d transactions fit it", redacted_repr(entry.reference), len(matches)
            )

    def now() -> list[JournalEntry]:
        return [journal.get(entry.reference) or entry for entry in entries]

    return await session.backend.in_thread(now)


def _wanted(entry: JournalEntry) -> Search:
    return Search.checked(
        reference=entry.reference,
        since=entry.sent_at,
        amount=entry.amount,
        phone=entry.phone,
        type=TransactionType.B2C.value,
    )


async def _settle(session: Session[BackendT], journal: Journal, found: TransactionSummary) -> None:
    await _or_log(session.backend.in_thread, lambda: journal.settle(found), found.account_reference or "")


async def _or_log(in_thread: Callable[[Callable[[], object]], Any], work: Callable[[], object], reference: str) -> None:
    try:
        await in_thread(work)
    except MomoPayError as error:  # the journal's own, or that it was closed meanwhile
        logger.error("reference %s: %s", redacted_repr(reference), error)  # noqa: TRY400  no values of ours
    except Exception as error:  # noqa: BLE001  what the service said of a payment is never lost over the journal
        logger.error("reference %s: not noted: %s", redacted_repr(reference), type(error).__name__)  # noqa: TRY400


def _unknown(entry: JournalEntry, why: str, matches: list[TransactionSummary] | None = None) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"the payout of reference {entry.reference!r} may have been made: {why.rstrip('.')}. It is not sent again"
        " unless a human releases it in the journal",
        sent_at=entry.sent_at,
        reference=entry.reference,
        amount=entry.amount,
        phone=entry.phone,
        transaction_id=entry.transaction_id,
        matches=matches or (),
    )
