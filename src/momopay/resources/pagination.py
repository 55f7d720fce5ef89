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
else:  # for `typing.get_type_hints`
    AsyncBackend = SyncBackend = Any

__all__ = ["TransactionIterator", "TransactionPages"]

Fetch: TypeAlias = Callable[[str | None], Coroutine[Any, Any, TransactionPage]]


class PageWalk:
    """One walk over the list."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._cursor: str | None = None
        self._seen = set[str | None]()  # None asks for the first page, so a second None is the end

    async def next(self) -> TransactionPage | None:
        """Return the next page, or None after the last one."""
        if self._cursor in self._seen:
            if self._cursor is None:
                return None
            # A loop of cursors may have any length, so all of them are remembered.
            raise ProtocolError("the list repeats a cursor, so it would never end")
        page = await self._fetch(self._cursor)
        self._seen.add(self._cursor)
        self._cursor = page.next_cursor or None  # an empty cursor would ask for the first page again
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
