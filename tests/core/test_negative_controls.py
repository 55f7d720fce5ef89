"""The safety rules broken on purpose: the counting server then sees what they prevent, so the counting can fail."""

import dataclasses
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

import momopay
import wire
from core.kit import create_channel, initiate_payout, initiate_stk, top_up
from drivers import Driver, unique_key
from momopay._core import retry as _retry
from momopay.resources import channels, payouts, stk
from wire import Server, Step

Drive = Callable[..., Driver]
pytestmark = pytest.mark.usefixtures("no_backoff")


def paid(drive: Drive, server: Server, call: Callable[[Any], Any], **options: Any) -> int:
    """How many payments the server counts after one call, however it ends."""
    driver = drive(base_url=server.base_url, api_key=unique_key(), timeout=0.15, **options)
    try:
        driver(call)
    except momopay.MomoPayError:
        assert server.requests
    return server.payments


SENT_ONCE = {
    "stk": (initiate_stk, stk, "INITIATE"),
    "payout": (initiate_payout, payouts, "INITIATE"),
    "create": (create_channel, channels, "CREATE"),
}
AFTER_COMMIT = {
    "read_timeout": wire.hangs(),
    "closed": wire.closes(commits=True),
    "reset": wire.resets(commits=True),
    "error": wire.Step(wire.refuses(500, "INTERNAL").play, commits=True),
    "request_timeout": wire.Step(wire.answers(408).play, commits=True),
}
# A timeout takes real time. What follows from it is the same for each operation, so one is enough.
EACH_WAY = {
    f"{end}-{sent}": (*SENT_ONCE[sent], AFTER_COMMIT[end])
    for sent in SENT_ONCE
    for end in AFTER_COMMIT
    if end != "read_timeout" or sent == "payout"
}


@pytest.mark.parametrize(("call", "module", "name", "step"), EACH_WAY.values(), ids=EACH_WAY)
def test_the_rule_of_a_payment_is_what_keeps_it_from_being_paid_twice(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], Any], module: Any, name: str, step: Step
) -> None:
    with wire.serve(step, wire.succeeds()) as server:
        assert paid(drive, server, call) == 1

    endpoint = getattr(module, name)
    monkeypatch.setattr(module, name, dataclasses.replace(endpoint, retry_policy=_retry.SAFE))
    with wire.serve(step, wire.succeeds()) as server:
        assert paid(drive, server, call) > 1


@pytest.mark.parametrize(("call", "module", "name"), SENT_ONCE.values(), ids=SENT_ONCE)
def test_a_rule_that_repeats_what_does_not_parse_pays_twice(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], Any], module: Any, name: str
) -> None:
    step = wire.Step(wire.html(200).play, commits=True)
    endpoint = getattr(module, name)
    careless = dataclasses.replace(_retry.SAFE, retries_on=frozenset(_retry.FailureKind))
    monkeypatch.setattr(module, name, dataclasses.replace(endpoint, retry_policy=careless))
    with wire.serve(step, wire.succeeds()) as server:
        assert paid(drive, server, call) > 1


class Careless(httpx.HTTPTransport):
    """Follows redirects, and gives each attempt an idempotency key of its own."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(rekeyed(request))
        if response.has_redirect_location:
            response.close()
            response = super().handle_request(redirected(request, response))
        return response


class AsyncCareless(httpx.AsyncHTTPTransport):
    """The same for the other client."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(rekeyed(request))
        if response.has_redirect_location:
            await response.aclose()
            response = await super().handle_async_request(redirected(request, response))
        return response


def rekeyed(request: httpx.Request) -> httpx.Request:
    if "idempotency-key" in request.headers:
        request.headers["idempotency-key"] = uuid4().hex
    return request


def redirected(request: httpx.Request, response: httpx.Response) -> httpx.Request:
    headers = {name: value for name, value in request.headers.items() if name != "host"}
    body = request.stream
    assert isinstance(body, httpx.SyncByteStream)
    return httpx.Request(request.method, response.headers["location"], headers=headers, content=b"".join(body))


@pytest.fixture
def careless(client_kind: str) -> httpx.BaseTransport | httpx.AsyncBaseTransport:
    return AsyncCareless() if client_kind == "async" else Careless()


def test_a_transport_that_follows_redirects_pays_elsewhere(
    drive: Drive, careless: httpx.BaseTransport | httpx.AsyncBaseTransport
) -> None:
    with wire.serve(wire.succeeds()) as elsewhere, wire.serve(wire.succeeds()) as server:
        server.script = (wire.redirects(f"{elsewhere.base_url}/b2c/payouts"),)
        assert paid(drive, server, initiate_payout) == 0
        assert (len(server.requests), elsewhere.payments) == (1, 0)

        assert paid(drive, server, initiate_payout, transport=careless) == 0
        assert (len(server.requests), elsewhere.payments) == (2, 1)


@pytest.mark.parametrize("step", AFTER_COMMIT.values(), ids=AFTER_COMMIT)
def test_a_transport_that_loses_the_idempotency_key_pays_twice(
    drive: Drive, careless: httpx.BaseTransport | httpx.AsyncBaseTransport, step: Step
) -> None:
    with wire.serve(step, wire.succeeds()) as server:
        assert paid(drive, server, top_up) == 1
        assert len(server.requests) == 2

    with wire.serve(step, wire.succeeds()) as server:
        assert paid(drive, server, top_up, transport=careless) == 2


def test_a_client_that_loses_its_ban_prompts_again(drive: Drive) -> None:
    """Clients of two keys share no pause, so the counting of refused prompts can fail."""
    with wire.serve(wire.refuses(429, "STK_TEMP_BANNED", {"retryAfterSeconds": 60}), wire.succeeds()) as server:
        assert paid(drive, server, initiate_stk) == 0
        assert paid(drive, server, initiate_stk) == 1
