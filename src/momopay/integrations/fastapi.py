"""Callbacks (webhooks) in FastAPI and Starlette."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from momopay.callbacks import AsyncCallbackHandler, CallbackHandler
from momopay.client import AsyncClient, Client
from momopay.events import Event
from momopay.integrations._receiver import HEADERS, READ_LIMIT, CallbackReceiver, view_name
from momopay.journal import Journal
from momopay.signing import CallbackSigner

__all__ = ["callback_endpoint"]


def callback_endpoint(
    handler: AsyncCallbackHandler | CallbackHandler,
    *,
    client: Client | AsyncClient | None = None,
    signer: CallbackSigner | None = None,
    journal: Journal | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint for a route, as in ``app.post("/momo")(callback_endpoint(handle, signer=signer))``.

    It reads at most 64 KiB of a body. The response is 200 if the callback was handled (service page, "Callbacks"), 403
    if the URL's token is wrong or for another reference, and 400 if the body is not a callback. It is 503 if the
    handler raised an error of momopay and 500 if it raised any other error, so that the service delivers the callback
    again.

    Args:
        handler: Called with each callback. It may be ``async def``; a plain function runs in a thread. Without a
            client, it should first call ``transactions.confirm``: a callback alone proves nothing. The service waits 30
            seconds for the response.
        client: Confirms each callback before the handler is called, as ``transactions.confirm`` does. Its journal is
            used unless `journal` is given.
        signer: Checks the token, and that its reference is the callback's, before the handler is called.
        journal: Ensures that each ``callback.key`` is handled once. Without it, every delivery is handled. If there is
            a signer too, a payout's callback settles the entry once the handler has returned, if the amount and the
            phone are the entry's. Only then does it count as handled: if the journal fails before, it is handled again.
        on_event: Called with a `CallbackReceived` for each callback, and with a `JournalChanged` if that changed the
            journal's entry; see `momopay.events`. An exception in it is logged and changes nothing.

    Raises:
        ConfigurationError: `on_event` cannot be called, or is async.
    """
    receiver = CallbackReceiver(handler, signer, journal, on_event, client)

    async def endpoint(request: Request) -> Response:
        query = request.scope["query_string"].decode("latin-1")  # as received, because the token is not encoded
        status = await receiver.receive_async(request.method, query, await _body(request))
        return PlainTextResponse(status.phrase, status.value, HEADERS)

    endpoint.__name__ = view_name(handler)
    return endpoint


async def _body(request: Request) -> bytes:
    # Not `request.body()`, which would hold a body of any size in memory.
    body = bytearray()
    async for chunk in request.stream():
        body += chunk[: READ_LIMIT - len(body)]
        if len(body) == READ_LIMIT:
            break
    return bytes(body)
