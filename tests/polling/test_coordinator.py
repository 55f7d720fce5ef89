"""Many tasks, many threads, one client: waits share their sweeps and wake each other."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
import pytest
import trio
import trio.testing

from momopay import APIError, AsyncClient, Client, PollSchedule, TransactionNotFoundError
from momopay._transport.async_backend import AsyncBackend
from virtual import envelope, install_backend, refusal, transaction

BASE = "https://api.example/v1"
OVERVIEW = {"total": 0, "completed": 0, "failed": 0, "pending": 0}


class Ledger:
    """Answers reads and lists; counts them."""

    def __init__(self, *identities: str, ended: Callable[[str], bool] = lambda _identity: True) -> None:
        self.identities = identities
        self.ended = ended
        self.paths: list[str] = []

    def record(self, identity: str) -> dict[str, Any]:
        return transaction(identity, "SUCCESS" if self.ended(identity) else "PENDING")

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path.removeprefix("/v1"))
        if request.url.path == "/v1/transactions":
            items = [self.record(identity) for identity in self.identities]
            return httpx.Response(200, json=envelope({"items": items, "overview": OVERVIEW, "nextCursor": None}))
        identity = request.url.path.rpartition("/")[2]
        if identity not in self.identities:
            return httpx.Response(404, json=refusal("TRANSACTION_NOT_FOUND"))
        return httpx.Response(200, json=envelope(self.record(identity)))


class TrioIO(AsyncBackend):
    """The suspending port on trio's own clock, which jumps where nothing else is to be done."""

    def now(self) -> float:
        return trio.current_time()


def in_virtual_time(service: Any, work: Callable[[AsyncClient], Awaitable[None]]) -> float:
    async def main() -> float:
        begun = trio.current_time()
        async with AsyncClient("pk_test_trio", base_url=BASE, budget=None) as client:
            install_backend(client, TrioIO(httpx.MockTransport(service)))
            await work(client)
        return trio.current_time() - begun

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_tasks_that_wait_at_once_share_one_sweep() -> None:
    ledger = Ledger(*(f"t{number}" for number in range(40)))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for identity in ledger.identities:
                tasks.start_soon(client.transactions.wait, identity)

    assert in_virtual_time(ledger, work) == pytest.approx(15.0)
    assert ledger.paths == ["/transactions"]


def test_tasks_that_began_at_different_times_share_sweeps_all_the_same() -> None:
    ended = list[bool]()
    ledger = Ledger(*(f"t{number}" for number in range(30)), ended=lambda _identity: bool(ended))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for identity in ledger.identities:
                tasks.start_soon(client.transactions.wait, identity)
                await anyio.sleep(1.0)
            await anyio.sleep(60.0)
            ended.append(True)

    assert in_virtual_time(ledger, work) <= 101.0
    assert len(ledger.paths) <= 11


def test_a_task_that_is_cancelled_on_its_turn_leaves_the_others_waiting() -> None:
    ledger = Ledger("a", "b")

    async def work(client: AsyncClient) -> None:
        first = anyio.CancelScope()

        async def doomed() -> None:
            with first:
                await client.transactions.wait("a")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(doomed)
            tasks.start_soon(client.transactions.wait, "b")
            await anyio.sleep(14.0)
            first.cancel()

    assert in_virtual_time(ledger, work) == pytest.approx(15.0)


def test_each_task_hears_of_its_own_unknown_transaction() -> None:
    ledger = Ledger("a", "b")

    async def work(client: AsyncClient) -> None:
        async def unknown() -> None:
            with pytest.raises(TransactionNotFoundError):
                await client.transactions.wait("nobody")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.transactions.wait, "a")
            tasks.start_soon(client.transactions.wait, "b")
            tasks.start_soon(unknown)

    in_virtual_time(ledger, work)
    assert sorted(ledger.paths) == ["/transactions", "/transactions/nobody"]


def test_notify_wakes_the_task_that_waits_for_it_and_no_other() -> None:
    ledger = Ledger("a", "b", ended=lambda identity: identity == "a")

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:

            async def first() -> None:
                await client.transactions.wait("a")
                tasks.cancel_scope.cancel()

            tasks.start_soon(first)
            tasks.start_soon(client.transactions.wait, "b")
            await anyio.sleep(2.0)
            client.transactions.notify("a")

    assert in_virtual_time(ledger, work) == pytest.approx(2.0)
    assert ledger.paths == ["/transactions/a"]


def test_wait_all_in_a_loop() -> None:
    ledger = Ledger("a", "b", "c")

    async def work(client: AsyncClient) -> None:
        ended = [each.transaction_id async for each in client.transactions.wait_all(["c", "a"])]
        assert sorted(ended) == ["a", "c"]

    in_virtual_time(ledger, work)
    assert ledger.paths == ["/transactions"]


def test_threads_share_sweeps_too() -> None:
    ledger = Ledger(*(f"t{number}" for number in range(20)))
    schedule = PollSchedule(first=0.2, every=0.1, limit=10.0)
    ended = list[str]()
    with Client("pk_test_threads", base_url=BASE, budget=None, transport=httpx.MockTransport(ledger)) as client:

        def wait(identity: str) -> None:
            ended.append(client.transactions.wait(identity, schedule=schedule).transaction_id)

        threads = [threading.Thread(target=wait, args=(identity,)) for identity in ledger.identities]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
    assert sorted(ended) == sorted(ledger.identities)
    assert len(ledger.paths) <= 5


def test_a_refusal_of_one_id_is_heard_by_its_own_task_alone() -> None:
    ledger = Ledger("good")

    def service(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("bad"):
            return httpx.Response(400, json=refusal("INVALID_ID"))
        if request.url.path == "/v1/transactions":
            return httpx.Response(200, json=envelope({"items": [], "overview": OVERVIEW, "nextCursor": None}))
        return ledger(request)

    async def work(client: AsyncClient) -> None:
        async def bad() -> None:
            with pytest.raises(APIError, match="INVALID_ID"):
                await client.transactions.wait("bad")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bad)
            tasks.start_soon(client.transactions.wait, "good")

    in_virtual_time(service, work)
    assert ledger.paths == ["/transactions/good"]


def test_many_waits_for_one_transaction_are_one_read() -> None:
    ledger = Ledger("a")

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(client.transactions.wait, "a")

    in_virtual_time(ledger, work)
    assert ledger.paths == ["/transactions/a"]


def test_a_looker_that_is_cancelled_hands_its_look_on_at_once() -> None:
    ledger = Ledger("a", "b")
    hung = list[bool]()

    async def service(request: httpx.Request) -> httpx.Response:
        if not hung:
            hung.append(True)
            await anyio.sleep(1000.0)
        return ledger(request)

    async def work(client: AsyncClient) -> None:
        looker = anyio.CancelScope()

        async def first() -> None:
            with looker:
                await client.transactions.wait("a")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await anyio.sleep(1.0)
            tasks.start_soon(client.transactions.wait, "b")
            await anyio.sleep(17.0)
            looker.cancel()

    assert in_virtual_time(service, work) == pytest.approx(18.0)
