"""Reads that several packages use: the wallet's balance, one transaction, a page of the list, and all its pages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias, TypedDict, Unpack

from momopay._core.call import Call, Endpoint
from momopay._core.operation import OperationIterator
from momopay._core.retry import SAFE
from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay.errors import APIError, ProtocolError, TransactionNotFoundError
from momopay.models.account import WalletBalance
from momopay.models.records import Envelope
from momopay.models.requests import TransactionQuery, transaction_id_of, transaction_path
from momopay.models.transactions import Transaction, TransactionPage, TransactionSummary

_BALANCE: Final = Endpoint("wallet.balance", "GET", SAFE, Lane.READ, Envelope[WalletBalance])
_TRANSACTION: Final = Endpoint("transactions.get", "GET", SAFE, Lane.READ, Envelope[Transaction], has_id=True)
_PAGE: Final = Endpoint("transactions.list", "GET", SAFE, Lane.READ, Envelope[TransactionPage])

_REFUSAL: Final = ("message", "code", "status_code", "details", "request_id")

# Not validated, because that would build validators that most calls never use.
EVERYTHING: Final = TransactionQuery.model_construct(limit=100)
"""The whole list, in pages of the maximum size."""
# Ten full pages. New transactions shift the list between two reads, so one may appear again on the next page, or a few
# pages later if more than a page of them arrived meanwhile.
_IDS_REMEMBERED: Final = 1000

Fetch: TypeAlias = Callable[[str | None], Coroutine[Any, Any, TransactionPage]]
"""Reads the page at a cursor, the first one for None."""


class ReadOptions(TypedDict, total=False):
    """The options of `Call` that a read takes."""

    lane: Lane
    until: float
    has_slot: bool


async def read_balance(session: Session[Any], **options: Unpack[ReadOptions]) -> WalletBalance:
    return await Call(session, _BALANCE, "/wallets/service/balance", **options).run()


async def read_transaction(session: Session[Any], transaction: object, **options: Unpack[ReadOptions]) -> Transaction:
    """Return a transaction as it is now, given its id or a record that carries it."""
    path = transaction_path(transaction)
    try:
        return await Call(session, _TRANSACTION, path, **options).run()
    except TransactionNotFoundError as error:
        error.transaction_id = transaction_id_of(transaction)
        raise
    except APIError as error:
        if error.code != "INVALID_UUID":
            raise
        # The service refuses the form of the id, which no transaction of its own has.
        not_found = TransactionNotFoundError(**{name: getattr(error, name) for name in _REFUSAL})
        not_found.transaction_id = transaction_id_of(transaction)
        raise not_found from error


async def read_page(
    session: Session[Any], query: TransactionQuery, cursor: str | None = None, **options: Unpack[ReadOptions]
) -> TransactionPage:
    """Return the page of the list at a cursor, by default the first one."""
    return await Call(session, _PAGE, "/transactions" + query.after(cursor).to_query(), **options).run()


class PageWalk:
    """One walk over the list, newest first, of at most `most` pages."""

    def __init__(self, fetch: Fetch, most: float = inf) -> None:
        self._fetch = fetch
        self._pages_left = most
        self._cursor: str | None = None
        self._shown = 0  # transactions on the pages so far
        self._seen = set[str | None]()  # None asks for the first page, so a second None is the end

    @property
    def is_at_end(self) -> bool:
        """Whether the last page of the list was read."""
        return self._cursor is None and bool(self._seen)

    async def next(self) -> TransactionPage | None:
        """Return the next page, or None after the last one."""
        if self.is_at_end or self._pages_left <= 0:
            return None
        if self._cursor in self._seen:  # all are remembered, because a cycle of cursors may have any length
            raise ProtocolError("the list repeats a cursor, so it would never end")
        page = await self._fetch(self._cursor)
        self._pages_left -= 1
        self._shown += len(page.items)
        # If the service renamed the field, the rest of the list would seem not to exist.
        if "next_cursor" not in page.model_fields_set and self._shown < page.overview.total:
            raise ProtocolError("a page of the list has no nextCursor, and is not the last one")
        self._seen.add(self._cursor)
        self._cursor = page.next_cursor or None  # an empty cursor would ask for the first page again
        return page


class TransactionWalk:
    """One walk over the transactions of all pages, each once."""

    def __init__(self, fetch: Fetch) -> None:
        self._pages = PageWalk(fetch)
        self._seen: OrderedDict[str, None] = OrderedDict()  # ids; bounded, because a walk may have any length

    async def next(self) -> list[TransactionSummary] | None:
        """Return the transactions of the next page that are new to this walk, or None after the last page."""
        page = await self._pages.next()
        if page is None:
            return None
        new = {item.transaction_id: item for item in page.items if item.transaction_id not in self._seen}
        self._seen |= dict.fromkeys(new)
        while len(self._seen) > _IDS_REMEMBERED:
            self._seen.popitem(last=False)
        return list(new.values())


class _EachPage:
    """One walk over the pages."""

    def __init__(self, fetch: Fetch) -> None:
        self._pages = PageWalk(fetch)

    async def next(self) -> list[TransactionPage] | None:
        page = await self._pages.next()
        return None if page is None else [page]


class TransactionPages(OperationIterator[BackendT, TransactionPage]):
    """Pages of transactions, newest first. Each loop starts from the newest page and fetches the pages as it goes."""


class TransactionIterator(OperationIterator[BackendT, TransactionSummary]):
    """Transactions of all pages, newest first, each once. Each loop starts anew and fetches the pages as it goes."""

    def __init__(self, session: Session[BackendT], fetch: Fetch) -> None:
        super().__init__(session, partial(TransactionWalk, fetch))
        self._fetch = fetch

    def pages(self) -> TransactionPages[BackendT]:
        """Return the same list as pages. Two of them may contain the same transaction."""
        return TransactionPages(self._session, partial(_EachPage, self._fetch))
