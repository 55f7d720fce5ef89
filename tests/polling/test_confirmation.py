"""How confirmations share what one of them reads, and what they do not share: failures, deadlines, differences."""

from functools import partial
from typing import Any

import anyio
import httpx
import pytest

import momopay
from bodies import refusal
from momopay import APIConnectionError, AsyncClient, Callback, RateBudget, TransactionNotFoundError
from polling.kit import Concurrent, MakeSdk, TimedService, callers, in_trio, reported, wait_for_each

LIST = "/transactions"


class Outcomes(Concurrent):
    """What each of some confirmations came to, begun at the same time unless a later one is given."""

    def __init__(self, service: TimedService, *callbacks: Callback) -> None:
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


def held(service: TimedService, path: str, seconds: float, count: int = 1) -> httpx.MockTransport:
    """Answer at once, but for the first so many requests of that path, which take so long."""
    holds = [seconds] * count

    async def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path.removeprefix("/v1") == path and holds:
            await anyio.sleep(holds.pop())
        else:
            await anyio.sleep(0.1)
        return service.respond(request)

    return httpx.MockTransport(respond)


def slow(service: TimedService) -> httpx.MockTransport:
    return held(service, "", 0.0)


def ended(count: int, status: str = "SUCCESS") -> tuple[TimedService, list[str]]:
    service = TimedService()
    return service, service.add_many(count, (0.0, status))


def test_one_alone_is_read_by_id_at_once(sdk: MakeSdk) -> None:
    service, _ = ended(1)
    confirmed = sdk(service, budget=RateBudget())(lambda client: client.transactions.confirm(reported("t0")))
    assert service.requests == [(0.0, "/transactions/t0")]
    assert confirmed.result_desc == "done"
    lie = reported("t0", amount=1)
    with pytest.raises(momopay.CallbackMismatchError):
        sdk(service)(lambda client: client.transactions.confirm(lie))
    service.broken["t0"] = (503, b"")
    with pytest.raises(momopay.ServerError):
        sdk(service, max_attempts=1)(lambda client: client.transactions.confirm(reported("t0")))
    assert len(service.paths) == 3, "a read that failed is not made twice"


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


@pytest.mark.parametrize(
    ("count", "status", "reported_as"),
    [(3, "SUCCESS", "SUCCESS"), (60, "SUCCESS", "SUCCESS"), (3, "CANCELLED", "FAILED")],
)
def test_those_that_come_while_one_reads_share_a_page(count: int, status: str, reported_as: str) -> None:
    """Any two ends without success agree."""
    service, identities = ended(count, status)
    outcomes = Outcomes(service, *(reported(identity, reported_as) for identity in identities))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == sorted(identities)
    assert service.paths == ["/transactions/t0", LIST]
    assert {seen.status for seen in outcomes.seen.values()} == {status}
    assert outcomes.seen["t1"].result_code is None
    assert outcomes.seen["t1"].response.status_code == 200
    assert outcomes.nobody_is_left()


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


def test_what_the_list_does_not_show_is_read_by_id_and_a_missing_one_concerns_only_itself() -> None:
    service, _ = ended(4)
    service.unlisted.add("t1")
    service.fields["t3"]["phone"] = None  # the list has it, and it cannot be read there
    outcomes = Outcomes(service, *map(reported, ["t0", "t1", "t2", "t3", "none"]))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == ["t0", "t1", "t2", "t3"]
    assert {identity: type(error) for identity, error in outcomes.errors.items()} == {"none": TransactionNotFoundError}
    assert service.paths[:2] == ["/transactions/t0", LIST]
    assert sorted(service.paths[2:]) == [f"/transactions/{identity}" for identity in ("none", "t1", "t3")]


def test_a_mismatch_is_claimed_only_after_a_read_by_id() -> None:
    service, _ = ended(4)
    service.add("lagging", (0.25, "SUCCESS"))  # the page is read before that, and it by id afterwards
    lie, genuine = reported("t1", amount=5000), reported("t2")
    outcomes = Outcomes(service, reported("t0"), lie, genuine, reported("t3", "FAILED"), reported("lagging"))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == ["lagging", "t0", "t2"]
    fields = {identity: getattr(error, "fields", None) for identity, error in outcomes.errors.items()}
    assert fields == {"t1": ("amount",), "t3": ("status",)}
    assert sorted(service.paths[2:]) == ["/transactions/lagging", "/transactions/t1", "/transactions/t3"]


def test_a_callback_that_tells_no_end_is_read_by_id(service: TimedService) -> None:
    identities = service.add_many(3)
    held_back = [reported(identity, "PENDING") for identity in identities]
    outcomes = Outcomes(service, *(each.model_copy(update={"event_type": "transaction.held"}) for each in held_back))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == identities
    assert sorted(service.paths) == [LIST, "/transactions/t0", "/transactions/t1", "/transactions/t2"]


async def with_its_page_held(outcomes: Outcomes, client: AsyncClient, **deadlines: float) -> None:
    """Have the first one read a page for all: it queues for a slot until 61 s, and the others come meanwhile."""
    for _ in range(2):
        await client.transactions.get("t0")
    await outcomes(client, deadlines)


@pytest.mark.parametrize(("ends", "took"), [("by its scope", 65.1), ("by its deadline", 65.3)])
def test_a_reader_that_gives_up_leaves_its_page_to_another_at_once(ends: str, took: float) -> None:
    service, identities = ended(20)
    outcomes = Outcomes(service, *map(reported, identities))
    deadlines = {"t0": 65.0} if ends == "by its deadline" else {}

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(with_its_page_held, outcomes, client, **deadlines))
            if not deadlines:
                await anyio.sleep(65.0)
                outcomes.scopes["t0"].cancel()

    assert in_trio(service, work, RateBudget(requests=2), held(service, LIST, 1000.0)) == pytest.approx(took)
    errors = {identity: type(error) for identity, error in outcomes.errors.items()}
    assert errors == dict.fromkeys(deadlines, APIConnectionError)
    assert sorted(outcomes.seen) == sorted(identities[1:])
    assert service.paths[2:] == [LIST]
    assert outcomes.nobody_is_left()


@pytest.mark.parametrize("ends", ["by its deadline", "by its scope"])
def test_one_that_waits_and_gives_up_leaves_nothing_behind(ends: str) -> None:
    service, _ = ended(3)
    outcomes = Outcomes(service, *map(reported, ["t0", "t1", "t2"]))

    async def work(client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcomes, client, {"t1": 4.0} if ends == "by its deadline" else {})
            await anyio.sleep(4.0)
            if ends == "by its scope":
                outcomes.scopes["t1"].cancel()

    in_trio(service, work, transport=held(service, "/transactions/t0", 20.0))
    if ends == "by its deadline":
        error = outcomes.errors.pop("t1")
        assert isinstance(error, APIConnectionError)
        assert not error.may_have_executed
        assert outcomes.ended_at["t1"] == 4.0
    assert sorted(outcomes.seen) == ["t0", "t2"]
    assert service.paths == ["/transactions/t0", "/transactions/t2"]
    assert outcomes.nobody_is_left()


def test_a_read_by_id_after_a_page_ends_by_the_deadline_of_its_confirmation() -> None:
    service, _ = ended(3)
    outcomes = Outcomes(service, *(reported(f"t{number}", amount=1) for number in range(3)))

    async def respond(request: httpx.Request) -> httpx.Response:
        await anyio.sleep({"t0": 20.0, "transactions": 0.1}.get(request.url.path.rpartition("/")[2], 1000.0))
        return service.respond(request)

    deadlines = dict.fromkeys(service.moves, 30.0)
    in_trio(service, lambda client: outcomes(client, deadlines), transport=httpx.MockTransport(respond))
    assert outcomes.ended_at == {"t0": 20.0, "t1": 30.0, "t2": 30.0}
    assert service.paths == ["/transactions/t0", LIST]


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


@pytest.mark.parametrize(("count", "pages"), [(3, 2), (4, 3), (20, 3)])
def test_no_more_than_three_pages_are_read_for_what_they_do_not_show(count: int, pages: int) -> None:
    service, identities = ended(count)
    service.add_many(500, prefix="later")
    outcomes = Outcomes(service, *map(reported, identities))
    in_trio(service, outcomes, transport=slow(service))
    assert sorted(outcomes.seen) == sorted(identities)
    assert sum(path.startswith(f"{LIST}/") for path in service.paths) == count
    assert len(service.paths) == count + pages
