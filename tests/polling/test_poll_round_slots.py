"""What a poll round reads first when the rate budget is short of slots, and that nothing is forgotten then."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import httpx
import pytest
import trio

from momopay import (
    AsyncClient,
    BudgetExhaustedError,
    Lane,
    PollSchedule,
    RateBudget,
    Transaction,
    TransactionPage,
    WaitTimeoutError,
    parse_callback,
)
from momopay._polling.coordinator import WaitCoordinator
from momopay._polling.poll_round import PollRound
from momopay._polling.waiter import Waiter
from polling.kit import WINDOW, CountingBudget, Service, callback, in_trio, slow_client, wait_for_each, waiting_client
from virtual import waking


class NoSlots:
    """A reader that finds no slot before any deadline."""

    async def read(self, transaction_id: str, until: float) -> Transaction:
        raise BudgetExhaustedError("no slot", retry_after=60.0)

    async def page(self, cursor: str | None, until: float) -> TransactionPage:
        raise BudgetExhaustedError("no slot", retry_after=60.0)


class Registered:
    def __init__(self, *waiters: Waiter) -> None:
        self.own = waiters

    def wake(self) -> None:
        pass

    def waiters(self) -> list[Waiter]:
        return list(self.own)


@pytest.mark.parametrize("count", [1, 2], ids=["a read by id", "a page"])
@pytest.mark.parametrize("failed", [False, True])
def test_a_notification_is_not_lost_when_no_slot_is_free(count: int, *, failed: bool) -> None:
    waiters = [Waiter(f"t{number}", None, every=10.0, deadline=300.0, next_poll_at=99.0) for number in range(count)]
    coordinator = WaitCoordinator()
    with coordinator.register(Registered(*waiters)):
        for waiter in waiters:
            coordinator.notify(waiter.transaction_id, failed=failed)
        poll_round = PollRound(coordinator, NoSlots(), clock=lambda: 20.0, until=30.0)
        for _ in range(2):
            with pytest.raises(StopIteration) as done:
                poll_round.run().send(None)
            assert done.value.value is False
    assert all(waiter.needs_full_read if failed else waiter.notified for waiter in waiters)
    assert all(waiter.next_poll_at == 99.0 for waiter in waiters)


async def payers(budget: RateBudget, stop: float) -> None:
    """Have paid for a minute, and pay on without a pause: what is not reserved for polling is used."""
    begun = trio.current_time()
    for number in range(budget.requests):
        budget.reserve(begun - WINDOW * (1 - number / budget.requests), Lane.PAYMENT)
    while trio.current_time() < begun + stop:  # noqa: ASYNC110  the budget has no event to wait for
        await anyio.sleep(budget.reserve(trio.current_time(), Lane.PAYMENT))


def test_polls_use_the_lane_that_gives_way() -> None:
    service, budget = Service(), CountingBudget()
    service.add_many(120, (16.0, "FAILED"))
    client, _ = waiting_client(service, budget=budget)
    list(client.transactions.wait_all(["t0", "t1", "t119"]))
    assert any("?" in path for path in service.paths)
    assert "/transactions/t119" in service.paths
    assert set(budget.lanes) == {Lane.POLL}


def test_full_reads_and_pages_take_turns_and_no_end_waits_long_for_its_result_code() -> None:
    service, budget = Service(), RateBudget()
    service.add_many(30, (10.0, "FAILED"))
    service.add("late", (150.0, "SUCCESS"))
    ends = dict[str, tuple[float, str | None]]()

    async def work(client: AsyncClient) -> None:
        async def wait(identity: str) -> None:
            ended = await client.transactions.wait(identity)
            ends[identity] = (service.clock(), ended.result_desc)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(payers, budget, 400.0)
            for each in service.moves:
                tasks.start_soon(wait, each)

    in_trio(service, work, budget)
    descriptions = [description for _, description in ends.values()]
    assert descriptions.count("done") >= 3
    assert descriptions.count(None) >= 20
    assert max(when for each, (when, _) in ends.items() if each != "late") <= 15.0 + 45.0
    assert ends["late"][0] <= 150.0 + 30.0


@pytest.mark.parametrize("first", ["brief", "long"])
@pytest.mark.parametrize("failed", [False, True])
def test_a_wait_that_gives_up_before_the_next_slot_leaves_polling_to_one_that_does_not(
    first: str, *, failed: bool
) -> None:
    service, budget, ended = Service(), CountingBudget(), dict[str, float]()
    status = "FAILED" if failed else "SUCCESS"
    service.add("brief", (1.0, status))
    service.add("long", (1.0, status))

    async def work(client: AsyncClient) -> None:
        budget.stop(trio.current_time(), trio.current_time() + 60.0)

        async def wait(identity: str, limit: float) -> None:
            schedule = PollSchedule(first=limit - 10.0, limit=limit)
            try:
                await client.transactions.wait(identity, schedule=schedule)
            except WaitTimeoutError:
                assert identity == "brief"
            ended[identity] = service.clock()

        waits = {"brief": partial(wait, "brief", 30.0), "long": partial(wait, "long", 300.0)}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waits.pop(first))
            await anyio.sleep(0.1)
            tasks.start_soon(waits.popitem()[1])
            await anyio.sleep(16.0)
            for identity in service.moves:
                client.transactions.notify(parse_callback(callback(identity, status)))

    in_trio(service, work, budget)
    assert ended["brief"] == pytest.approx(30.0, abs=0.2)
    assert ended["long"] == pytest.approx(60.0, abs=0.2)


def test_a_cancelled_poll_keeps_the_notifications() -> None:
    service, budget = Service(), RateBudget()
    service.add_many(2, (1.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        budget.stop(trio.current_time(), trio.current_time() + 10.0)
        scope = anyio.CancelScope()

        async def doomed() -> None:
            with scope:
                await client.transactions.wait("t0")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(doomed)
            tasks.start_soon(client.transactions.wait, "t1")
            await anyio.sleep(2.0)
            client.transactions.notify("t0")
            client.transactions.notify("t1")
            await anyio.sleep(3.0)
            scope.cancel()

    in_trio(service, work, budget)
    assert service.times == [10.0]


@pytest.mark.parametrize("count", [1, 2], ids=["a read by id", "a page"])
def test_a_poll_lasts_no_longer_than_the_wait_that_makes_it(count: int) -> None:
    service, budget = Service(), RateBudget()
    client, backend = waiting_client(service, budget=budget)
    budget.stop(backend.clock, backend.clock + 60.0)
    with pytest.raises(WaitTimeoutError):
        list(client.transactions.wait_all(service.add_many(count), schedule=PollSchedule(limit=30.0)))
    assert service.clock() == 30.0


def test_full_reads_and_pages_take_turns_when_requests_take_longer_than_the_interval() -> None:
    service = Service()
    service.add_many(4, (0.0, "FAILED"), prefix="failed")
    service.add_many(2, prefix="pending")
    ends = iter(slow_client(service, 9.0).transactions.wait_all(service.moves, schedule=PollSchedule(every=5.0)))
    assert [next(ends).result_desc for _ in range(2)] == ["done", None]
    assert service.paths == ["/transactions", "/transactions/failed0", "/transactions"]


def test_notifications_without_a_pause_do_not_hold_back_full_reads() -> None:
    service = Service()
    service.add("failed", (0.0, "FAILED"))
    pending = service.add_many(2)
    client, backend = waiting_client(service)

    def respond(method: str, path: str) -> tuple[int, Any]:
        backend.clock += 3.0
        for each in pending:
            client.transactions.notify(each)
        return service(method, path)

    backend.handler = respond
    assert next(iter(client.transactions.wait_all(service.moves))).result_desc == "done"
    assert service.paths == ["/transactions", "/transactions/failed"]


def test_the_newest_failure_is_read_in_full_first() -> None:
    service = Service()
    service.add_many(3, (0.0, "FAILED"), prefix="early")
    service.add("late", (30.0, "FAILED"))
    service.add("pending")
    ends = iter(slow_client(service, 7.0).transactions.wait_all(service.moves, schedule=PollSchedule(every=8.0)))
    # The last early one would have its result code too late, so the slot goes to one that still has time.
    assert [(next(ends).result_desc) for _ in range(4)] == ["done", "done", None, "done"]
    assert service.paths == [
        "/transactions",
        "/transactions/early0",
        "/transactions/early1",
        "/transactions",
        "/transactions/late",
    ]


def test_without_a_slot_for_more_than_the_first_page_all_are_due_again_after_an_interval() -> None:
    service = Service()
    service.unlisted.update(service.add_many(2, (20.0, "SUCCESS")))
    slots = iter([True, False, True, True, True])

    class Scripted(RateBudget):
        def reserve(self, now: float, lane: Lane, within: float = 0.0) -> float:
            return 0.0 if next(slots) else 1e6

    in_trio(service, lambda client: wait_for_each(client, list(service.moves)), Scripted())
    assert service.times == [15.0, 25.0, 25.0, 25.0]


def test_a_wait_is_woken_by_the_first_page_while_the_search_goes_on() -> None:
    service, ended = Service(), list[float]()
    service.add_many(150, (0.0, "SUCCESS"))

    async def respond(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(8.0)
        return service.respond(request)

    async def work(client: AsyncClient) -> None:
        async def wait() -> None:
            await client.transactions.wait("t149")
            ended.append(service.clock())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.transactions.wait, "t0")
            await anyio.sleep(1.0)
            tasks.start_soon(wait)

    assert in_trio(service, work, transport=httpx.MockTransport(respond)) == 31.0
    assert ended == [23.0]


def test_reads_by_id_stop_after_one_when_the_round_takes_longer_than_the_interval() -> None:
    service = Service()
    service.add("new")
    service.unlisted.update(service.add_many(3, (0.0, "SUCCESS")))
    ends = iter(slow_client(service, 6.0).transactions.wait_all(service.moves))
    next(ends)
    next(ends)
    assert service.paths[:3] == ["/transactions", "/transactions/t0", "/transactions"]


@pytest.mark.parametrize(
    ("limit", "paths"),
    [
        (300.0, ["/transactions", "/transactions/t0", "/transactions", "/transactions", "/transactions/t0"]),
        (75.0, ["/transactions", "/transactions/t0", "/transactions", "/transactions/t0"]),
    ],
    ids=["paused for two intervals", "read once more before the limit"],
)
def test_after_a_long_round_the_search_beyond_the_first_page_pauses(limit: float, paths: list[str]) -> None:
    service = Service()
    service.add_many(150)
    service.unlisted.add(service.add("unlisted"))
    client = slow_client(service, 9.0)
    with pytest.raises(WaitTimeoutError):
        list(client.transactions.wait_all(["t0", "t149"], schedule=PollSchedule(limit=limit)))
    assert service.paths[: len(paths)] == paths


def test_a_notified_wait_beyond_the_first_page_is_read_although_the_search_pauses() -> None:
    service = Service()
    service.add_many(150)
    client, backend = waiting_client(service)

    def respond(method: str, path: str) -> tuple[int, Any]:
        backend.clock += 9.0
        return service(method, path)

    def notify() -> None:
        client.transactions.notify("t0")
        client.transactions.notify("t149")

    backend.handler = respond
    backend.at(35.0, waking(notify))
    with pytest.raises(WaitTimeoutError):
        list(client.transactions.wait_all(["t0", "t149"]))
    assert service.requests[:4] == [
        (24.0, "/transactions"),
        (33.0, "/transactions/t0"),
        (44.0, "/transactions"),
        (53.0, "/transactions/t0"),
    ]


def test_the_search_beyond_the_first_page_leaves_half_of_the_slots_to_the_first_page() -> None:
    service, budget, ended = Service(), RateBudget(), dict[str, float]()
    old = [*service.add_many(3, prefix="stuck"), service.add("overdue", (270.0, "SUCCESS"))]
    new = service.add_many(150)[-60:]

    async def work(client: AsyncClient) -> None:
        async def wait(identity: str) -> None:
            try:
                await client.transactions.wait(identity)
            except WaitTimeoutError:
                return
            ended[identity] = service.clock()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(payers, budget, 320.0)
            for each in [*old, *new]:
                tasks.start_soon(wait, each)

    in_trio(service, work, budget)
    assert ended.keys() == {"overdue"}
    # A slot comes every 8.7 s.
    pages = [when for when, path in service.requests if path == "/transactions"]
    assert len(pages) >= len(service.requests) / 2
    assert max(after - before for before, after in pairwise(pages)) <= 30.0


def test_three_hundred_outstanding_payments_stay_within_the_budget_of_one_key() -> None:
    service = Service()
    for number in range(300):
        service.add(f"t{number}", (30.0 + number, "SUCCESS"))
    client, _ = waiting_client(service, budget=RateBudget())
    schedule = PollSchedule(limit=1000.0)
    assert len(list(client.transactions.wait_all(service.moves, schedule=schedule))) == 300
    assert max(sum(start <= when < start + 60.0 for when in service.times) for start in service.times) <= 60
    assert len(service.requests) < 110
