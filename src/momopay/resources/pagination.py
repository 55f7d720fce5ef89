"""Walking the list of transactions, page by page, in either colour."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeAlias

from momopay._core.backend import BackendT
from momopay._core.operation import run_async, run_sync
from momopay._transport.async_backend import AsyncBackend
from momopay._transport.sync_backend import SyncBackend
from momopay.errors import ProtocolError
from momopay.models.transactions import TransactionPage, TransactionSummary

__all__ = ["TransactionIterator", "TransactionPages"]

Fetch: TypeAlias = Callable[[str | None], Coroutine[Any, Any, TransactionPage]]


class Walk:
    """One walk down the list. A cursor that comes back would make it endless, so that ends it."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._cursor: str | None = None
        self._seen: set[str] = set()
        self._at_the_end = False

    async def next(self) -> TransactionPage | None:
        """Fetch the next page; None when there is none.

        Raises:
            ProtocolError: The service gave a cursor a second time.
        """
        if self._at_the_end:
            return None
        if self._cursor is not None:
            if self._cursor in self._seen:
                raise ProtocolError("the list repeats a cursor, so it would never end")
            self._seen.add(self._cursor)
        page = await self._fetch(self._cursor)
        self._cursor = page.next_cursor or None
        self._at_the_end = self._cursor is None
        return page


class TransactionPages(Generic[BackendT]):
    """Pages of transactions, newest first. Each `for`, or `async for`, walks anew; it fetches as it goes."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def __iter__(self: TransactionPages[SyncBackend]) -> Iterator[TransactionPage]:
        walk = Walk(self._fetch)
        while (page := run_sync(walk.next())) is not None:
            yield page

    async def __aiter__(self: TransactionPages[AsyncBackend]) -> AsyncIterator[TransactionPage]:
        walk = Walk(self._fetch)
        while (page := await run_async(walk.next())) is not None:
            yield page


class TransactionIterator(Generic[BackendT]):
    """Transactions, newest first, over all pages. Each `for`, or `async for`, walks anew; it fetches as it goes."""

    def __init__(self, fetch: Fetch) -> None:
        self._pages: TransactionPages[BackendT] = TransactionPages(fetch)

    def pages(self) -> TransactionPages[BackendT]:
        """Give the same walk page by page."""
        return self._pages

    def __iter__(self: TransactionIterator[SyncBackend]) -> Iterator[TransactionSummary]:
        for page in self._pages:
            yield from page.items

    async def __aiter__(self: TransactionIterator[AsyncBackend]) -> AsyncIterator[TransactionSummary]:
        async for page in self._pages:
            for item in page.items:
                yield item
