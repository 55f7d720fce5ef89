"""One call of ``pay_once`` or ``collect_once``: choose the next step for a payment from the journal, and take it.

A new attempt is sent only if the service's own record shows that each earlier one ended in a way that allows it, or it
was refused or not sent and is absent from the list. The row must not have changed since that was read. Absence from the
list never resolves an UNKNOWN payment. `Sender` does the sending.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final, Generic

from momopay import errors
from momopay._core.call import Call, PaymentDetails
from momopay._core.retry import BASE_BACKOFF, MAX_BACKOFF
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._redaction import mask_phone, redacted_repr
from momopay.durable.access import JournalAccess, learn_tenant
from momopay.durable.lookup import PaymentLookup
from momopay.durable.past import check_past
from momopay.durable.payment import Payment, outcome_unknown, payment_in, payment_of
from momopay.durable.send import ENDPOINTS, Sender
from momopay.journal.entries import MAY_BE_SENT, EntryKind, JournalEntry, JournalTransaction
from momopay.journal.evidence import Draft
from momopay.journal.journal import Journal
from momopay.journal.rules import KEYED, Step, blocks, next_step, seconds_to_resend
from momopay.models.arguments import checked_metadata
from momopay.models.enums import Stage, stage_of
from momopay.models.records import is_missing
from momopay.models.requests import PayoutRequest, StkRequest
from momopay.models.transactions import Transaction
from momopay.phones import same_phone

logger: logging.Logger = logging.getLogger("momopay")

_PAUSE: Final = 0.25  # seconds between two reads of a row that another call sends
# The service's time is known from the ``Date`` header, which has whole seconds.
_DATE_RESOLUTION: Final = timedelta(seconds=1)


class DurableCall(Generic[BackendT]):
    """One call of ``pay_once`` or ``collect_once``, used by one task or thread."""

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
        self._kind = EntryKind.PAYOUT if isinstance(request, PayoutRequest) else EntryKind.COLLECTION
        self._reference = reference
        self._request: Any = request
        self._abandon_after = abandon_after
        self._call = Call(session, *ENDPOINTS[self._kind], until=until)
        self._journal = JournalAccess(session, journal, reference, self._call.deadline)
        self._store = self._journal.store
        self._sender = Sender(self._journal, self._call)
        self._has_read_others = False
        # What the latest request raised, if it may have executed and this call searches for it.
        self._unknown: errors.OutcomeUnknownError | None = None
        # The ids of open prompts that this call has read and found older than `abandon_after`.
        self._abandoned = set[str]()
        kept = checked_metadata(metadata)
        self._draft = Draft(self._kind, reference, request.amount, request.phone, "", kept, refund_of)
        self._send_as(request)

    def _send_as(self, request: PayoutRequest | StkRequest) -> None:
        wire_reference = request.reference if isinstance(request, PayoutRequest) else request.account_reference or ""
        self._call.body = request.to_json()
        self._call.details = PaymentDetails(wire_reference, request.amount, request.phone)
        self._draft = replace(self._draft, wire_reference=wire_reference)

    async def run(self, *, has_slot: bool = False) -> Payment:
        """Send if the journal allows it, else return the known payment. `has_slot`: a rate slot was taken already."""
        if self._session.hooks.before_payment is not None:
            self._session.hooks.before_payment(self._reference)
        entry, is_tenant_known = await self._journal.run(
            self._store.open_call, self._session.account.identity, self._kind, self._reference
        )
        self._call.has_slot = has_slot and entry is None  # after other requests, the slot would be too old to send
        try:
            await check_past(self._journal)
            if not is_tenant_known:
                await learn_tenant(self._journal)
            while True:
                payment = await (self._send(None) if entry is None else self._take_next_step(entry))
                if payment is not None:
                    if payment.is_new or not payment.is_paid or entry is None:
                        return payment
                    refunded = await self._journal.run(self._store.refunded, entry)
                    return payment.model_copy(update={"refunded": refunded})
                self._call.has_slot = False  # by now it may be too old to send
                entry = await self._journal.run(self._store.get, self._kind, self._reference)
        except errors.MomoPayError as error:
            error.may_have_executed = error.may_have_executed or self._call.may_have_executed
            await self._journal.note_earlier_attempts(error, self._kind, self._reference)
            raise

    async def _take_next_step(self, entry: JournalEntry) -> Payment | None:
        """Take the next step for a payment that has a row. Return None if the row must be read again."""
        self._check_same_payment(entry)
        stages = [self._stage(each) for each in entry.transactions]
        match next_step(self._kind, entry.state, stages, entry.attempts):
            case Step.SEND | Step.SEARCH_THEN_SEND as step:
                return await self._send(entry, search=step is Step.SEARCH_THEN_SEND)
            case Step.WAIT:
                if self._session.backend.now() + _PAUSE > self._call.deadline:
                    raise outcome_unknown(entry, "another call was still sending it at this one's deadline")
                await self._session.backend.sleep(_PAUSE)
                return None
            case Step.READ:
                return await self._read_blocking(entry)
            case Step.RECONCILE:
                return await self._reconcile(entry)

    async def _send(self, entry: JournalEntry | None, *, search: bool = False) -> Payment | None:
        """Send if the row is unchanged, with `search` after a search. Return None if the row must be read again."""
        try:
            if search and entry is not None:
                # A proxy may have refused it, and what a transport reported as not sent may have been sent. Without the
                # clock's offset at that time, nothing is sent unless the search reaches the end of the list.
                whole_list = entry.attempts > 0 and entry.clock_offset is None
                found = await PaymentLookup(self._journal).search(entry, whole_list=whole_list)
                if found is not None:
                    return self._existing_if_blocking(entry, found)
            record = await self._sender.try_to_send(self._draft, entry)
        except errors.OutcomeUnknownError as error:
            return await self._after_unknown_outcome(error)
        except errors.RequestValidationError:
            # As far as the journal knows, another order is open under this account_reference. It may have ended since.
            if self._kind is EntryKind.PAYOUT or self._has_read_others:
                raise
            self._has_read_others = True
            for other in await self._journal.run(self._store.by_wire_reference, self._draft.wire_reference):
                if other.kind is EntryKind.COLLECTION and other.reference != self._reference:
                    await PaymentLookup(self._journal).refresh(other)
            return None
        if record is None:
            return None
        return payment_of(self._draft, record, is_new=self._sender.is_new(record))

    async def _read_blocking(self, entry: JournalEntry) -> Payment | None:
        """Read the paid transaction, else those that block another attempt. Return one that still does, else None."""
        paid = [each for each in entry.transactions if each.is_paid]
        blocking: Transaction | None = None
        for known in paid or entry.transactions:
            if not blocks(self._kind, self._stage(known)):
                continue
            transaction = await PaymentLookup(self._journal).read(entry, known)
            stage = stage_of(transaction.status)
            if paid or stage is Stage.PAID:
                return self._existing(entry, transaction)
            if stage is Stage.OPEN and self._is_abandoned(known, transaction):
                self._abandoned.add(known.transaction_id)
            elif blocks(self._kind, stage):
                blocking = transaction
        return None if blocking is None else self._existing(entry, blocking)

    async def _reconcile(self, entry: JournalEntry) -> Payment | None:
        """Search for an unresolved attempt. If the list does not show it, send it again only with a key."""
        found = await PaymentLookup(self._journal).reconcile(entry)
        if found is not None:
            return self._existing_if_blocking(entry, found)
        # The search may have recorded that an earlier prompt was paid.
        if await self._journal.run(self._store.get, self._kind, self._reference) != entry:
            return None
        seconds = seconds_to_resend(entry, self._sender.now()) if self._session.payout_keys else 0.0
        if seconds <= 0:
            raise self._unknown or outcome_unknown(entry, "the list does not show it, which proves nothing")
        try:
            record = await self._sender.resend(self._draft, entry, seconds)
        except errors.OutcomeUnknownError as error:
            return await self._after_unknown_outcome(error)
        if record is None:
            return None
        return payment_of(self._draft, record, is_new=self._sender.is_new(record))

    async def _after_unknown_outcome(self, error: errors.OutcomeUnknownError) -> Payment | None:
        """Return the payment if a callback has shown meanwhile what a lost answer would have said.

        Else return None if this call searches for the payment, or raise the error.
        """
        row = await self._journal.run_or_log(self._store.get, self._kind, self._reference)
        payment = None if row is None else payment_in(row)
        if payment is None or error.transaction_id not in {None, payment.transaction_id}:
            await self._search_after(error)
            return None
        return payment.model_copy(update={"is_new": self._call.may_have_been_sent})

    async def _search_after(self, error: errors.OutcomeUnknownError) -> None:
        """Return if this call searches for the payment whose request raised the error; else raise the error."""
        was_unknown, self._unknown = self._unknown, error
        if error.__cause__ is None:  # the service answered with another payment, or another call has the row
            raise error
        if self._call.was_sent_before and was_unknown is None:
            return
        pause = min(MAX_BACKOFF, BASE_BACKOFF * 2 ** (self._call.attempts - 1))
        is_last = self._call.attempts >= self._session.limits.max_attempts
        is_last = is_last or self._session.backend.now() + pause >= self._call.latest_start
        if is_last or self._call.was_sent_before or not (KEYED[self._kind] and self._session.payout_keys):
            raise error
        self._call.report_retry(pause, error)
        await self._session.backend.sleep(pause)

    def _existing_if_blocking(self, entry: JournalEntry, found: Transaction) -> Payment | None:
        """Return the payment, or None if the transaction ended in a way that allows another attempt."""
        return self._existing(entry, found) if blocks(self._kind, stage_of(found.status)) else None

    def _existing(self, entry: JournalEntry, transaction: Transaction) -> Payment:
        """Return a payment that was made before. Raise Duplicate...Error if this call wants another phone."""
        phones = {each.transaction_id: each.phone for each in entry.transactions}
        # The journal's, because a read may mask the phone, and so hide that it is another one.
        phone = transaction.phone if entry.is_anonymised else phones.get(transaction.transaction_id, entry.phone)
        if phone is None:  # of an anonymised entry, if the read has none
            if self._kind is EntryKind.PAYOUT:
                raise self._duplicate(entry, "was anonymised, and the service does not show its phone")
        elif not same_phone(self._draft.phone, phone):
            # The phone of a payout can differ here only if the payout was anonymised: `_check_same_payment` has
            # compared the others.
            if self._kind is EntryKind.PAYOUT or entry.is_anonymised:
                raise self._duplicate(entry, "was used with another phone")
            if stage_of(transaction.status) is Stage.OPEN:
                since = f"{(transaction.created_at or entry.sent_at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
                how = f"has an open prompt on {mask_phone(phone)} since {since}; wait for its end"
                raise self._duplicate(entry, how)
        return payment_of(entry, transaction)

    def _stage(self, known: JournalTransaction) -> Stage:
        """Return the stage of a transaction. An open prompt that this call treats as abandoned has ended."""
        stage = stage_of(known.status)
        return Stage.ENDED if stage is Stage.OPEN and known.transaction_id in self._abandoned else stage

    def _is_abandoned(self, known: JournalTransaction, transaction: Transaction) -> bool:
        """Return whether an open prompt was sent at least `abandon_after` seconds ago."""
        if self._abandon_after is None:
            return False
        # By the service's clock if its responses show it: another machine may have sent the prompt.
        now = self._session.clock.service_now_if_known()
        if now is None or transaction.created_at is None or is_missing(transaction.created_at):
            age = datetime.now(UTC) - known.sent_at
        else:
            age = now - transaction.created_at
        return age + _DATE_RESOLUTION >= timedelta(seconds=self._abandon_after)

    def _check_same_payment(self, entry: JournalEntry) -> None:
        """Raise Duplicate...Error if the reference was used for another payment. An order may change its phone."""
        is_payout = self._kind is EntryKind.PAYOUT
        if entry.amount != self._draft.amount:
            raise self._duplicate(entry, f"was used with another amount, KES {entry.amount}")
        # A refund must not be repeated as a plain payout, which has no refund limit, nor a plain payout as a refund.
        if entry.refund_of != self._draft.refund_of:
            raise self._duplicate(entry, "was used for another refund, or for none")
        if entry.is_anonymised:
            # If it was made, `_existing` compares the phone with the service's record. Else nothing shows the phone.
            was_made = entry.state not in MAY_BE_SENT if is_payout else any(each.is_paid for each in entry.transactions)
            if not was_made:
                raise self._duplicate(entry, "was anonymised")
        elif is_payout and entry.phone != self._draft.phone:
            raise self._duplicate(entry, "was used with another phone")
        if entry.wire_reference != self._draft.wire_reference:
            text = "order %s goes on with its first account_reference, by which its prompts are found"
            logger.warning(text, redacted_repr(entry.reference))
            self._send_as(self._request.model_copy(update={"account_reference": entry.wire_reference}))

    def _duplicate(self, entry: JournalEntry, how: str) -> errors.MomoPayError:
        is_payout = self._kind is EntryKind.PAYOUT
        error = errors.DuplicatePayoutError if is_payout else errors.DuplicateCollectionError
        message = f"reference {entry.reference!r} of {entry.created_at:%Y-%m-%d} {how}"
        if "wait for" not in how:
            message += f": give each {'payout' if is_payout else 'order'} a reference of its own"
        return error(message, reference=entry.reference)
