"""Callbacks (webhooks) in Django: a view for any handler, and the app's own, which sends the signal."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from momopay import AsyncClient, Callback, CallbackSigner, Client, EntryKind, Journal, Payment, Transaction
from momopay._core.handlers import is_async
from momopay.callbacks import CallbackHandler
from momopay.durable.payment import payment_of
from momopay.events import Event
from momopay.integrations.django.clients import options, payment_ended, signer, the_client, the_journal
from momopay.models.callbacks import record_of
from momopay.models.enums import TransactionType, has_settled

__all__ = ["callback_endpoint"]


def callback_endpoint(
    handler: CallbackHandler,
    *,
    client: Client | AsyncClient | None = None,
    signer: CallbackSigner | None = None,
    journal: Journal | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Callable[[HttpRequest], Any]:
    """Return a view for ``urlpatterns`` that needs no CSRF token. Projects that use the app have a view already.

    Its arguments and responses are those of `momopay.integrations.fastapi`. It reads at most 64 KiB of a body. The view
    of an ``async def`` is async. For any other handler, the transaction of ATOMIC_REQUESTS commits before the journal
    marks the callback as handled.
    """
    # A transaction around the whole view would commit after that mark. If the commit failed, the callback would not
    # come again. So the transaction is around the handler only.
    handler = handler if is_async(handler) else _atomic(handler)
    return csrf_exempt(login_not_required(without_transaction(_view(handler, signer, journal, on_event, client))))


@csrf_exempt
@login_not_required
def receive(request: HttpRequest) -> Any:
    """Respond to a callback of the service. This is the app's own view."""
    return _view(_on_callback, signer(), the_journal(), options().get("ON_EVENT"), the_client())(request)


def without_transaction(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return the view, exempt from ATOMIC_REQUESTS of every database."""
    for alias in connections:
        view = transaction.non_atomic_requests(alias)(view)
    return view


def _view(handler: CallbackHandler, *options: Any) -> Callable[[HttpRequest], Any]:
    # Loads the modules that send, which management commands do not need.
    from momopay.integrations._receiver import HEADERS, READ_LIMIT, CallbackReceiver

    receiver = CallbackReceiver(handler, *options, blocks=not is_async(handler))

    def arguments(request: HttpRequest) -> tuple[str, str, bytes]:
        return request.method or "", request.META.get("QUERY_STRING", ""), request.read(READ_LIMIT)

    def response(status: HTTPStatus) -> HttpResponse:
        return HttpResponse(status.phrase, status=status, headers=HEADERS, content_type="text/plain; charset=utf-8")

    def view(request: HttpRequest) -> HttpResponse:
        return response(receiver.receive(*arguments(request)))

    async def async_view(request: HttpRequest) -> HttpResponse:
        return response(await receiver.receive_async(*arguments(request)))

    return async_view if is_async(handler) else view


def _on_callback(callback: Callback) -> None:
    # Recorded first: the signal needs the journal's entry with the receipt, which only a callback has.
    the_journal().record(callback)
    ended = record_of(callback)
    if ended is not None and has_settled(ended.type, ended.status):
        send_end(ended)


def send_end(ended: Transaction) -> None:
    """Send the signal for a settled payment; raise what a receiver raised, so that the end is delivered again."""
    entry = the_journal().by_transaction(ended)
    if entry is not None:
        kind, reference, metadata = entry.kind, entry.reference, entry.metadata
    else:  # it was sent by `initiate`, or elsewhere
        kind = EntryKind.PAYOUT if ended.type is TransactionType.B2C else EntryKind.COLLECTION
        reference, metadata = ended.account_reference or "", None
    payment = payment_of(kind, reference, ended, entry=entry)
    # One transaction for all receivers, which commits before the journal marks the end as handled.
    _atomic(payment_ended.send)(Payment, payment=payment, reference=reference, kind=kind, metadata=metadata)


def _atomic(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the work in a transaction of each database with ATOMIC_REQUESTS."""
    for alias, settings in connections.settings.items():
        if settings["ATOMIC_REQUESTS"]:
            work = transaction.atomic(alias)(work)
    return work
