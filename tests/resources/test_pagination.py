"""Walking pages: each once, to the last, and never for ever."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest

from drivers import KEY, Driver
from momopay import AsyncClient, ProtocolError, TransactionPage
from momopay._core.operation import run_sync
from momopay.durable.search import PageWalk
from momopay.resources.pagination import FirstSightings
from virtual import envelope, transaction


def page(next_cursor: str | None, *ids: str) -> TransactionPage:
    overview: dict[str, Any] = {"total": 0, "completed": 0, "failed": 0, "pending": 0}
    items = [transaction(each) for each in ids]
    return TransactionPage.model_validate({"items": items, "overview": overview, "nextCursor": next_cursor})


def walked(cursors: dict[str | None, str | None]) -> list[str | None]:
    """The cursors that a walk over these pages asks for."""
    asked = list[str | None]()

    async def fetch(cursor: str | None) -> TransactionPage:
        asked.append(cursor)
        return page(cursors[cursor])

    walk = PageWalk(fetch)
    while run_sync(walk.next()) is not None:
        pass
    assert run_sync(walk.next()) is None
    return asked


@pytest.mark.parametrize("last", [None, ""])
def test_a_walk_ends_after_the_last_page(last: str | None) -> None:
    assert walked({None: "a", "a": "b", "b": last}) == [None, "a", "b"]


@pytest.mark.parametrize("cursors", [{None: "a", "a": "a"}, {None: "a", "a": "b", "b": "a"}])
def test_a_repeated_cursor_ends_a_walk(cursors: dict[str | None, str | None]) -> None:
    with pytest.raises(ProtocolError, match="cursor"):
        walked(cursors)


def test_each_loop_walks_anew(sdk: Driver, listed: list[str]) -> None:
    iterator = sdk(lambda client: client.transactions.iter(page_size=20))
    for _ in range(2):
        assert [item.transaction_id for item in sdk.collect(lambda _client: iterator)] == listed[::-1]


class Shifting:
    """A service whose cursors are offsets, and to which transactions come while the list is read."""

    def __init__(self, arrivals: int) -> None:
        self.ids = [f"t-{number}" for number in range(10_000)]
        self.arrivals = arrivals
        self.arrived = 0

    def answer(self, request: httpx.Request) -> httpx.Response:
        offset, limit = int(request.url.params.get("cursor", "0")), int(request.url.params["limit"])
        shown = self.ids[offset : offset + limit]
        self.ids[:0] = [f"new-{self.arrived + number}" for number in range(self.arrivals)]
        self.arrived += self.arrivals
        overview = dict.fromkeys(["total", "completed", "failed", "pending"], 0)
        cursor = str(offset + limit) if offset + limit < len(self.ids) else None
        data = {"overview": overview, "items": [transaction(each) for each in shown], "nextCursor": cursor}
        return httpx.Response(200, json=envelope(data))


@pytest.mark.parametrize("arrivals", [0, 1, 19, 20, 50])
def test_each_transaction_comes_once_though_the_list_shifts(drive: Callable[..., Driver], arrivals: int) -> None:
    service = Shifting(arrivals)
    old = service.ids = service.ids[:250]
    driver = drive(transport=httpx.MockTransport(service.answer))

    def walk(client: Any) -> Any:
        return client.transactions.iter(page_size=100)

    old = list(old)
    assert [item.transaction_id for item in driver.collect(walk)] == old


def test_what_a_walk_remembers_is_bounded() -> None:
    seen = FirstSightings()
    for number in range(50):
        ids = [f"{number}-{place}" for place in range(100)]
        assert [item.transaction_id for item in seen.on(page(None, *ids))] == ids
        assert seen.on(page(None, *ids[:50])) == []
        assert len(seen._ids) <= 11 * 100


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("of_pages", [False, True])
def test_a_walk_may_be_left(loop: str, of_pages: bool) -> None:
    """The default run turns every warning into an error, ResourceWarning included."""

    async def main() -> None:
        service = Shifting(0)
        transport = httpx.MockTransport(service.answer)
        async with AsyncClient(KEY, base_url="https://api.example/v1", budget=None, transport=transport) as client:
            walk = client.transactions.iter()
            if of_pages:
                async for page in walk.pages():
                    assert len(page.items) == 100
                    break
            else:
                async for item in walk:
                    assert item.transaction_id == "t-0"
                    break
        del walk
        gc.collect()

    anyio.run(main, backend=loop)
    gc.collect()
