"""Callbacks (webhooks) in FastAPI and Starlette."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from momopay._transport.threads import in_thread
from momopay.client import AsyncClient, Client
from momopay.events import Event
from momopay.integrations._receiver import HEADERS, READ_LIMIT, STATUS_HEADERS, CallbackView, StatusView, view_name
from momopay.models.payments import AsyncPaymentHandler, PaymentHandler
from momopay.signing import CallbackSigner

__all__ = ["callback_endpoint", "status_endpoint"]


def callback_endpoint(
    handler: AsyncPaymentHandler | PaymentHandler,
    *,
    client: Client | AsyncClient,
    signer: CallbackSigner | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint for a route, as in ``app.post("/momo")(callback_endpoint(handle, client=client))``.

    It reads at most 64 KiB of a body, and responds as ``client.transactions.receive`` says. Each end is recorded in the
    client's journal and handled once. A client without a journal handles every delivery.

    Args:
        handler: Called with each `Payment` that has ended. It may be ``async def``; a plain function runs in a thread.
            The service waits 30 seconds for the response.
        client: Reads each callback's transaction from the service; what that says is handled.
        signer: Checks the URL's token, and that the callback is of the payment that it was signed for.
        on_event: Called with a `CallbackReceived` for each callback, and with a `JournalChanged` if that changed the
            journal's entry; see `momopay.events`. An exception in it is logged and changes nothing.

    Raises:
        ConfigurationError: `handler` is a generator, `client` is none, or `on_event` cannot be called or is async.
    """
    view = CallbackView(handler, client, signer, on_event)

    async def endpoint(request: Request) -> Response:
        query = request.scope["query_string"].decode("latin-1")  # as received, because the token is not encoded
        status = await view.respond_async(request.method, query, await _body(request))
        return PlainTextResponse(status.phrase, status.value, HEADERS)

    endpoint.__name__ = view_name(handler)
    return endpoint


def status_endpoint(
    *, client: Client | AsyncClient, signer: CallbackSigner
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint for the page of a checkout, which polls it for how a payment stands.

    It is for a route such as ``app.get("/status")(status_endpoint(...))``.
    A GET of a URL from ``signer.status_url`` gives JSON with ``reference``, ``state`` (``waiting``, ``paid``,
    ``not_paid`` or ``unknown``), ``amount`` in KES and ``receipt``. It comes from the client's journal alone, so
    any number of polls sends no request. The response is 403 if the token is wrong, and 503 if the journal fails.

    Raises:
        ConfigurationError: The client has no journal, or `signer` is no `CallbackSigner`.
    """
    view = StatusView(client, signer)

    async def status(request: Request) -> Response:
        query = request.scope["query_string"].decode("latin-1")
        answer = await in_thread(partial(view.respond, request.method, query))
        return Response(answer.body, answer.status, STATUS_HEADERS, media_type=answer.content_type)

    return status


async def _body(request: Request) -> bytes:
    # Not `request.body()`, which would hold a body of any size in memory.
    body = bytearray()
    async for chunk in request.stream():
        body += chunk[: READ_LIMIT - len(body)]
        if len(body) == READ_LIMIT:
            break
    return bytes(body)
