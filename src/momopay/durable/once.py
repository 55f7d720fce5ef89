"""One durable call: what it does about a payment, by what the journal says about it and its transactions.

A new attempt goes out only if every earlier one ended in a way that allows it, as the service's own record says, or was
refused or not sent and is absent from the list; and only if nobody else sent one, and none was paid, since that was
read. Absence from the list never makes UNKNOWN free. `Sender` does the sending.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final, Generic

from momopay._core.call import Call, PaymentDetails
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._redaction import mask_phone, redacted_repr
from momopay.durable.known import KnownPayment
from momopay.durable.payment import Payment, payment_of
from momopay.durable.search import outcome_unknown
from momopay.durable.send import ENDPOINTS, JournalAccess, Sender, learn_tenant
from momopay.errors import (
    ConfigurationError,
    DuplicateCollectionError,
    DuplicatePayoutError,
    MomoPayError,
    RequestValidationError,
)
from momopay.journal.entries import MAY_BE_SENT, EntryKind, JournalEntry, JournalTransaction
from momopay.journal.evidence import Draft, KeyIdentity
from momopay.journal.journal import Journal
from momopay.journal.rules import Step, blocks, next_step
from momopay.models.arguments import checked_metadata
from momopay.models.enums import Stage, stage_of
from momopay.models.requests import PayoutRequest, StkRequest, is_missing
from momopay.models.transactions import Transaction
from momopay.phones import same_phone

logger: logging.Logger = logging.getLogger("momopay")

# Errors that say that this call must not be made, whatever was sent before.
_ABOUT_THIS_CALL: Final = (ConfigurationError, DuplicateCollectionError, DuplicatePayoutError, RequestValidationError)
# Seconds between two reads of the row of another call that is sending.
_PAUSE: Final = 0.25
# The ``Date`` header, by which the service's time is known, has whole seconds.
_DATE_RESOLUTION: Final = timedelta(seconds=1)


class DurableCall(Generic[BackendT]):
    """One call of ``pay_once`` or ``collect_once``. It belongs to one task or thread."""

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
        """Prepare a call. An open prompt does not block another one `abandon_after` seconds after it was sent."""
        self._session = session
        self._kind = EntryKind.PAYOUT if isinstance(request, PayoutRequest) else EntryKind.COLLECTION
        self._reference = reference
        self._request: Any = request
        self._abandon_after = abandon_after
        self._identity = KeyIdentity.of(session.account.api_key, session.account.base_url)
        self._call = Call(session, *ENDPOINTS[self._kind], until=until)
        self._journal = JournalAccess(session, journal, reference, self._call.deadline)
        self._store = self._journal.store
        self._sender = Sender(self._journal, self._call, self._identity)
        self._has_read_others = False
        # The open transactions that this call has read and passed over.
        self._abandoned = set[str]()
        kept = checked_metadata(metadata)
        self._draft = Draft(self._kind, reference, request.amount, request.phone, "", "", kept, refund_of)
        self._send_as(request)

    def _send_as(self, request: PayoutRequest | StkRequest) -> None:
        """Set what is sent."""
        wire_reference = request.reference if isinstance(request, PayoutRequest) else request.account_reference or ""
        self._call.body = request.to_json()
        self._call.details = PaymentDetails(wire_reference, request.amount, request.phone)
        body_hash = hashlib.sha256(self._call.body).hexdigest()
        self._draft = replace(self._draft, wire_reference=wire_reference, body_hash=body_hash)

    async def run(self, *, has_slot: bool = False) -> Payment:
        """Send if the journal allows it, else return what is known; with `has_slot`, the caller has taken a slot."""
        self._session.before_payment(self._reference)
        entry, is_tenant_known = await self._journal.run(
            self._store.open_call, self._identity, self._kind, self._reference
        )
        self._call.has_slot = has_slot and entry is None  # else it would be old when this sends
        try:
            if not is_tenant_known:
                await learn_tenant(self._journal, self._identity)
            while True:
                payment = await (self._send(None) if entry is None else self._go_on(entry))
                if payment is not None:
                    return payment
                self._call.has_slot = False  # as above
                entry = await self._journal.run(self._store.get, self._kind, self._reference)
        except MomoPayError as error:
            # An earlier attempt may have executed, or that of another call, or a prompt that was passed over.
            if not error.may_have_executed and not isinstance(error, _ABOUT_THIS_CALL):
                error.may_have_executed = not await self._sender.is_free(self._draft)
            raise

    @property
    def _known(self) -> KnownPayment:
        return KnownPayment(self._journal)

    async def _go_on(self, entry: JournalEntry) -> Payment | None:
        """Do the next step about a payment that has a row; return None if the row must be read again."""
        self._check_same_payment(entry)
        stages = [stage_of(each.status) for each in entry.transactions]
        passed_over = [index for index, each in enumerate(entry.transaction_ids) if each in self._abandoned]
        match next_step(self._kind, entry.state, stages, entry.attempts, passed_over=passed_over):
            case Step.SEND | Step.SEARCH_THEN_SEND as step:
                return await self._send(entry, search=step is Step.SEARCH_THEN_SEND)
            case Step.WAIT:
                await self._wait_for(entry)
                return None
            case Step.READ:
                return await self._read_blocking(entry)
            case Step.RECONCILE:
                return await self._reconcile(entry)

    async def _send(self, entry: JournalEntry | None, *, search: bool = False) -> Payment | None:
        """Send if the row is as it was read, with `search` after a search; return None if it must be read again."""
        try:
            if search and entry is not None:
                # A refusal may have been a proxy's, and what a transport calls not sent may have been sent. If the
                # clock's offset was unknown then, no time bounds the search: if the deadline comes before the end of
                # the list, nothing is sent.
                whole_list = entry.attempts > 0 and entry.clock_offset is None
                found = await self._known.search(entry, whole_list=whole_list)
                if found is not None:
                    return self._unless_ended(entry, found)
            record = await self._sender.try_to_send(self._draft, entry)
        except RequestValidationError:
            # Another order is open under the same reference, as far as is known. It may have ended since.
            if self._kind is EntryKind.PAYOUT or self._has_read_others:
                raise
            self._has_read_others = True
            others = await self._journal.run(self._store.by_wire_reference, self._draft.wire_reference)
            for other in others:
                if other.kind is EntryKind.COLLECTION and other.reference != self._reference:
                    await self._known.refresh(other)
            return None
        return None if record is None else payment_of(self._kind, self._reference, record, is_new=True)

    async def _read_blocking(self, entry: JournalEntry) -> Payment | None:
        """Read what was paid, or blocks another attempt as far as is known; return it if it does."""
        paid = [each for each in entry.transactions if each.is_paid][:1]
        blocking: Transaction | None = None
        for known in paid or entry.transactions:
            if known.transaction_id in self._abandoned or not blocks(self._kind, stage_of(known.status)):
                continue
            transaction = await self._known.read(entry, known)
            stage = stage_of(transaction.status)
            if paid or stage is Stage.PAID:
                return self._existing(entry, transaction)
            if stage is Stage.OPEN and self._is_abandoned(known, transaction):
                self._abandoned.add(known.transaction_id)
            elif blocks(self._kind, stage):
                blocking = transaction
        return None if blocking is None else self._existing(entry, blocking)

    async def _reconcile(self, entry: JournalEntry) -> Payment | None:
        """Search for an attempt that is unresolved, and never send again if the list does not show it."""
        found = await self._known.reconcile(entry)
        if found is not None:
            return self._unless_ended(entry, found)
        # The search may have shown that an earlier prompt was paid.
        again = await self._journal.run(self._store.get, self._kind, self._reference)
        if again == entry:
            raise outcome_unknown(entry, "the list does not show it, which proves nothing")
        return None

    async def _wait_for(self, entry: JournalEntry) -> None:
        """Sleep until the row of another call that is sending is to be read again."""
        if self._session.backend.now() + _PAUSE > self._call.deadline:
            raise outcome_unknown(entry, "another call was still sending it at this one's deadline")
        await self._session.backend.sleep(_PAUSE)

    def _unless_ended(self, entry: JournalEntry, found: Transaction) -> Payment | None:
        """Return a transaction that was found; None if it ended so that another attempt may go out."""
        return self._existing(entry, found) if blocks(self._kind, stage_of(found.status)) else None

    def _existing(self, entry: JournalEntry, transaction: Transaction) -> Payment:
        """Return a transaction that an earlier call sent; raise Duplicate...Error if this call wants another phone."""
        if not same_phone(self._draft.phone, transaction.phone):
            if self._kind is EntryKind.PAYOUT or entry.is_anonymised:  # else `_check_same_payment` compared it
                raise self._duplicate(entry, "was used with another phone")
            if stage_of(transaction.status) is Stage.OPEN:
                since = f"{transaction.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
                raise self._duplicate(
                    entry, f"has an open prompt on {mask_phone(transaction.phone)} since {since}; wait for its end"
                )
        return payment_of(self._kind, self._reference, transaction, entry=entry)

    def _is_abandoned(self, known: JournalTransaction, transaction: Transaction) -> bool:
        """Return whether `abandon_after` has passed since an open prompt was sent."""
        if self._abandon_after is None:
            return False
        # By the service's clock where its responses show it: this machine's may not be the one that sent the prompt.
        now = self._session.clock.service_now_if_known()
        if now is None or is_missing(transaction.created_at):
            age = datetime.now(UTC) - known.sent_at
        else:
            age = now - transaction.created_at
        return age + _DATE_RESOLUTION >= timedelta(seconds=self._abandon_after)

    def _check_same_payment(self, entry: JournalEntry) -> None:
        """Raise Duplicate...Error if the reference was used for another payment.

        The phone of an order may change: while a prompt is open or unresolved, `_existing` and the search compare it.
        """
        is_payout = self._kind is EntryKind.PAYOUT
        if entry.amount != self._draft.amount:
            raise self._duplicate(entry, f"was used with another amount, KES {entry.amount}")
        # A refund that was not sent must not be sent without its limit, and what is no refund must not pass for one.
        if entry.refund_of != self._draft.refund_of:
            raise self._duplicate(entry, "was used for another refund, or for none")
        if entry.is_anonymised:
            # The service's record of one that was made has the phone, with which this call's is compared.
            was_made = entry.state not in MAY_BE_SENT if is_payout else any(each.is_paid for each in entry.transactions)
            if not was_made:
                raise self._duplicate(entry, "was anonymised")
        elif is_payout and entry.phone != self._draft.phone:
            raise self._duplicate(entry, "was used with another phone")
        # A description or a callback URL may change between two runs of one program. No money depends on it.
        if is_payout and entry.body_hash and entry.body_hash != self._draft.body_hash:
            logger.info(
                "reference %s: the first payout counts, and differs in more than money", redacted_repr(entry.reference)
            )
        if entry.wire_reference != self._draft.wire_reference:
            logger.warning(
                "order %s goes on with its first account_reference, by which its prompts are found",
                redacted_repr(entry.reference),
            )
            self._send_as(self._request.model_copy(update={"account_reference": entry.wire_reference}))

    def _duplicate(self, entry: JournalEntry, how: str) -> DuplicatePayoutError | DuplicateCollectionError:
        """Return the error for a reference that was used before."""
        is_payout = self._kind is EntryKind.PAYOUT
        error = DuplicatePayoutError if is_payout else DuplicateCollectionError
        message = f"reference {entry.reference!r} of {entry.created_at:%Y-%m-%d} {how}"
        if "wait for" not in how:
            message += f": give each {'payout' if is_payout else 'order'} a reference of its own"
        return error(message, reference=entry.reference)
