"""Who is woken and who polls, and how tasks and threads share what one of them reads."""

from __future__ import annotations

import threading

import anyio
import httpx
import pytest

from momopay import AsyncClient, Client, PollSchedule
from momopay._polling.coordinator import WaitCoordinator
from momopay._polling.waiter import Waiter
from patience import until
from polling.kit import BASE, Service, in_trio, wait_for_each


class Registered:
    """A wait that counts how often it is woken."""

    def __init__(self, *identities: str, deadline: float = 300.0) -> None:
        self.own = [Waiter(each, None, every=10.0, deadline=deadline, next_poll_at=15.0) for each in identities]
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def waiters(self) -> list[Waiter]:
        return self.own


def test_a_notification_reaches_every_wait_for_that_transaction_and_no_other() -> None:
    coordinator, first, second, other = WaitCoordinator(), Registered("a", "b"), Registered("a"), Registered("c")
    with coordinator.register(first), coordinator.register(second), coordinator.register(other):
        coordinator.notify("a")
    assert [waiter.notified for waiter in first.own + second.own + other.own] == [True, False, True, False]
    assert (first.woken, second.woken, other.woken) == (1, 1, 0)


def test_a_notified_failure_asks_for_a_full_read_instead() -> None:
    coordinator, wait = WaitCoordinator(), Registered("a")
    with coordinator.register(wait):
        coordinator.notify("a", failed=True)
    assert (wait.own[0].needs_full_read, wait.own[0].notified, wait.woken) == (True, False, 1)


def test_a_wait_that_left_is_forgotten_also_when_it_left_by_an_error() -> None:
    coordinator, wait = WaitCoordinator(), Registered("a")
    with pytest.raises(RuntimeError), coordinator.register(wait):
        raise RuntimeError
    coordinator.notify("a")
    coordinator.wake()
    assert coordinator.waiters(0.0) == []
    assert wait.woken == 0


def test_waits_that_reached_their_deadline_are_not_polled_for() -> None:
    coordinator, over, open_ = WaitCoordinator(), Registered("a", deadline=20.0), Registered("b", deadline=21.0)
    with coordinator.register(over), coordinator.register(open_):
        assert coordinator.waiters(20.0) == open_.own


def test_one_wait_has_the_turn_and_all_are_woken_when_it_ends() -> None:
    coordinator, wait = WaitCoordinator(), Registered("a")
    with coordinator.register(wait):
        with coordinator.take_turn() as first:
            with coordinator.take_turn() as second:
                assert (first, second) == (True, False)
            assert wait.woken == 0
            with coordinator.take_turn() as still:
                assert not still
        assert wait.woken == 1
        with pytest.raises(RuntimeError), coordinator.take_turn():
            raise RuntimeError
        assert wait.woken == 2
        with coordinator.take_turn() as again:
            assert again


def test_tasks_that_began_at_different_times_share_pages() -> None:
    service = Service()
    identities = service.add_many(30, (90.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for identity in identities:
                tasks.start_soon(client.transactions.wait, identity)
                await anyio.sleep(1.0)

    assert in_trio(service, work) <= 101.0
    assert len(service.requests) <= 11


def test_many_waits_for_one_transaction_are_one_read() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    in_trio(service, lambda client: wait_for_each(client, ["a"] * 50))
    assert service.paths == ["/transactions/a"]


@pytest.mark.parametrize("cancelled_at", [14.0, 18.0], ids=["before its request", "during its request"])
def test_a_cancelled_poll_is_made_by_another_wait_at_once(cancelled_at: float) -> None:
    service = Service()
    service.add_many(2, (0.0, "SUCCESS"))
    hung = list[bool]()

    async def hang_once(request: httpx.Request) -> httpx.Response:
        if not hung and service.clock() < 16.0:
            hung.append(True)
            await anyio.sleep(1000.0)
        return service.respond(request)

    async def work(client: AsyncClient) -> None:
        scope = anyio.CancelScope()

        async def doomed() -> None:
            with scope:
                await client.transactions.wait("t0")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(doomed)
            await anyio.sleep(1.0)
            tasks.start_soon(client.transactions.wait, "t1")
            await anyio.sleep(cancelled_at - 1.0)
            scope.cancel()

    took = in_trio(service, work, transport=httpx.MockTransport(hang_once))
    assert took == pytest.approx(max(16.0, cancelled_at))
    assert service.paths == ["/transactions/t1"]


def test_threads_share_pages() -> None:
    service = Service()
    identities = service.add_many(30, (0.0, "SUCCESS"))
    ended = list[str]()
    all_wait = threading.Event()

    def respond(request: httpx.Request) -> httpx.Response:
        # The first request, a read by id, is held until all threads wait: one page must then be enough for the rest.
        until(all_wait.is_set, "all of them wait")
        return service.respond(request)

    with Client("pk_test_threads", base_url=BASE, budget=None, transport=httpx.MockTransport(respond)) as client:
        at_once = PollSchedule(first=0.0, every=10.0, limit=300.0)

        def wait(identity: str) -> None:
            ended.append(client.transactions.wait(identity, schedule=at_once).transaction_id)

        threads = [threading.Thread(target=wait, args=(identity,), daemon=True) for identity in identities]
        for thread in threads:
            thread.start()
        until(lambda: len(client.transactions._coordinator.waiters(0.0)) == 30, "all of them wait")
        all_wait.set()
        for thread in threads:
            thread.join(timeout=30.0)
    assert sorted(ended) == sorted(identities)
    assert len(service.paths) == 2
    assert service.paths[1] == "/transactions"
