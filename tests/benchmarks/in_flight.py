"""2,000 GETs with 100 in flight against a server that takes 20 ms: wall a request, and how long single ones take.

The first burst opens its connections; the second finds them open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from benchmarks.answers import SLOW
from benchmarks.clients import async_httpx_client, async_momopay_client
from benchmarks.measure import Row, Scale, take_turns
from benchmarks.peers import AWAITED_GETS
from benchmarks.processes import serving

REQUESTS = 2_000
IN_FLIGHT = 100
ROUNDS = 5
"""At most: httpx takes up to ten seconds for each."""


class Burst(NamedTuple):
    """Wall time a request, microseconds, and two percentiles of how long one took, milliseconds."""

    wall: float
    p50: float
    p99: float


async def _burst(get: Callable[[], Awaitable[object]], requests: int) -> Burst:
    left = iter(range(requests))
    took: list[float] = []

    async def one_after_another() -> None:
        for _ in left:
            begun = time.perf_counter()
            await get()
            took.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*[one_after_another() for _ in range(IN_FLIGHT)])
    wall = time.perf_counter() - begun
    took.sort()
    return Burst(wall / requests * 1e6, took[requests // 2] * 1e3, took[requests * 99 // 100] * 1e3)


def measure(scale: Scale) -> list[Row]:
    """Time two bursts on one client, in each round."""
    requests = scale.of(REQUESTS)

    async def with_momopay(url: str) -> tuple[Burst, Burst]:
        async with async_momopay_client(url) as client:
            get = client.transactions.get
            return await _burst(lambda: get(SLOW), requests), await _burst(lambda: get(SLOW), requests)

    async def with_httpx(url: str) -> tuple[Burst, Burst]:
        async with async_httpx_client(url) as client:

            async def get() -> object:
                return (await client.get(f"/transactions/{SLOW}")).json()

            return await _burst(get, requests), await _burst(get, requests)

    async def with_peer(name: str, url: str) -> tuple[Burst, Burst]:
        async with AWAITED_GETS[name](url) as get:
            return await _burst(lambda: get(SLOW), requests), await _burst(lambda: get(SLOW), requests)

    def run_with_peer(name: str, url: str) -> tuple[Burst, Burst]:
        return asyncio.run(with_peer(name, url))

    with serving("answers.py") as (url,):
        sides = {"momopay": lambda: asyncio.run(with_momopay(url)), "httpx": lambda: asyncio.run(with_httpx(url))}
        for peer in AWAITED_GETS:
            sides[peer] = partial(run_with_peer, peer, url)
        taken = take_turns(sides, replace(scale, rounds=min(scale.rounds, ROUNDS)))
    rows: list[Row] = []
    for place, name in enumerate(("100 in flight", "again, connections open")):
        mine, its = ([bursts[place] for bursts in taken[side]] for side in ("momopay", "httpx"))
        p50, p99 = [burst.p50 for burst in mine], [burst.p99 for burst in mine]
        rows += [
            Row(name, "us wall a request", [each.wall for each in mine], "httpx", [each.wall for each in its], 0.5),
            Row(f"{name}: p50", "ms", p50, "httpx", [each.p50 for each in its]),
            Row(f"{name}: p99", "ms", p99, "httpx", [each.p99 for each in its]),
            Row(f"{name}: p99", "ms", p99, "its own p50", p50, 1.5),
        ]
        walls = [each.wall for each in its]
        for peer in AWAITED_GETS:
            rows.append(
                Row(name, "us wall a request", [both[place].wall for both in taken[peer]], "httpx", walls, side=peer)
            )
    return rows
