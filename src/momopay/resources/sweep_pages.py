"""The newest pages of the list, as far as one sweep reads them. Each shows a hundred transactions for one request."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Generic

from momopay._core.backend import BackendT
from momopay._core.session import Session
from momopay.models.requests import Search
from momopay.models.transactions import TransactionPage
from momopay.resources.pagination import Fetch, PageWalk
from momopay.resources.search import service_times

_PAGES: Final = 12
# A key cannot make a hundred transactions in less time, and clocks differ a little.
_LEAST_SPAN: Final = timedelta(minutes=1)


class SweepPages:
    """The newest pages of the list, as far as a pass reads them."""

    def __init__(self, fetch: Fetch) -> None:
        self._walk = PageWalk(fetch)
        self.last: TransactionPage | None = None
        self.count: int = 0
        self.is_at_end: bool = False

    @property
    def left(self) -> int:
        """How many pages the pass may still read."""
        return _PAGES - self.count

    @property
    def is_over(self) -> bool:
        """Whether the pass reads no further page."""
        return self.is_at_end or self.left == 0

    async def next(self) -> TransactionPage | None:
        """Return the next page, None after the last one that a pass reads."""
        if self.is_over:
            return None
        page = await self._walk.next()
        if page is not None:
            self.last = page
            self.count += 1
        self.is_at_end = page is None or not page.next_cursor
        return page


class WithinReach(Generic[BackendT]):
    """The same pages, as long as what is searched for may be on one that the pass reads."""

    _session: Session[BackendT]

    def __init__(self, pages: SweepPages, session: Session[BackendT], wanted: list[Search]) -> None:
        self._pages = pages
        self._session = session
        self._wanted = wanted

    async def next(self) -> TransactionPage | None:
        """Return the next page, None if what is left lies deeper than the pass reads."""
        page = self._pages.last
        if page is not None and page.items:
            deeper = [each for each in service_times(self._session, self._wanted) if not each.is_past(page)]
            if not any(pages_to(each.earliest, page) <= self._pages.left for each in deeper):
                return None  # one that stays in doubt must not cost every pass all its pages
        return await self._pages.next()


def pages_to(moment: datetime, page: TransactionPage) -> float:
    """Return after how many pages the list shows a moment, estimated by how much time this page spans."""
    oldest = page.items[-1].created_at
    return (oldest - moment) / max(page.items[0].created_at - oldest, _LEAST_SPAN)
