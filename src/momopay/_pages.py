"""Walking the list of transactions, page by page, in either colour."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeAlias

from momopay._colours import IO, carry, finish
from momopay._io.blocking import BlockingIO
from momopay._io.suspending import AsyncIO
from momopay.errors import ProtocolError
from momopay.models.transactions import TransactionPage, TransactionSummary

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


class TransactionPages(Generic[IO]):
    """Pages of transactions, newest first. Each `for`, or `async for`, walks anew; it fetches as it goes."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def __iter__(self: TransactionPages[BlockingIO]) -> Iterator[TransactionPage]:
        walk = Walk(self._fetch)
        while (page := finish(walk.next())) is not None:
            yield page

    async def __aiter__(self: TransactionPages[AsyncIO]) -> AsyncIterator[TransactionPage]:
        walk = Walk(self._fetch)
        while (page := await carry(walk.next())) is not None:
            yield page


class TransactionIterator(Generic[IO]):
    """Transactions, newest first, over all pages. Each `for`, or `async for`, walks anew; it fetches as it goes."""

    def __init__(self, fetch: Fetch) -> None:
        self._pages: TransactionPages[IO] = TransactionPages(fetch)

    def pages(self) -> TransactionPages[IO]:
        """Give the same walk page by page."""
        return self._pages

    def __iter__(self: TransactionIterator[BlockingIO]) -> Iterator[TransactionSummary]:
        for page in self._pages:
            yield from page.items

    async def __aiter__(self: TransactionIterator[AsyncIO]) -> AsyncIterator[TransactionSummary]:
        async for page in self._pages:
            for item in page.items:
                yield item
