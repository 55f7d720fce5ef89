"""Waiting while the rate budget is short: what is looked at, in which order, and what nobody may starve."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise

import anyio
import httpx
import pytest
import trio
import trio.testing

from momopay import AsyncClient, Client, Lane, PollSchedule, RateBudget, Transaction, WaitTimeoutError, parse_callback
from momopay._polling.coordinator import WaitCoordinator
from momopay._polling.waiter import Waiter
from patience import until
from scale.simulation import TrioIO
from virtual import envelope, install_backend, transaction

BASE = "https://api.example/v1"
OVERVIEW = {"total": 0, "completed": 0, "failed": 0, "pending": 0}
MINUTE = 61.0


class Book:
    """Transactions, the newest last, with an end that is a function of time; notes what was read, and when."""

    def __init__(self, **ends: tuple[float, str]) -> None:
        self.ends = ends
        self.asked: list[tuple[float, str]] = []
        self.begun = 0.0
        self.clock: Callable[[], float] = trio.current_time

    def now(self) -> float:
        return self.clock() - self.begun

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1")
        further = "?further" if "cursor" in request.url.params else ""
        self.asked.append((round(self.now(), 2), path + further))
        if path == "/transactions":
            first = int(request.url.params.get("cursor", 0))
            items = [self.record(each) for each in list(reversed(self.ends))[first : first + 100]]
            following = str(first + 100) if first + 100 < len(self.ends) else None
            return httpx.Response(200, json=envelope({"items": items, "overview": OVERVIEW, "nextCursor": following}))
        return httpx.Response(200, json=envelope(self.record(path.rpartition("/")[2]) | {"resultDesc": "why"}))

    def record(self, identity: str) -> dict[str, object]:
        when, end = self.ends[identity]
        return transaction(identity, end if self.now() >= when else "PENDING")

    def pages(self) -> list[float]:
        return [when for when, path in self.asked if path == "/transactions"]


def run(book: Book, work: Callable[[AsyncClient], Awaitable[None]], budget: RateBudget | None = None) -> None:
    async def main() -> None:
        book.begun = trio.current_time()
        async with AsyncClient("pk_test_short", base_url=BASE, budget=budget) as client:
            install_backend(client, TrioIO(httpx.MockTransport(book)))
            await work(client)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def payers(budget: RateBudget, stop: float) -> None:
    """Have paid for a minute, and pay on without a pause: what is not held back for polling is gone."""
    begun = trio.current_time()
    for number in range(58):
        budget.reserve(begun - MINUTE * (1 - number / 58), Lane.PAYMENT)
    while trio.current_time() < begun + stop:  # noqa: ASYNC110  the budget has no event to wait for
        await anyio.sleep(budget.reserve(trio.current_time(), Lane.PAYMENT))


def failed_callback(identity: str) -> bytes:
    return (
        f'{{"event_type": "transaction.failed", "transaction": {{"id": "{identity}", "type": "STK", "status": "FAILED",'
        ' "amount": 100, "phone_number": "254712345678", "created_at": "2026-11-20T10:00:00Z",'
        ' "updated_at": "2026-11-20T10:00:00Z"}}'
    ).encode()


def test_waits_that_are_notified_together_share_a_page() -> None:
    book = Book(a=(3.0, "SUCCESS"), b=(3.0, "SUCCESS"), c=(99.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for each in ("a", "b"):
                tasks.start_soon(client.transactions.wait, each)
            await anyio.sleep(4.0)
            client.transactions.notify("a")
            client.transactions.notify("b")

    run(book, work)
    assert book.asked == [(4.0, "/transactions")]


def test_a_callback_that_tells_of_a_failure_is_read_for_its_reason_at_once() -> None:
    book = Book(a=(3.0, "FAILED"), b=(20.0, "SUCCESS"))
    ends = list[Transaction]()

    async def work(client: AsyncClient) -> None:
        async def wait(identity: str) -> None:
            ends.append(await client.transactions.wait(identity))

        async with anyio.create_task_group() as tasks:
            for each in ("a", "b"):
                tasks.start_soon(wait, each)
            await anyio.sleep(8.0)
            client.transactions.notify(parse_callback(failed_callback("a")))

    run(book, work)
    assert book.asked[0] == (8.0, "/transactions/a")
    assert (ends[0].transaction_id, ends[0].result_desc) == ("a", "why")


def test_those_who_are_notified_while_a_look_queues_for_its_slot_take_part_in_it() -> None:
    book = Book(**{f"t{number}": (1.0, "SUCCESS") for number in range(20)})
    budget = RateBudget()

    async def work(client: AsyncClient) -> None:
        for _ in range(58):
            budget.reserve(trio.current_time(), Lane.PAYMENT)
        async with anyio.create_task_group() as tasks:
            for each in book.ends:
                tasks.start_soon(client.transactions.wait, each)
            for each in book.ends:
                await anyio.sleep(1.0)
                client.transactions.notify(each)

    run(book, work, budget)
    assert len(book.asked) <= 2
    assert book.asked[-1] == (MINUTE, "/transactions")


def test_reasons_and_sweeps_take_turns_and_a_reason_is_not_waited_for_for_ever() -> None:
    book = Book(**{f"t{number}": (10.0, "FAILED") for number in range(30)})
    book.ends["late"] = (150.0, "SUCCESS")
    budget, ends = RateBudget(), dict[str, tuple[float, str | None]]()

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:

            async def wait(identity: str) -> None:
                ended = await client.transactions.wait(identity)
                ends[identity] = (book.now(), ended.result_desc)

            tasks.start_soon(payers, budget, 400.0)
            for each in book.ends:
                tasks.start_soon(wait, each)

    run(book, work, budget)
    reasons = [when for when, reason in ends.values() if reason == "why"]
    bare = [when for when, reason in ends.values() if reason is None]
    assert len(reasons) >= 3
    assert len(bare) >= 20
    assert max(when for each, (when, _) in ends.items() if each != "late") <= 15.0 + 45.0
    assert ends["late"][0] <= 150.0 + 30.0


@pytest.mark.parametrize("first", ["brief", "patient"])
def test_a_wait_that_ends_before_the_next_slot_leaves_looking_to_one_that_does_not(first: str) -> None:
    book = Book(brief=(1.0, "SUCCESS"), patient=(1.0, "SUCCESS"))
    budget, told = RateBudget(), dict[str, float]()

    async def work(client: AsyncClient) -> None:
        budget.stop(trio.current_time(), trio.current_time() + 60.0)

        async def wait(identity: str, limit: float) -> None:
            try:
                await client.transactions.wait(identity, schedule=PollSchedule(limit=limit))
            except WaitTimeoutError:
                assert identity == "brief"
            told[identity] = book.now()

        waits = {"brief": partial(wait, "brief", 30.0), "patient": partial(wait, "patient", 300.0)}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waits.pop(first))
            await anyio.sleep(0.1)
            tasks.start_soon(waits.popitem()[1])
            await anyio.sleep(16.0)
            client.transactions.notify("brief")
            client.transactions.notify("patient")

    run(book, work, budget)
    assert told["brief"] == pytest.approx(30.0, abs=0.2)
    assert told["patient"] == pytest.approx(60.0, abs=0.2)


def test_a_look_that_is_cancelled_is_made_for_the_notified_by_another() -> None:
    book = Book(a=(1.0, "SUCCESS"), b=(1.0, "SUCCESS"))
    budget = RateBudget()

    async def work(client: AsyncClient) -> None:
        budget.stop(trio.current_time(), trio.current_time() + 20.0)
        scope = anyio.CancelScope()

        async def doomed() -> None:
            with scope:
                await client.transactions.wait("a")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(doomed)
            tasks.start_soon(client.transactions.wait, "b")
            await anyio.sleep(2.0)
            client.transactions.notify("a")
            client.transactions.notify("b")
            await anyio.sleep(3.0)
            scope.cancel()

    run(book, work, budget)
    assert [when for when, _ in book.asked] == [20.0]


def test_the_search_beyond_the_first_page_leaves_half_of_the_slots_to_the_first_page() -> None:
    book = Book(**{f"stuck{number}": (1e9, "SUCCESS") for number in range(3)})
    book.ends["overdue"] = (270.0, "SUCCESS")
    book.ends.update({f"t{number}": (1e9, "SUCCESS") for number in range(150)})
    budget, told = RateBudget(), dict[str, float]()

    async def work(client: AsyncClient) -> None:
        async def wait(identity: str) -> None:
            limit = 400.0 if identity.startswith("stuck") else 300.0
            try:
                await client.transactions.wait(identity, schedule=PollSchedule(limit=limit))
            except WaitTimeoutError:
                return
            told[identity] = book.now()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(payers, budget, 420.0)
            for each in list(book.ends)[:4] + list(book.ends)[-60:]:
                tasks.start_soon(wait, each)

    run(book, work, budget)
    assert told.keys() == {"overdue"}
    # A slot comes every 8.7 s. The first page has at least half of them, and is not read later than every 30 s.
    pages = [when for when in book.pages() if when < 300.0]
    assert len(pages) >= len([when for when, _ in book.asked if when < 300.0]) / 2
    assert max(after - before for before, after in pairwise(pages)) <= 30.0


def test_a_room_forgets_whoever_left() -> None:
    coordinator = WaitCoordinator()

    class Nobody:
        def wake(self) -> None:
            raise AssertionError("it left")

        def waiters(self) -> list[Waiter]:
            raise AssertionError("it left")

    with coordinator.register(Nobody()):
        pass
    coordinator.notify("a")
    coordinator.wake()


def test_threads_that_are_notified_at_about_the_same_time_share_pages() -> None:
    book = Book(**{f"t{number}": (0.0, "SUCCESS") for number in range(30)})
    book.clock = time.monotonic
    told = list[str]()

    def slowly(request: httpx.Request) -> httpx.Response:
        time.sleep(0.02)
        return book(request)

    with Client("pk_test_short", base_url=BASE, budget=None, transport=httpx.MockTransport(slowly)) as client:
        coordinator = client.transactions._coordinator

        def wait(identity: str) -> None:
            told.append(client.transactions.wait(identity).transaction_id)

        threads = [threading.Thread(target=wait, args=(identity,), daemon=True) for identity in book.ends]
        for thread in threads:
            thread.start()
        until(lambda: len(coordinator.waiters(0.0)) == len(threads), "all of them wait")
        for identity in book.ends:
            client.transactions.notify(identity)
        for thread in threads:
            thread.join(timeout=10.0)
    assert sorted(told) == sorted(book.ends)
    assert len(book.asked) <= 10
