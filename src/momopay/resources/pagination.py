"""Walk the list of transactions page by page, with a blocking or an asynchronous client."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final

from momopay._core.backend import BackendT
from momopay._core.operation import OperationIterator
from momopay._core.session import Session
from momopay.durable.search import Fetch, PageWalk
from momopay.models.transactions import TransactionPage, TransactionSummary

__all__ = ["TransactionIterator", "TransactionPages"]

# The list shifts by what arrives between two reads. A transaction comes again on the next page, or a few pages later if
# more than a page of them arrived meanwhile. So a walk of any length needs no more memory than this.
_PAGES_REMEMBERED: Final = 10


class FirstSightings:
    """Tells which transactions of a page were not on one of the pages before it."""

    def __init__(self) -> None:
        self._ids = set[str]()
        self._pages: deque[set[str]] = deque()

    def on(self, page: TransactionPage) -> list[TransactionSummary]:
        """Return the transactions of the next page that are seen for the first time."""
        ids = {item.transaction_id for item in page.items}
        items = page.items
        if len(ids) < len(items) or not self._ids.isdisjoint(ids):
            new = {item.transaction_id: item for item in items if item.transaction_id not in self._ids}
            ids, items = set(new), list(new.values())
        self._pages.append(ids)
        self._ids |= ids
        if len(self._pages) > _PAGES_REMEMBERED:
            self._ids -= self._pages.popleft()
        return items


class TransactionWalk:
    """One walk over the transactions of all pages."""

    def __init__(self, fetch: Fetch) -> None:
        self._pages = PageWalk(fetch)
        self._seen = FirstSightings()
        self._items: Iterator[TransactionSummary] = iter(())

    async def next(self) -> TransactionSummary | None:
        """Return the next transaction that was not seen before, or None after the last one."""
        while (item := next(self._items, None)) is None:
            page = await self._pages.next()
            if page is None:
                return None
            self._items = iter(self._seen.on(page))
        return item

    def close(self) -> None:
        pass


class TransactionPages(OperationIterator[BackendT, TransactionPage]):
    """Pages of transactions, newest first. Each ``for`` or ``async for`` walks anew and fetches as it goes."""

    def __init__(self, session: Session[BackendT], fetch: Fetch) -> None:
        super().__init__(session, partial(PageWalk, fetch))


class TransactionIterator(OperationIterator[BackendT, TransactionSummary]):
    """Transactions of all pages, newest first, each once. Each ``for`` or ``async for`` walks anew, page by page."""

    def __init__(self, session: Session[BackendT], fetch: Fetch) -> None:
        super().__init__(session, partial(TransactionWalk, fetch))
        self._fetch = fetch

    def pages(self) -> TransactionPages[BackendT]:
        """Return the same walk page by page, as the service gives them: two may have the same transaction."""
        return TransactionPages(self._session, self._fetch)
