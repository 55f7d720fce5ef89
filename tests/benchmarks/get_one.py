"""GET one record: CPU a call, again and again, and wall time with 100 in flight, against httpx and `json()`.

The SDK's records are typed, with budget and retry in force.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from benchmarks.answers import ID, SLOW
from benchmarks.clients import async_httpx_client, async_momopay_client, httpx_client, momopay_client
from benchmarks.measure import Row, Scale, cpu, cpu_awaited, take_turns
from benchmarks.peers import AWAITED_GETS, GETS, AwaitedGet
from benchmarks.processes import serving

T = TypeVar("T")
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
AWAITED: dict[str, Opened] = {"momopay": _momopay, "httpx": _httpx, **AWAITED_GETS}


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
        for name, opened in GETS.items():
            sides[name] = partial(cpu, partial(open_clients.enter_context(opened(url)), ID), calls)
        taken = take_turns(sides, scale)
        clients: dict[str, Opened] = {**AWAITED, AIOHTTP: partial(_momopay, aiohttp=True)}
        awaited = take_turns({name: partial(_run, opened, url, cost) for name, opened in clients.items()}, scale)
    work = "GET one record, asyncio"
    rows = [Row("GET one record, sync", CPU, taken["momopay"], "httpx", taken["httpx"], 0.84)]
    rows += [Row("GET one record, sync", CPU, taken[name], "httpx", taken["httpx"], side=name) for name in GETS]
    rows.append(Row(work, CPU, awaited["momopay"], "httpx", awaited["httpx"], 0.70))
    rows.append(Row(f"{work}, aiohttp extra", CPU, awaited[AIOHTTP], "httpx", awaited["httpx"], 0.40))
    rows += [Row(work, CPU, awaited[name], "httpx", awaited["httpx"], side=name) for name in AWAITED_GETS]
    return rows


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
        *(Row(work, unit, walls[name], "httpx", walls["httpx"], side=name) for name in AWAITED_GETS),
        Row(f"{work}: p99", "ms", p99["momopay"], "httpx", p99["httpx"]),
        Row(f"{work}: p99", "ms", p99["momopay"], "its own p50", [each.p50 for each in taken["momopay"]]),
    ]
