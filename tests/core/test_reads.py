"""Walks over the list of transactions: where they end, and what they remember."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drivers import KEY, LOOPBACK, session_of
from in_turn import in_turn
from momopay import Client, ProtocolError
from momopay._core.operation import run_sync
from momopay._core.reads import EVERYTHING, PageWalk, TransactionWalk
from momopay.types import TransactionIterator, TransactionPage
from virtual import transaction

NOW = datetime(2026, 11, 20, tzinfo=UTC)


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


@in_turn("last", [None, ""])
def test_a_walk_ends_after_the_last_page(last: str | None) -> None:
    cursors: dict[str | None, str | None] = {None: "a", "a": "b", "b": last}
    assert walked(cursors) == [None, "a", "b"]

    async def fetch(cursor: str | None) -> TransactionPage:
        return page(cursors[cursor])

    with Client(KEY, base_url=LOOPBACK) as client:
        assert len(list(TransactionIterator(session_of(client), fetch).pages())) == 3  # without a transaction, too


def test_a_walk_has_no_more_pages_than_it_may_and_these_are_of_the_largest_size() -> None:
    assert EVERYTHING.to_query() == "?limit=100"

    async def fetch(cursor: str | None) -> TransactionPage:
        return page(f"after {cursor}")

    walk = PageWalk(fetch, most=2)
    assert [run_sync(walk.next()) is None for _ in range(4)] == [False, False, True, True]
    assert not walk.is_at_end


@in_turn("cursors", [{None: "a", "a": "a"}, {None: "a", "a": "b", "b": "a"}])
def test_a_repeated_cursor_ends_a_walk(cursors: dict[str | None, str | None]) -> None:
    with pytest.raises(ProtocolError, match="cursor"):
        walked(cursors)


def test_what_a_walk_remembers_is_bounded() -> None:
    async def fetch(cursor: str | None) -> TransactionPage:
        number = int(cursor or 0)
        return page(str(number + 1) if number < 50 else None, *(f"{number}-{place}" for place in range(100)))

    walk = TransactionWalk(fetch)
    assert sum(map(len, iter(lambda: run_sync(walk.next()), None))) == 51 * 100
    seen = vars(walk._pages._ids).values()
    assert sum(map(len, seen)) <= 2100


@in_turn("arrivals", [[], [1] * 30, [19] * 30, [50] * 30, [0] * 11 + [150]])
def test_each_transaction_comes_once_though_the_list_shifts(arrivals: list[int]) -> None:
    """The service's cursors are offsets, and transactions come while the list is read: so many after each page."""
    old = [f"t-{number}" for number in range(1250)]
    listed, coming = list(old), iter(arrivals)

    async def fetch(cursor: str | None) -> TransactionPage:
        offset = int(cursor or 0)
        shown = listed[offset : offset + 100]
        listed[:0] = [f"new-{len(listed)}-{number}" for number in range(next(coming, 0))]
        return page(str(offset + 100) if offset + 100 < len(listed) else None, *shown)

    walk = TransactionWalk(fetch)
    assert [item.transaction_id for items in iter(lambda: run_sync(walk.next()), None) for item in items] == old


Numbered = Callable[[int], Any]
ENDLESS: list[tuple[Numbered, Numbered, int]] = [
    (lambda _: ["t"], lambda _: 0, 6),  # nothing new
    (lambda number: [f"t-{number % 3}"], lambda number: -number, 8),
    (lambda number: [f"t-{number}"], lambda number: number, 101),  # nothing older
    (lambda number: [f"t-{number}"], lambda number: -(number % 2), 102),
    (lambda _: [], lambda _: 0, 5),
]
"""For each page, its ids and its time in days; and how many pages are read."""


@in_turn(("ids", "days", "pages"), ENDLESS)
def test_a_walk_ends_at_pages_that_bring_nothing_new_or_older(ids: Any, days: Any, pages: int) -> None:
    asked = list[str | None]()

    async def fetch(cursor: str | None) -> TransactionPage:
        asked.append(cursor)
        number = len(asked) - 1
        made = page(str(number), *ids(number))
        times = {"created_at": NOW + timedelta(days=days(number))}
        return made.model_copy(update={"items": [each.model_copy(update=times) for each in made.items]})

    with Client(KEY, base_url=LOOPBACK) as client, pytest.raises(ProtocolError, match=f"no end after {pages} pages"):
        list(TransactionIterator(session_of(client), fetch))
    assert len(asked) == pages


def test_a_walk_ends_after_so_many_pages() -> None:
    count = 0

    async def fetch(_: str | None) -> TransactionPage:
        nonlocal count
        count += 1
        older = transaction(f"t-{count}", createdAt=(NOW - timedelta(minutes=count)).isoformat())
        return TransactionPage.model_validate({"items": [older], "nextCursor": str(count)})

    walk = PageWalk(fetch)
    with pytest.raises(ProtocolError, match="filter it by time"):
        list(iter(lambda: run_sync(walk.next()), None))
    assert count == 10_000


def test_a_walk_ends_at_its_time() -> None:
    clock = iter(range(10))

    async def fetch(cursor: str | None) -> TransactionPage:
        return page(f"after {cursor}", f"t-{cursor}")

    walk = PageWalk(fetch, now=lambda: next(clock), until=3)
    with pytest.raises(ProtocolError, match=r"no end after 3 pages: .*deadline"):
        list(iter(lambda: run_sync(walk.next()), None))
