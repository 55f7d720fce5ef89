"""Callbacks into FastAPI, or into plain Starlette."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from momopay.integrations._receiver import ALLOW, ENOUGH, AsyncHandler, CallbackReceiver, Handler, name_of

if TYPE_CHECKING:
    from momopay.journal import Journal
    from momopay.signing import CallbackSigner


def callback_endpoint(
    handler: AsyncHandler | Handler, *, signer: CallbackSigner | None = None, journal: Journal | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Make the endpoint for a route, as in ``app.post("/momo")(callback_endpoint(handle, signer=signer))``.

    It answers 403 where the URL's token does not hold or is for another reference, 400 to what is no callback, 503
    when the handler raised CallbackError and 500 when it raised anything else, so that the service delivers again;
    and 200 when the handler came to its end (SPEC.md, "Events", Delivery).

    Args:
        handler: Given each callback. ``async def``, or a plain function, which is called in a thread. A callback by
            itself proves nothing: begin with ``transactions.confirm``. The service waits 30 seconds.
        signer: Checks the token, and its reference against the callback's, before the handler is called.
        journal: Has each ``callback.key`` handled once; without it, each delivery is handled. With a signer, a
            payout's callback needs_reconciliation its row, once it was handled.

    Returns:
        The endpoint. It reads no more than 64 KiB of a body.
    """
    reception = CallbackReceiver(handler, signer, journal)

    async def endpoint(request: Request) -> Response:
        query = request.scope["query_string"].decode("latin-1")
        status = await reception.receive_async(request.method, query, await _body(request))
        return PlainTextResponse(status.phrase, status.value, ALLOW)

    endpoint.__name__ = name_of(handler)
    return endpoint


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk[: ENOUGH - len(body)]
        if len(body) == ENOUGH:
            break
    return bytes(body)
