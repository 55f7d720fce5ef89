"""Walk the list of transactions page by page, with a blocking or an asynchronous client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from momopay._core.backend import BackendT
from momopay._core.operation import run_async, run_sync
from momopay.errors import ProtocolError
from momopay.models.transactions import TransactionPage, TransactionSummary

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

__all__ = ["TransactionIterator", "TransactionPages"]

Fetch: TypeAlias = Callable[[str | None], Coroutine[Any, Any, TransactionPage]]


class PageWalk:
    """One walk over the list. A cursor that the service repeats would make it endless, so it is an error."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._cursor: str | None = None
        self._seen: set[str] = set()
        self._is_over = False

    async def next(self) -> TransactionPage | None:
        """Return the next page, or None after the last one.

        Raises:
            ProtocolError: The service repeated a cursor.
        """
        if self._is_over:
            return None
        if self._cursor is not None:
            if self._cursor in self._seen:
                raise ProtocolError("the list repeats a cursor, so it would never end")
            self._seen.add(self._cursor)
        page = await self._fetch(self._cursor)
        self._cursor = page.next_cursor or None
        self._is_over = self._cursor is None
        return page


class TransactionPages(Generic[BackendT]):
    """Pages of transactions, newest first. Each ``for`` or ``async for`` walks anew and fetches as it goes."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def __iter__(self: TransactionPages[SyncBackend]) -> Iterator[TransactionPage]:
        walk = PageWalk(self._fetch)
        while (page := run_sync(walk.next())) is not None:
            yield page

    async def __aiter__(self: TransactionPages[AsyncBackend]) -> AsyncIterator[TransactionPage]:
        walk = PageWalk(self._fetch)
        while (page := await run_async(walk.next())) is not None:
            yield page


class TransactionIterator(Generic[BackendT]):
    """Transactions of all pages, newest first. Each ``for`` or ``async for`` walks anew and fetches as it goes."""

    def __init__(self, fetch: Fetch) -> None:
        self._pages: TransactionPages[BackendT] = TransactionPages(fetch)

    def pages(self) -> TransactionPages[BackendT]:
        """Return the same walk page by page."""
        return self._pages

    def __iter__(self: TransactionIterator[SyncBackend]) -> Iterator[TransactionSummary]:
        for page in self._pages:
            yield from page.items

    async def __aiter__(self: TransactionIterator[AsyncBackend]) -> AsyncIterator[TransactionSummary]:
        async for page in self._pages:
            for item in page.items:
                yield item
