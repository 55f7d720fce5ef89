"""What stands between two attempts: a closed client, a failing budget, too little time, a pause, a crowded pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpcore
import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

import momopay
import wire
from drivers import KEY
from momopay import AsyncClient, Client, Lane, RateBudget
from momopay._io.connections import _addresses, _Clock, _TimedBackend
from virtual import envelope, refusal, transaction, virtual_client

PHONE = "0712345678"


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=1, phone=PHONE, idempotency_key="k-1")


def prompt(client: Any) -> Any:
    return client.stk.initiate(amount=1, phone=PHONE)


class Falling(RateBudget):
    """A budget whose store goes away after the first slot."""

    def reserve(self, now: float, lane: Lane, within: float = 0.0) -> float:
        if self._slots:
            raise ConnectionError("the store went away")
        return super().reserve(now, lane, within)


def test_an_obstacle_to_a_repeat_is_not_what_became_of_the_first_attempt() -> None:
    client, port = virtual_client(lambda _method, _path: (503, b""), budget=Falling())
    with pytest.raises(momopay.OutcomeUnknownError) as caught:
        top_up(client)
    assert caught.value.idempotency_key == "k-1"
    assert len(port.requests) == 1


def test_an_obstacle_to_a_first_attempt_is_raised_as_it_is() -> None:
    budget = Falling()
    budget._slots = [0.0]
    client, port = virtual_client(lambda _method, _path: (503, b""), budget=budget)
    with pytest.raises(ConnectionError):
        top_up(client)
    assert port.requests == []


def test_a_payment_is_not_begun_with_too_little_time_left() -> None:
    budget = RateBudget(requests=1, window=85.0)
    client, port = virtual_client(lambda _method, _path: (200, envelope(transaction("t"))), budget=budget)
    prompt(client)
    with pytest.raises(momopay.BudgetExhaustedError) as caught:
        prompt(client)
    assert caught.value.retry_after == 85.0
    assert len(port.requests) == 1
    assert client.transactions.get("t").status == "PENDING"  # a read may be


def test_a_prompt_that_waited_for_its_slot_heeds_the_pause_that_began_meanwhile() -> None:
    budget = RateBudget(requests=1, window=10.0)
    client, port = virtual_client(lambda _method, _path: (200, envelope(transaction("t"))), budget=budget)
    prompt(client)
    banned = momopay.StkTempBannedError("banned", code="STK_TEMP_BANNED", status_code=429, retry_after=60.0)
    port.at(5.0, lambda: client._session.stk_pause.begin(port.now(), banned))
    with pytest.raises(momopay.StkTempBannedError) as caught:
        prompt(client)
    assert caught.value.retry_after == 55.0
    assert len(port.requests) == 1


def test_a_pause_takes_no_slot() -> None:
    budget = RateBudget(requests=5)
    client, port = virtual_client(lambda _m, _p: (429, refusal("STK_TEMP_BANNED", retryAfterSeconds=60)), budget=budget)
    for _ in range(20):
        with pytest.raises(momopay.StkTempBannedError):
            prompt(client)
    assert len(port.requests) == 1
    assert len(budget._slots) == 1


@pytest.mark.parametrize(
    "step", [wire.closes(commits=True), wire.resets(commits=True), wire.hangs()], ids=["closes", "resets", "hangs"]
)
def test_a_payment_over_aiohttp_is_sent_once_whatever_becomes_of_it(step: Any) -> None:
    with wire.serve(step) as server:
        assert over_aiohttp(server.base_url, timeout=0.3) is momopay.OutcomeUnknownError
        assert len(server.requests) == 1


def over_aiohttp(base_url: str, **options: Any) -> type[Exception]:
    async def main() -> type[Exception]:
        async with AsyncClient(KEY, base_url=base_url, budget=None, transport=AiohttpTransport(), **options) as client:
            with pytest.raises(momopay.MomoPayError) as caught:
                await client.payouts.initiate(amount=10, phone=PHONE, reference="P-1")
            return type(caught.value)

    return asyncio.run(main())


def test_a_translated_error_is_believed_only_if_httpcore_said_so() -> None:
    sent = list[int]()

    def handler(_request: httpx.Request) -> httpx.Response:
        sent.append(1)
        raise httpx.ConnectTimeout("server disconnected") from ConnectionResetError()

    with (
        Client(KEY, base_url="https://api.example/v1", budget=None, transport=httpx.MockTransport(handler)) as client,
        pytest.raises(momopay.OutcomeUnknownError),
    ):
        prompt(client)
    assert len(sent) == 1


def resolving(*addresses: str) -> Callable[[str, int], list[str]]:
    def resolve(_host: str, _port: int) -> list[str]:
        return list(addresses)

    return resolve


def test_all_addresses_of_a_name_share_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tried = list[tuple[str, float]]()

    def connect(_self: object, host: str, _port: int, timeout: float, *_rest: object) -> httpcore.NetworkStream:
        tried.append((host, timeout))
        now[0] += timeout / 2
        raise httpcore.ConnectTimeout

    monkeypatch.setattr("momopay._io.connections._addresses", resolving("::1", "127.0.0.1", "127.0.0.2"))
    monkeypatch.setattr("momopay._io.connections.time.monotonic", lambda: now[0])
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    clock = _Clock()
    clock.deadline = 8.0
    with pytest.raises(httpcore.ConnectTimeout):
        _TimedBackend(clock).connect_tcp("name.example", 443)
    assert tried == [("::1", 8.0), ("127.0.0.1", 4.0), ("127.0.0.2", 2.0)]


def test_a_name_without_an_address_was_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _addresses("127.0.0.1", 80) == ["127.0.0.1"]
    monkeypatch.setattr("momopay._io.connections._addresses", resolving())
    clock = _Clock()
    clock.deadline = 1e12
    with pytest.raises(httpcore.ConnectError, match="no address"):
        _TimedBackend(clock).connect_tcp("name.example", 443)


def test_connections_of_payments_do_not_pile_up() -> None:
    with (
        wire.serve(*[wire.succeeds()] * 20) as server,
        Client(KEY, base_url=server.base_url, budget=None) as client,
    ):
        for _ in range(20):
            prompt(client)
        io: Any = client._session.io
        assert len(io._idle._resting) == 0
        assert len(server.requests) == 20


def test_an_overlong_id_is_never_sent() -> None:
    with Client(KEY, base_url="http://127.0.0.1:1/v1", budget=None, max_attempts=1) as client:
        with pytest.raises(momopay.APIConnectionError) as caught:
            client.transactions.get("x" * 70_000)
        assert not caught.value.may_have_executed


@pytest.mark.parametrize(
    "url",
    ["https://API.example/v1", "https://api.example:443/v1", "https://api.example/v1/", "https://Api.Example:443/v1"],
)
def test_one_service_has_one_budget_however_it_is_spelt(url: str) -> None:
    plain = Client("pk_test_spelt", base_url="https://api.example/v1")
    assert Client("pk_test_spelt", base_url=url)._session.budget is plain._session.budget


@pytest.mark.parametrize("url", ["https://api.example/v1#", "https://api.example/v1?"])
def test_an_empty_query_or_fragment_is_refused_too(url: str) -> None:
    with pytest.raises(momopay.ConfigurationError):
        Client(KEY, base_url=url)
