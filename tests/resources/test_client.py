"""``client.request``, for endpoints that have no method of their own."""

import json
from decimal import Decimal
from itertools import product
from operator import methodcaller
from typing import Any, get_type_hints
from unittest.mock import create_autospec

import httpx
import pytest
from pydantic import BaseModel

import momopay
from bodies import refusal
from drivers import Drive
from in_turn import in_turn
from models.kit import BALANCE, PHONE
from momopay import RateBudget
from momopay.types import Lane
from resources.kit import Recorder
from test_redaction import shown

pytestmark = pytest.mark.usefixtures("no_backoff")

PATH = "/wallets/b2c/balance"


class Balance(BaseModel):
    available: Decimal


def test_it_returns_plain_json_with_decimals_or_a_model(drive: Drive) -> None:
    body = b'{"success": true, "data": {"available": 99.10, "count": 3, "of": [0.1, {"a": 1.50}]}}'
    service = Recorder(httpx.Response(200, content=body))
    sdk = drive(transport=service.transport)
    data = sdk(
        lambda client: client.request("get", PATH, params={"day": "2026-11-20", "least": Decimal("1.50"), "all": True})
    )
    assert data == {"available": Decimal("99.1"), "count": 3, "of": [Decimal("0.1"), {"a": Decimal("1.5")}]}
    assert isinstance(data["available"], Decimal)
    (request,) = service.requests
    assert (request.method, request.content) == ("GET", b"")
    assert str(request.url) == f"https://api.example/v1{PATH}?day=2026-11-20&least=1.50&all=true"
    assert sdk(lambda client: client.request("GET", PATH, cast_to=Balance)) == Balance(available=Decimal("99.1"))


def test_a_record_knows_its_response_and_an_empty_answer_is_none(drive: Drive) -> None:
    service = Recorder(BALANCE.camel, httpx.Response(204))
    sdk = drive(transport=service.transport)
    balance = sdk(lambda client: client.request("GET", PATH, cast_to=momopay.WalletBalance))
    assert (balance.response.status_code, balance.available_balance) == (200, BALANCE.fields["available_balance"])
    assert sdk(lambda client: client.request("DELETE", "/things/7")) is None


def test_a_body_keeps_its_decimals(drive: Drive) -> None:
    service = Recorder({})
    body = {"amount": Decimal("1234567890.15"), "whole": [Decimal("10.00"), 7, None, "é"]}
    drive(transport=service.transport)(lambda client: client.request("POST", "/x", json=body))
    assert service.requests[0].content.startswith(b'{"amount":1234567890.15,"whole":[10,7,null,')
    assert json.loads(service.requests[0].content)["whole"][3] == "é"
    assert service.requests[0].headers["content-type"] == "application/json"


LOST = httpx.ReadTimeout("lost")
DOWN = httpx.Response(503)


@in_turn("failure", [LOST, DOWN])
def test_only_a_get_is_repeated_after_an_outcome_that_is_not_known(failure: Any, drive: Drive) -> None:
    """A key changes nothing: nobody knows whether the endpoint honours it."""
    service = Recorder(failure, 7)
    assert drive(transport=service.transport)(methodcaller("request", "GET", "/x")) == 7
    assert len(service.requests) == 2
    for method, key in product(("POST", "PUT", "PATCH", "DELETE"), (None, "k-1")):
        service = Recorder(failure, 7)
        sdk = drive(transport=service.transport)
        with pytest.raises(momopay.OutcomeUnknownError) as caught:
            sdk(methodcaller("request", method, "/x", idempotency_key=key))
        assert (len(service.requests), caught.value.idempotency_key) == (1, key)
        assert sdk(methodcaller("request", method, "/x", idempotency_key=key)) == 7, "the caller may"
        assert [each.headers.get("idempotency-key") for each in service.requests] == [key, key]


@in_turn("failure", [httpx.ConnectError("refused"), httpx.Response(429, json=refusal("RATE_LIMIT_EXCEEDED"))])
def test_what_was_not_sent_or_was_refused_for_now_is_repeated(failure: Any, drive: Drive) -> None:
    for method in ("POST", "DELETE"):
        service = Recorder(failure, 7)
        sdk = drive(transport=service.transport)
        assert sdk(methodcaller("request", method, "/x", idempotency_key="k-1")) == 7
        assert [each.headers.get("idempotency-key") for each in service.requests] == ["k-1", "k-1"]


@in_turn(
    ("path", "call"),
    [
        *(("/payments/stk", "stk.collect_once"), ("/b2c/payouts", "payouts.pay_once")),
        *(("/wallets/service/topups", "wallet.top_up"), ("/payment-wallet/channels", "channels.create")),
        *((f"/payment-wallet/channels/{each}", "channels.update") for each in ("x", "3b241101", "a%2Eb")),
        *((path, "payouts.pay_once") for path in ("/B2C/Payouts", "/b2c/payouts;v=1", "/b2c/%70ayouts")),
        *((path, "payouts.pay_once") for path in ("/b2c/%2570ayouts", "/b2c%2Fpayouts", "/b2c%5Cpayouts")),
    ],
)
def test_what_has_a_call_of_its_own_is_refused_by_its_name(path: str, call: str, drive: Drive) -> None:
    service = Recorder(*[7] * 5)
    sdk = drive(transport=service.transport)
    for method in ("POST", "put", "PATCH", "DELETE"):
        with pytest.raises(momopay.RequestValidationError, match=call) as caught:
            sdk(methodcaller("request", method, path, idempotency_key="k-1"))
        assert list(caught.value.fields) == ["path"]
    assert service.requests == []
    assert sdk(methodcaller("request", "GET", path)) == 7, "reads are free"


@in_turn(
    "path",
    [
        "/payments/stk/initiate",
        "/wallets/b2c/topups",
        "/b2c",
        "/b2c/payouts/7/cancel",
        "/payment-wallet",
        "/v2/b2c/payouts",
    ],
)
def test_what_the_sdk_does_not_know_is_sent(path: str, drive: Drive) -> None:
    service = Recorder(7)
    assert drive(transport=service.transport)(methodcaller("request", "POST", path)) == 7


def test_it_has_the_budget_of_reads_and_the_errors_and_events_of_every_call(drive: Drive) -> None:
    lanes, events = list[Lane](), list[Any]()

    class Watched(RateBudget):
        def reserve(self, now: float, lane: Lane, within: float = 0.0) -> float:
            lanes.append(lane)
            return super().reserve(now, lane, within)

    service = Recorder(httpx.Response(403, json=refusal("INSUFFICIENT_SCOPE")))
    sdk = drive(transport=service.transport, budget=Watched(), on_event=events.append)
    with pytest.raises(momopay.KycNotVerifiedError, match="INSUFFICIENT_SCOPE"):
        sdk(lambda client: client.request("POST", f"/payees/{PHONE}", json={}))
    assert lanes == [Lane.READ]
    assert {each.operation for each in events} == {"client.request"}
    assert PHONE not in repr(events)


def test_a_path_may_have_what_leads_nowhere_else(drive: Drive) -> None:
    service = Recorder(7)
    for path in ("/x..y/.z/...", "/a:b@c;d=1/%20%2B", "/x%2Fy"):
        drive(transport=service.transport)(methodcaller("request", "GET", path))
        assert service.requests[-1].url.raw_path.decode() == f"/v1{path}"


PATHS: list[Any] = [
    *("", "/", "x", "//host/x", "/x//y", "/x/", "http://host/x", "/http://host/x", "/..", "/../x", "/x/./y", "/x/.."),
    *("/%2e%2e/x", "/.%2E/x", "/%252e%252e/x", "/x%2f..%2fy", "/x%2f%2fhost", "/..%5cx", "\\\\host", "/x\\..\\y"),
    *("/..;/x", "/%c0%ae%c0%ae/x", "/x%00", "/x%0d%0aHost:y", "/x?y=1", "/x#y", "/x y", "/é", "/x\n"),
    *(None, 7, b"/x"),
]
"""Paths that leave the address."""


@in_turn(
    ("name", "value"),
    [
        *((("path", each)) for each in PATHS),
        *((("method", each)) for each in ("HEAD", "OPTIONS", "get x", "", None, 7)),
        *((("json", each)) for each in ({1, 2}, float("nan"), Decimal("NaN"), Decimal("Infinity"))),
        *((("json", Decimal(each))) for each in ("1E+999999999", "0." + "1" * 18)),
        *((("params", each)) for each in ([("a", 1)], {"a": 1.5}, {"a": None}, {"a": "\ud800"}, "a=1")),
        *((("idempotency_key", each)) for each in ("", "a b", "a\nb", "é", "x" * 121, 7)),
        *((("cast_to", each)) for each in (int, Balance(available=Decimal(1)), list[Balance])),
    ],
)
def test_an_argument_that_cannot_be_sent_is_named(name: str, value: Any, drive: Drive) -> None:
    service = Recorder(7)
    with pytest.raises(momopay.RequestValidationError) as caught:
        drive(transport=service.transport)(methodcaller("request", **{"method": "POST", "path": "/x", name: value}))
    assert (set(caught.value.fields), service.requests) == ({name}, [])


def test_every_fault_is_named_at_once_and_none_shows_a_phone(drive: Drive) -> None:
    service = Recorder({"available": "much"})
    with pytest.raises(momopay.RequestValidationError) as caught:
        drive(transport=service.transport)(
            lambda client: client.request("GET", "//", json={"phone": PHONE}, cast_to=int)
        )
    assert set(caught.value.fields) == {"path", "json", "cast_to"}
    assert PHONE not in shown(caught.value)
    with pytest.raises(momopay.ProtocolError, match=r"data\.available"):
        drive(transport=service.transport)(lambda client: client.request("GET", "/x", cast_to=Balance))


def test_its_types_can_be_read_and_mocked() -> None:
    for kind in (momopay.Client, momopay.AsyncClient):
        assert {"json", "params", "idempotency_key", "cast_to", "return"} < set(get_type_hints(kind.request))
        create_autospec(kind, instance=True).request("GET", "/x", cast_to=Balance)
