"""Call a sweep's handler for an end, once among all sweeps and callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeAlias

from momopay._core.backend import BackendT
from momopay._core.handlers import is_async, raise_if_awaitable, trace_of
from momopay._core.session import Session
from momopay._transport.threads import entered_in_thread
from momopay.errors import CallbackError, ConfigurationError
from momopay.journal import Journal
from momopay.models.transactions import Transaction

__all__ = ["AsyncTransactionHandler", "TransactionHandler"]

TransactionHandler: TypeAlias = Callable[[Transaction], object]
"""A function that is called with each transaction that has ended. What it returns is ignored."""

AsyncTransactionHandler: TypeAlias = Callable[[Transaction], Coroutine[Any, Any, object]]
"""An ``async def`` function that is awaited with each transaction that has ended."""

logger: logging.Logger = logging.getLogger("momopay")


class Delivered(Enum):
    """The outcome of a delivery."""

    HANDLED = auto()
    """The handler returned."""
    FAILED = auto()
    """The handler raised: the end is delivered again."""
    LEFT = auto()
    """It was handled before, or another process is handling it."""


class Delivery(Generic[BackendT]):
    """The deliveries of one sweep."""

    _session: Session[BackendT]

    def __init__(
        self, session: Session[BackendT], journal: Journal, handler: TransactionHandler | AsyncTransactionHandler
    ) -> None:
        if not callable(handler) or (is_async(handler) and not session.backend.is_async):
            raise ConfigurationError("handler must be a function, and may be async def with an AsyncClient only")
        self._session = session
        self._journal = journal
        self._handler: Callable[[Transaction], Any] = handler

    async def deliver(self, transaction: Transaction) -> Delivered:
        """Call the handler, unless the end is or was handled elsewhere. A handler that blocks runs in a thread."""
        try:
            if is_async(self._handler):
                return await self._await(transaction)
            return await self._session.backend.in_thread(partial(self._call, transaction))
        except Exception as error:  # noqa: BLE001  whatever a handler raises, the other ends are delivered
            logger.error(  # noqa: TRY400  see `trace_of`
                "the handler failed on the end of %s; the next sweep delivers it again\n%s",
                transaction.transaction_id,
                trace_of(error),
            )
            return Delivered.FAILED

    def _call(self, transaction: Transaction) -> Delivered:
        with ExitStack() as stack:
            is_first = False
            with suppress(CallbackError):  # another one is handling it
                is_first = stack.enter_context(self._journal.handling(transaction))
            if not is_first:
                return Delivered.LEFT
            raise_if_awaitable(self._handler(transaction))
        return Delivered.HANDLED

    async def _await(self, transaction: Transaction) -> Delivered:
        try:
            async with entered_in_thread(self._journal.handling(transaction)) as is_first:
                if not is_first:
                    return Delivered.LEFT
                try:
                    await self._handler(transaction)
                except CallbackError as error:
                    raise _HandlerError from error
        except CallbackError:  # another one is handling it
            return Delivered.LEFT
        return Delivered.HANDLED


class _HandlerError(Exception):
    """A handler raised what would be taken for the journal's own error."""
