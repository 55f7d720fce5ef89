"""Walk 50 pages of 100 transactions: CPU an item, every field typed, against httpx following the cursor by hand."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.answers import ITEMS_ON_A_PAGE, PAGES
from benchmarks.clients import async_httpx_client, async_momopay_client, httpx_client, momopay_client
from benchmarks.measure import Row, Scale, cpu, cpu_awaited, take_turns
from benchmarks.peers import WALKS
from benchmarks.processes import serving

ITEMS = PAGES * ITEMS_ON_A_PAGE
_UNIT = "us CPU an item"


def measure(scale: Scale) -> list[Row]:
    """Time both clients; a walk is never shortened, so the scale is one of rounds alone."""
    with serving("answers.py") as (url,):
        return [*_blocking(url, scale), _awaited(url, scale)]


def _query(cursor: str) -> dict[str, str]:
    return {"limit": str(ITEMS_ON_A_PAGE), "cursor": cursor}


def _an_item(walk: Callable[[], int]) -> float:
    def check() -> None:
        assert walk() == ITEMS

    return cpu(check, 1) / ITEMS


def _blocking(url: str, scale: Scale) -> list[Row]:
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
            **{name: opened(url) for name, opened in WALKS.items()},
        }
        taken = take_turns({name: partial(_an_item, walk) for name, walk in walks.items()}, scale)
    work, its = "list, 50 pages of 100, sync", taken["httpx"]
    return [
        Row(work, _UNIT, taken["momopay"], "httpx", its, 1.10),
        *(Row(work, _UNIT, taken[name], "httpx", its, side=name) for name in WALKS),
    ]


def _awaited(url: str, scale: Scale) -> Row:
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
