"""The loop: what is read and for whom, in which order, and which call reads when calls come and go."""

import os
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any
from unittest.mock import patch

import anyio
import httpx
import pytest
import trio

import momopay
from forked import succeeds_in_child
from momopay import AsyncClient, Client, PollSchedule, RateBudget
from momopay._polling.loop import PollingCall, PollLoop
from momopay.events import BudgetWaited
from momopay.types import Lane
from patience import until
from polling import kit
from polling.kit import BASE, WINDOW, Concurrent, TimedService, in_trio, reported, wait_for_each, waiting_client

LIST = "/transactions"


def test_many_waits_share_one_page(sdk: kit.MakeSdk, service: TimedService) -> None:
    for number in range(50):
        service.add(f"t{number}", (float(number), "SUCCESS"))
    driver = sdk(service)
    assert driver.ends() == []
    polls = (15.0, 25.0, 35.0, 45.0, 55.0)
    expected = {f"t{number}": next(when for when in polls if when >= number) for number in range(50)}
    assert {each.transaction_id: when for when, each in driver.ends(*service.moves)} == expected
    assert service.requests == [(when, LIST) for when in polls]


def test_one_that_is_due_shares_a_page_with_those_due_within_an_interval(service: TimedService) -> None:
    service.add_many(2, (0.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.transactions.wait, "t0")
            await anyio.sleep(9.0)
            tasks.start_soon(client.transactions.wait, "t1")

    in_trio(service, work)
    assert service.requests == [(15.0, LIST)]


@pytest.mark.parametrize(("notified_at", "read_at"), [(99.0, 15.0), (2.0, 2.0)])
def test_many_waits_for_one_transaction_are_one_read(notified_at: float, read_at: float, service: TimedService) -> None:
    service.add("a", (0.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_each, client, ["a"] * 50)
            await anyio.sleep(notified_at)
            client.transactions.notify("a")

    in_trio(service, work)
    assert service.requests == [(read_at, "/transactions/a")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize("call", ["wait", "confirm"])
def test_the_child_of_a_fork_does_not_wait_for_the_poll_of_its_parent(call: str, service: TimedService) -> None:
    parent = os.getpid()
    service.add("t0", (0.0, "SUCCESS"))
    under_way, forked = threading.Event(), threading.Event()

    def respond(request: httpx.Request) -> httpx.Response:
        if os.getpid() == parent:
            under_way.set()
            until(forked.is_set, "the child has ended")
        return service.respond(request)

    with Client("pk_test_fork", base_url=BASE, budget=None, transport=httpx.MockTransport(respond)) as client:

        def use() -> None:
            if call == "wait":
                client.transactions.wait("t0", schedule=PollSchedule(first=0.0))
            else:
                client.transactions.confirm(reported("t0", "SUCCESS"))

        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        until(under_way.is_set, "the parent polls")
        succeeded = succeeds_in_child(use)
        forked.set()
        thread.join(timeout=30.0)
    assert succeeded


@pytest.mark.parametrize(
    ("count", "wanted", "pages", "by_id"),
    [
        *((500, range(250, 500), 3, []), (150, [0, 1], 2, []), (150, [0, 149], 1, [0])),
        (2000, [0, 1, 2, 1999], 3, [0, 1, 2]),  # from then on, reading by id costs no more
    ],
)
def test_the_walk_goes_down_to_the_oldest_and_no_further(
    count: int, wanted: Sequence[int], pages: int, by_id: list[int], service: TimedService
) -> None:
    service.add_many(count, (0.0, "SUCCESS"))
    client, _ = waiting_client(service)
    assert len(list(client.transactions.wait_all([f"t{number}" for number in wanted]))) == len(wanted)
    assert service.paths[:pages] == [LIST, f"{LIST}?100", f"{LIST}?200"][:pages]
    assert sorted(service.paths[pages:]) == [f"{LIST}/t{number}" for number in by_id]


@pytest.mark.parametrize(
    ("items", "cursors", "pages"),
    [(1, ["1"] * 9, 2), (0, ["1"], 1), (100, [f"c{number}" for number in range(50)], 2)],
    ids=["a repeated cursor", "an empty page", "a cursor that is always new, and nothing else"],
)
def test_a_list_that_leads_nowhere_ends_the_walk(
    items: int, cursors: list[str], pages: int, service: TimedService
) -> None:
    service.add_many(150, (0.0, "SUCCESS"))
    client, backend = waiting_client(service)

    def stuck(method: str, path: str) -> tuple[int, Any]:
        status, answer = service(method, path.partition("&cursor=c")[0])
        if "items" in answer["data"]:
            answer["data"] |= {"items": answer["data"]["items"][:items], "nextCursor": cursors.pop(0)}
        return status, answer

    backend.handler = stuck
    assert len(list(client.transactions.wait_all([f"t{number}" for number in range(20)]))) == 20
    assert [path for path in service.paths[pages:] if f"{LIST}/" not in path] == []
    assert len(service.paths) == pages + 20


def test_an_item_of_the_list_that_cannot_be_read_is_read_by_id(sdk: kit.MakeSdk, service: TimedService) -> None:
    service.add("damaged", (0.0, "SUCCESS"), phone=None)
    service.add_many(150, (0.0, "SUCCESS"))
    ends = sdk(service).ends("damaged", "t0", "t149")
    assert sorted(each.transaction_id for _, each in ends) == ["damaged", "t0", "t149"]
    assert service.paths == [LIST, f"{LIST}?100", f"{LIST}/damaged"]


def test_one_whose_reads_always_fail_holds_back_the_others_for_one_interval_at_most(service: TimedService) -> None:
    service.add("broken")
    service.add("good", (0.0, "SUCCESS"))
    service.unlisted.update({"broken", "good"})
    service.broken["broken"] = (500, b"")
    client, _ = waiting_client(service, max_attempts=1)
    assert next(iter(client.transactions.wait_all(["broken", "good"]))).transaction_id == "good"
    assert service.times[-1] <= 25.0


@pytest.mark.parametrize("failed", [False, True], ids=["success", "failure"])
def test_one_notified_wait_reads_its_transaction_and_no_other(*, failed: bool) -> None:
    service = TimedService()
    service.add("a", (1.0, "FAILED" if failed else "SUCCESS"))
    service.add("b")
    ends = list[momopay.Transaction]()

    async def work(client: AsyncClient) -> None:
        async def wait(identity: str) -> None:
            ends.append(await client.transactions.wait(identity))
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "a")
            tasks.start_soon(wait, "b")
            await anyio.sleep(8.0)
            client.transactions.notify(reported("a", "FAILED") if failed else "a")

    in_trio(service, work)
    assert service.requests == [(8.0, "/transactions/a")]
    assert (ends[0].transaction_id, ends[0].result_desc) == ("a", "done")


@pytest.mark.parametrize(("count", "used"), [(2, 0), (20, 58)], ids=["together", "while a request queues"])
def test_waits_that_are_notified_share_a_page(count: int, used: int, service: TimedService) -> None:
    budget = RateBudget()
    service.add_many(count, (1.0, "SUCCESS"))
    service.add("other", (70.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        for _ in range(used):
            budget.reserve(trio.current_time(), Lane.PAYMENT)
        async with anyio.create_task_group() as tasks:
            for each in service.moves:
                tasks.start_soon(client.transactions.wait, each)
            await anyio.sleep(2.0)
            for number in range(count):
                if used:
                    await anyio.sleep(1.0)
                client.transactions.notify(f"t{number}")

    in_trio(service, work, budget)
    assert service.requests[0] == (WINDOW if used else 2.0, LIST)


def test_a_notification_that_comes_during_the_request_causes_another(service: TimedService) -> None:
    service.add("a", (3.0, "SUCCESS"))

    async def respond(request: httpx.Request) -> httpx.Response:
        response = service.respond(request)
        await anyio.sleep(3.0)
        return response

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.transactions.wait, "a")
            for _ in range(2):
                await anyio.sleep(2.0)
                client.transactions.notify("a")

    in_trio(service, work, transport=httpx.MockTransport(respond))
    assert service.times == [2.0, 5.0]


def test_a_cancelled_poll_keeps_the_notifications(service: TimedService) -> None:
    who, polls = ContextVar[str]("who"), list[str]()
    service.add_many(3, (1.0, "SUCCESS"))
    waits = Concurrent(service)

    async def respond(request: httpx.Request) -> httpx.Response:
        polls.append(who.get())
        await anyio.sleep(1000.0 if len(polls) == 1 else 0.0)
        return service.respond(request)

    async def wait(client: AsyncClient, identity: str) -> None:
        who.set(identity)
        await waits.wait(client, identity)

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for identity in service.moves:
                tasks.start_soon(wait, client, identity)
            await anyio.sleep(2.0)
            for identity in service.moves:
                client.transactions.notify(identity)
            await anyio.sleep(3.0)
            waits.scopes[polls[0]].cancel()

    in_trio(service, work, transport=httpx.MockTransport(respond))
    assert service.requests == [(5.0, LIST)]
    assert len(waits.seen) == 2


def test_polls_use_the_lane_that_gives_way(sdk: kit.MakeSdk, service: TimedService) -> None:
    """One request fits into the window, so that each has to wait for its slot, and tells its lane."""
    seen = list[Any]()
    service.add_many(120, (0.0, "FAILED"))
    driver = sdk(service, budget=RateBudget(requests=1), on_event=seen.append)
    driver.ends("t0", "t1", "t119", schedule=PollSchedule(every=100.0, limit=1000.0))
    assert f"{LIST}?100" in service.paths
    assert f"{LIST}/t119" in service.paths
    lanes = [each.lane for each in seen if isinstance(each, BudgetWaited)]
    assert len(lanes) == len(service.paths) - 1
    assert set(lanes) == {Lane.POLL.value}


def test_a_wait_is_woken_by_the_first_page_while_the_search_goes_on(service: TimedService) -> None:
    ended = list[float]()
    service.add_many(150, (0.0, "SUCCESS"))

    async def respond(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(8.0)
        return service.respond(request)

    async def work(client: AsyncClient) -> None:
        async def wait() -> None:
            await client.transactions.wait("t149")
            ended.append(service.clock())

        async with anyio.create_task_group() as tasks:
            for each, first in (("t0", 15.0), ("t1", 15.0), ("t2", 60.0)):  # the last is shown before it is due
                tasks.start_soon(partial(client.transactions.wait, each, schedule=PollSchedule(first=first)))
            await anyio.sleep(1.0)
            tasks.start_soon(wait)

    assert in_trio(service, work, transport=httpx.MockTransport(respond)) == 31.0
    assert ended == [23.0]


def test_waits_without_a_slot_in_time_do_not_wake_each_other(service: TimedService) -> None:
    """In virtual time, two that did so would never end."""
    budget, polls = RateBudget(requests=1), list[float]()
    service.add_many(3, (1000.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        budget.reserve(trio.current_time(), Lane.PAYMENT)
        read_or_wait = PollLoop.read_or_wait

        async def counted(loop: PollLoop, call: PollingCall) -> None:
            polls.append(trio.current_time())
            assert len(polls) < 100
            await read_or_wait(loop, call)

        with patch.object(PollLoop, "read_or_wait", counted):
            await Concurrent(service).wait_for_all(client, schedule=PollSchedule(first=1.0, limit=30.0))

    assert (in_trio(service, work, budget), service.requests) == (30.0, [])
    assert len(polls) <= 6
