"""Walking pages: each once, to the last, and never for ever."""

from __future__ import annotations

from typing import Any

import pytest

from drivers import Driver
from momopay import ProtocolError, TransactionPage
from momopay._core.operation import run_sync
from momopay.resources.pagination import PageWalk


def page(next_cursor: str | None) -> TransactionPage:
    overview: dict[str, Any] = {"total": 0, "completed": 0, "failed": 0, "pending": 0}
    return TransactionPage.model_validate({"items": [], "overview": overview, "nextCursor": next_cursor})


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
