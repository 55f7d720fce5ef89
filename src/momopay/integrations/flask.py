"""Callbacks (webhooks) in Flask."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response, request
from werkzeug.exceptions import RequestEntityTooLarge

from momopay.client import Client
from momopay.durable.payment import PaymentHandler
from momopay.events import Event
from momopay.integrations._receiver import HEADERS, READ_LIMIT, STATUS_HEADERS, CallbackView, StatusView, view_name
from momopay.signing import CallbackSigner

__all__ = ["callback_endpoint", "status_endpoint"]


def callback_endpoint(
    handler: PaymentHandler,
    *,
    client: Client,
    signer: CallbackSigner | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[], Response]:
    """Return the view for a route, as in ``app.post("/momo")(callback_endpoint(handle, client=client))``.

    Its arguments and responses are those of `momopay.integrations.fastapi`. It reads at most 64 KiB of a body.

    Raises:
        ConfigurationError: The handler is ``async def``, `client` is no `Client`, or `on_event` cannot be called or is
            async.
    """
    of_all = CallbackView(handler, client, signer, on_event, blocks=True)

    def view() -> Response:
        status = of_all.respond(request.method, request.query_string.decode("latin-1"), _body())
        return Response(status.phrase, status, HEADERS, content_type="text/plain; charset=utf-8")

    view.__name__ = view_name(handler)
    return view


def status_endpoint(*, client: Client, signer: CallbackSigner) -> Callable[[], Response]:
    """Return the view for the page of a checkout, which polls it for how a payment stands.

    It is for a route such as ``app.get("/status")(status_endpoint(...))``. Its responses and errors are those of
    `momopay.integrations.fastapi`.
    """
    of_all = StatusView(client, signer)

    def status() -> Response:
        answer = of_all.respond(request.method, request.query_string.decode("latin-1"))
        return Response(answer.body, answer.status, STATUS_HEADERS, content_type=answer.content_type)

    return status


def _body() -> bytes:
    request.max_content_length = READ_LIMIT
    try:
        return request.get_data()
    except RequestEntityTooLarge:
        return b""  # gets a 400, like every body that is not a callback
