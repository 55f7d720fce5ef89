"""GET one record, again and again: CPU a call, typed, with budget and retry in force, against httpx and `json()`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benchmarks.answers import ID
from benchmarks.clients import HAS_AIOHTTP, async_httpx_client, async_momopay_client, httpx_client, momopay_client
from benchmarks.measure import Row, Scale, cpu, cpu_awaited, take_turns
from benchmarks.peers import AWAITED_GETS, GETS
from benchmarks.processes import serving

CALLS = 400
_PATH = f"/transactions/{ID}"


def measure(scale: Scale) -> list[Row]:
    """Time both clients."""
    with serving("answers.py") as (url,):
        return [*_blocking(url, scale), *_awaited(url, scale)]


def _blocking(url: str, scale: Scale) -> list[Row]:
    calls = scale.of(CALLS)
    with ExitStack() as open_clients:
        mine = open_clients.enter_context(momopay_client(url))
        bare = open_clients.enter_context(httpx_client(url))
        sides: dict[str, Callable[[], float]] = {
            "momopay": lambda: cpu(lambda: mine.transactions.get(ID), calls),
            "httpx": lambda: cpu(lambda: bare.get(_PATH).json(), calls),
        }
        for name, opened in GETS.items():
            get = open_clients.enter_context(opened(url))
            sides[name] = partial(cpu, partial(get, ID), calls)
        taken = take_turns(sides, scale)
    work, unit = "GET one record, sync", "us CPU a call"
    rows = [Row(work, unit, taken["momopay"], "httpx", taken["httpx"], 0.82)]
    rows += [Row(work, unit, taken[name], "httpx", taken["httpx"], side=name) for name in GETS]
    return rows


def _awaited(url: str, scale: Scale) -> list[Row]:
    calls = scale.of(CALLS)

    async def with_momopay(*, aiohttp: bool) -> float:
        async with async_momopay_client(url, aiohttp=aiohttp) as client:
            await client.transactions.get(ID)
            return await cpu_awaited(lambda: client.transactions.get(ID), calls)

    async def with_httpx() -> float:
        async with async_httpx_client(url) as client:

            async def read() -> object:
                return (await client.get(_PATH)).json()

            await read()
            return await cpu_awaited(read, calls)

    async def with_peer(name: str) -> float:
        async with AWAITED_GETS[name](url) as get:
            await get(ID)
            return await cpu_awaited(partial(get, ID), calls)

    def run_with_peer(name: str) -> float:
        return asyncio.run(with_peer(name))

    sides: dict[str, Callable[[], float]] = {
        "momopay": lambda: asyncio.run(with_momopay(aiohttp=False)),
        "httpx": lambda: asyncio.run(with_httpx()),
    }
    if HAS_AIOHTTP:
        sides["momopay, aiohttp extra"] = lambda: asyncio.run(with_momopay(aiohttp=True))
    for name in AWAITED_GETS:
        sides[name] = partial(run_with_peer, name)
    taken = take_turns(sides, scale)
    row = partial(Row, unit="us CPU a call", other="httpx", theirs=taken["httpx"])
    rows = [row("GET one record, asyncio", ours=taken["momopay"], goal=0.87)]
    if HAS_AIOHTTP:
        rows.append(row("GET one record, asyncio, aiohttp extra", ours=taken["momopay, aiohttp extra"], goal=0.40))
    rows += [row("GET one record, asyncio", ours=taken[name], side=name) for name in AWAITED_GETS]
    return rows
