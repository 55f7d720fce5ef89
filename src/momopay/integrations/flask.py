"""Callbacks (webhooks) in Flask."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec

from flask import Response, current_app, request
from werkzeug.exceptions import RequestEntityTooLarge

from momopay._core.config import is_async
from momopay.client import Client
from momopay.errors import ConfigurationError
from momopay.events import Event
from momopay.integrations._receiver import HEADERS, READ_LIMIT, STATUS_HEADERS, CallbackView, StatusView, view_name
from momopay.models.payments import AsyncPaymentHandler, Payment, PaymentHandler
from momopay.signing import CallbackSigner

__all__ = ["callback_endpoint", "status_endpoint"]


def callback_endpoint(
    handler: AsyncPaymentHandler | PaymentHandler,
    *,
    client: Client,
    signer: CallbackSigner | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[], Response]:
    """Return the view for a route, as in ``app.post("/momo")(callback_endpoint(handle, client=client))``.

    Its arguments and responses are those of `momopay.integrations.fastapi`. It reads at most 64 KiB of a body. The
    handler may be ``async def`` if Flask's extra for that is installed.

    Raises:
        ConfigurationError: The handler is ``async def`` and the extra is missing: ``pip install 'flask[async]'``;
            or `client` is no `Client`, or `on_event` cannot be called or is async.
    """
    of_all = CallbackView(_blocking(handler) if is_async(handler) else handler, client, signer, on_event, blocks=True)

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


def _blocking(handler: AsyncPaymentHandler) -> PaymentHandler:
    if find_spec("asgiref") is None:
        raise ConfigurationError("Flask needs an extra to await a handler: pip install 'flask[async]'")

    @wraps(handler)
    def handle(payment: Payment) -> object:
        return current_app.async_to_sync(handler)(payment)

    return handle


def _body() -> bytes:
    request.max_content_length = READ_LIMIT
    try:
        return request.get_data()
    except RequestEntityTooLarge:
        return b""  # gets a 400, like every body that is not a callback
