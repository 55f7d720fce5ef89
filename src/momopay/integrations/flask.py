"""Callbacks into Flask."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING

from flask import Response, current_app, request
from werkzeug.exceptions import RequestEntityTooLarge

from momopay.errors import ConfigurationError
from momopay.integrations._receiver import ALLOW, ENOUGH, AsyncHandler, CallbackReceiver, Handler, is_async, name_of

if TYPE_CHECKING:
    from momopay.journal import Journal
    from momopay.models.callbacks import Callback
    from momopay.signing import CallbackSigner


def callback_endpoint(
    handler: AsyncHandler | Handler, *, signer: CallbackSigner | None = None, journal: Journal | None = None
) -> Callable[[], Response]:
    """Make the view for a route, as in ``app.post("/momo")(callback_endpoint(handle, signer=signer))``.

    It answers as the endpoint of `momopay.integrations.fastapi`, which tells the arguments, and reads no more than
    64 KiB of a body. The handler may be ``async def`` where Flask's own extra for that is installed.

    Raises:
        ConfigurationError: The handler is ``async def`` and the extra is missing: ``pip install 'flask[async]'``.
    """
    reception = CallbackReceiver(_blocking(handler) if is_async(handler) else handler, signer, journal)

    def view() -> Response:
        status = reception.receive(request.method, request.query_string.decode("latin-1"), _body())
        return Response(status.phrase, status, ALLOW, content_type="text/plain; charset=utf-8")

    view.__name__ = name_of(handler)
    return view


def _blocking(handler: AsyncHandler) -> Handler:
    if find_spec("asgiref") is None:
        raise ConfigurationError("Flask awaits a handler with its own extra only: pip install 'flask[async]'")

    @wraps(handler)
    def handle(callback: Callback) -> object:
        return current_app.async_to_sync(handler)(callback)

    return handle


def _body() -> bytes:
    request.max_content_length = ENOUGH
    try:
        return request.get_data()
    except RequestEntityTooLarge:
        return b""  # which is no callback either
