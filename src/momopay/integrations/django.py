"""Callbacks into Django, under WSGI and ASGI."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, overload

from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from momopay.integrations._receiver import ALLOW, ENOUGH, AsyncHandler, CallbackReceiver, Handler, is_async, name_of

if TYPE_CHECKING:
    from momopay.journal import Journal
    from momopay.signing import CallbackSigner


@overload
def callback_endpoint(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]  what is to be awaited is an object too
    handler: AsyncHandler, *, signer: CallbackSigner | None = None, journal: Journal | None = None
) -> Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]: ...
@overload
def callback_endpoint(
    handler: Handler, *, signer: CallbackSigner | None = None, journal: Journal | None = None
) -> Callable[[HttpRequest], HttpResponse]: ...
def callback_endpoint(
    handler: Handler, *, signer: CallbackSigner | None = None, journal: Journal | None = None
) -> Callable[[HttpRequest], Any]:
    """Make the view for a route of ``urlpatterns``; it needs no CSRF token.

    It answers as the endpoint of `momopay.integrations.fastapi`, which tells the arguments, and reads no more than
    64 KiB of a body. An ``async def`` makes an async view. Around any other handler, ATOMIC_REQUESTS commits before
    the journal remembers the callback, not after.
    """
    for alias, settings in connections.settings.items():
        if settings["ATOMIC_REQUESTS"] and not is_async(handler):
            handler = transaction.atomic(alias)(handler)
    reception = CallbackReceiver(handler, signer, journal)

    def view(request: HttpRequest) -> HttpResponse:
        return _answer(reception.receive(*_request(request)))

    async def async_view(request: HttpRequest) -> HttpResponse:
        return _answer(await reception.receive_async(*_request(request)))

    chosen: Callable[[HttpRequest], Any] = async_view if is_async(handler) else view
    chosen.__name__ = name_of(handler)
    for alias in connections:
        chosen = transaction.non_atomic_requests(alias)(chosen)
    return csrf_exempt(chosen)


def _request(request: HttpRequest) -> tuple[str, str, bytes]:
    return request.method or "", request.META.get("QUERY_STRING", ""), request.read(ENOUGH)


def _answer(status: HTTPStatus) -> HttpResponse:
    return HttpResponse(status.phrase, status=status, headers=ALLOW, content_type="text/plain; charset=utf-8")
