"""How confirmations share what one of them reads, and what they do not share: failures, deadlines, differences."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import httpx
import pytest

from momopay import (
    APIConnectionError,
    AsyncClient,
    BudgetExhaustedError,
    Callback,
    CallbackMismatchError,
    Client,
    InvalidApiKeyError,
    Lane,
    RateBudget,
    ServerError,
    TransactionNotFoundError,
    parse_callback,
)
from momopay.events import BudgetWaited
from momopay.models.callbacks import is_confirmed
from patience import until
from polling.kit import BASE, Concurrent, MakeSdk, Service, callback, callers, in_trio, wait_for_each, waiting_client
from virtual import refusal

LIST = "/transactions"
Transport = Callable[[httpx.Request], Any]


def reported(identity: str, status: str = "SUCCESS", **fields: Any) -> Callback:
    """Return a callback, with other fields than the genuine one has."""
    genuine = parse_callback(callback(identity, status))
    return genuine.model_copy(update={"transaction": genuine.transaction.model_copy(update=fields)})


class Outcomes(Concurrent):
    """What each of some confirmations came to, begun at the same time unless a later one is given."""

    def __init__(self, service: Service, *callbacks: Callback) -> None:
        super().__init__(service)
        self.callbacks = list(callbacks)
        self.client: AsyncClient

    async def __call__(self, client: AsyncClient, deadlines: dict[str, float] | None = None) -> None:
        self.client = client
        async with anyio.create_task_group() as tasks:
            for each in self.callbacks:
                deadline = (deadlines or {}).get(each.transaction_id)
                tasks.start_soon(
                    self.confirm, client if deadline is None else client.with_options(deadline=deadline), each
                )
                await anyio.lowlevel.checkpoint()

    async def confirm(self, client: AsyncClient, each: Callback) -> None:
        await self.run(each.transaction_id, client.transactions.confirm(each))

    def nobody_is_left(self) -> bool:
        return callers(self.client, "confirmations") == []


def held(service: Service, path: str, seconds: float, count: int = 1) -> httpx.MockTransport:
    """Answer at once, but for the first so many requests of that path, which take so long."""
    holds = [seconds] * count

    async def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path.removeprefix("/v1") == path and holds:
            await anyio.sleep(holds.pop())
        else:
            await anyio.sleep(0.1)
        return service.respond(request)

    return httpx.MockTransport(respond)


def slow(service: Service) -> httpx.MockTransport:
    return held(service, "", 0.0)


def ended(count: int, status: str = "SUCCESS") -> tuple[Service, list[str]]:
    service = Service()
    return service, service.add_many(count, (0.0, status))


def test_one_alone_is_read_by_id_at_once(sdk: MakeSdk) -> None:
    service, _ = ended(1)
    confirmed = sdk(service, budget=RateBudget())(lambda client: client.transactions.confirm(reported("t0")))
    assert service.requests == [(0.0, "/transactions/t0")]
    assert confirmed.result_desc == "done"


def test_one_alone_is_read_by_id_at_once_although_a_wait_walks_down_the_list() -> None:
    service, identities = ended(1)
    service.add_many(300)
    outcomes = Outcomes(service, reported("t0"))

    async def respond(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(5.0 if request.url.path.endswith(LIST) else 0.1)
        return service.respond(request)

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_each, client, ["t0", "t1", "t2"])
            await anyio.sleep(16.0)
            await outcomes(client)
            tasks.cancel_scope.cancel()

    in_trio(service, work, transport=httpx.MockTransport(respond))
    assert outcomes.ended_at == {identities[0]: 16.1}


def test_confirmations_have_the_lane_of_polls_with_its_floor() -> None:
    service, identities = ended(2)
    seen = list[Any]()

    async def work(client: AsyncClient) -> None:
        for identity in identities:
            await client.transactions.confirm(reported(identity))

    in_trio(service, work, RateBudget(requests=1), on_event=seen.append)
    assert [each.lane for each in seen if isinstance(each, BudgetWaited)] == [Lane.POLL.value]


@pytest.mark.parametrize("count", [3, 60])
def test_those_that_come_while_one_reads_share_a_page(count: int) -> None:
    service, identities = ended(count)
    outcomes = Outcomes(service, *map(reported, identities))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == sorted(identities)
    assert service.paths == ["/transactions/t0", LIST]
    assert {seen.status for seen in outcomes.seen.values()} == {"SUCCESS"}
    assert outcomes.seen["t1"].result_code is None
    assert outcomes.seen["t1"].response.status_code == 200
    assert all(map(is_confirmed, outcomes.callbacks))
    assert outcomes.nobody_is_left()


def test_threads_share_a_page() -> None:
    service, identities = ended(60)
    seen = list[str]()
    all_wait = threading.Event()

    def respond(request: httpx.Request) -> httpx.Response:
        until(all_wait.is_set, "all of them wait")
        return service.respond(request)

    with Client("pk_test_threads", base_url=BASE, budget=None, transport=httpx.MockTransport(respond)) as client:

        def confirm(identity: str) -> None:
            seen.append(client.transactions.confirm(reported(identity)).transaction_id)

        threads = [threading.Thread(target=confirm, args=(identity,), daemon=True) for identity in identities]
        for thread in threads:
            thread.start()
        until(lambda: len(callers(client, "confirmations")) == 60, "all of them wait")
        all_wait.set()
        for thread in threads:
            thread.join(timeout=30.0)
        assert callers(client, "confirmations") == []
    assert sorted(seen) == sorted(identities)
    assert len(service.paths) == 2
    assert service.paths[1] == LIST


def test_one_that_comes_while_the_page_is_read_is_answered_by_it() -> None:
    service, _ = ended(4)
    outcomes = Outcomes(service, *map(reported, ["t0", "t1", "t2"]))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcomes, client)
            await anyio.sleep(2.0)
            tasks.start_soon(outcomes.confirm, client, reported("t3"))

    in_trio(service, work, transport=held(service, LIST, 5.0))
    assert sorted(outcomes.seen) == ["t0", "t1", "t2", "t3"]
    assert service.paths == ["/transactions/t0", LIST]


def test_those_that_come_while_one_queues_for_a_slot_share_a_page() -> None:
    service, identities = ended(3)
    outcomes = Outcomes(service, *map(reported, identities))

    async def work(client: AsyncClient) -> None:
        await client.transactions.get("t0")
        await outcomes(client)

    in_trio(service, work, RateBudget(requests=1))
    assert sorted(outcomes.seen) == identities
    assert service.requests == [(0.0, "/transactions/t0"), (61.0, LIST)]


def test_any_two_ends_without_success_agree_on_a_page() -> None:
    service, _ = ended(3, "CANCELLED")
    outcomes = Outcomes(service, *(reported(f"t{number}", "FAILED") for number in range(3)))
    in_trio(service, outcomes, transport=slow(service))
    assert {seen.status for seen in outcomes.seen.values()} == {"CANCELLED"}
    assert outcomes.seen["t2"].result_code is None
    assert service.paths == ["/transactions/t0", LIST]


class Lagging(Service):
    """A service whose list is behind for some."""

    def __init__(self, *lagging: str) -> None:
        super().__init__()
        self.lagging = lagging

    def page(self, start: int) -> dict[str, Any]:
        page = super().page(start)
        for item in page["items"]:
            if item["transactionId"] in self.lagging:
                item["status"] = "PROCESSING"
        return page


def test_what_the_list_shows_in_another_status_is_read_by_id() -> None:
    service = Lagging("t1")
    identities = service.add_many(4, (0.0, "SUCCESS"))
    outcomes = Outcomes(service, *map(reported, identities))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == identities
    assert outcomes.seen["t1"].result_desc == "done"
    assert service.paths == ["/transactions/t0", LIST, "/transactions/t1"]


def test_what_the_list_does_not_show_is_read_by_id_and_a_missing_one_concerns_only_itself() -> None:
    service, _ = ended(4)
    service.unlisted.add("t1")
    outcomes = Outcomes(service, *map(reported, ["t0", "t1", "t2", "t3", "none"]))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == ["t0", "t1", "t2", "t3"]
    assert {identity: type(error) for identity, error in outcomes.errors.items()} == {"none": TransactionNotFoundError}
    assert service.paths[:2] == ["/transactions/t0", LIST]
    assert sorted(service.paths[2:]) == ["/transactions/none", "/transactions/t1"]


def test_a_mismatch_is_claimed_only_after_a_read_by_id() -> None:
    service, _ = ended(4)
    lie, genuine = reported("t1", amount=5000), reported("t2")
    outcomes = Outcomes(service, reported("t0"), lie, genuine, reported("t3", "FAILED"))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == ["t0", "t2"]
    fields = {identity: getattr(error, "fields", None) for identity, error in outcomes.errors.items()}
    assert fields == {"t1": ("amount",), "t3": ("status",)}
    assert sorted(service.paths[2:]) == ["/transactions/t1", "/transactions/t3"]
    assert (is_confirmed(lie), is_confirmed(genuine)) == (False, True)


def test_a_callback_that_tells_no_end_is_read_by_id() -> None:
    service = Service()
    identities = service.add_many(3)
    held_back = [reported(identity, "PENDING") for identity in identities]
    outcomes = Outcomes(service, *(each.model_copy(update={"event_type": "transaction.held"}) for each in held_back))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == identities
    assert sorted(service.paths) == [LIST, "/transactions/t0", "/transactions/t1", "/transactions/t2"]


def test_a_cancelled_read_of_one_alone_is_followed_by_a_page_for_the_others() -> None:
    service, identities = ended(20)
    outcomes = Outcomes(service, *map(reported, identities))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcomes, client)
            await anyio.sleep(5.0)
            outcomes.scopes["t0"].cancel()

    took = in_trio(service, work, transport=held(service, "/transactions/t0", 1000.0))
    assert sorted(outcomes.seen) == sorted(identities[1:])
    assert took == pytest.approx(5.1)
    assert service.paths == [LIST]
    assert outcomes.nobody_is_left()


async def with_its_page_held(outcomes: Outcomes, client: AsyncClient, **deadlines: float) -> None:
    """Have the first one read a page for all: it queues for a slot until 61 s, and the others come meanwhile."""
    for _ in range(2):
        await client.transactions.get("t0")
    await outcomes(client, deadlines)


def test_a_cancelled_page_is_read_by_another_at_once() -> None:
    service, identities = ended(20)
    outcomes = Outcomes(service, *map(reported, identities))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(with_its_page_held, outcomes, client)
            await anyio.sleep(65.0)
            outcomes.scopes["t0"].cancel()

    took = in_trio(service, work, RateBudget(requests=2), held(service, LIST, 1000.0))
    assert sorted(outcomes.seen) == sorted(identities[1:])
    assert took == pytest.approx(65.1)
    assert service.paths[2:] == [LIST]
    assert outcomes.nobody_is_left()


def test_the_deadline_of_the_one_that_reads_is_its_own() -> None:
    service, identities = ended(20)
    outcomes = Outcomes(service, *map(reported, identities))

    async def work(client: AsyncClient) -> None:
        await with_its_page_held(outcomes, client, t0=65.0)

    took = in_trio(service, work, RateBudget(requests=2), held(service, LIST, 1000.0))
    assert {identity: type(error) for identity, error in outcomes.errors.items()} == {"t0": APIConnectionError}
    assert sorted(outcomes.seen) == sorted(identities[1:])
    assert took == pytest.approx(65.3)
    assert service.paths[2:] == [LIST]


def test_a_reader_for_which_there_is_no_slot_leaves_the_others_their_turn() -> None:
    service, identities = ended(4)
    outcomes = Outcomes(service, *map(reported, identities))

    async def work(client: AsyncClient) -> None:
        await client.transactions.get("t0")
        await outcomes(client, {"t0": 20.0, "t1": 20.0})

    in_trio(service, work, RateBudget(requests=1))
    assert {type(error) for error in outcomes.errors.values()} == {BudgetExhaustedError}
    assert sorted(outcomes.errors) == ["t0", "t1"]
    assert sorted(outcomes.seen) == ["t2", "t3"]
    assert service.paths == ["/transactions/t0", LIST]


def test_one_that_waits_ends_at_its_own_deadline() -> None:
    service, _ = ended(3)
    outcomes = Outcomes(service, *map(reported, ["t0", "t1", "t2"]))
    in_trio(service, partial(outcomes, deadlines={"t1": 4.0}), transport=held(service, "/transactions/t0", 20.0))
    error = outcomes.errors.pop("t1")
    assert isinstance(error, APIConnectionError)
    assert not error.may_have_executed
    assert outcomes.ended_at["t1"] == 4.0
    assert sorted(outcomes.seen) == ["t0", "t2"]
    assert service.paths == ["/transactions/t0", "/transactions/t2"]


def test_a_cancelled_one_that_waits_leaves_nothing_behind() -> None:
    service, _ = ended(3)
    outcomes = Outcomes(service, *map(reported, ["t0", "t1", "t2"]))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcomes, client)
            await anyio.sleep(5.0)
            outcomes.scopes["t1"].cancel()

    in_trio(service, work, transport=held(service, "/transactions/t0", 10.0))
    assert sorted(outcomes.seen) == ["t0", "t2"]
    assert service.paths == ["/transactions/t0", "/transactions/t2"]
    assert outcomes.nobody_is_left()


@pytest.mark.parametrize(
    "failures",
    [[(503, b"")] * 4, [(200, b"<html>")], [(401, refusal("INVALID_API_KEY"))]],
    ids=["out of order", "not the service's", "refused"],
)
def test_a_page_that_fails_is_nobodys_failure(failures: list[Any], no_backoff: None) -> None:
    service, identities = ended(4)
    answered = list[str]()

    async def respond(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(0.1)
        answered.append(request.url.path)
        if len(answered) == 2:
            service.failures = failures
        return service.respond(request)

    outcomes = Outcomes(service, *map(reported, identities))
    in_trio(service, outcomes, transport=httpx.MockTransport(respond))
    assert sorted(outcomes.seen) == identities
    assert sorted(set(service.paths)) == [LIST, *(f"/transactions/{identity}" for identity in identities)]


def test_a_failure_of_one_read_is_its_own() -> None:
    service, identities = ended(5)
    service.unlisted.update({"t1", "t2"})
    service.broken["t0"] = (401, refusal("INVALID_API_KEY"))
    service.broken["t2"] = (401, refusal("INVALID_API_KEY"))
    outcomes = Outcomes(service, *map(reported, identities))
    in_trio(service, outcomes, transport=slow(service))
    assert {type(error) for error in outcomes.errors.values()} == {InvalidApiKeyError}
    assert sorted(outcomes.errors) == ["t0", "t2"]
    assert sorted(outcomes.seen) == ["t1", "t3", "t4"]


def test_a_read_that_failed_is_not_made_twice(sdk: MakeSdk) -> None:
    service, _ = ended(1)
    service.broken["t0"] = (503, b"")
    with pytest.raises(ServerError):
        sdk(service, max_attempts=1)(lambda client: client.transactions.confirm(reported("t0")))
    assert service.paths == ["/transactions/t0"]


def test_two_deliveries_of_one_callback_are_one_read() -> None:
    service, _ = ended(2)
    outcomes = Outcomes(service, reported("t0"), reported("t1"), reported("t1"))
    service.unlisted.add("t1")
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == ["t0", "t1"]
    assert service.paths == ["/transactions/t0", "/transactions/t1"]


def test_further_pages_are_read_while_that_is_cheaper_than_reading_by_id() -> None:
    service, identities = ended(20)
    service.add_many(190, prefix="later")
    outcomes = Outcomes(service, *map(reported, identities))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == sorted(identities)
    assert service.paths == ["/transactions/t0", LIST, f"{LIST}?100", f"{LIST}?200"]


@pytest.mark.parametrize(("count", "pages"), [(3, 2), (4, 3), (20, 3)])
def test_no_more_than_three_pages_are_read_for_what_they_do_not_show(count: int, pages: int) -> None:
    service, identities = ended(count)
    service.add_many(500, prefix="later")
    outcomes = Outcomes(service, *map(reported, identities))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == sorted(identities)
    assert sum(path.startswith(f"{LIST}/") for path in service.paths) == count
    assert len(service.paths) == count + pages


def test_those_that_the_first_page_shows_do_not_wait_for_the_second() -> None:
    service, identities = ended(10)
    service.add_many(100, prefix="later")
    new = service.add_many(10, (0.0, "SUCCESS"), prefix="new")
    outcomes = Outcomes(service, *map(reported, [*identities, *new]))

    async def respond(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(7.0 if "cursor" in request.url.params else 0.1)
        return service.respond(request)

    in_trio(service, outcomes, transport=httpx.MockTransport(respond))
    at_once = [identity for identity in new if outcomes.ended_at[identity] < 1.0]
    assert len(at_once) >= 9  # the one that reads may be one of them
    assert all(outcomes.ended_at[identity] > 7.0 for identity in identities[1:])


def test_a_mismatch_of_one_alone_is_not_marked_as_confirmed() -> None:
    service, _ = ended(1)
    client, _ = waiting_client(service)
    lie = reported("t0", amount=1)
    with pytest.raises(CallbackMismatchError):
        client.transactions.confirm(lie)
    assert not is_confirmed(lie)
