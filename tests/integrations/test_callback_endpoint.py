"""Each adapter on its own server, with both kinds of handler, called back by the sandbox."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from integrations.apps import APPS
from integrations.kit import BODY, LARGEST, TOO_LARGE
from integrations.shop import Shop
from journal.kit import callback_body, state_of
from momopay import Journal, JournalState
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for

each_app_once = pytest.mark.parametrize(
    "adapter", ["fastapi async", "flask blocking", "django-wsgi blocking", "django-asgi async"], indirect=True
)
"""Where the kind of the handler changes nothing."""


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60, trust_env=False) as client:
        yield client


def statuses(sandbox: Sandbox) -> list[int | None]:
    return [delivery.status for delivery in sandbox.callbacks]


def test_a_payment_is_called_back_confirmed_and_handled(shop: Shop, sandbox: Sandbox) -> None:
    paid = shop.pay("&=c #?/%41+☕")
    sandbox.advance(60)
    cancelled = shop.pay(phone=phone_for(Outcome.cancelled))
    sandbox.advance(60)
    assert statuses(sandbox) == [200, 200]
    assert shop.effects == [(paid, "SUCCESS"), (cancelled, "CANCELLED")]
    assert shop.calls[0].transaction.external_reference == "&=c #?/%41+☕"


@each_app_once
def test_what_is_not_genuine_costs_the_service_no_request(shop: Shop, sandbox: Sandbox, http: httpx.Client) -> None:
    signed = shop.signer.url(shop.url, reference="SAL-1")
    assert http.post(signed, content=b"{").status_code == 400
    assert http.post(signed, content=TOO_LARGE).status_code == 400
    assert http.post(shop.url, content=BODY).status_code == 403
    assert http.post(shop.signer.url(shop.url, reference="SAL-2"), content=BODY).status_code == 403
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        response = http.request(method, signed, content=BODY)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert shop.calls == []
    assert sandbox.requests == []
    assert http.post(signed, content=LARGEST).status_code == 503
    assert http.post(signed, content=BODY).status_code == 503  # a genuine one is confirmed, and the record is missing
    assert len(sandbox.requests) == 2


@each_app_once
def test_a_failed_handler_is_called_again_and_a_duplicate_is_not(shop: Shop, sandbox: Sandbox) -> None:
    shop.troubles = [RuntimeError("the database is away")]
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
    paid = shop.pay()
    sandbox.advance(120)
    assert statuses(sandbox) == [500, 200, 200]
    assert shop.effects == [(paid, "SUCCESS")]
    assert len(shop.calls) == 2


@each_app_once
def test_a_callback_settles_the_payout_whose_response_was_lost(
    shop: Shop, sandbox: Sandbox, journal: Journal, http: httpx.Client
) -> None:
    shop.lose_sight_of_a_payout(sandbox, "SAL-1")
    signed = shop.signer.url(shop.url, reference="SAL-1")
    lie: Any = callback_body("SAL-1", "3b241101-e2bb-4255-8caf-4136c566a962", amount=100)
    assert http.post(signed, json=lie).status_code == 503  # the service has no transaction with that id
    assert state_of(journal, "SAL-1") is JournalState.UNKNOWN
    sandbox.advance(60)
    assert statuses(sandbox) == [200]
    assert state_of(journal, "SAL-1") is JournalState.ACCEPTED


@pytest.mark.parametrize("app", APPS)
def test_without_signer_and_journal_every_delivery_is_handled(app: str, sandbox: Sandbox, http: httpx.Client) -> None:
    shop = Shop(sandbox, "pk_test_no_journal", None)
    make, serve = APPS[app]
    with serve(make(shop.handle)) as url:
        shop.url = f"{url}/momo"
        sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
        paid = shop.pay()
        sandbox.advance(60)
        assert shop.effects == [(paid, "SUCCESS")] * 2
        assert http.post(shop.url, content=BODY).status_code == 503
    assert len(shop.calls) == 3  # a forgery too gets as far as the handler, which confirms
