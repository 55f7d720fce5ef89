"""Walks over the list of transactions and searches in it: where they end, by which clock, and what they find."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

import bodies
from bodies import envelope, transaction
from drivers import KEY, LOOPBACK, session_of
from in_turn import in_turn
from momopay import Client, ProtocolError
from momopay._core.operation import run_sync
from momopay._core.reads import EVERYTHING, Matches, PageWalk, read_page, search
from momopay.models.requests import Search
from momopay.types import TransactionIterator, TransactionPage

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def page(next_cursor: str | None, *ids: str) -> TransactionPage:
    return TransactionPage.model_validate(bodies.page([transaction(each) for each in ids], next_cursor))


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

    walk, new = PageWalk(fetch), 0
    while run_sync(walk.next()) is not None:
        new += len(walk.new)
    assert new == 51 * 100
    seen = vars(walk._ids).values()
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

    with Client(KEY, base_url=LOOPBACK) as client:
        assert [item.transaction_id for item in TransactionIterator(session_of(client), fetch)] == old


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


# Searches.

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def ago(age: timedelta) -> str:
    return (datetime.now(UTC) - age).isoformat()


def item(reference: str, age: timedelta = timedelta(0), **fields: Any) -> dict[str, Any]:
    """A transaction as the list shows it."""
    known = {"accountReference": reference, "createdAt": ago(age), "updatedAt": ago(age)}
    return transaction(**{"identity": reference, **known, **fields})


def wanted(reference: str, age: timedelta = timedelta(0), **fields: Any) -> Search:
    return Search.checked(reference=reference, since=datetime.now(UTC) - age, **fields)


class Listed:
    """A list of these pages, how often one was read, and a client that reads them."""

    def __init__(self, *pages: Sequence[dict[str, Any]], headers: dict[str, str] | None = None) -> None:
        self.reads = 0
        self._pages = pages
        self._headers = headers
        self._client = Client(api_key=KEY, base_url=LOOPBACK, transport=httpx.MockTransport(self._respond), budget=None)
        self._session = session_of(self._client)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        self.reads += 1
        number = int(request.url.params.get("cursor", "0"))
        more = str(number + 1) if number + 1 < len(self._pages) else None
        body = envelope(bodies.page(self._pages[number], more))
        return httpx.Response(200, json=body, headers=self._headers)

    def search(self, *searched: Search, most: int = 100, **options: Any) -> list[Matches]:
        walk = PageWalk(lambda cursor: read_page(self._session, EVERYTHING, cursor), most=most)
        with self._client:
            return run_sync(search(self._session, list(searched), walk=walk, **options))


def ids(found: Matches) -> tuple[list[str], list[str], list[str]]:
    exact, near, known = ([each.transaction_id for each in some] for some in (found.exact, found.near, found.known))
    return exact, near, known


@in_turn(("is_measured", "reads"), [(True, 3), (False, 4)])
def test_one_walk_reaches_back_to_the_oldest_and_no_further(*, is_measured: bool, reads: int) -> None:
    """The clocks may differ by five minutes, or by a day if their offset was not measured at sending."""
    pages = [[item("new"), item("another", HOUR)], [item("old", DAY)], [item("another", DAY + HOUR)]]
    pages += [[item("another", 2 * DAY + HOUR)], [item("another", 3 * DAY)]]
    service = Listed(*pages)
    new, old = service.search(wanted("new"), wanted("old", DAY, is_measured=is_measured))
    assert (ids(new), ids(old)) == ((["new"], [], []), (["old"], [], []))
    assert (new.is_complete, old.is_complete, service.reads) == (True, True, reads)


def test_what_a_search_finds_is_exact_near_or_known() -> None:
    page = [
        item("r", identity="fits"),
        item("r", identity="costs more", amount=101),
        item("r", identity="another phone", phone="254700000000"),
        item("r", identity="another type", type="B2C"),
        item("r", 2 * HOUR, identity="older"),
        item("r", identity="recorded"),
        item("other", identity="another"),
    ]
    searched = wanted("r", HOUR, amount=100, phone="254712345678", type="STK", known=frozenset({"recorded"}))
    (found,) = Listed(page).search(searched)
    assert ids(found) == (["fits"], ["costs more", "another phone", "another type", "older"], ["recorded"])


def test_one_that_a_shifting_list_shows_twice_is_one() -> None:
    (found,) = Listed([item("r", status="PENDING")], [item("r", status="SUCCESS")]).search(wanted("r"))
    assert [each.status for each in found.exact] == ["SUCCESS"]


@in_turn(("whole_list", "reads", "near"), [(False, 2, []), (True, 4, ["r"])])
def test_the_whole_list_is_walked_until_each_is_found(*, whole_list: bool, reads: int, near: list[str]) -> None:
    """One that is known does not count as found."""
    pages = [[item("r", identity="known"), item("other")], [item("another", HOUR)], [item("another", DAY)]]
    service = Listed(*pages, [item("r", 9 * DAY)], [item("another", 10 * DAY)])
    searched = wanted("r", known=frozenset({"known"}))
    (found, _other) = service.search(searched, wanted("other"), whole_list=whole_list)
    assert (ids(found), service.reads) == (([], near, ["known"]), reads)


@in_turn(("most", "is_complete"), [(1, False), (2, True), (3, True)])
def test_a_walk_that_ends_early_says_whose_time_it_did_not_reach(*, most: int, is_complete: bool) -> None:
    service = Listed([item("new")], [item("another", DAY + HOUR)], [item("another", 2 * DAY)])
    new, old = service.search(wanted("new"), wanted("old", DAY), most=most)
    assert (ids(new)[0], old.is_complete, service.reads) == (["new"], is_complete, min(most, 2))


@in_turn("missing", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
def test_a_missing_time_at_the_end_of_a_page_ends_no_walk(missing: str) -> None:
    (found,) = Listed([item("another", createdAt=missing)], [item("r")]).search(wanted("r"))
    assert ids(found)[0] == ["r"]


@in_turn("ahead", [HOUR, 3 * DAY])
def test_a_time_in_the_services_future_proves_that_a_clock_was_ahead(ahead: timedelta) -> None:
    """By the time of the search the clock is right again."""
    others = [item(f"o{number}", timedelta(minutes=1)) for number in range(3)]
    (found,) = Listed(others, [item("r", timedelta(minutes=2))]).search(wanted("r", -ahead))
    assert ids(found)[0] == ["r"]


def test_a_clock_that_is_ahead_moves_the_search_back_as_far() -> None:
    """As the first page's ``Date`` shows."""
    date = datetime.now(UTC) - 3 * HOUR
    headers = {"date": f"{date:%a, %d %b %Y %H:%M:%S} GMT"}
    service = Listed([item("another", 3 * HOUR)], [item("r", 3 * HOUR + timedelta(minutes=4))], headers=headers)
    (found,) = service.search(wanted("r"))
    assert ids(found)[0] == ["r"]
    service = Listed([item("r", 3 * HOUR + timedelta(minutes=6))], headers=headers)
    (found,) = service.search(wanted("r", -HOUR))  # sent when the clock was further ahead
    assert ids(found)[0] == ["r"]


def test_a_search_stops_where_the_payment_cannot_be() -> None:
    service = Listed([item("r"), item("r", HOUR, identity="older")], [item("another", DAY)])
    (found,) = service.search(wanted("r"))
    assert (ids(found), service.reads) == ((["r"], ["older"], []), 1)
