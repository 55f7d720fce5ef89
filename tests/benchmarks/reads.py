"""Reads on loopback against httpx and `json()`: one record, one with 100 in flight, and 50 pages of 100.

The SDK's records are typed, with budget and retry in force.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import httpx
from httpx_aiohttp import AiohttpTransport

import momopay
from benchmarks.answers import ID, ITEMS_ON_A_PAGE, PAGES, SLOW
from benchmarks.measure import Row, Scale, cpu, cpu_awaited, take_turns
from benchmarks.processes import AUTHORIZATION, KEY, serving, unlimited

T = TypeVar("T")
CALLS = 400
REQUESTS = 2_000
IN_FLIGHT = 100
ROUNDS = 5
"""At most: with 100 in flight, httpx takes up to ten seconds for each."""
ITEMS = PAGES * ITEMS_ON_A_PAGE
CPU, CPU_ITEM = "us CPU a call", "us CPU an item"


def _clients(url: str) -> tuple[momopay.Client, httpx.Client]:
    ours = momopay.Client(KEY, base_url=url, budget=unlimited())
    return ours, httpx.Client(base_url=url, headers=AUTHORIZATION, trust_env=False)


def _on_momopay(work: Callable[[Any], Awaitable[T]], url: str, *, aiohttp: bool = False) -> T:
    async def main() -> T:
        transport = AiohttpTransport() if aiohttp else None
        async with momopay.AsyncClient(KEY, base_url=url, budget=unlimited(), transport=transport) as client:
            return await work(client)

    return asyncio.run(main())


def _on_httpx(work: Callable[[Any], Awaitable[T]], url: str) -> T:
    async def main() -> T:
        async with httpx.AsyncClient(base_url=url, headers=AUTHORIZATION, trust_env=False) as client:
            return await work(client)

    return asyncio.run(main())


async def _get(client: Any, identity: str) -> object:
    if isinstance(client, momopay.AsyncClient):
        return await client.transactions.get(identity)
    return (await client.get(f"/transactions/{identity}")).json()


def measure(scale: Scale) -> list[Row]:
    calls = scale.of(CALLS)

    async def cost(client: Any) -> float:
        await _get(client, ID)
        return await cpu_awaited(partial(_get, client, ID), calls)

    with serving("answers.py") as (url,):
        ours, bare = _clients(url)
        with ours, bare:
            taken = take_turns(
                {
                    "momopay": lambda: cpu(lambda: ours.transactions.get(ID), calls),
                    "httpx": lambda: cpu(lambda: bare.get(f"/transactions/{ID}").json(), calls),
                },
                scale,
            )
        awaited = take_turns(
            {
                "momopay": partial(_on_momopay, cost, url),
                "aiohttp": partial(_on_momopay, cost, url, aiohttp=True),
                "httpx": partial(_on_httpx, cost, url),
            },
            scale,
        )
    work, its = "GET one record, asyncio", awaited["httpx"]
    return [
        Row("GET one record, sync", CPU, taken["momopay"], "httpx", taken["httpx"], 0.84),
        Row(work, CPU, awaited["momopay"], "httpx", its, 0.70),
        Row(f"{work}, aiohttp extra", CPU, awaited["aiohttp"], "httpx", its, 0.40),
    ]


class Burst(NamedTuple):
    """Wall time a request, microseconds, and two percentiles of how long one took, milliseconds."""

    wall: float
    p50: float
    p99: float


def measure_in_flight(scale: Scale) -> list[Row]:
    """Time a burst on each client, against a server that takes 20 ms: wall a request, and how long single ones take."""
    requests = scale.of(REQUESTS)

    async def burst(client: Any) -> Burst:
        left = iter(range(requests))
        took: list[float] = []

        async def one_after_another() -> None:
            for _ in left:
                begun = time.perf_counter()
                await _get(client, SLOW)
                took.append(time.perf_counter() - begun)

        begun = time.perf_counter()
        await asyncio.gather(*[one_after_another() for _ in range(IN_FLIGHT)])
        wall = time.perf_counter() - begun
        took.sort()
        return Burst(wall / requests * 1e6, took[requests // 2] * 1e3, took[requests * 99 // 100] * 1e3)

    with serving("answers.py") as (url,):
        sides = {"momopay": partial(_on_momopay, burst, url), "httpx": partial(_on_httpx, burst, url)}
        taken = take_turns(sides, replace(scale, rounds=min(scale.rounds, ROUNDS)))
    ours, theirs = ([list(column) for column in zip(*taken[name], strict=True)] for name in ("momopay", "httpx"))
    work = "100 in flight"
    return [
        Row(work, "us wall a request", ours[0], "httpx", theirs[0], 0.35),
        Row(f"{work}: p99", "ms", ours[2], "httpx", theirs[2]),
        Row(f"{work}: p99", "ms", ours[2], "its own p50", ours[1]),
    ]


def measure_list(scale: Scale) -> list[Row]:
    """Walk all pages, with httpx following the cursor by hand; a walk is never shortened."""

    def query(cursor: str) -> dict[str, str]:
        return {"limit": str(ITEMS_ON_A_PAGE), "cursor": cursor}

    async def walk(client: Any) -> None:
        found, cursor = 0, "0"
        if isinstance(client, momopay.AsyncClient):
            found = len([each async for each in client.transactions.iter()])
        else:
            while cursor is not None:
                page: dict[str, Any] = (await client.get("/transactions", params=query(cursor))).json()["data"]
                found, cursor = found + sum(1 for _ in page["items"]), page["nextCursor"]
        assert found == ITEMS

    async def cost(client: Any) -> float:
        await _get(client, ID)
        return await cpu_awaited(partial(walk, client), 1) / ITEMS

    with serving("answers.py") as (url,):
        ours, bare = _clients(url)

        def with_momopay() -> None:
            assert sum(1 for _ in ours.transactions.iter()) == ITEMS

        def with_httpx() -> None:
            found, cursor = 0, "0"
            while cursor is not None:
                page: dict[str, Any] = bare.get("/transactions", params=query(cursor)).json()["data"]
                found, cursor = found + sum(1 for _ in page["items"]), page["nextCursor"]
            assert found == ITEMS

        with ours, bare:
            taken = take_turns(
                {
                    "momopay": lambda: cpu(with_momopay, 1) / ITEMS,
                    "httpx": lambda: cpu(with_httpx, 1) / ITEMS,
                },
                scale,
            )
        awaited = take_turns(
            {"momopay": partial(_on_momopay, cost, url), "httpx": partial(_on_httpx, cost, url)}, scale
        )
    work = "list, 50 pages of 100"
    return [
        Row(f"{work}, sync", CPU_ITEM, taken["momopay"], "httpx", taken["httpx"], 1.10),
        Row(f"{work}, asyncio", CPU_ITEM, awaited["momopay"], "httpx", awaited["httpx"], 1.06),
    ]
