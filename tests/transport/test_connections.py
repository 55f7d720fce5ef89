"""Connections at rest: the last used first, none for too long, none across a fork, no more than the cap."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import anyio
import pytest

from momopay import APIConnectionError, AsyncClient, Client, ConfigurationError, MomoPayError
from momopay._transport import connections
from momopay._transport.connections import IdleStack

KEY = "pk_test_connections"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_last_used_is_taken_first(clock: list[float]) -> None:
    idle: IdleStack[str] = IdleStack()
    assert idle.take() is None
    idle.put("a")
    idle.put("b")
    assert [idle.take(), idle.take(), idle.take()] == ["b", "a", None]
    assert clock == [100.0]


def test_one_that_rested_for_too_long_is_not_taken(clock: list[float]) -> None:
    idle: IdleStack[str] = IdleStack()
    idle.put("a")
    clock[0] += connections.KEEP_ALIVE + 1
    assert idle.take() is None


def test_the_oldest_is_given_back_to_be_closed_once_its_time_is_over(clock: list[float]) -> None:
    idle: IdleStack[str] = IdleStack()
    assert idle.put("old") == []
    clock[0] += connections.KEEP_ALIVE + 1
    assert idle.put("new") == ["old"]
    assert list(idle.drain()) == ["new"]


def test_a_child_process_starts_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    idle: IdleStack[str] = IdleStack()
    idle.put("parent's")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert idle.take() is None


def test_the_tls_context_is_built_once_and_only_for_https() -> None:
    import httpx

    assert connections.tls_for(httpx.URL("http://127.0.0.1/v1")) is None
    first = connections.tls_for(httpx.URL("https://one.example/v1"))
    assert first is not None
    assert connections.tls_for(httpx.URL("https://two.example/v1")) is first


@pytest.fixture
def silent() -> Any:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def test_when_all_connections_stay_busy_a_blocking_payment_is_surely_not_sent(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momopay._transport.sync_backend.MAX_CONNECTIONS", 1)
    with Client(KEY, base_url=silent, budget=None, timeout=0.4, max_attempts=1) as client:

        def occupy() -> None:
            with pytest.raises(MomoPayError):
                client.wallet.balance()

        thread = threading.Thread(target=occupy)
        thread.start()
        time.sleep(0.1)
        with pytest.raises(APIConnectionError, match="busy") as caught:
            client.with_options(timeout=0.1).stk.initiate(amount=1, phone="0712345678")
        thread.join()
    assert not caught.value.may_have_executed


def test_when_all_connections_stay_busy_an_async_payment_is_surely_not_sent(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momopay._transport.async_backend.MAX_CONNECTIONS", 1)

    async def main() -> None:
        async with AsyncClient(KEY, base_url=silent, budget=None, timeout=0.4, max_attempts=1) as client:

            async def occupy() -> None:
                with pytest.raises(MomoPayError):
                    await client.wallet.balance()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(occupy)
                await anyio.sleep(0.1)
                with pytest.raises(APIConnectionError) as caught:
                    await client.with_options(timeout=0.1).stk.initiate(amount=1, phone="0712345678")
                assert not caught.value.may_have_executed

    anyio.run(main)


def test_closing_twice_is_closing_once(silent: str) -> None:
    client = Client(KEY, base_url=silent)
    client.close()
    client.close()
    with pytest.raises(ConfigurationError, match="closed"):
        client.wallet.balance()
