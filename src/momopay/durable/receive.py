"""Receive a callback (webhook): confirm it, record what the service's record says, and call the handler once.

Invariants:

* A callback only says that it is time to look. The record that the service shows is recorded and handled; a callback
  adds what neither the record nor the journal has, such as the receipt, if both state the same end.
* The end of a payment that the journal has reaches the handler under that payment's own reference, or not yet.
* The end is recorded before the handler is called, and counts as delivered once the handler has returned. If the
  handler fails or is cancelled, the end is free to be delivered again.
* One handler for each transaction runs at a time. An end that was delivered, or is outranked by one, is not delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias
from unicodedata import normalize

from momopay import errors
from momopay._core.config import check_handler, is_async, raise_if_not_run, trace_of
from momopay._core.reads import EVERYTHING, read_page
from momopay._core.session import Session
from momopay._polling.loop import PollLoop
from momopay._polling.wait import confirm
from momopay._redaction import redacted_repr
from momopay.callbacks import parse_callback
from momopay.durable.payment import payment_of
from momopay.journal.entries import JournalEntry
from momopay.journal.evidence import Draft, Evidence, reference_of
from momopay.journal.journal import Journal, internals
from momopay.journal.matching import OTHER_REFERENCE
from momopay.models.callbacks import Callback
from momopay.models.enums import EntryKind, ResultCode, TransactionType, is_known_type
from momopay.models.payments import AsyncPaymentHandler, Payment, PaymentHandler
from momopay.models.transactions import Transaction, with_known
from momopay.signing import CallbackSigner

if TYPE_CHECKING:  # loaded only for an observer
    from momopay._core.events import CallEvents
    from momopay.events import CallbackOutcome

logger: logging.Logger = logging.getLogger("momopay")

Held: TypeAlias = AbstractContextManager[Payment | None]
"""Holds an end while it is handled; gives the payment, or None if the end needs no handling."""
Delivery: TypeAlias = Callable[[Callable[[], Held]], Coroutine[Any, Any, bool]]
"""Calls a handler with what is held; returns whether there was anything to handle."""


def delivery_to(session: Session[Any], handler: PaymentHandler | AsyncPaymentHandler) -> Delivery:
    """Return what calls a handler, in a thread if it blocks. Raise ConfigurationError if a client cannot call it."""
    check_handler(handler)
    if not is_async(handler):
        return partial(session.backend.in_thread, _call, handler)
    if session.backend.is_async:
        return partial(_await, handler)
    raise errors.ConfigurationError("handler must be a function, and may be async def with an AsyncClient only")


async def _await(handler: AsyncPaymentHandler, held: Callable[[], Held]) -> bool:
    from momopay._transport.threads import entered_in_thread  # noqa: PLC0415  blocking clients need no anyio

    async with entered_in_thread(held()) as payment:
        if payment is not None:
            raise_if_not_run(await handler(payment))
    return payment is not None


def _call(handler: PaymentHandler, held: Callable[[], Held]) -> bool:
    with held() as payment:
        if payment is not None:
            raise_if_not_run(handler(payment))
    return payment is not None


def _with_evidence(payment: Payment, read: Transaction, evidence: Evidence) -> Payment:
    """Return a payment with what the evidence has beside the read."""
    if payment.status != read.status:
        return payment
    code = payment.result_code or (None if evidence.result_code is None else ResultCode(evidence.result_code))
    fee = payment.fee if payment.fee is not None or evidence.fee is None else Decimal(evidence.fee)
    return payment.model_copy(update={"result_code": code, "fee": fee, "receipt": payment.receipt or evidence.receipt})


def _gaps(read: Transaction) -> dict[str, None]:
    """Return None for each field of a read that has no value which says anything."""
    says = {"type": is_known_type(read.type), "account_reference": reference_of(read) is not None}
    return {name: None for name, is_said in says.items() if not is_said}


class Receiver:
    """Receives one callback, for `Transactions.receive`."""

    def __init__(
        self,
        session: Session[Any],
        confirmations: PollLoop,
        handler: PaymentHandler | AsyncPaymentHandler,
        signer: CallbackSigner | None,
        observers: list[CallEvents],
    ) -> None:
        self._session = session
        self._confirmations = confirmations
        self._deliver = delivery_to(session, handler)
        self._signer = signer
        self._observers = observers
        self._callback: Callback | None = None
        self._is_delivering = self._is_duplicate = False

    async def receive(self, url: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run."""
        try:
            await self._handle(*self._admit(url, body))
        except Exception as error:  # noqa: BLE001  whatever the handler raises, the callback must come again
            status = self._status_of(error)
            self._notify(error, status)
            return status
        except BaseException as error:  # a cancellation
            self._notify(error, None)
            raise
        self._notify(None, HTTPStatus.OK)
        return HTTPStatus.OK

    def _admit(self, url: str, body: bytes) -> tuple[Callback, str | None]:
        """Return the callback, and the reference that its URL was signed for, if callbacks have signed URLs."""
        # The token first, so that only those who have the secret reach the parser.
        signed = None if self._signer is None else normalize("NFC", self._signer.verify(url))
        self._callback = parse_callback(body)
        return self._callback, signed

    async def _handle(self, callback: Callback, signed: str | None) -> None:
        in_thread, open_journal = self._session.backend.in_thread, self._session.open_journal
        journal = None if open_journal is None else open_journal()
        entry: JournalEntry | None = None
        if journal is not None:
            entry, self._is_duplicate = await in_thread(self._compare, journal, callback, signed)
            if self._is_duplicate:
                return
        elif signed is not None and (reference_of(callback.transaction) or signed) != signed:
            raise errors.ForgedCallbackError(OTHER_REFERENCE)
        read = await confirm(self._confirmations, self._session, callback)
        self._session.clock.observe(read.response.headers)
        payment: Payment | None = None
        if journal is not None:
            payment = await in_thread(self._record, journal, entry, callback, read, signed)
        if payment is None and read.status.is_terminal:
            payment = await self._look_in_list(journal, callback, read, signed)
        if payment is not None and payment.status.is_terminal:
            self._is_duplicate = not await self._deliver(partial(self._held, journal, payment))

    async def _look_in_list(
        self, journal: Journal | None, callback: Callback, read: Transaction, signed: str | None
    ) -> Payment | None:
        """Return the payment of an end that no entry has by what its read shows; None if no handler may get it.

        The newest page of the list may show what the read lacks, such as the reference of a payment in the journal.
        """
        in_thread = self._session.backend.in_thread
        gaps = _gaps(read)
        is_type_stated = "type" not in gaps or is_known_type(callback.transaction.type)
        if (journal is not None and gaps) or not is_type_stated:
            page = await read_page(self._session, EVERYTHING)
            shown = next((each for each in page.items if each.transaction_id == read.transaction_id), None)
            if shown is not None:
                read = with_known(read.model_copy(update=gaps), shown)
            if journal is not None and shown is not None:
                known: Payment | None = await in_thread(self._record, journal, None, callback, read, signed)
                if known is not None:
                    return known
        if journal is not None:
            await in_thread(internals(journal).recorder.check_stranger, read)
        kind = read.type if is_known_type(read.type) else callback.transaction.type
        if not is_known_type(kind):
            text = "transaction %s is in no entry, and nothing says whether it is a payout: no handler gets its end"
            logger.warning(text, redacted_repr(read.transaction_id))
            return None
        entry_kind = EntryKind.PAYOUT if kind == TransactionType.B2C else EntryKind.COLLECTION
        # An unsigned callback could name any order.
        draft = Draft(entry_kind, reference_of(read) or signed or "", read.amount, "", "")
        stranger = payment_of(draft, read).model_copy(update={"in_journal": False})
        return _with_evidence(stranger, read, Evidence.confirmed(read, callback.transaction))

    def _compare(self, journal: Journal, callback: Callback, signed: str | None) -> tuple[JournalEntry | None, bool]:
        """Compare a callback with the journal. Return the entry, if it is known, and whether its end was delivered."""
        parts, stated = internals(journal), callback.transaction
        # One with a token is compared at once, so that a wrong one costs no read.
        entry = parts.store.by_transaction(stated.id) if signed is None else parts.recorder.check(stated, signed)
        known = None if entry is None else entry.status_of(stated.id)
        # An end is recorded before it is delivered.
        is_recorded = entry is None or (known is not None and known.is_terminal)
        if not is_recorded or stated.status is None or not parts.deliveries.was_delivered(stated.id, stated.status):
            return entry, False
        if signed is not None and entry is not None:  # a sweep may have recorded the end, without a receipt
            parts.recorder.add_receipt(entry, stated)
        return entry, True

    def _record(
        self,
        journal: Journal,
        known: JournalEntry | None,
        callback: Callback,
        read: Transaction,
        signed: str | None,
    ) -> Payment | None:
        """Record the service's record, with what only the callback has. Return the payment, None if no entry has it."""
        parts, now = internals(journal), self._session.clock.service_now_if_known()
        before, evidence = parts.recorder.record_read(known, read, callback.transaction, now, signed)
        if before is None:
            return None
        if self._observers:
            after = journal.get(before.reference, before.kind) or before
            if _progress(before) != _progress(after):
                for observer in self._observers:
                    observer.journal_changed(after.kind, after.reference, before.state, after.state, read)
        return _with_evidence(payment_of(before, read, refunded=parts.store.refunded(before)), read, evidence)

    @contextmanager
    def _held(self, journal: Journal | None, payment: Payment) -> Generator[Payment | None]:
        """Hold an end while it is handled."""
        with nullcontext(True) if journal is None else journal.handling(payment) as is_first:
            self._is_delivering = is_first
            yield payment if is_first else None

    def _notify(self, error: BaseException | None, status: HTTPStatus | None) -> None:
        outcome: CallbackOutcome | None = "duplicate" if self._is_duplicate and error is None else None
        if self._is_delivering and type(error) is errors.CallbackError:
            outcome = "failed"  # by the handler itself: no other call has the end
        for observer in self._observers:
            observer.callback_received(self._callback, error, status, outcome)

    def _status_of(self, error: Exception) -> HTTPStatus:
        if self._callback is None:
            logger.warning("a callback was refused: %s", error)
            return HTTPStatus.BAD_REQUEST if isinstance(error, errors.InvalidCallbackError) else HTTPStatus.FORBIDDEN
        # Redacted, because anybody may have sent it, with any text as the id.
        transaction_id = redacted_repr(self._callback.transaction_id)
        if not isinstance(error, errors.MomoPayError):
            logger.error(
                "the handler failed on the callback for %s; it comes again\n%s", transaction_id, trace_of(error)
            )
            return HTTPStatus.INTERNAL_SERVER_ERROR
        logger.warning("the callback for %s was not handled: %s", transaction_id, error)
        # The service makes no id of another form, so a callback with one is a forgery.
        is_forged = isinstance(error, errors.ForgedCallbackError) or getattr(error, "code", None) == "INVALID_UUID"
        return HTTPStatus.FORBIDDEN if is_forged else HTTPStatus.SERVICE_UNAVAILABLE


def _progress(entry: JournalEntry) -> object:
    """Return the fields of an entry that show how far its payment has come."""
    return entry.state, [(each.transaction_id, each.status) for each in entry.transactions]
