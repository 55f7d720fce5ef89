"""What a poll round reads: a page or a read by id, how far down the list, and what a notification changes."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio

from momopay import (
    APIConnectionError,
    APIError,
    AsyncClient,
    BudgetExhaustedError,
    InvalidApiKeyError,
    Lane,
    ProtocolError,
    RateBudget,
    ServerError,
    Transaction,
    TransactionNotFoundError,
    parse_callback,
)
from momopay._polling.poll_round import is_transient
from polling.kit import WINDOW, Service, callback, in_trio, waiting_client
from virtual import refusal


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (APIConnectionError("no answer"), True),
        (BudgetExhaustedError("no slot", retry_after=1.0), True),
        (ProtocolError("a proxy's page"), True),
        (ServerError("no", code=None, status_code=500), True),
        (APIError("no", code="BUSY", status_code=429), True),
        (APIError("no", code="BUSY", status_code=500), True),
        (APIError("no", code="GONE", status_code=499), False),
        (InvalidApiKeyError("no", code="INVALID_API_KEY", status_code=401), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_which_failures_a_wait_outlives(error: BaseException, *, expected: bool) -> None:
    assert is_transient(error) is expected


def test_many_waits_share_one_page() -> None:
    service = Service()
    for number in range(50):
        service.add(f"t{number}", (float(number), "SUCCESS"))
    client, _ = waiting_client(service)
    ended = [each.transaction_id for each in client.transactions.wait_all(service.moves)]
    assert sorted(ended) == sorted(service.moves)
    assert service.requests == [(when, "/transactions") for when in (15.0, 25.0, 35.0, 45.0, 55.0)]


def test_one_that_is_due_shares_a_page_with_those_due_within_an_interval() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.transactions.wait, "a")
            await anyio.sleep(9.0)
            tasks.start_soon(client.transactions.wait, "b")

    in_trio(service, work)
    assert service.requests == [(15.0, "/transactions")]


def test_the_walk_goes_down_to_the_oldest_and_no_further() -> None:
    service = Service()
    wanted = service.add_many(500, (0.0, "SUCCESS"))[250:]
    client, _ = waiting_client(service)
    assert len(list(client.transactions.wait_all(wanted))) == 250
    assert service.paths == ["/transactions", "/transactions?100", "/transactions?200"]


def test_two_on_the_second_page_are_walked_to() -> None:
    service = Service()
    service.add_many(150, (0.0, "SUCCESS"))
    client, _ = waiting_client(service)
    assert len(list(client.transactions.wait_all(["t0", "t1"]))) == 2
    assert service.paths == ["/transactions", "/transactions?100"]


def test_one_on_the_second_page_is_read_by_id() -> None:
    service = Service()
    service.add_many(150, (0.0, "SUCCESS"))
    client, _ = waiting_client(service)
    assert len(list(client.transactions.wait_all(["t0", "t149"]))) == 2
    assert service.paths == ["/transactions", "/transactions/t0"]


def test_the_walk_stops_when_reading_by_id_costs_no_more() -> None:
    service = Service()
    service.add_many(2000, (0.0, "SUCCESS"))
    client, _ = waiting_client(service)
    assert len(list(client.transactions.wait_all(["t0", "t1", "t2", "t1999"]))) == 4
    assert service.paths[:3] == ["/transactions", "/transactions?100", "/transactions?200"]
    assert sorted(service.paths[3:]) == ["/transactions/t0", "/transactions/t1", "/transactions/t2"]


def test_a_repeated_cursor_ends_the_walk() -> None:
    service = Service()
    service.add_many(150, (0.0, "SUCCESS"))
    client, backend = waiting_client(service)

    def stuck(method: str, path: str) -> tuple[int, Any]:
        assert len(service.requests) < 50
        status, answer = service(method, path)
        if "items" in answer["data"]:
            answer["data"] |= {"items": answer["data"]["items"][:1], "nextCursor": "1"}
        return status, answer

    backend.handler = stuck
    assert len(list(client.transactions.wait_all([f"t{number}" for number in range(20)]))) == 20
    assert service.paths[:2] == ["/transactions", "/transactions?1"]
    assert [path for path in service.paths[2:] if "/transactions/" not in path] == []


def test_an_empty_page_ends_the_walk() -> None:
    service = Service()
    service.add_many(5, (0.0, "SUCCESS"))
    client, backend = waiting_client(service)

    def empty(method: str, path: str) -> tuple[int, Any]:
        status, answer = service(method, path)
        if "items" in answer["data"]:
            answer["data"] |= {"items": [], "nextCursor": str(len(service.requests))}
        return status, answer

    backend.handler = empty
    assert len(list(client.transactions.wait_all(service.moves))) == 5
    assert sum("/transactions/" not in path for path in service.paths) == 1


@pytest.mark.parametrize(
    ("unlisted", "pages"), [(["t299", "t298", "t297"], 1), (["t299", "t298", "t0"], 3)], ids=["all newer", "one older"]
)
def test_the_walk_stops_at_rows_that_are_older_than_all_that_is_missing(unlisted: list[str], pages: int) -> None:
    service = Service()
    service.add_many(300, (20.0, "SUCCESS"))
    client, _ = waiting_client(service)
    missing = [client.transactions.get(each) for each in unlisted]
    service.unlisted.update(unlisted)
    service.requests.clear()
    ended = iter(client.transactions.wait_all([*missing, "t250"]))
    next(ended)
    assert sum("/transactions/" not in path for when, path in service.requests if when == 15.0) == pages


def test_those_that_the_list_does_not_show_yet_are_read_by_id() -> None:
    service = Service()
    service.unlisted.update(service.add_many(2, (0.0, "SUCCESS")))
    client, _ = waiting_client(service)
    assert len(list(client.transactions.wait_all(["t0", "t1"]))) == 2
    assert sorted(service.paths) == ["/transactions", "/transactions/t0", "/transactions/t1"]


def test_one_whose_reads_always_fail_holds_back_the_others_for_one_interval_at_most() -> None:
    service = Service()
    service.add("broken")
    service.add("good", (0.0, "SUCCESS"))
    service.unlisted.update({"broken", "good"})
    service.broken["broken"] = (500, b"")
    client, _ = waiting_client(service, max_attempts=1)
    assert next(iter(client.transactions.wait_all(["broken", "good"]))).transaction_id == "good"
    assert service.times[-1] <= 25.0


def test_a_page_that_fails_is_read_again_after_an_interval() -> None:
    service = Service()
    service.add_many(2, (0.0, "SUCCESS"))
    service.failures = [(200, b"junk")]
    client, _ = waiting_client(service)
    assert len(list(client.transactions.wait_all(["t0", "t1"]))) == 2
    assert service.requests == [(15.0, "/transactions"), (25.0, "/transactions")]


@pytest.mark.parametrize("answer", [(400, refusal("INVALID_ID")), (404, refusal("TRANSACTION_NOT_FOUND"))])
def test_a_refusal_of_one_transaction_ends_its_own_wait_alone(answer: tuple[int, Any]) -> None:
    service = Service()
    service.add("good", (20.0, "SUCCESS"))
    service.broken["bad"] = answer

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.transactions.wait, "good")
            with pytest.raises(APIError, match=answer[1]["error"]["code"]):
                await client.transactions.wait("bad")
            assert service.clock() == 15.0

    assert in_trio(service, work) == pytest.approx(25.0)


def test_a_refusal_of_the_page_ends_every_wait() -> None:
    service = Service()
    service.add_many(3)
    service.failures = [(401, refusal("INVALID_API_KEY"))] * 3

    async def work(client: AsyncClient) -> None:
        async def wait(identity: str) -> None:
            with pytest.raises(InvalidApiKeyError):
                await client.transactions.wait(identity)

        async with anyio.create_task_group() as tasks:
            for identity in service.moves:
                tasks.start_soon(wait, identity)

    assert in_trio(service, work) == 15.0


def test_an_unknown_transaction_ends_a_wait_for_many() -> None:
    service = Service()
    service.add("a")
    client, _ = waiting_client(service)
    with pytest.raises(TransactionNotFoundError):
        list(client.transactions.wait_all(["a", "unknown"]))


@pytest.mark.parametrize("failed", [False, True], ids=["success", "failure"])
def test_one_notified_wait_reads_its_transaction_and_no_other(*, failed: bool) -> None:
    service = Service()
    service.add("a", (1.0, "FAILED" if failed else "SUCCESS"))
    service.add("b")
    ends = list[Transaction]()

    async def work(client: AsyncClient) -> None:
        async def wait(identity: str) -> None:
            ends.append(await client.transactions.wait(identity))
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "a")
            tasks.start_soon(wait, "b")
            await anyio.sleep(8.0)
            client.transactions.notify(parse_callback(callback("a", "FAILED")) if failed else "a")

    in_trio(service, work)
    assert service.requests == [(8.0, "/transactions/a")]
    assert (ends[0].transaction_id, ends[0].result_desc) == ("a", "done")


def test_waits_that_are_notified_together_share_a_page() -> None:
    service = Service()
    service.add_many(2, (3.0, "SUCCESS"))
    service.add("c")

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for each in ("t0", "t1"):
                tasks.start_soon(client.transactions.wait, each)
            await anyio.sleep(4.0)
            client.transactions.notify("t0")
            client.transactions.notify("t1")

    in_trio(service, work)
    assert service.requests == [(4.0, "/transactions")]


def test_waits_that_are_notified_while_a_request_queues_for_its_slot_share_the_next() -> None:
    service, budget = Service(), RateBudget()
    service.add_many(20, (1.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        for _ in range(budget.requests):
            budget.reserve(trio.current_time(), Lane.PAYMENT)
        async with anyio.create_task_group() as tasks:
            for each in service.moves:
                tasks.start_soon(client.transactions.wait, each)
            for each in service.moves:
                await anyio.sleep(1.0)
                client.transactions.notify(each)

    in_trio(service, work, budget)
    assert len(service.requests) <= 2
    assert service.requests[-1] == (WINDOW, "/transactions")


def test_a_notification_that_comes_during_the_request_causes_another() -> None:
    service = Service()
    service.add("a", (4.5, "SUCCESS"))
    budget = RateBudget()

    async def work(client: AsyncClient) -> None:
        budget.stop(trio.current_time(), trio.current_time() + 4.4)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.transactions.wait, "a")
            await anyio.sleep(2.0)
            client.transactions.notify("a")
            await anyio.sleep(1.0)
            client.transactions.notify("a")

    in_trio(service, work, budget)
    assert service.times[0] == 4.4
    assert service.times[1] < 15.0
