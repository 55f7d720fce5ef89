"""Receives a callback (webhook), independently of the web framework.

| request | response | what the service does |
|---|---|---|
| a callback that was handled, now or before | 200 | stops |
| another method than POST | 405 | |
| no valid token, or one for another reference; the handler raised ForgedCallbackError | 403 | retries, without effect |
| a body that is not a callback | 400 | retries, without effect |
| one that is being handled elsewhere; the handler raised another MomoPayError | 503 | retries |
| one that differs from the journal's entry, and has a signed URL or was confirmed | 503 | retries |
| one on which the handler failed otherwise | 500 | retries |

Invariants: a handler is called only for a callback that was admitted; with a journal, at most one call for each end
runs at a time, and none follows one that succeeded, or a sweep. Only a callback whose URL was signed for its own
reference, or that its handler confirmed, is recorded in the journal: after its handler and before it counts as handled.
A callback is released if its handler failed or was cancelled, or if it could not be recorded, so that it comes again.

Thread safety: a receiver has no state of its own. The methods may be called from any thread, as often as needed.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Final, TypeGuard

from momopay._core import handlers
from momopay._core.handlers import raise_if_awaitable, trace_of
from momopay._transport.threads import entered_in_thread, in_thread
from momopay.callbacks import MAX_BODY_BYTES, AsyncCallbackHandler, CallbackHandler, parse_callback
from momopay.errors import ForgedCallbackError, InvalidCallbackError, MomoPayError
from momopay.journal import Journal
from momopay.journal.ends import recorder_of
from momopay.models.callbacks import Callback, is_confirmed
from momopay.signing import CallbackSigner

logger: logging.Logger = logging.getLogger("momopay")

# Bytes of a body that are read: one more than a callback may have is enough to refuse it.
READ_LIMIT: Final = MAX_BODY_BYTES + 1

# The headers of every response. Only 405 needs them, and the others may have them.
HEADERS: Final = {"Allow": "POST"}


def is_async(handler: CallbackHandler) -> TypeGuard[AsyncCallbackHandler]:
    """Return whether a handler must be awaited."""
    return handlers.is_async(handler)


def view_name(handler: CallbackHandler) -> str:
    """Return the name for a handler's view. Frameworks distinguish routes by it."""
    return str(getattr(handler, "__name__", "momopay_callback"))


class CallbackReceiver:
    """Checks callbacks and passes them to a handler."""

    def __init__(self, handler: CallbackHandler, signer: CallbackSigner | None, journal: Journal | None) -> None:
        self._handler = handler
        self._signer = signer
        self._journal = journal

    def receive(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run."""
        admitted = self._admit(method, query, body)
        return admitted if isinstance(admitted, HTTPStatus) else self._handle(admitted)

    async def receive_async(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run; a handler that blocks runs in a thread.

        A cancellation cancels a handler that is awaited, and the callback may come again. A thread cannot be
        cancelled, so a handler that blocks runs to its end, and the callback counts as handled.
        """
        admitted = self._admit(method, query, body)
        if isinstance(admitted, HTTPStatus):
            return admitted
        if not is_async(self._handler):
            return await in_thread(partial(self._handle, admitted))
        try:
            async with entered_in_thread(self._once(admitted)) as is_first:
                if is_first:
                    await self._handler(admitted)
        except Exception as error:  # noqa: BLE001  whatever a handler raises, the callback must come again
            return _status_of_failure(error, admitted)
        return HTTPStatus.OK

    def _admit(self, method: str, query: str, body: bytes) -> Callback | HTTPStatus:
        """Return the callback, or the status of its refusal. Neither the service nor the journal is asked."""
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        try:
            # The token first: without the secret nobody gets as far as the parser.
            reference = None if self._signer is None else self._signer.verify(query)
            callback = parse_callback(body)
            if reference is not None and reference != callback.transaction.external_reference:
                raise ForgedCallbackError("the callback URL was signed for another reference")
        except (ForgedCallbackError, InvalidCallbackError) as error:
            logger.warning("a callback was refused: %s", error)
            return HTTPStatus.FORBIDDEN if isinstance(error, ForgedCallbackError) else HTTPStatus.BAD_REQUEST
        return callback

    def _handle(self, callback: Callback) -> HTTPStatus:
        try:
            with self._once(callback) as is_first:
                if is_first:
                    raise_if_awaitable(self._handler(callback))
        except Exception as error:  # noqa: BLE001  as in `receive_async`
            return _status_of_failure(error, callback)
        return HTTPStatus.OK

    @contextmanager
    def _once(self, callback: Callback) -> Generator[bool]:
        """Hold a callback while it is handled; yield whether it is still to be handled."""
        if self._journal is None:
            yield True
            return
        recorder, is_signed = recorder_of(self._journal), self._signer is not None
        if is_signed:
            recorder.check(callback)  # before the handler does anything about a callback that is wrong
        with self._journal.handling(callback) as is_first:
            yield is_first
            # Before the callback counts as handled: if this fails, it comes again. Without a signer the body could be
            # anybody's, unless the handler confirmed it.
            if is_first and (is_signed or is_confirmed(callback)):
                recorder.record(callback)
            elif is_signed:
                # A repeat, whose body may differ from the one that was confirmed; or a sweep was first, and only the
                # callback has the receipt.
                recorder.add_receipt(callback)


def _status_of_failure(error: Exception, callback: Callback) -> HTTPStatus:
    if isinstance(error, MomoPayError):
        logger.warning("the callback for %s was not handled: %s", callback.transaction_id, error)
        return HTTPStatus.FORBIDDEN if isinstance(error, ForgedCallbackError) else HTTPStatus.SERVICE_UNAVAILABLE
    logger.error(
        "the handler failed on the callback for %s; it comes again\n%s", callback.transaction_id, trace_of(error)
    )
    return HTTPStatus.INTERNAL_SERVER_ERROR
