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
from benchmarks.measure import Scale, cpu, cpu_awaited, take_turns
from benchmarks.processes import AUTHORIZATION, KEY, serving
from momopay import AsyncClient, Client, RateBudget

CALLS = 400
REQUESTS = 2_000
IN_FLIGHT = 100
ROUNDS = 5
"""At most: with 100 in flight, httpx takes up to ten seconds for each."""
ITEMS = PAGES * ITEMS_ON_A_PAGE
START: str | None = "0"
ENOUGH = 1_000_000
"""Requests of a budget that is in force, and never empty."""


class Side(NamedTuple):
    """Reads the record with an id, and walks the list; the walk returns how many items it saw."""

    get: Callable[[str], Any]
    walk: Callable[[], Any]


def _page(response: httpx.Response) -> tuple[int, str | None]:
    """Return how many items a page has, and the cursor of the next one."""
    page: dict[str, Any] = response.json()["data"]
    return sum([1 for _ in page["items"]]), page["nextCursor"]


def _query(cursor: str) -> dict[str, str]:
    return {"limit": str(ITEMS_ON_A_PAGE), "cursor": cursor}


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
            count, cursor = 0, START
            while cursor is not None:
                seen, cursor = _page(await client.get("/transactions", params=_query(cursor)))
                count += seen
            return count

        yield Side(get, walk)


SIDES: dict[str, Callable[[str], AbstractAsyncContextManager[Side]]] = {
    "momopay": _momopay,
    "httpx": _httpx,
    "aiohttp": partial(_momopay, aiohttp=True),
}


def awaited(work: Callable[[Side, Scale], Awaitable[float]], scale: Scale, *names: str) -> dict[str, list[float]]:
    """Measure what `work` makes of these sides, by default of momopay and httpx."""

    async def run(url: str, name: str) -> float:
        async with SIDES[name](url) as side:
            await side.get(ID)
            return await work(side, scale)

    def figure(url: str, name: str) -> float:
        return asyncio.run(run(url, name))

    with serving("answers.py") as url:
        return take_turns({name: partial(figure, url, name) for name in names or ("momopay", "httpx")}, scale)


def blocking(work: Callable[[Side, Scale], float], scale: Scale) -> dict[str, list[float]]:
    with (
        serving("answers.py") as url,
        Client(KEY, base_url=url, budget=RateBudget(requests=ENOUGH)) as mine,
        httpx.Client(base_url=url, headers=AUTHORIZATION, trust_env=False) as bare,
    ):

        def get_with_httpx(identity: str) -> object:
            return bare.get(f"/transactions/{identity}").json()

        def walk_with_httpx() -> int:
            count, cursor = 0, START
            while cursor is not None:
                seen, cursor = _page(bare.get("/transactions", params=_query(cursor)))
                count += seen
            return count

        sides = {
            "momopay": Side(mine.transactions.get, lambda: sum([1 for _ in mine.transactions.iter()])),
            "httpx": Side(get_with_httpx, walk_with_httpx),
        }
        return take_turns({name: partial(work, side, scale) for name, side in sides.items()}, scale)


def get(scale: Scale) -> dict[str, list[float]]:
    return blocking(lambda side, scale: cpu(partial(side.get, ID), scale.of(CALLS)), scale)


def get_async(scale: Scale) -> dict[str, list[float]]:
    return awaited(lambda side, scale: cpu_awaited(partial(side.get, ID), scale.of(CALLS)), scale, *SIDES)


def in_flight(scale: Scale) -> dict[str, list[float]]:
    """Time a burst on each client, against a server that takes 20 ms: wall time a request."""

    async def burst(side: Side, scale: Scale) -> float:
        requests = scale.of(REQUESTS)
        left = iter(range(requests))

        async def one_after_another() -> None:
            for _ in left:
                await side.get(SLOW)

        begun = time.perf_counter()
        await asyncio.gather(*[one_after_another() for _ in range(IN_FLIGHT)])
        return (time.perf_counter() - begun) / requests * 1e6

    return awaited(burst, replace(scale, rounds=min(scale.rounds, ROUNDS)))


def walk(scale: Scale) -> dict[str, list[float]]:
    """Measure a whole walk, which is never shortened."""

    def an_item(side: Side, _scale: Scale) -> float:
        def check() -> None:
            assert side.walk() == ITEMS

        return cpu(check, 1) / ITEMS

    return blocking(an_item, scale)


def walk_async(scale: Scale) -> dict[str, list[float]]:
    async def an_item(side: Side, _scale: Scale) -> float:
        async def check() -> None:
            assert await side.walk() == ITEMS

        return await cpu_awaited(check, 1) / ITEMS

    return awaited(an_item, scale)
