"""Callbacks (webhooks) in Django: a view for any handler, and the app's own, which sends the signal."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from momopay import AsyncClient, CallbackSigner, Client, Payment
from momopay._core.config import check_handler, is_async, raise_if_not_run
from momopay.events import Event
from momopay.integrations.django.clients import options, payment_ended, signer, the_client
from momopay.models.payments import AsyncPaymentHandler, PaymentHandler

__all__ = ["callback_endpoint", "status_endpoint"]


def callback_endpoint(
    handler: AsyncPaymentHandler | PaymentHandler,
    *,
    client: Client | AsyncClient,
    signer: CallbackSigner | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[HttpRequest], Any]:
    """Return a view for ``urlpatterns`` that needs no CSRF token. Projects that use the app have a view already.

    Its arguments and responses are those of `momopay.integrations.fastapi`. It reads at most 64 KiB of a body. The view
    of an ``async def`` is async. For any other handler, the transaction of ATOMIC_REQUESTS commits before the journal
    records that the end was delivered.
    """
    check_handler(handler)
    # A transaction around the whole view would commit after that. If the commit failed, the callback would not come
    # again. So the transaction is around the handler only.
    wrapped = handler if is_async(handler) else _atomic(handler)
    return csrf_exempt(login_not_required(without_transaction(_view(wrapped, client, signer, on_event))))


@csrf_exempt
@login_not_required
def receive(request: HttpRequest) -> Any:
    """Respond to a callback of the service. This is the app's own view."""
    return _view(send_end, the_client(), signer(), options().get("ON_EVENT"))(request)


def status_endpoint(*, client: Client | AsyncClient, signer: CallbackSigner) -> Callable[[HttpRequest], HttpResponse]:
    """Return the view for the page of a checkout, which polls it for how a payment stands.

    It is for a route such as ``path("status", status_endpoint(...))``. Its responses and errors are those of
    `momopay.integrations.fastapi`.
    """
    from momopay.integrations._receiver import STATUS_HEADERS, StatusView

    of_all = StatusView(client, signer)

    @csrf_exempt  # it changes nothing, and answers 405 to a POST
    @login_not_required
    def view(request: HttpRequest) -> HttpResponse:
        answer = of_all.respond(request.method or "", request.META.get("QUERY_STRING", ""))
        return HttpResponse(answer.body, status=answer.status, headers=STATUS_HEADERS, content_type=answer.content_type)

    return without_transaction(view)


@csrf_exempt
@login_not_required
def status(request: HttpRequest) -> HttpResponse:
    """Respond to a page of a checkout. This is the app's own view."""
    return status_endpoint(client=the_client(), signer=signer())(request)


def without_transaction(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return the view, exempt from ATOMIC_REQUESTS of every database."""
    for alias in connections:
        view = transaction.non_atomic_requests(alias)(view)
    return view


def _view(handler: Any, *options: Any) -> Callable[[HttpRequest], Any]:
    # Loads the modules that send, which management commands do not need.
    from momopay.integrations._receiver import HEADERS, READ_LIMIT, CallbackView

    of_all = CallbackView(handler, *options, blocks=not is_async(handler))

    def arguments(request: HttpRequest) -> tuple[str, str, bytes]:
        return request.method or "", request.META.get("QUERY_STRING", ""), request.read(READ_LIMIT)

    def response(status: HTTPStatus) -> HttpResponse:
        return HttpResponse(status.phrase, status=status, headers=HEADERS, content_type="text/plain; charset=utf-8")

    def view(request: HttpRequest) -> HttpResponse:
        return response(of_all.respond(*arguments(request)))

    async def async_view(request: HttpRequest) -> HttpResponse:
        return response(await of_all.respond_async(*arguments(request)))

    return async_view if is_async(handler) else view


def send_end(payment: Payment) -> None:
    """Send the signal for an end; raise what a receiver raised, so that the end is delivered again."""
    # One transaction for all receivers, which commits before the journal records that the end was delivered.
    _atomic(_send)(payment)


def _send(payment: Payment) -> None:
    for _receiver, result in payment_ended.send(Payment, payment=payment):
        raise_if_not_run(result)


def _atomic(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the work in a transaction of each database with ATOMIC_REQUESTS."""
    for alias, settings in connections.settings.items():
        if settings["ATOMIC_REQUESTS"]:
            work = transaction.atomic(alias)(work)
    return work
