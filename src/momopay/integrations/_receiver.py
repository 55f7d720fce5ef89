"""What the callback (webhook) views of all frameworks share: each passes a request to ``transactions.receive``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from momopay._core.events import Observer
from momopay._core.handlers import is_async
from momopay._transport.threads import in_event_loop, in_thread
from momopay.callbacks import MAX_BODY_BYTES
from momopay.client import AsyncClient, Client
from momopay.durable.payment import AsyncPaymentHandler, Payment, PaymentHandler
from momopay.errors import ConfigurationError
from momopay.events import Event
from momopay.signing import CallbackSigner

READ_LIMIT: Final = MAX_BODY_BYTES + 1  # bytes of a body; one more than a callback may have is enough to refuse it
HEADERS: Final = {"Allow": "POST"}  # of every response, although only a 405 needs them


def view_name(handler: PaymentHandler | AsyncPaymentHandler) -> str:
    """Return the name for a handler's view, by which frameworks distinguish routes."""
    return str(getattr(handler, "__name__", "momopay_callback"))


class CallbackView:
    """Responds to requests. It has no state of its own, so any thread may use it."""

    def __init__(
        self,
        handler: PaymentHandler | AsyncPaymentHandler,
        client: Client | AsyncClient,
        signer: CallbackSigner | None,
        on_event: Callable[[Event], object] | None,
        *,
        blocks: bool = False,
    ) -> None:
        if not isinstance(client, Client | AsyncClient):
            raise ConfigurationError("client must be a momopay.Client or a momopay.AsyncClient")
        if blocks and isinstance(client, AsyncClient):
            raise ConfigurationError("this view blocks: it needs a momopay.Client, not an AsyncClient")
        self._client: Any = client
        self._handler: Any = handler
        self._options: dict[str, Any] = {"signer": signer}
        if on_event is not None:
            self._options["on_event"] = Observer(on_event)

    def respond(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run."""
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        status: HTTPStatus = self._client.transactions.receive(query, body, self._handler, **self._options)
        return status

    async def respond_async(self, method: str, query: str, body: bytes) -> HTTPStatus:
        """Return the status to respond with, after the handler has run. A blocking client works in a thread.

        Cancellation cancels an async handler of an AsyncClient, and the callback may come again. Any other handler runs
        to its end, and the end counts as delivered.
        """
        if method != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        receive = partial(self._client.transactions.receive, query, body, **self._options)
        if isinstance(self._client, AsyncClient):
            status: HTTPStatus = await receive(self._handler)
            return status
        return await in_thread(partial(receive, self._call if is_async(self._handler) else self._handler))

    def _call(self, payment: Payment) -> object:
        """Await the handler on the event loop, from a thread."""
        return in_event_loop(partial(self._handler, payment))
