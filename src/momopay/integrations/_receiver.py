"""Receives callbacks (webhooks), independently of the web framework.

| request | response | what the service does |
|---|---|---|
| a callback that was handled, now or before; one that is confirmed and whose record is of no end | 200 | stops |
| another method than POST | 405 | |
| no valid token, or one for another reference; the handler raised ForgedCallbackError | 403 | retries, without effect |
| an id that no transaction can have | 403 | retries, without effect |
| a body that is not a callback | 400 | retries, without effect |
| one that is being handled elsewhere; the handler raised another MomoPayError | 503 | retries |
| one that differs from the journal's entry, and has a signed URL or was confirmed | 503 | retries |
| one whose handler raised any other error | 500 | retries |

Invariants:

* The handler is called only for a callback that was admitted. With a client, the service's record must confirm it, and
  must be of an end; what is handled and recorded is that record. The journal's entry must not contradict it.
* With a journal, one call for each transaction runs at a time. Once a call or a sweep has handled an end, no call for
  that end follows.
* A callback is recorded in the journal only if its URL was signed for its reference or its order, or if its handler
  confirmed it. It is recorded after the handler returned and before it counts as handled.
* A callback is released, so that it can come again, if its handler failed or was cancelled, or if it could not be
  recorded.

With an `on_event`, each request is reported once its response is decided, in the thread or task that received it.

Thread safety: a receiver has no state of its own, so any thread may call its methods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from unicodedata import normalize

from momopay._core.events import CallEvents, Observer, outcome_of
from momopay._core.handlers import is_async, raise_if_awaitable, trace_of
from momopay._redaction import redacted_repr
from momopay._transport.attempt import now
from momopay._transport.threads import entered_in_thread, in_event_loop, in_thread
from momopay.callbacks import MAX_BODY_BYTES, CallbackHandler, parse_callback
from momopay.client import AsyncClient, Client
from momopay.errors import ConfigurationError, ForgedCallbackError, InvalidCallbackError, MomoPayError
from momopay.events import CallbackOutcome, Event
from momopay.journal import EntryKind, Journal, JournalEntry, JournalState
from momopay.journal.evidence import reference_of
from momopay.journal.journal import parts_of
from momopay.models.callbacks import Callback, as_read, record_of
from momopay.signing import CallbackSigner

logger: logging.Logger = logging.getLogger("momopay")

READ_LIMIT: Final = MAX_BODY_BYTES + 1  # bytes of a body; one more than a callback may have is enough to refuse it
_OTHER_REFERENCE: Final = "the callback URL was signed for another reference"
HEADERS: Final = {"Allow": "POST"}  # of every response, although only a 405 needs them


def view_name(handler: CallbackHandler) -> str:
    """Return the name for a handler's view, by which frameworks distinguish routes."""
    return str(getattr(handler, "__name__", "momopay_callback"))


@dataclass
class _Reception:
    """One request, and what its events report."""

    callback: Callback | None = None
    signed_reference: str | None = None
    """The reference that its URL was signed for, if that is not the callback's."""
    error: BaseException | None = None
    status: HTTPStatus | None = None
    is_first: bool | None = None
    """Whether this request handles the callback; False if another did or does, None if the journal was not asked."""
    changed: tuple[JournalState, JournalEntry] | None = None
    """The journal's entry that it changed, after the state that the entry had before."""

    @property
    def confirmable(self) -> Callback:
        """The callback, once it was admitted."""
        assert self.callback is not None  # noqa: S101  only an admitted request comes here
        return self.callback

    def report(self, events: CallEvents) -> None:
        """Report the request, unless it was not a POST."""
        callback, error = self.callback, self.error
        if self.changed is not None and callback is not None:
            state, entry = self.changed
            events.journal_changed(entry.kind, entry.reference, state, entry.state, callback.transaction)
        outcome: CallbackOutcome = "duplicate" if self.is_first is False else "accepted"
        if error is not None:
            outcome = outcome_of(error)
            if outcome == "busy" and self.is_first:  # the error is not the journal's but the handler's own
                outcome = "failed"
        if error is not None or callback is not None:
            events.callback_received(outcome, callback, error, self.status)


class CallbackReceiver:
    """Checks callbacks and passes them to a handler."""

    def __init__(
        self,
        handler: CallbackHandler,
        signer: CallbackSigner | None,
        journal: Journal | None,
        on_event: Callable[[Event], object] | None = None,
        client: Client | AsyncClient | None = None,
        *,
        blocks: bool = False,
    ) -> None:
        if not isinstance(client, Client | AsyncClient | None):
            raise ConfigurationError("client must be a momopay.Client or a momopay.AsyncClient")
        if blocks and isinstance(client, AsyncClient):
            raise ConfigurationError("this view blocks: it needs a momopay.Client, not an AsyncClient")
        self._handler = handler
        self._signer = signer
        self._client = client
        self._given = journal
        self._observer = None if on_event is None else Observer(on_event)

    @property
    def _journal(self) -> Journal | None:
        """The given journal, or else the client's, which the client opens on first use."""
        return self._given if self._given is not None or self._client is None else self._client.journal

    def receive(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run."""
        with self._received() as reception:
            reception.status = self._admit(reception, method, query, body) or self._handle(reception)
            return reception.status

    async def receive_async(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run; a blocking handler runs in a thread.

        Cancellation cancels an async handler, and the callback may come again. A blocking handler cannot be cancelled:
        it runs to its end, and the callback counts as handled.
        """
        with self._received() as reception:
            status = self._admit(reception, method, query, body)
            if status is None:
                is_awaited = is_async(self._handler)
                handle = self._await(reception) if is_awaited else in_thread(partial(self._handle, reception))
                status = await handle
            reception.status = status
            return status

    @contextmanager
    def _received(self) -> Generator[_Reception]:
        """Report the request when the context ends."""
        reception = _Reception()
        events = None if self._observer is None else self._observer.start("callbacks.receive", now)
        try:
            yield reception
        except BaseException as error:  # a cancellation
            reception.error = error
            raise
        finally:
            if events is not None:
                reception.report(events)

    def _admit(self, reception: _Reception, method: str, query: str, body: bytes) -> HTTPStatus | None:
        """Return None for a callback, else the status of its refusal. It asks neither the service nor the journal.

        With a journal, a reference that differs from the token's is left to `_once`.
        """
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        try:
            # The token first, so that only those who have the secret reach the parser.
            reference = None if self._signer is None else self._signer.verify(query)
            callback = parse_callback(body)
            if reference is not None and normalize("NFC", reference) != reference_of(callback.transaction):
                if self._journal is None:
                    raise ForgedCallbackError(_OTHER_REFERENCE)
                reception.signed_reference = reference
        except (ForgedCallbackError, InvalidCallbackError) as error:
            reception.error = error
            logger.warning("a callback was refused: %s", error)
            return HTTPStatus.FORBIDDEN if isinstance(error, ForgedCallbackError) else HTTPStatus.BAD_REQUEST
        reception.callback = callback
        return None

    def _handle(self, reception: _Reception) -> HTTPStatus:
        try:
            if self._needs_handling(reception):
                self._confirm(reception)
                with self._once(reception) as callback:
                    if callback is not None:
                        raise_if_awaitable(self._handler(callback))
        except Exception as error:  # noqa: BLE001  the callback must come again, whatever the handler raises
            return _status_of_failure(error, reception)
        return HTTPStatus.OK

    async def _await(self, reception: _Reception) -> HTTPStatus:
        handler: Any = self._handler
        try:
            if await in_thread(partial(self._needs_handling, reception)):
                if isinstance(self._client, AsyncClient):
                    await self._client.transactions.confirm(reception.confirmable)
                else:
                    await in_thread(partial(self._confirm, reception))
                async with entered_in_thread(self._once(reception)) as callback:
                    if callback is not None:
                        await handler(callback)
        except Exception as error:  # noqa: BLE001  as in `_handle`
            return _status_of_failure(error, reception)
        return HTTPStatus.OK

    def _needs_handling(self, reception: _Reception) -> bool:
        """Compare a callback with the journal; return False if its end was handled, which then needs no read."""
        callback, journal = reception.confirmable, self._journal
        if journal is None:
            return True
        recorder, is_signed = parts_of(journal).recorder, self._signer is not None
        if is_signed:
            _check_order(journal, reception.signed_reference, callback)
            recorder.check(callback)  # so that a wrong one costs no read
        if self._client is None or not parts_of(journal).callbacks.was_handled(callback):
            return True
        reception.is_first = False
        if is_signed:
            recorder.add_receipt(callback)
        return False

    def _confirm(self, reception: _Reception) -> None:
        """Confirm a callback as `_await` does, if there is a client. Blocks its thread."""
        if isinstance(self._client, AsyncClient):
            in_event_loop(partial(self._client.transactions.confirm, reception.confirmable))
        elif self._client is not None:
            self._client.transactions.confirm(reception.confirmable)

    @contextmanager
    def _once(self, reception: _Reception) -> Generator[Callback | None]:
        """Hold an end while it is handled; yield the callback, or None if it needs no handling.

        A confirmed callback is yielded and recorded as the service's record has it.
        """
        callback, journal = as_read(reception.confirmable), self._journal
        if self._client is not None and not callback.transaction.status.is_terminal:
            yield None
            return
        if journal is None:
            yield callback
            return
        recorder, is_signed = parts_of(journal).recorder, self._signer is not None
        recorder.check(callback)  # before the handler acts on a callback that is wrong
        with journal.handling(callback) as is_first:
            reception.is_first = is_first
            yield callback if is_first else None
            # Before the callback counts as handled, so that it comes again if this fails. Without a signer, anybody
            # could have sent the body, unless it was confirmed.
            if is_first and (is_signed or record_of(callback) is not None):
                before = None if self._observer is None else recorder.check(callback)
                after = recorder.record(callback)
                if before is not None and after is not None and _progress_of(before) != _progress_of(after):
                    reception.changed = before.state, after
            elif is_signed:
                # A repeat may differ from the callback that was confirmed, so only its receipt is added: if a sweep
                # recorded the end, the entry has none.
                recorder.add_receipt(callback)


def _check_order(journal: Journal, signed_reference: str | None, callback: Callback) -> None:
    """Raise ForgedCallbackError unless the callback is of a prompt for the order that its URL was signed for.

    The service may know an order by another reference: by a token if the reference is longer than the service allows,
    or by an `account_reference`. The URL is signed for the order, and the callback has what the service knows.
    """
    if signed_reference is not None:
        entry, found = journal.get(signed_reference, kind=EntryKind.COLLECTION), callback.transaction
        # A payout may have the same reference as the prompts of an order.
        is_prompt = found.type in {None, EntryKind.COLLECTION.transaction_type}
        if entry is None or not is_prompt or entry.wire_reference != reference_of(found):
            raise ForgedCallbackError(_OTHER_REFERENCE)


def _progress_of(entry: JournalEntry) -> object:
    """Return the fields of an entry that show how far its payment has come."""
    return entry.state, entry.status, [each.status for each in entry.transactions]


def _status_of_failure(error: Exception, reception: _Reception) -> HTTPStatus:
    reception.error = error
    # Redacted, because anybody may have sent it, with any text as the id.
    transaction_id = redacted_repr(None if reception.callback is None else reception.callback.transaction_id)
    if isinstance(error, MomoPayError):
        logger.warning("the callback for %s was not handled: %s", transaction_id, error)
        # The service makes no id of another form, so a callback with one is a forgery.
        is_forged = isinstance(error, ForgedCallbackError) or getattr(error, "code", None) == "INVALID_UUID"
        return HTTPStatus.FORBIDDEN if is_forged else HTTPStatus.SERVICE_UNAVAILABLE
    logger.error("the handler failed on the callback for %s; it comes again\n%s", transaction_id, trace_of(error))
    return HTTPStatus.INTERNAL_SERVER_ERROR
