"""Each adapter in memory: what it refuses; and with a client, which confirms each callback and brings its journal."""

import asyncio
import json
import threading
import typing
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from drivers import KEY
from durable.receiving import BODY, QUERY, SIGNER, handle_later, unreachable
from events_kit import Watcher
from in_turn import in_turn
from integrations.apps import APPS, django_asgi_app, django_wsgi_app, fastapi_app, flask_app
from integrations.kit import LARGEST, TOO_LARGE
from journal.kit import ACCEPTED, UNKNOWN, before_each, callback_body, found, put, state_of
from momopay import AsyncClient, CallbackSigner, Client, ConfigurationError, Payment
from momopay.integrations import django, fastapi, flask
from test_callbacks import AGREEING, NO_ENDS, agree
from virtual import envelope, refusal, transaction

BASE = "https://api.example/v1"
READ = "GET /v1/transactions/the-id"
HANDLED = "handled SAL-1"


class Shop:
    """An app of one framework, whose client reaches a service in memory; and what happened, in order."""

    def __init__(self, make: Callable[..., Any], client_kind: str, handler_kind: str, **options: Any) -> None:
        self.happened: list[str] = []
        self.statuses: list[str] = []  # that were handled
        self.refusal: str | None = None
        self.record: dict[str, Any] | None = transaction(
            "the-id", "SUCCESS", type="B2C", amount=10, accountReference="SAL-1"
        )
        """What the service has; None if it has no such transaction."""
        self._runner = asyncio.Runner()  # one loop for all requests, as a server has
        kind: Any = AsyncClient if client_kind == "async" else Client
        self.client: Any = kind(KEY, base_url=BASE, budget=None, transport=httpx.MockTransport(self._serve), **options)
        self._handle = self._handle_async if handler_kind == "async" else self._handle_blocking
        self._make = make
        self.blocks = make in {flask_app, django_wsgi_app}

    def post(self, *bodies: bytes, **options: Any) -> list[int]:
        """Call the app back with each body; return the statuses of its responses."""
        return [self.send("POST", body, **options).status_code for body in bodies]

    def send(self, method: str, body: bytes, query: str = "", **options: Any) -> httpx.Response:
        app, url = self._make(self._handle, client=self.client, **options), f"http://testserver/momo?{query}"
        if self.blocks:
            with httpx.Client(transport=httpx.WSGITransport(app)) as http:
                return http.request(method, url, content=body)

        async def run() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
                return await http.request(method, url, content=body)

        return self._runner.run(run())

    def close(self) -> None:
        if isinstance(self.client, AsyncClient):
            self._runner.run(self.client.aclose())
        else:
            self.client.close()
        self._runner.close()

    def _serve(self, request: httpx.Request) -> httpx.Response:
        self.happened.append(f"{request.method} {request.url.path}")
        if self.record is None or self.refusal:
            return httpx.Response(404, json=refusal(self.refusal or "TRANSACTION_NOT_FOUND"))
        return httpx.Response(200, json=envelope(self.record))

    def _handle_blocking(self, payment: Payment) -> None:
        self.happened.append(f"handled {payment.reference}")
        self.statuses.append(payment.status)

    async def _handle_async(self, payment: Payment) -> None:
        await asyncio.sleep(0)
        self._handle_blocking(payment)


SHOPS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "fastapi, async client and handler": (fastapi_app, "async", "async"),
    "fastapi, async client, blocking handler": (fastapi_app, "async", "blocking"),
    "fastapi, blocking client, async handler": (fastapi_app, "blocking", "async"),
    "fastapi, blocking client and handler": (fastapi_app, "blocking", "blocking"),
    "flask, blocking handler": (flask_app, "blocking", "blocking"),
    "flask, async handler": (flask_app, "blocking", "async"),
    "django-wsgi, blocking handler": (django_wsgi_app, "blocking", "blocking"),
    "django-asgi, async client and handler": (django_asgi_app, "async", "async"),
    "django-asgi, blocking client, async handler": (django_asgi_app, "blocking", "async"),
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shop.db'}"


@pytest.fixture(params=SHOPS.values(), ids=list(SHOPS))
def shop(request: pytest.FixtureRequest, url: str) -> Iterator[Shop]:
    make, client_kind, handler_kind = request.param
    shop = Shop(make, client_kind, handler_kind, journal=url)
    yield shop
    shop.close()


def test_a_callback_is_confirmed_then_handled_and_recorded_in_the_clients_journal_once(shop: Shop) -> None:
    put(shop.client.journal, "SAL-1", UNKNOWN)
    assert shop.post(BODY) == [200]
    assert shop.happened == [READ, HANDLED]
    assert state_of(shop.client.journal, "SAL-1") is ACCEPTED  # without a signer: it was confirmed
    assert shop.post(BODY, BODY) == [200, 200]
    assert shop.happened == [READ, HANDLED]  # a duplicate costs no read


def test_what_is_not_genuine_costs_the_service_no_request(shop: Shop) -> None:
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        response = shop.send(method, BODY, QUERY, signer=SIGNER)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
    other = SIGNER.url("https://shop.example/momo", reference="SAL-2").partition("?")[2]
    assert shop.post(b"{", TOO_LARGE, query=QUERY, signer=SIGNER) == [400, 400]
    assert shop.post(BODY, signer=SIGNER) == shop.post(BODY, query=other, signer=SIGNER) == [403]
    assert shop.happened == []
    assert shop.post(LARGEST, query=QUERY, signer=SIGNER) == [200]
    assert shop.happened == [READ, HANDLED]


def test_a_url_is_signed_for_any_reference(shop: Shop) -> None:
    reference = "&=c #?/%41+☕"
    shop.record = transaction("the-id", "SUCCESS", type="B2C", amount=10, accountReference=reference)
    query = SIGNER.url("https://shop.example/momo", reference=reference).partition("?")[2]
    assert shop.post(json.dumps(callback_body(reference)).encode(), query=query, signer=SIGNER) == [200]
    assert shop.happened == [READ, f"handled {reference}"]


def test_a_callback_that_the_service_contradicts_is_not_handled_and_comes_again(shop: Shop) -> None:
    entry = put(shop.client.journal, "SAL-1", UNKNOWN)
    right = shop.record
    assert right is not None
    for wrong in (None, {**right, "amount": 11}, {**right, "status": "PENDING"}):
        shop.record = wrong
        assert shop.post(BODY) == [503]
    assert shop.happened == [READ] * 3
    assert found(shop.client.journal, "SAL-1") == entry
    shop.record = right
    assert shop.post(BODY) == [200]
    assert shop.happened[3:] == [READ, HANDLED]


def test_what_is_handled_and_recorded_is_the_read_and_only_if_it_is_an_end(shop: Shop) -> None:
    for number, (record, stated) in enumerate(product(sorted(AGREEING.keys() | NO_ENDS), repeat=2)):
        event_type = ["transaction.updated", "transaction.success"][number % 2]  # which decides nothing
        reference, identity = f"SAL-{number}", f"id-{number}"
        put(shop.client.journal, reference, ACCEPTED, transaction_id=identity)
        shop.record = transaction(identity, record, type="B2C", amount=10, accountReference=reference)
        told = {"event_type": event_type, "transaction": callback_body(reference, identity, stated)["transaction"]}
        shop.statuses.clear()
        assert shop.post(json.dumps(told).encode()) == [200 if agree(record, stated) else 503], (record, stated)
        delivered = [record] if record in AGREEING and agree(record, stated) else []
        assert shop.statuses == delivered, (record, stated)
        recorded = record if agree(record, stated) else None
        assert found(shop.client.journal, reference).status == recorded, (record, stated)


def test_an_id_that_no_transaction_can_have_is_a_forgery(shop: Shop) -> None:
    for code, status in (("INVALID_UUID", 403), ("TRANSACTION_NOT_FOUND", 503)):
        shop.refusal = code
        assert shop.post(BODY) == [status]
    assert shop.happened == [READ, READ]


def test_a_callback_that_is_confirmed_and_differs_from_the_entry_is_not_handled(shop: Shop) -> None:
    entry = put(shop.client.journal, "SAL-1", ACCEPTED, transaction_id="another-id")
    assert shop.record is not None
    shop.record["amount"] = 11
    other_amount = json.dumps(callback_body("SAL-1", amount=11)).encode()
    threads = set[threading.Thread]()
    with before_each(lambda _statement: threads.add(threading.current_thread()), shop.client.journal):
        assert shop.post(other_amount, other_amount) == [503, 503]
    assert shop.happened == [READ, READ]
    assert (threading.main_thread() in threads) == shop.blocks  # no event loop waits for the database
    assert found(shop.client.journal, "SAL-1") == entry


def test_a_view_that_blocks_takes_no_async_client() -> None:
    client = AsyncClient(KEY, base_url=BASE)
    for handler in (unreachable, handle_later):
        with pytest.raises(ConfigurationError, match=r"needs a momopay\.Client"):
            flask.callback_endpoint(handler, client=client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match=r"needs a momopay\.Client"):
        django.callback_endpoint(unreachable, client=client)
    django.callback_endpoint(handle_later, client=client)


@in_turn("endpoint", [fastapi.callback_endpoint, flask.callback_endpoint, django.callback_endpoint])
def test_what_is_no_client_is_refused(endpoint: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"must be a momopay\.Client"):
        endpoint(unreachable, client=KEY)
    hints = typing.get_type_hints(endpoint)
    assert hints["signer"] == CallbackSigner | None


@in_turn("app", APPS)
def test_each_adapter_takes_an_observer(app: Any) -> None:
    client = AsyncClient(KEY, base_url=BASE) if app in {fastapi_app, django_asgi_app} else Client(KEY, base_url=BASE)
    app(handle_later, client=client, on_event=Watcher())
    with pytest.raises(ConfigurationError, match="on_event"):
        app(handle_later, client=client, on_event=7)
