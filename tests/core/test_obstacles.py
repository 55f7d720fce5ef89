"""What stands between two attempts: a closed client, a failing budget, too little time, a pause, a crowded pool."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import anyio
import httpcore
import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

import momopay
import wire
from drivers import KEY
from momopay import AsyncClient, Client
from momopay._transport.connections import _addresses, _Clock, _TimedBackend

PHONE = "0712345678"


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=1, phone=PHONE, idempotency_key="k-1")


def prompt(client: Any) -> Any:
    return client.stk.initiate(amount=1, phone=PHONE)


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


def resolving(*addresses: str) -> Callable[..., list[str]]:
    def resolve(*_asked: object) -> list[str]:
        return list(addresses)

    return resolve


def test_all_addresses_of_a_name_share_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tried = list[tuple[str, float]]()

    def connect(_self: object, host: str, _port: int, timeout: float, *_rest: object) -> httpcore.NetworkStream:
        tried.append((host, timeout))
        now[0] += timeout / 2
        raise httpcore.ConnectTimeout

    monkeypatch.setattr("momopay._transport.connections._addresses", resolving("::1", "127.0.0.1", "127.0.0.2"))
    monkeypatch.setattr("momopay._transport.connections.time.monotonic", lambda: now[0])
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    clock = _Clock()
    clock.deadline = 8.0
    with pytest.raises(httpcore.ConnectTimeout):
        _TimedBackend(clock).connect_tcp("name.example", 443)
    assert tried == [("::1", 8.0), ("127.0.0.1", 4.0), ("127.0.0.2", 2.0)]


def test_a_name_without_an_address_was_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    clock.deadline = 1e9
    assert _addresses("127.0.0.1", 80, clock) == ["127.0.0.1"]
    monkeypatch.setattr("momopay._transport.connections._addresses", resolving())
    with pytest.raises(httpcore.ConnectError, match="no address"):
        _TimedBackend(clock).connect_tcp("name.example", 443)


def test_a_resolver_that_hangs_does_not_outlast_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    hung = threading.Event()

    def resolve(*_asked: object, **_hints: object) -> list[Any]:
        hung.wait(10)
        raise socket.gaierror

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    started = time.monotonic()
    with (
        Client(KEY, base_url="https://slow.example/v1", budget=None, timeout=0.1, max_attempts=2) as client,
        pytest.raises(momopay.APIConnectionError) as caught,
    ):
        prompt(client)
    hung.set()
    assert not caught.value.may_have_executed
    assert time.monotonic() - started < 5


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("cause", [ConnectionRefusedError(111, "refused"), socket.gaierror(-2, "unknown")])
def test_what_the_operating_system_says_is_believed_of_any_transport(cause: OSError) -> None:
    def handler(_request: httpx.Request) -> httpx.Response:
        try:
            raise RuntimeError("the library's own error") from cause
        except RuntimeError as error:
            raise httpx.ConnectError("no connection") from error

    with (
        Client(KEY, base_url="https://api.example/v1", budget=None, transport=httpx.MockTransport(handler)) as client,
        pytest.raises(momopay.APIConnectionError) as caught,
    ):
        prompt(client)
    assert not caught.value.may_have_executed


def test_nothing_is_believed_once_a_transport_has_begun_to_send() -> None:
    class Auditing(httpx.HTTPTransport):
        """Sends, and then finds its audit log away."""

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            super().handle_request(request).close()
            raise httpx.ConnectError("the audit log is away")

    with (
        wire.serve(wire.succeeds(), wire.succeeds()) as server,
        Client(KEY, base_url=server.base_url, budget=None, transport=Auditing()) as client,
    ):
        with pytest.raises(momopay.OutcomeUnknownError):
            prompt(client)
        assert len(server.requests) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_timer_that_fires_while_a_transport_connects_elsewhere_says_nothing_of_not_sent(backend: str) -> None:
    class Auditing(httpx.AsyncHTTPTransport):
        """Sends, and then waits for its audit log to answer."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await (await super().handle_async_request(request)).aclose()
            await request.extensions["trace"]("connection.connect_tcp.started", {})
            await anyio.sleep_forever()
            raise AssertionError

    async def pay(url: str) -> None:
        async with AsyncClient(KEY, base_url=url, budget=None, timeout=0.5, transport=Auditing()) as client:
            with pytest.raises(momopay.OutcomeUnknownError):
                await client.stk.initiate(amount=100, phone="0712345678")

    with wire.serve(wire.succeeds(), wire.succeeds()) as server:
        anyio.run(pay, server.base_url, backend=backend)
        assert len(server.requests) == 1


@pytest.mark.usefixtures("no_backoff")
def test_aiohttp_tells_of_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert over_aiohttp(f"http://127.0.0.1:{port}/v1") is momopay.APIConnectionError


def test_a_client_that_left_its_loop_closes_without_a_word() -> None:
    with wire.serve(wire.succeeds(), wire.succeeds()) as server:
        client = AsyncClient(KEY, base_url=server.base_url, budget=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of the connection that its loop left open

            async def enter() -> None:
                async with client:
                    with pytest.raises(momopay.ConfigurationError, match="another event loop"):
                        await client.wallet.balance()

            async def read() -> None:
                await client.wallet.balance()

            asyncio.run(read())
            asyncio.run(enter())
            gc.collect()
        assert len(server.requests) == 1


def test_connections_of_payments_do_not_pile_up() -> None:
    with (
        wire.serve(*[wire.succeeds()] * 20) as server,
        Client(KEY, base_url=server.base_url, budget=None) as client,
    ):
        for _ in range(20):
            prompt(client)
        io: Any = client._session.backend
        assert len(io._idle._resting) == 0
        assert len(server.requests) == 20


def test_what_is_too_long_for_an_address_is_never_sent() -> None:
    with Client(KEY, base_url="http://127.0.0.1:1/v1", budget=None, max_attempts=1) as client:
        with pytest.raises(momopay.RequestValidationError):
            client.transactions.get("x" * 70_000)
        with pytest.raises(momopay.APIConnectionError) as caught:
            client.transactions.list(q="x" * 70_000)
        assert not caught.value.may_have_executed
