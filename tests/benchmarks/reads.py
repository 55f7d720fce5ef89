"""GET one record, and walk 50 pages of 100: CPU a call or an item, and wall time with 100 in flight, against httpx.

The SDK's records are typed, with budget and retry in force; httpx calls `json()` and follows the cursor by hand.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import httpx
from httpx_aiohttp import AiohttpTransport

from benchmarks.answers import ID, ITEMS_ON_A_PAGE, PAGES, SLOW
from benchmarks.measure import Row, Scale, cpu, cpu_awaited, take_turns
from benchmarks.processes import AUTHORIZATION, KEY, serving
from momopay import AsyncClient, Client, RateBudget

CALLS = 400
REQUESTS = 2_000
IN_FLIGHT = 100
ROUNDS = 5
"""At most: with 100 in flight, httpx takes up to ten seconds for each."""
ITEMS = PAGES * ITEMS_ON_A_PAGE
ENOUGH = 1_000_000
"""Requests of a budget that is in force, and never empty."""


class Side(NamedTuple):
    """Reads the record with an id, and walks the list; the walk returns how many items it saw."""

    get: Callable[[str], Awaitable[object]]
    walk: Callable[[], Awaitable[int]]


@asynccontextmanager
async def _momopay(url: str, *, aiohttp: bool = False) -> AsyncGenerator[Side]:
    transport = AiohttpTransport() if aiohttp else None
    async with AsyncClient(KEY, base_url=url, budget=RateBudget(requests=ENOUGH), transport=transport) as client:

        async def walk() -> int:
            return sum([1 async for _ in client.transactions.iter()])

        yield Side(client.transactions.get, walk)


@asynccontextmanager
async def _httpx(url: str) -> AsyncGenerator[Side]:
    async with httpx.AsyncClient(base_url=url, headers=AUTHORIZATION, trust_env=False) as client:

        async def get(identity: str) -> object:
            return (await client.get(f"/transactions/{identity}")).json()

        async def walk() -> int:
            count, cursor = 0, "0"
            while cursor is not None:
                page: dict[str, Any] = (await client.get("/transactions", params=_query(cursor))).json()["data"]
                count += sum([1 for _ in page["items"]])
                cursor = page["nextCursor"]
            return count

        yield Side(get, walk)


def _query(cursor: str) -> dict[str, str]:
    return {"limit": str(ITEMS_ON_A_PAGE), "cursor": cursor}


def _walk_with_httpx(client: httpx.Client) -> int:
    count, cursor = 0, "0"
    while cursor is not None:
        page: dict[str, Any] = client.get("/transactions", params=_query(cursor)).json()["data"]
        count += sum([1 for _ in page["items"]])
        cursor = page["nextCursor"]
    return count


Opened = Callable[[str], AbstractAsyncContextManager[Side]]
SIDES: dict[str, Opened] = {"momopay": _momopay, "httpx": _httpx}


def _run(opened: Opened, url: str, work: Callable[[Side], Awaitable[float]]) -> float:
    async def main() -> float:
        async with opened(url) as side:
            await side.get(ID)
            return await work(side)

    return asyncio.run(main())


def _awaited(
    sides: dict[str, Opened], work: Callable[[Side], Awaitable[float]], scale: Scale
) -> dict[str, list[float]]:
    with serving("answers.py") as url:
        return take_turns({name: partial(_run, opened, url, work) for name, opened in sides.items()}, scale)


def _blocking(work: Callable[[Callable[[], object], Callable[[], int]], float], scale: Scale) -> dict[str, list[float]]:
    """Measure what `work` makes of each side's read and walk."""
    with (
        serving("answers.py") as url,
        Client(KEY, base_url=url, budget=RateBudget(requests=ENOUGH)) as mine,
        httpx.Client(base_url=url, headers=AUTHORIZATION, trust_env=False) as bare,
    ):
        sides: dict[str, Callable[[], float]] = {
            "momopay": lambda: work(
                lambda: mine.transactions.get(ID), lambda: sum([1 for _ in mine.transactions.iter()])
            ),
            "httpx": lambda: work(lambda: bare.get(f"/transactions/{ID}").json(), lambda: _walk_with_httpx(bare)),
        }
        return take_turns(sides, scale)


def measure(scale: Scale) -> list[Row]:
    calls, unit = scale.of(CALLS), "us CPU a call"

    async def cost(side: Side) -> float:
        return await cpu_awaited(partial(side.get, ID), calls)

    taken = _blocking(lambda get, _walk: cpu(get, calls), scale)
    awaited = _awaited({**SIDES, "aiohttp": partial(_momopay, aiohttp=True)}, cost, scale)
    return [
        Row("GET one record, sync", unit, taken["momopay"], "httpx", taken["httpx"], 0.84),
        Row("GET one record, asyncio", unit, awaited["momopay"], "httpx", awaited["httpx"], 0.70),
        Row("GET one record, asyncio, aiohttp extra", unit, awaited["aiohttp"], "httpx", awaited["httpx"], 0.40),
    ]


def measure_in_flight(scale: Scale) -> list[Row]:
    """Time a burst on each client, against a server that takes 20 ms: wall time a request."""
    requests = scale.of(REQUESTS)

    async def burst(side: Side) -> float:
        left = iter(range(requests))

        async def one_after_another() -> None:
            for _ in left:
                await side.get(SLOW)

        begun = time.perf_counter()
        await asyncio.gather(*[one_after_another() for _ in range(IN_FLIGHT)])
        return (time.perf_counter() - begun) / requests * 1e6

    taken = _awaited(SIDES, burst, replace(scale, rounds=min(scale.rounds, ROUNDS)))
    return [Row("100 in flight", "us wall a request", taken["momopay"], "httpx", taken["httpx"], 0.35)]


def measure_walk(scale: Scale) -> list[Row]:
    """Time both clients; a walk is never shortened, so the scale is one of rounds alone."""

    def an_item(walk: Callable[[], int]) -> float:
        def check() -> None:
            assert walk() == ITEMS

        return cpu(check, 1) / ITEMS

    async def an_item_awaited(side: Side) -> float:
        async def check() -> None:
            assert await side.walk() == ITEMS

        return await cpu_awaited(check, 1) / ITEMS

    taken = _blocking(lambda _get, walk: an_item(walk), scale)
    awaited = _awaited(SIDES, an_item_awaited, scale)
    unit = "us CPU an item"
    return [
        Row("list, 50 pages of 100, sync", unit, taken["momopay"], "httpx", taken["httpx"], 1.10),
        Row("list, 50 pages of 100, asyncio", unit, awaited["momopay"], "httpx", awaited["httpx"], 1.06),
    ]
