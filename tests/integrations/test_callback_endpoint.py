"""Each adapter on its own server, with both kinds of handler, called back by the sandbox."""

from collections.abc import Iterator

import httpx
import pytest

from integrations.kit import BODY, LARGEST, TOO_LARGE
from integrations.shop import Shop
from momopay.sandbox import Outcome, Sandbox, phone_for

each_app_once = pytest.mark.parametrize(
    "adapter", ["fastapi async", "flask blocking", "django-wsgi blocking", "django-asgi async"], indirect=True
)
"""Where the kind of the handler changes nothing."""


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60, trust_env=False, verify=False) as client:
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
