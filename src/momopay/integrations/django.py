"""Callbacks (webhooks) in Django, under WSGI and ASGI."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, overload

from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from momopay.callbacks import AsyncCallbackHandler, CallbackHandler
from momopay.client import AsyncClient, Client
from momopay.events import Event
from momopay.integrations._receiver import HEADERS, READ_LIMIT, CallbackReceiver, is_async, view_name
from momopay.journal import Journal
from momopay.signing import CallbackSigner

__all__ = ["callback_endpoint"]


@overload
def callback_endpoint(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]  a coroutine is an object too
    handler: AsyncCallbackHandler,
    *,
    client: Client | AsyncClient | None = None,
    signer: CallbackSigner | None = None,
    journal: Journal | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]: ...
@overload
def callback_endpoint(
    handler: CallbackHandler,
    *,
    client: Client | AsyncClient | None = None,
    signer: CallbackSigner | None = None,
    journal: Journal | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[HttpRequest], HttpResponse]: ...
def callback_endpoint(
    handler: CallbackHandler,
    *,
    client: Client | AsyncClient | None = None,
    signer: CallbackSigner | None = None,
    journal: Journal | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[HttpRequest], Any]:
    """Return the view for a route of ``urlpatterns``. It needs no CSRF token.

    It responds as the endpoint of `momopay.integrations.fastapi` does, takes the same arguments, and reads at most
    64 KiB of a body. The view of an ``async def`` is async. For any other handler, ATOMIC_REQUESTS commits before the
    journal marks the callback as handled, not after.
    """
    # A transaction around the view would commit after the journal has marked the callback as handled. If that commit
    # failed, the callback would not come again. So the transaction is around the handler alone.
    for alias, settings in connections.settings.items():
        if settings["ATOMIC_REQUESTS"] and not is_async(handler):
            handler = transaction.atomic(alias)(handler)
    receiver = CallbackReceiver(handler, signer, journal, on_event, client, blocks=not is_async(handler))

    def view(request: HttpRequest) -> HttpResponse:
        return _response(receiver.receive(*_request(request)))

    async def async_view(request: HttpRequest) -> HttpResponse:
        return _response(await receiver.receive_async(*_request(request)))

    chosen: Callable[[HttpRequest], Any] = async_view if is_async(handler) else view
    chosen.__name__ = view_name(handler)
    for alias in connections:
        chosen = transaction.non_atomic_requests(alias)(chosen)
    return csrf_exempt(chosen)


def _request(request: HttpRequest) -> tuple[str, str, bytes]:
    return request.method or "", request.META.get("QUERY_STRING", ""), request.read(READ_LIMIT)


def _response(status: HTTPStatus) -> HttpResponse:
    return HttpResponse(status.phrase, status=status, headers=HEADERS, content_type="text/plain; charset=utf-8")
