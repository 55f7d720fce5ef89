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

    It responds with 403 if the URL's token is wrong or for another reference, and 400 to a body that is not a callback.
    It responds with 503 if the handler raised an error of momopay, and 500 if it raised anything else, so that the
    service delivers the callback again. Else with 200 (service page, "Callbacks").

    Args:
        handler: Called with each callback. An ``async def``, or a plain function, which runs in a thread. Without a
            client, begin with ``transactions.confirm``: a callback alone proves nothing. The service waits 30 seconds.
        client: Confirms each callback before the handler is called, as ``transactions.confirm`` does, and brings its
            journal, unless `journal` is given.
        signer: Checks the token, and that its reference is the callback's, before the handler is called.
        journal: Ensures that each ``callback.key`` is handled once. Without it, every delivery is handled. With a
            signer too, the callback of a payout settles its entry after the handler returned, if it states the entry's
            amount and phone. Only then it counts as handled: if the journal fails in between, it is handled again.
        on_event: Called with a `CallbackReceived` for each callback, and a `JournalChanged` where the journal's entry
            changed by it; see `momopay.events`. An exception in it is logged and changes nothing.

    Returns:
        The endpoint. It reads at most 64 KiB of a body.

    Raises:
        ConfigurationError: `on_event` cannot be called, or is async.
    """
    receiver = CallbackReceiver(handler, signer, journal, on_event, client)

    async def endpoint(request: Request) -> Response:
        query = request.scope["query_string"].decode("latin-1")  # as it was received: the token is not encoded
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
