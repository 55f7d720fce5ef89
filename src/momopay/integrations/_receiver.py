"""How a callback is received, whichever framework it came through. Knows no framework.

| what came | answer | the service |
|---|---|---|
| a callback, handled now or before | 200 | is done |
| something other than POST | 405 | sends none |
| no valid token, or one for another reference; ForgedCallbackError from the handler | 403 | sends it again, in vain |
| a body that is no callback | 400 | sends it again, in vain |
| one that another is handling; any other MomoPayError from the handler | 503 | sends it again |
| one on which the handler failed otherwise | 500 | sends it again |
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, TypeVar

from momopay._redaction import redact
from momopay._transport.threads import in_thread
from momopay.callbacks import LARGEST_BODY, parse_callback
from momopay.errors import ForgedCallbackError, InvalidCallbackError, MomoPayError
from momopay.models.callbacks import Callback

if TYPE_CHECKING:
    from momopay.journal import Journal
    from momopay.signing import CallbackSigner

logger = logging.getLogger("momopay")

T = TypeVar("T")
Handler: TypeAlias = Callable[[Callback], object]
AsyncHandler: TypeAlias = Callable[[Callback], Coroutine[Any, Any, object]]

ENOUGH: Final = LARGEST_BODY + 1
"""Bytes of a body that are read: one more than a callback has shows that it is none."""

ALLOW: Final = {"Allow": "POST"}
"""A header of every answer; 405 needs it."""


def is_async(handler: Handler) -> TypeGuard[AsyncHandler]:
    """Tell whether a handler is to be awaited."""
    return any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__)))


def name_of(handler: Handler) -> str:
    """Name the view after its handler: frameworks tell routes apart by it."""
    return str(getattr(handler, "__name__", "momopay_callback"))


class CallbackReceiver:
    """A handler, and what is to hold before it is called."""

    def __init__(self, handler: Handler, signer: CallbackSigner | None, journal: Journal | None) -> None:
        self._handler = handler
        self._signer = signer
        self._journal = journal

    def receive(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Take a request, and say what to answer."""
        admitted = self._admit(method, query, body)
        return admitted if isinstance(admitted, HTTPStatus) else self._handle(admitted)

    async def receive_async(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Take a request on the event loop, and say what to answer; a handler that blocks is called in a thread.

        A cancellation cancels a handler that is awaited, and the callback may come again; a handler that blocks comes
        to its end first, and the callback counts as handled.
        """
        admitted = self._admit(method, query, body)
        if isinstance(admitted, HTTPStatus):
            return admitted
        if not is_async(self._handler):
            return await in_thread(partial(self._handle, admitted))
        try:
            async with _entered(self._once(admitted)) as first:
                if first:
                    await self._handler(admitted)
        except Exception as error:  # noqa: BLE001  whatever a handler raises, the callback is to come again
            return _refusal(error, admitted)
        return HTTPStatus.OK

    def _admit(self, method: str, query: str, body: bytes) -> Callback | HTTPStatus:
        """Let a callback in, or turn it away. Asks nobody: a forgery costs no request."""
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        try:
            signed = None if self._signer is None else self._signer.verify(query)
            callback = parse_callback(body)
            if signed is not None and signed != callback.transaction.external_reference:
                raise ForgedCallbackError("the callback URL was signed for another reference")
        except (ForgedCallbackError, InvalidCallbackError) as error:
            logger.warning("a callback was turned away: %s", error)
            return HTTPStatus.FORBIDDEN if isinstance(error, ForgedCallbackError) else HTTPStatus.BAD_REQUEST
        return callback

    def _handle(self, callback: Callback) -> HTTPStatus:
        try:
            with self._once(callback) as first:
                if first:
                    _check_over(self._handler(callback))
        except Exception as error:  # noqa: BLE001  as above
            return _refusal(error, callback)
        return HTTPStatus.OK

    @contextmanager
    def _once(self, callback: Callback) -> Generator[bool]:
        if self._journal is None:
            yield True
            return
        with self._journal.handling(callback) as first:
            yield first
        if first and self._signer is not None:  # signed for this reference, and borne out by the handler
            self._journal.settle(callback)


def _check_over(result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("the handler gave something to await; make it an async def")


def _refusal(error: Exception, callback: Callback) -> HTTPStatus:
    if isinstance(error, MomoPayError):
        logger.warning("the callback for %s was not taken: %s", callback.transaction_id, error)
        return HTTPStatus.FORBIDDEN if isinstance(error, ForgedCallbackError) else HTTPStatus.SERVICE_UNAVAILABLE
    # As text: what takes the error itself may show locals, and with them the callback's body.
    trace = redact("".join(traceback.format_exception(error)))
    logger.error("the handler failed on the callback for %s; it comes again\n%s", callback.transaction_id, trace)
    return HTTPStatus.INTERNAL_SERVER_ERROR


@asynccontextmanager
async def _entered(context: AbstractContextManager[T]) -> AsyncGenerator[T]:
    """Enter and leave a context that blocks, in threads; leave it too when the task is cancelled on the way."""
    entered = ExitStack()
    try:
        yield await in_thread(partial(entered.enter_context, context))
    except BaseException as error:
        await in_thread(partial(entered.__exit__, type(error), error, error.__traceback__))
        raise
    await in_thread(entered.close)
