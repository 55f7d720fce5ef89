"""GET one record, and walk 50 pages of 100: CPU a call or an item, and wall time with 100 in flight, against httpx.

The SDK's records are typed, with budget and retry in force; httpx calls `json()` and follows the cursor by hand.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from benchmarks.answers import ID, ITEMS_ON_A_PAGE, PAGES, SLOW
from benchmarks.clients import async_httpx_client, async_momopay_client, httpx_client, momopay_client
from benchmarks.measure import Row, Scale, cpu, cpu_awaited, take_turns
from benchmarks.processes import serving

T = TypeVar("T")
AwaitedGet = Callable[[str], Awaitable[object]]
"""Reads the record with an id, and its JSON."""
CALLS = 400
REQUESTS = 2_000
IN_FLIGHT = 100
ROUNDS = 5
"""At most: with 100 in flight, httpx takes up to ten seconds for each."""
CPU = "us CPU a call"
AIOHTTP = "momopay, aiohttp extra"


@asynccontextmanager
async def _momopay(url: str, *, aiohttp: bool = False) -> AsyncGenerator[AwaitedGet]:
    async with async_momopay_client(url, aiohttp=aiohttp) as client:
        yield client.transactions.get


@asynccontextmanager
async def _httpx(url: str) -> AsyncGenerator[AwaitedGet]:
    async with async_httpx_client(url) as client:

        async def get(identity: str) -> object:
            return (await client.get(f"/transactions/{identity}")).json()

        yield get


Opened = Callable[[str], AbstractAsyncContextManager[AwaitedGet]]
AWAITED: dict[str, Opened] = {"momopay": _momopay, "httpx": _httpx}


def measure(scale: Scale) -> list[Row]:
    calls = scale.of(CALLS)

    async def cost(get: AwaitedGet) -> float:
        await get(ID)
        return await cpu_awaited(partial(get, ID), calls)

    with serving("answers.py") as (url,), ExitStack() as open_clients:
        mine = open_clients.enter_context(momopay_client(url))
        bare = open_clients.enter_context(httpx_client(url))
        sides: dict[str, Callable[[], float]] = {
            "momopay": lambda: cpu(lambda: mine.transactions.get(ID), calls),
            "httpx": lambda: cpu(lambda: bare.get(f"/transactions/{ID}").json(), calls),
        }
        taken = take_turns(sides, scale)
        clients: dict[str, Opened] = {**AWAITED, AIOHTTP: partial(_momopay, aiohttp=True)}
        awaited = take_turns({name: partial(_run, opened, url, cost) for name, opened in clients.items()}, scale)
    work = "GET one record, asyncio"
    return [
        Row("GET one record, sync", CPU, taken["momopay"], "httpx", taken["httpx"], 0.84),
        Row(work, CPU, awaited["momopay"], "httpx", awaited["httpx"], 0.70),
        Row(f"{work}, aiohttp extra", CPU, awaited[AIOHTTP], "httpx", awaited["httpx"], 0.40),
    ]


def _run(opened: Opened, url: str, work: Callable[[AwaitedGet], Awaitable[T]]) -> T:
    async def main() -> T:
        async with opened(url) as get:
            return await work(get)

    return asyncio.run(main())


class Burst(NamedTuple):
    """Wall time a request, microseconds, and two percentiles of how long one took, milliseconds."""

    wall: float
    p50: float
    p99: float


def measure_in_flight(scale: Scale) -> list[Row]:
    """Time a burst on each client, against a server that takes 20 ms: wall a request, and how long single ones take."""
    requests = scale.of(REQUESTS)

    async def burst(get: AwaitedGet) -> Burst:
        left = iter(range(requests))
        took: list[float] = []

        async def one_after_another() -> None:
            for _ in left:
                begun = time.perf_counter()
                await get(SLOW)
                took.append(time.perf_counter() - begun)

        begun = time.perf_counter()
        await asyncio.gather(*[one_after_another() for _ in range(IN_FLIGHT)])
        wall = time.perf_counter() - begun
        took.sort()
        return Burst(wall / requests * 1e6, took[requests // 2] * 1e3, took[requests * 99 // 100] * 1e3)

    with serving("answers.py") as (url,):
        sides = {name: partial(_run, opened, url, burst) for name, opened in AWAITED.items()}
        taken = take_turns(sides, replace(scale, rounds=min(scale.rounds, ROUNDS)))
    walls = {name: [each.wall for each in bursts] for name, bursts in taken.items()}
    p99 = {name: [each.p99 for each in bursts] for name, bursts in taken.items()}
    work, unit = "100 in flight", "us wall a request"
    return [
        Row(work, unit, walls["momopay"], "httpx", walls["httpx"], 0.35),
        Row(f"{work}: p99", "ms", p99["momopay"], "httpx", p99["httpx"]),
        Row(f"{work}: p99", "ms", p99["momopay"], "its own p50", [each.p50 for each in taken["momopay"]]),
    ]


ITEMS = PAGES * ITEMS_ON_A_PAGE
_UNIT = "us CPU an item"


def measure_walk(scale: Scale) -> list[Row]:
    """Time both clients; a walk is never shortened, so the scale is one of rounds alone."""
    with serving("answers.py") as (url,):
        return [_walk_blocking(url, scale), _walk_awaited(url, scale)]


def _query(cursor: str) -> dict[str, str]:
    return {"limit": str(ITEMS_ON_A_PAGE), "cursor": cursor}


def _an_item(walk: Callable[[], int]) -> float:
    def check() -> None:
        assert walk() == ITEMS

    return cpu(check, 1) / ITEMS


def _walk_blocking(url: str, scale: Scale) -> Row:
    with momopay_client(url) as mine, httpx_client(url) as bare:

        def with_httpx() -> int:
            count, cursor = 0, "0"
            while cursor is not None:
                page: dict[str, Any] = bare.get("/transactions", params=_query(cursor)).json()["data"]
                count += sum(1 for _ in page["items"])
                cursor = page["nextCursor"]
            return count

        walks: dict[str, Callable[[], int]] = {
            "momopay": lambda: sum(1 for _ in mine.transactions.iter()),
            "httpx": with_httpx,
        }
        taken = take_turns({name: partial(_an_item, walk) for name, walk in walks.items()}, scale)
    return Row("list, 50 pages of 100, sync", _UNIT, taken["momopay"], "httpx", taken["httpx"], 1.10)


def _walk_awaited(url: str, scale: Scale) -> Row:
    async def with_momopay() -> float:
        async with async_momopay_client(url) as client:

            async def walk() -> None:
                count = 0
                async for _ in client.transactions.iter():
                    count += 1
                assert count == ITEMS

            await client.transactions.list()
            return await cpu_awaited(walk, 1) / ITEMS

    async def with_httpx() -> float:
        async with async_httpx_client(url) as client:

            async def walk() -> None:
                count, cursor = 0, "0"
                while cursor is not None:
                    page: dict[str, Any] = (await client.get("/transactions", params=_query(cursor))).json()["data"]
                    count += sum(1 for _ in page["items"])
                    cursor = page["nextCursor"]
                assert count == ITEMS

            await client.get("/transactions", params=_query("0"))
            return await cpu_awaited(walk, 1) / ITEMS

    taken = take_turns(
        {"momopay": lambda: asyncio.run(with_momopay()), "httpx": lambda: asyncio.run(with_httpx())}, scale
    )
    return Row("list, 50 pages of 100, asyncio", _UNIT, taken["momopay"], "httpx", taken["httpx"], 1.06)
