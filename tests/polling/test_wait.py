"""One wait: when it polls, what ends it, and what it returns."""

from __future__ import annotations

import gc
from typing import Any

import anyio
import pytest

from momopay import (
    AsyncClient,
    InvalidApiKeyError,
    PollSchedule,
    ProtocolError,
    RequestValidationError,
    Transaction,
    TransactionNotFoundError,
    WaitTimeoutError,
    parse_callback,
    settled,
    terminal,
)
from polling.kit import Service, callback, in_trio, waiting_client
from virtual import refusal, waking


def test_one_wait_reads_by_id_on_the_schedule_of_the_service() -> None:
    service = Service()
    service.add("a", (50.0, "PROCESSING"), (60.0, "SUCCESS"))
    client, _ = waiting_client(service)
    ended = client.transactions.wait("a")
    assert (ended.status, ended.result_desc) == ("SUCCESS", "done")
    assert service.requests == [(15.0 + 10 * number, "/transactions/a") for number in range(6)]


def test_an_async_wait_does_the_same() -> None:
    service = Service()
    service.add("a", (20.0, "FAILED"))

    async def work(client: AsyncClient) -> None:
        assert (await client.transactions.wait("a")).result_desc == "done"

    in_trio(service, work)
    assert service.requests == [(15.0, "/transactions/a"), (25.0, "/transactions/a")]


def test_an_unknown_status_never_ends_a_wait_and_the_limit_does() -> None:
    service = Service()
    service.add("a", (0.0, "HELD"))
    client, backend = waiting_client(service)
    with pytest.raises(WaitTimeoutError, match="transaction a has not ended after 300 s") as caught:
        client.transactions.wait("a")
    assert backend.clock == 1300.0
    assert len(service.requests) == 29
    assert caught.value.last is not None
    assert caught.value.last.status == "HELD"
    assert caught.value.pending == ("a",)
    assert isinstance(caught.value, TimeoutError)


def test_a_wait_that_read_nothing_has_no_last_state() -> None:
    service = Service()
    service.add("a")
    client, _ = waiting_client(service)
    with pytest.raises(WaitTimeoutError) as caught:
        client.transactions.wait("a", schedule=PollSchedule(first=20.0, limit=10.0))
    assert caught.value.last is None
    assert service.requests == []


def test_a_payout_is_settled_only_once_it_is_reversed() -> None:
    service = Service()
    service.add("a", (10.0, "FAILED"), (40.0, "REVERSED"), type="B2C")
    client, _ = waiting_client(service)
    assert client.transactions.wait("a").status == "FAILED"
    assert client.transactions.wait("a", until=settled).status == "REVERSED"
    assert service.times == [15.0, 30.0, 40.0]


def test_a_predicate_of_the_caller_ends_a_wait() -> None:
    service = Service()
    service.add("a", (20.0, "PROCESSING"))
    client, _ = waiting_client(service)

    def taken(seen: Transaction) -> bool:
        return seen.status == "PROCESSING"

    assert client.transactions.wait("a", until=taken).status == "PROCESSING"


def test_an_error_of_the_predicate_reaches_its_caller_and_no_other_wait() -> None:
    service = Service()
    service.add_many(2, (0.0, "SUCCESS"))

    def wrong(seen: Transaction) -> bool:
        raise ZeroDivisionError(seen.transaction_id)

    client, _ = waiting_client(service)
    other = client.transactions._start_wait(["t1"], terminal, PollSchedule(first=15.0))
    with other.registered():
        with pytest.raises(ZeroDivisionError):
            client.transactions.wait("t0", until=wrong)
        assert other.waiters()[0].observation is not None


def test_transient_failures_and_429s_do_not_end_a_wait() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.failures = [
        (200, b"<html>"),
        *[(503, b"")] * 4,
        (429, refusal("RATE_LIMIT_EXCEEDED", resetInSeconds=4000)),
        (429, refusal("TOO_MANY_REQUESTS")),
        *[(503, refusal("TRANSACTION_NOT_FOUND"))] * 4,
    ]
    client, _ = waiting_client(service)
    assert client.transactions.wait("a").status == "SUCCESS"
    assert len(service.requests) == 12


HTML = (200, b"<html>")


def test_the_second_malformed_answer_in_a_row_ends_a_wait() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.failures = [HTML, HTML]
    client, _ = waiting_client(service)
    with pytest.raises(ProtocolError):
        client.transactions.wait("a")
    assert service.times == [15.0, 25.0]


@pytest.mark.parametrize(
    "between", [[(503, b"")] * 4, [(429, refusal("TOO_MANY_REQUESTS"))], []], ids=["5xx", "429", "a record"]
)
def test_malformed_answers_that_are_not_in_a_row_do_not_end_a_wait(between: list[Any]) -> None:
    service = Service()
    service.add("a", (40.0, "SUCCESS"))
    record = [(200, {"success": True, "data": service.record("a"), "requestId": "r"})]
    service.failures = [HTML, *(between or record), HTML]
    client, _ = waiting_client(service)
    assert client.transactions.wait("a").status == "SUCCESS"


def test_two_malformed_pages_end_every_wait_that_they_were_read_for() -> None:
    service = Service()
    service.add_many(3, (0.0, "SUCCESS"))
    service.failures = [HTML] * 2
    caught = list[float]()

    async def work(client: AsyncClient) -> None:
        async def wait(identity: str) -> None:
            with pytest.raises(ProtocolError):
                await client.transactions.wait(identity)
            caught.append(service.clock())

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(wait, f"t{number}")

    in_trio(service, work)
    assert caught == [25.0] * 3
    assert service.paths == ["/transactions"] * 2


def test_malformed_answers_about_one_transaction_end_no_other_wait() -> None:
    service = Service()
    service.add_many(2, (60.0, "SUCCESS"))
    service.unlisted.add("t0")
    service.broken["t0"] = HTML
    client, _ = waiting_client(service)
    other = client.transactions._start_wait(["t1"], terminal, PollSchedule())
    with other.registered():
        with pytest.raises(ProtocolError):
            client.transactions.wait("t0")
        assert other.waiters()[0].failure is None
        assert not other.waiters()[0].was_malformed


def test_a_known_end_is_returned_even_if_its_reason_cannot_be_read() -> None:
    service = Service()
    service.add_many(2, (0.0, "FAILED"))
    service.broken = dict.fromkeys(["t0", "t1"], HTML)
    client, _ = waiting_client(service)
    ended = list(client.transactions.wait_all(["t0", "t1"]))
    assert [each.status for each in ended] == ["FAILED"] * 2


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(401, "INVALID_API_KEY", InvalidApiKeyError), (404, "TRANSACTION_NOT_FOUND", TransactionNotFoundError)],
)
def test_a_refusal_ends_a_wait(status: int, code: str, expected: type[Exception]) -> None:
    service = Service()
    service.failures = [(status, refusal(code))]
    client, _ = waiting_client(service)
    with pytest.raises(expected):
        client.transactions.wait("a")
    assert service.times == [15.0]


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED"])
def test_a_callback_ends_a_wait_with_one_read(status: str) -> None:
    service = Service()
    service.add("a", (3.0, status))
    client, backend = waiting_client(service)
    backend.at(4.0, waking(lambda: client.transactions.notify(parse_callback(callback("a", status)))))
    assert client.transactions.wait("a").result_desc == "done"
    assert service.requests == [(4.0, "/transactions/a")]


@pytest.mark.parametrize("status", ["SUCCESS", "FAILED"])
@pytest.mark.parametrize("failures", [[], [(200, b"junk")]], ids=["not yet ended", "failed"])
def test_a_read_after_a_callback_that_shows_no_end_leaves_the_wait_to_its_schedule(
    status: str, failures: list[tuple[int, Any]]
) -> None:
    service = Service()
    service.add("a", (4.5, status))
    service.failures = failures
    client, backend = waiting_client(service)
    backend.at(4.0, waking(lambda: client.transactions.notify(parse_callback(callback("a", status)))))
    assert client.transactions.wait("a").status == status
    assert service.times == [4.0, 15.0]


def test_a_callback_for_a_transaction_that_nobody_waits_for_sends_nothing() -> None:
    service = Service()
    client, _ = waiting_client(service)
    client.transactions.notify("unknown")
    assert service.requests == []


def test_a_success_from_the_list_has_the_fields_of_the_list_alone() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"), provider={"name": "not what a read would show"})
    service.add("b", (0.0, "SUCCESS"))
    client, _ = waiting_client(service)
    ends = list(client.transactions.wait_all(["a", "b"]))
    assert service.paths == ["/transactions"]
    for ended in ends:
        assert isinstance(ended, Transaction)
        assert (ended.result_code, ended.provider) == (None, None)
        assert ended.amount == 100
        assert ended.response.status_code == 200


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED", "EXPIRED"])
def test_an_end_without_success_costs_one_read_more_for_its_result_code(status: str) -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, status))
    client, _ = waiting_client(service)
    ends = {ended.transaction_id: ended for ended in client.transactions.wait_all(["a", "b"])}
    assert ends["b"].result_desc == "done"
    assert service.paths == ["/transactions", "/transactions/b"]


def test_an_end_from_the_list_is_returned_even_if_its_result_code_cannot_be_read() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, "FAILED"))
    service.broken["b"] = (503, b"")
    client, _ = waiting_client(service, max_attempts=1)
    ends = {each.transaction_id: each for each in client.transactions.wait_all(["a", "b"])}
    assert (ends["b"].status, ends["b"].result_desc) == ("FAILED", None)
    assert service.paths == ["/transactions", "/transactions/b"]


def test_a_predicate_may_depend_on_fields_that_only_a_full_read_has() -> None:
    service = Service()
    service.add("a", (20.0, "FAILED"))
    service.add("b")
    client, _ = waiting_client(service)

    def explained(seen: Transaction) -> bool:
        return seen.result_desc is not None and seen.status == "FAILED"

    assert next(iter(client.transactions.wait_all(["a", "b"], until=explained))).transaction_id == "a"
    assert service.requests[-1] == (25.0, "/transactions/a")


def test_a_failed_payout_is_read_in_full_once_for_each_status_and_not_after_every_page() -> None:
    service = Service()
    service.add("a", (0.0, "FAILED"), (100.0, "REVERSED"), type="B2C")
    service.add("b", (100.0, "SUCCESS"))
    client, _ = waiting_client(service)
    assert len(list(client.transactions.wait_all(["a", "b"], until=settled))) == 2
    assert service.paths.count("/transactions/a") == 2


def test_a_list_row_does_not_replace_a_full_read_while_the_caller_is_busy() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b", (0.0, "FAILED"))
    client, _ = waiting_client(service)
    ends = iter(client.transactions.wait_all(["a", "b"]))
    assert next(ends).transaction_id == "a"  # the page also showed that b failed
    client.transactions.notify(parse_callback(callback("b", "FAILED")))
    schedule = PollSchedule(first=0.0)
    service.add("c", (20.0, "SUCCESS"))
    service.add("d", (30.0, "SUCCESS"))
    assert len(list(client.transactions.wait_all(["c", "d"], schedule=schedule))) == 2
    assert next(ends).result_desc == "done"
    assert service.paths.count("/transactions/b") == 1
    assert "/transactions" in service.paths[service.paths.index("/transactions/b") :]


def test_a_wait_for_many_names_those_that_did_not_end() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b")
    service.add("c")
    client, _ = waiting_client(service)
    ended = list[str]()
    with pytest.raises(WaitTimeoutError, match="2 transactions have not ended") as caught:
        ended.extend(each.transaction_id for each in client.transactions.wait_all(["a", "b", "c"]))
    assert ended == ["a"]
    assert caught.value.pending == ("b", "c")


def test_an_async_wait_for_many_returns_each_as_it_ends() -> None:
    service = Service()
    service.add("a", (20.0, "SUCCESS"))
    service.add("b", (0.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        ended = [(service.clock(), each.transaction_id) async for each in client.transactions.wait_all(["a", "b"])]
        assert ended == [(15.0, "b"), (25.0, "a")]

    in_trio(service, work)


def test_each_loop_over_a_wait_for_many_is_a_new_wait() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    client, _ = waiting_client(service)
    ends = client.transactions.wait_all(["a"])
    assert [len(list(ends)), len(list(ends))] == [1, 1]
    assert service.times == [15.0, 30.0]


def test_waiting_for_nothing_returns_nothing() -> None:
    service = Service()
    client, _ = waiting_client(service)
    assert list(client.transactions.wait_all([])) == []
    assert service.requests == []


@pytest.mark.parametrize("wrong", ["", "..", "x" * 300, 7, None])
def test_what_is_not_an_id_is_refused_at_once(wrong: Any) -> None:
    service = Service()
    client, _ = waiting_client(service)
    with pytest.raises(RequestValidationError, match="transaction_id"):
        client.transactions.wait_all(["a", wrong])
    with pytest.raises(RequestValidationError, match="transaction_id"):
        client.transactions.wait(wrong)
    with pytest.raises(RequestValidationError, match="transaction_id"):
        client.transactions.notify(wrong)
    assert service.requests == []


def test_each_wait_keeps_its_own_interval() -> None:
    service = Service()
    service.add("slow")
    service.add("quick", (0.5, "SUCCESS"))
    client, backend = waiting_client(service)
    slow = client.transactions._start_wait(["slow"], terminal, PollSchedule(first=0.1, every=60.0, limit=100.0))
    with slow.registered():
        quick = PollSchedule(first=0.1, every=0.3, limit=4.0)
        assert client.transactions.wait("quick", schedule=quick).status == "SUCCESS"
    assert backend.clock < 1001.5


def test_waits_that_are_over_cost_no_request() -> None:
    service = Service()
    service.add("abandoned")
    service.add("a", (100.0, "SUCCESS"))
    client, backend = waiting_client(service)
    over = client.transactions._start_wait(["abandoned"], terminal, PollSchedule(first=0.0, every=1.0, limit=1.0))
    with over.registered():
        backend.clock += 2.0
        assert client.transactions.wait("a").status == "SUCCESS"
    assert set(service.paths) == {"/transactions/a"}


def test_what_has_already_ended_is_returned_at_once() -> None:
    service = Service()
    service.add("a", (0.0, "SUCCESS"))
    service.add("b")
    client, backend = waiting_client(service)
    ended = client.transactions.get("a")
    assert client.transactions.wait(ended) is ended
    assert next(iter(client.transactions.wait_all(["b", ended]))) is ended
    assert service.paths == ["/transactions/a"]
    assert backend.slept == []


def test_an_iteration_that_is_left_takes_part_no_longer() -> None:
    """Without a ResourceWarning of trio's, which would be an error here."""
    service = Service()
    service.add("a", (20.0, "SUCCESS"))
    service.add("b", (200.0, "SUCCESS"))

    async def work(client: AsyncClient) -> None:
        coordinator: Any = client._coordinator.get()
        async for ended in client.transactions.wait_all(["a", "b"]):
            assert ended.transaction_id == "a"
            assert len(coordinator.registered()) == 1
            break
        gc.collect()
        assert coordinator.registered() == []

    in_trio(service, work)
    gc.collect()
