"""Each adapter in memory: what it refuses; and with a client, which confirms each callback and brings its journal."""

import json
import threading
import typing
from itertools import product
from typing import Any

import pytest

from bodies import transaction
from drivers import KEY
from durable.receiving import BODY, QUERY, SIGNER, handle_later, unreachable
from events_kit import Watcher
from in_turn import in_turn
from integrations.apps import APPS, django_asgi_app, fastapi_app
from integrations.kit import BASE, WebShop
from journal.constants import ACCEPTED, UNKNOWN
from journal.database_kit import before_each
from journal.kit import found, put, state_of
from journal.records import callback_body
from momopay import AsyncClient, CallbackSigner, Client, ConfigurationError
from momopay.integrations import django, fastapi, flask
from test_callbacks import AGREEING, NO_ENDS, agree

KINDS = ("async", "blocking")
both_clients = pytest.mark.parametrize("shop", [(fastapi_app, kind, kind) for kind in KINDS], ids=KINDS, indirect=True)
"""For what every view leaves to `receive`."""
READ = "GET /v1/transactions/the-id"
HANDLED = "handled SAL-1"
LARGEST, TOO_LARGE = (BODY + b" " * (size - len(BODY)) for size in (65_536, 65_537))


def test_a_callback_is_confirmed_then_handled_and_recorded_in_the_clients_journal_once(shop: WebShop) -> None:
    put(shop.client.journal, "SAL-1", UNKNOWN)
    assert shop.post(BODY) == [200]
    assert shop.happened == [READ, HANDLED]
    assert state_of(shop.client.journal, "SAL-1") is ACCEPTED  # without a signer: it was confirmed
    assert shop.post(BODY, BODY) == [200, 200]
    assert shop.happened == [READ, HANDLED]  # a duplicate costs no read


def test_what_is_not_genuine_costs_the_service_no_request(shop: WebShop) -> None:
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


def test_a_url_is_signed_for_any_reference(shop: WebShop) -> None:
    reference = "&=c #?/%41+☕"
    shop.record = transaction("the-id", "SUCCESS", type="B2C", amount=10, accountReference=reference)
    query = SIGNER.url("https://shop.example/momo", reference=reference).partition("?")[2]
    assert shop.post(json.dumps(callback_body(reference)).encode(), query=query, signer=SIGNER) == [200]
    assert shop.happened == [READ, f"handled {reference}"]


@both_clients
def test_what_is_handled_and_recorded_is_the_read_and_only_if_it_is_an_end(shop: WebShop) -> None:
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


@both_clients
def test_an_id_that_no_transaction_can_have_is_a_forgery(shop: WebShop) -> None:
    for code, status in (("INVALID_UUID", 403), ("TRANSACTION_NOT_FOUND", 503)):
        shop.refusal = code
        assert shop.post(BODY) == [status]
    assert shop.happened == [READ, READ]


def test_a_callback_that_is_confirmed_and_differs_from_the_entry_is_not_handled(shop: WebShop) -> None:
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
