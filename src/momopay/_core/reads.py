"""Reads that several packages use: the wallet's tenant, one transaction, the pages of the list, a search in them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import Any, Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack

from momopay._core.call import Call
from momopay._core.endpoint import Endpoint
from momopay._core.operation import OperationIterator
from momopay._core.retry import SAFE
from momopay._core.session import Session
from momopay._core.state import RecentlySeen
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay._redaction import redacted_repr
from momopay.errors import APIError, BudgetExhaustedError, MomoPayError, ProtocolError, TransactionNotFoundError
from momopay.models.records import Envelope, is_placeholder
from momopay.models.requests import (
    CLOCK_TOLERANCE,
    Fit,
    Search,
    TransactionQuery,
    comparable,
    oldest_time,
    transaction_id_of,
    transaction_path,
)
from momopay.models.transactions import (
    Transaction,
    TransactionPage,
    TransactionSummary,
    UnreadTransaction,
    WalletOwner,
    is_whole,
    with_known,
    without_reference,
)

logger: logging.Logger = logging.getLogger("momopay")

T = TypeVar("T")

WALLET_PATH: Final = "/wallets/service/balance"
_TENANT: Final = Endpoint("wallet.balance", "GET", SAFE, Lane.READ, Envelope[WalletOwner])
_TRANSACTION: Final = Endpoint("transactions.get", "GET", SAFE, Lane.READ, Envelope[Transaction], has_id=True)
_PAGE: Final = Endpoint("transactions.list", "GET", SAFE, Lane.READ, Envelope[TransactionPage])

_REFUSAL: Final = ("message", "code", "status_code", "details", "request_id")

# Not validated, because that would build validators that most calls never use.
EVERYTHING: Final = TransactionQuery.model_construct(limit=100)
"""The whole list, in pages of the maximum size."""
# A list that grows by a page between two reads shows the same page twice. More repetitions are no list.
_PAGES_WITHOUT_NEW: Final = 5  # pages
# Transactions of the same time may fill some pages. A list that goes back and forth in time never ends.
_PAGES_WITHOUT_OLDER: Final = 100  # pages
_MOST_PAGES: Final = 10_000  # pages of one walk
_LONGER: Final = "for a long list, use client.with_options(deadline=3600, max_wait=None)"

# If a payment's time is in the service's future, how far before the service's present its search begins.
_FUTURE_MARGIN: Final = timedelta(days=1)
_MOST_READS: Final = 3  # requests by id, for the unread items that one search shows

Fetch: TypeAlias = Callable[[str | None], Coroutine[Any, Any, TransactionPage]]
"""Reads the page at a cursor, the first one for None."""


class ReadOptions(TypedDict, total=False):
    """The options of `Call` that a read takes."""

    lane: Lane
    until: float
    has_slot: bool


async def read_tenant(session: Session[Any], **options: Unpack[ReadOptions]) -> str | None:
    """Return the tenant of the wallet that the session's key may read; None if the response does not show it."""
    return (await Call(session, _TENANT, WALLET_PATH, **options).run()).tenant_id


async def read_transaction(session: Session[Any], transaction: object, **options: Unpack[ReadOptions]) -> Transaction:
    """Return a transaction as it is now, given its id or a record that carries it."""
    path = transaction_path(transaction)
    try:
        return with_known(await Call(session, _TRANSACTION, path, **options).run(), transaction)
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
    page = await Call(session, _PAGE, "/transactions" + query.after(cursor).to_query(), **options).run()
    for each in page.unread:
        if session.unread.add([str(each.id or each.reference)]):  # as polls and sweeps read a page again and again
            shown = redacted_repr(each.id), redacted_repr(each.reference), each.problem
            logger.warning("an item of the list cannot be read: transaction %s, reference %s: %s", *shown)
    return page


class PageWalk:
    """One walk over the list, newest first, of at most `most` pages, until the monotonic time `until`.

    It always ends, whatever the service sends. If it ends before the list does, `next` raises ProtocolError: absence
    must not be proven by half a list.
    """

    def __init__(
        self, fetch: Fetch, most: float = inf, *, now: Callable[[], float] = lambda: 0.0, until: float = inf
    ) -> None:
        self._fetch = fetch
        self._pages_left = most
        self._now = now
        self._until = until
        self._cursor: str | None = None
        self._seen = set[str | None]()  # cursors; None asks for the first page, so a second None is the end
        self._ids = RecentlySeen()
        self._oldest: datetime | None = None
        self._since_new = self._since_older = 0  # pages since one showed a new transaction, or an older one
        self.failure: MomoPayError | None = None
        """Why a search could not walk on, if it could not."""
        self.new = list[TransactionSummary]()
        """The transactions of the last page that no earlier page showed."""

    @property
    def is_at_end(self) -> bool:
        """Whether the last page of the list was read."""
        return self._cursor is None and bool(self._seen)

    async def next(self) -> TransactionPage | None:
        """Return the next page, or None after the last one."""
        if self.is_at_end or self._pages_left <= 0:
            return None
        self._check_progress()
        try:
            page = await self._fetch(self._cursor)
        except BudgetExhaustedError as error:
            problem = f"{error.message}. {len(self._seen)} pages were read; {_LONGER}"
            raise BudgetExhaustedError(problem, retry_after=error.retry_after) from error
        self._pages_left -= 1
        self._seen.add(self._cursor)
        self._cursor = page.next_cursor or None  # an empty cursor would ask for the first page again
        self._note(page)
        return page

    def _check_progress(self) -> None:
        problem = ""
        if self._cursor in self._seen:  # all are remembered, because a cycle of cursors may have any length
            problem = "it repeats a cursor"
        elif self._since_new >= _PAGES_WITHOUT_NEW:
            problem = f"its last {self._since_new} pages show no new transaction"
        elif self._since_older >= _PAGES_WITHOUT_OLDER:
            problem = f"its last {self._since_older} pages show no older transaction"
        elif len(self._seen) >= _MOST_PAGES:
            problem = "filter it by time, for a part of it"
        elif self._now() >= self._until:
            problem = f"the deadline passed; {_LONGER}"
        if problem:
            raise ProtocolError(f"the list has no end after {len(self._seen)} pages: {problem}")

    def _note(self, page: TransactionPage) -> None:
        items = {item.transaction_id: item for item in page.items}
        new = self._ids.add([*items, *(each.id for each in page.unread if each.id is not None)])
        self.new = [item for name, item in items.items() if name in new]
        self._since_new = 0 if new else self._since_new + 1
        oldest = oldest_time(page)
        is_older = oldest is None or self._oldest is None or oldest < self._oldest
        self._since_older = 0 if is_older else self._since_older + 1
        self._oldest = oldest if is_older and oldest is not None else self._oldest


class _Walk(Generic[T]):
    """The steps of one loop: what is taken from each page of a walk."""

    def __init__(self, fetch: Fetch, take: Callable[[PageWalk, TransactionPage], Sequence[T]]) -> None:
        self._pages = PageWalk(fetch)
        self._take = take

    async def next(self) -> Sequence[T] | None:
        page = await self._pages.next()
        return None if page is None else self._take(self._pages, page)


class TransactionPages(OperationIterator[BackendT, TransactionPage]):
    """Pages of transactions, newest first. Each loop starts from the newest page and fetches the pages as it goes."""


class TransactionIterator(OperationIterator[BackendT, TransactionSummary]):
    """Transactions of all pages, newest first, each once. Each loop starts anew and fetches the pages as it goes."""

    def __init__(self, session: Session[BackendT], fetch: Fetch) -> None:
        super().__init__(session, partial(_Walk, fetch, lambda walk, _page: walk.new))
        self._fetch = fetch

    def pages(self) -> TransactionPages[BackendT]:
        """Return the same list as pages. Two of them may contain the same transaction."""
        return TransactionPages(self._session, partial(_Walk, self._fetch, lambda _walk, page: [page]))


@dataclass
class Matches:
    """What a search found for one payment, newest first, and whether the walk reached back to the payment's time."""

    exact: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    near: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    known: list[TransactionSummary] = field(default_factory=list[TransactionSummary])
    unread: list[UnreadTransaction] = field(default_factory=list[UnreadTransaction])  # items that may be the payment
    is_complete: bool = True

    @property
    def blocking(self) -> list[TransactionSummary | UnreadTransaction]:
        """What may be the payment although it is no exact match."""
        return [*self.near, *self.unread]


async def search(
    session: Session[Any],
    wanted: list[Search],
    until: float = inf,
    *,
    whole_list: bool = False,
    walk: PageWalk | None = None,
) -> list[Matches]:
    """Walk the list once, back to the oldest wanted payment, and return the matches of each.

    The list can prove that a payment was made, but never that it was not: a transaction may appear in it late. With
    `whole_list`, continue towards the list's end while any payment has no match. Raise ProtocolError if the list has no
    end, or not by the monotonic time `until`. A `walk` of the caller's may end earlier: if it fails, return what it
    found, and set its `failure`.
    """
    # Not filtered by type: a transaction with the reference and another type is a near match.
    is_own = walk is None
    fetch = partial(read_page, session, EVERYTHING, until=until)
    walk = walk or PageWalk(fetch, now=session.backend.now, until=until)
    by_reference: dict[str, dict[str, TransactionSummary]] = {comparable(each.reference): {} for each in wanted}
    unread, unnamed = list[UnreadTransaction](), dict[str, TransactionSummary]()

    def is_found(each: Search) -> bool:
        return not by_reference[comparable(each.reference)].keys() <= each.known

    last: TransactionPage | None = None
    try:
        while (page := await walk.next()) is not None:
            if last is None:
                session.clock.observe(page.response.headers)
                wanted = _in_service_time(session, wanted)
            last = page
            for item in page.items:
                # Keyed by id, because a list that grows during the walk shows some transactions twice.
                is_unnamed = is_placeholder(item.account_reference or "")
                of_reference = unnamed if is_unnamed else by_reference.get(comparable(item.account_reference), {})
                of_reference[item.transaction_id] = item
            unread += page.unread
            # A transaction older than the payment can only be a near match, and one near match is enough.
            oldest = min(wanted, key=lambda each: each.earliest)
            if oldest.is_past(page) and (not whole_list or all(map(is_found, wanted))):
                break
    except MomoPayError as error:
        if is_own:
            raise
        walk.failure = error
    found = list[Matches]()
    for each in wanted:
        fits = [(each.fit(item), item) for item in by_reference[comparable(each.reference)].values()]
        exact, near, known = ([item for fit, item in fits if fit is kind] for kind in (Fit.EXACT, Fit.NEAR, Fit.KNOWN))
        is_complete = walk.is_at_end or (last is not None and each.is_past(last))
        may_be = {item.id or place: item for place, item in enumerate(unread) if each.may_be(item)}
        # They are reported as items that could not be read: a read by id may show their reference.
        may_be |= {name: without_reference(item) for name, item in unnamed.items() if each.fit(item) is Fit.NEAR}
        found.append(Matches(exact, near, known, list(may_be.values()), is_complete))
    return found


async def read_unread(session: Session[Any], wanted: Search, matches: Matches, until: float) -> None:
    """Read by id, where they have one, items that may be the payment. What a read shows whole is unread no longer."""
    for item in [each for each in matches.unread if each.id is not None][:_MOST_READS]:
        try:
            read = await read_transaction(session, item.id, until=until)
        except MomoPayError:  # it may be the payment still
            continue
        fit = wanted.fit(read)
        if read.transaction_id == item.id and (is_whole(read) or fit is Fit.NONE):
            matches.unread.remove(item)
            {Fit.EXACT: matches.exact, Fit.NEAR: matches.near}.get(fit, matches.known).append(read)


def _in_service_time(session: Session[Any], wanted: list[Search]) -> list[Search]:
    """Return the searches with times of the service's clock: times in the list are the service's."""
    wanted = [each.shifted(session.clock.ahead) for each in wanted]
    # A time in the service's future comes from a clock that was ahead at sending, even if it is right by now.
    now = session.clock.service_now_if_known() or datetime.now(UTC)
    recently = {"since": now - _FUTURE_MARGIN}
    return [each.model_copy(update=recently) if each.since > now + CLOCK_TOLERANCE else each for each in wanted]
