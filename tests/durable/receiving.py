"""Ways to receive a callback, and a service that confirms it."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httpx

from bodies import envelope, refusal, transaction
from drivers import KEY
from journal.constants import PHONE
from journal.records import callback_body
from momopay import AsyncClient, CallbackSigner, Client, Journal, Payment, parse_callback

SIGNER = CallbackSigner("a shop's own secret, long enough")
BODY = json.dumps(callback_body("SAL-1")).encode()
CALLBACK = parse_callback(BODY)
QUERY = SIGNER.url("https://shop.example/momo", reference="SAL-1").partition("?")[2]


class CallbackHandler:
    """A handler that remembers what it was given, and raises what it is told to."""

    def __init__(self, *troubles: Exception) -> None:
        self.calls: list[Payment] = []
        self._troubles = list(troubles)

    @property
    def ends(self) -> list[str]:
        """The transaction and the status of each call."""
        return [f"{each.transaction_id} {each.status}" for each in self.calls]

    def handle(self, payment: Payment) -> None:
        self.calls.append(payment)
        if self._troubles:
            raise self._troubles.pop(0)

    async def handle_async(self, payment: Payment) -> None:
        await asyncio.sleep(0)
        self.handle(payment)


class ConfirmingService:
    """A service whose record says what `records` has, else, unless it is strict, what the latest callback said."""

    def __init__(self, *, is_strict: bool = False) -> None:
        self.is_strict = is_strict
        self.records: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.transport = httpx.MockTransport(self._respond)
        self._stated: dict[str, dict[str, Any]] = {}

    def believe(self, body: bytes) -> None:
        with suppress(ValueError, KeyError, TypeError):
            stated = json.loads(body)["transaction"]
            self._stated[stated["id"]] = record_like(stated)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        identity = unquote(request.url.path.rpartition("/")[2])
        self.requests.append(identity)
        record = self.records.get(identity) or (None if self.is_strict else self._stated.get(identity))
        if record is None:
            return httpx.Response(404, json=refusal("TRANSACTION_NOT_FOUND"))
        return httpx.Response(200, json=envelope(record))


def record_like(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the service's record of what a callback states."""
    known: dict[str, Any] = {"type": stated.get("type") or "B2C", "amount": stated.get("amount") or 10}
    known |= {"phone": stated.get("phone_number") or PHONE, "accountReference": stated.get("external_reference")}
    return transaction(stated["id"], stated["status"], **known)


Receive = Callable[..., Callable[..., HTTPStatus]]


def _options(service: ConfirmingService | None, journal: Journal | None) -> tuple[ConfirmingService, dict[str, Any]]:
    service = service or ConfirmingService()
    options: dict[str, Any] = {"base_url": "https://api.example/v1", "budget": None, "max_attempts": 1}
    return service, options | {"transport": service.transport, "journal": journal}


def client_of(journal: Journal | None = None) -> Client:
    """A blocking client, which any event loop may use, of a service that confirms the callback."""
    service = ConfirmingService()
    service.believe(BODY)
    return Client(KEY, base_url="https://api.example/v1", budget=None, transport=service.transport, journal=journal)


def blocking(
    handler: CallbackHandler,
    signer: Any,
    journal: Journal | None,
    on_event: Any = None,
    service: ConfirmingService | None = None,
) -> Callable[..., HTTPStatus]:
    """Receive as a blocking client does."""
    service, options = _options(service, journal)
    client = Client(KEY, **options)

    def receive(query: str, body: bytes) -> HTTPStatus:
        service.believe(body)
        return client.transactions.receive(query, body, handler.handle, signer=signer, on_event=on_event)

    return receive


def to_receiver(handler: Any, journal: Journal | None, signer: Any = None, on_event: Any = None, **given: Any) -> Any:
    """Return what awaits an async client that receives a callback."""
    service, options = _options(given.get("service"), journal)

    async def receive(query: str = "", body: bytes = BODY) -> HTTPStatus:
        service.believe(body)
        async with AsyncClient(KEY, **options) as client:
            return await client.transactions.receive(query, body, handler, signer=signer, on_event=on_event)

    return receive


def _run(receive: Callable[..., Coroutine[Any, Any, HTTPStatus]], *request: Any) -> HTTPStatus:
    return asyncio.run(receive(*request))


def awaited(
    handler: CallbackHandler, signer: Any, journal: Journal | None, *more: Any, **given: Any
) -> Callable[..., HTTPStatus]:
    """Receive as an async client does, with an async handler."""
    receive = to_receiver(handler.handle_async, journal, signer, *more, **given)
    return partial(_run, receive)


def threaded(
    handler: CallbackHandler, signer: Any, journal: Journal | None, *more: Any, **given: Any
) -> Callable[..., HTTPStatus]:
    """Receive as an async client does, with a blocking handler."""
    receive = to_receiver(handler.handle, journal, signer, *more, **given)
    return partial(_run, receive)


def unreachable(_payment: Payment) -> None:
    raise AssertionError("only callbacks come here")


async def handle_later(_payment: Payment) -> None:
    await asyncio.sleep(0)
