"""The ways to Redis: URLs and clients, threads and event loops, what is opened and closed, and what is refused."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
import trio

from momopay import ConfigurationError, Lane, RedisRateBudget
from momopay._core.operation import run_sync
from momopay._ratelimit.lane import ALONE
from momopay._transport.async_backend import AsyncBackend
from momopay._transport.sync_backend import SyncBackend
from patience import until
from redis_server import Caller, RedisServer, connect, connect_asyncio

MakeCaller = Callable[..., Caller]
CLIENTS: dict[str, Callable[[str], Any]] = {
    "url": str,
    "client": connect,
    "decoding client": lambda url: connect(url, decode_responses=True),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", CLIENTS)
def test_a_url_and_a_client_serve_both_clients(
    caller: MakeCaller, server: RedisServer, kind: str, *, is_async: bool
) -> None:
    given = CLIENTS[kind](server.url)
    one = caller(given, is_async=is_async, requests=2, window=30.0)
    assert one.at_once(3) == 2
    if kind != "url":
        connection = given.client_id()
        one.leave()
        assert given.client_id() == connection  # whoever made it closes it
        given.close()


@pytest.mark.parametrize("decodes", [False, True])
def test_an_asyncio_client_serves_its_event_loop(server: RedisServer, account_hash: str, *, decodes: bool) -> None:
    async def work() -> None:
        given, backend = connect_asyncio(server.url, decode_responses=decodes), AsyncBackend()
        slots = RedisRateBudget(given, requests=2).slots(backend, account_hash)
        assert [await slots.reserve_now(0.0, Lane.READ, ALONE) for _ in range(2)] == [0.0, 0.0]
        await slots.close()
        assert await given.ping()
        await given.aclose()

    asyncio.run(work())


def test_an_asyncio_client_serves_neither_a_blocking_client_nor_trio(server: RedisServer, account_hash: str) -> None:
    budget = RedisRateBudget(connect_asyncio(server.url))

    async def on_trio() -> None:
        await budget.slots(AsyncBackend(), account_hash).reserve_now(0.0, Lane.PAYMENT, ALONE)

    with pytest.raises(ConfigurationError, match="Nothing was sent"):
        run_sync(budget.slots(SyncBackend(), account_hash).reserve_now(0.0, Lane.PAYMENT, ALONE))
    with pytest.raises(ConfigurationError, match="Nothing was sent"):
        trio.run(on_trio)


def test_trio_shares_the_budget_through_a_thread(server: RedisServer, account_hash: str) -> None:
    async def work() -> list[float]:
        slots = RedisRateBudget(server.url, requests=1).slots(AsyncBackend(), account_hash)
        delays = [await slots.reserve_now(0.0, Lane.PAYMENT, ALONE) for _ in range(2)]
        await slots.close()
        return delays

    first, second = trio.run(work)
    assert first == 0.0 < second


def test_connections_close_with_the_last_client_that_uses_them(server: RedisServer, account_hash: str) -> None:
    name = uuid4().hex
    budget = RedisRateBudget(f"{server.url}?client_name={name}", requests=30, window=30.0)

    def open_connections() -> int:
        return sum(member["name"] == name for member in admin.client_list())

    async def work() -> None:
        one, other = (budget.slots(AsyncBackend(), account_hash) for _ in range(2))
        for slots in (one, other):
            await slots.reserve_now(0.0, Lane.READ, ALONE)
        await one.close()
        assert open_connections() >= 1
        await other.reserve_now(0.0, Lane.READ, ALONE)
        await other.close()

    with connect(server.url) as admin, ThreadPoolExecutor(2) as threads:
        list(threads.map(asyncio.run, (work(), work())))
        until(lambda: open_connections() == 0)  # the server notices in its own time
        one, other = (budget.slots(SyncBackend(), account_hash) for _ in range(2))
        for slots in (one, other):
            run_sync(slots.reserve_now(0.0, Lane.READ, ALONE))
        run_sync(one.close())
        assert open_connections() == 1
        run_sync(other.close())
        until(lambda: open_connections() == 0)
        run_sync(one.reserve_now(0.0, Lane.READ, ALONE))
        budget.close()
        until(lambda: open_connections() == 0)
        assert run_sync(one.reserve_now(0.0, Lane.READ, ALONE)) == 0.0  # they open again
        run_sync(one.close())


def test_a_budget_opens_few_connections(server: RedisServer, account_hash: str) -> None:
    name = uuid4().hex
    budget = RedisRateBudget(f"{server.url}?client_name={name}", requests=100, timeout=20.0)
    slots = budget.slots(SyncBackend(), account_hash)
    with connect(server.url) as admin, ThreadPoolExecutor(60) as threads:
        admin.client_pause(300)  # so that all of them are under way at the same time
        delays = list(threads.map(run_sync, [slots.reserve_now(0.0, Lane.PAYMENT, ALONE) for _ in range(60)]))
        assert 1 <= sum(member["name"] == name for member in admin.client_list()) <= 16
    assert delays == [0.0] * 60
    budget.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_script_that_redis_forgot_is_sent_again(caller: MakeCaller, server: RedisServer, *, is_async: bool) -> None:
    one = caller(server.url, is_async=is_async, requests=3, window=30.0)
    with connect(server.url) as admin:
        for _ in range(3):
            assert one.reserve() == 0.0
            admin.script_flush()
    assert one.reserve() > 0


@pytest.mark.parametrize("is_async", [False, True])
def test_a_connection_that_broke_while_idle_is_no_outage(
    caller: MakeCaller, server: RedisServer, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    one = caller(server.url, is_async=is_async, requests=3, window=30.0)
    one.reserve()
    with connect(server.url) as admin:
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert one.reserve() == 0.0
    assert not caplog.records


def test_a_cancelled_wait_costs_one_slot_at_most(server: RedisServer, account_hash: str) -> None:
    budget = RedisRateBudget(server.url, requests=4, window=30.0)

    async def work() -> list[float]:
        slots = budget.slots(AsyncBackend(), account_hash)
        await slots.reserve_now(0.0, Lane.READ, ALONE)  # a connection is open
        for steps in range(2):
            task = asyncio.create_task(slots.reserve_now(0.0, Lane.READ, ALONE))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        delays = [await slots.reserve_now(0.0, Lane.PAYMENT, ALONE) for _ in range(4)]
        await slots.close()
        return delays

    assert asyncio.run(work())[:2] == [0.0, 0.0]


@pytest.mark.parametrize(
    "given", ["http://127.0.0.1", "", "redis://h?socket_timeout=soon", "redis://:topsecret/x@h", 42, None, object()]
)
def test_what_leads_to_no_redis_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisRateBudget(given)
    assert "topsecret" not in f"{caught.value!r}{caught.value.__cause__!r}"


def test_without_redis_py_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigurationError, match=r"momopay\[redis\]"):
        RedisRateBudget("redis://127.0.0.1:1")
