"""Waiting for slots, on a clock that only sleeping moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from momopay import BudgetExhaustedError, Lane, RateBudget
from momopay._core.operation import run_sync
from momopay._ratelimit.budget import Budget
from momopay._ratelimit.limiter import RateLimiter, SharedBudget


class Clock:
    """A backend's clock. `at` runs an action when a sleep passes its time."""

    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []
        self.actions: list[tuple[float, Callable[[], object]]] = []

    def at(self, time: float, action: Callable[[], object]) -> None:
        self.actions.append((time, action))

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        end = self.time + seconds
        while self.actions and self.actions[0][0] <= end:
            self.time, action = self.actions.pop(0)
            action()
        self.time = end


class Shared:
    """A shared budget that answers after a round trip; here it is its own slot source."""

    def __init__(self, budget: RateBudget) -> None:
        self.budget = budget
        self.asked_for: list[str] = []
        self.closed = 0

    def slots(self, _backend: Any, account_hash: str) -> Shared:
        self.asked_for.append(account_hash)
        return self

    async def reserve(self, now: float, lane: Lane, within: float) -> float:
        return self.budget.reserve(now, lane, within)

    async def stop(self, now: float, until: float) -> None:
        self.budget.stop(now, until)

    async def stopped(self, now: float) -> bool:
        return self.budget.stopped(now)

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(params=["local", "shared"])
def budget(request: pytest.FixtureRequest) -> Budget | Shared:
    local = RateBudget(requests=2, window=10.0)
    return local if request.param == "local" else Shared(local)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(budget: Any, clock: Any) -> RateLimiter:
    return RateLimiter(budget, clock, "hash")


def acquire(limiter: RateLimiter, *, latest: float = 1000.0) -> bool:
    return run_sync(limiter.acquire(Lane.PAYMENT, latest=latest, describe=lambda: "stk.initiate 'A-1'"))


def test_a_free_slot_is_taken_without_a_wait(limiter: RateLimiter, clock: Clock) -> None:
    assert [acquire(limiter), acquire(limiter)] == [False, False]
    assert clock.slept == []


def test_a_call_waits_until_its_slot_comes(limiter: RateLimiter, clock: Clock) -> None:
    assert [acquire(limiter) for _ in range(3)] == [False, False, True]
    assert clock.slept == [10.0]
    assert clock.time == 110.0


def test_without_a_slot_in_time_nothing_is_taken(limiter: RateLimiter, clock: Clock) -> None:
    for _ in range(2):
        acquire(limiter)
    for _ in range(3):
        with pytest.raises(BudgetExhaustedError, match=r"'A-1': .* no slot for 10\.0 s; not sent") as caught:
            acquire(limiter, latest=109.0)
        assert caught.value.retry_after == 10.0
    assert clock.slept == []
    assert acquire(limiter, latest=110.0)


def test_a_deadline_that_has_passed_still_takes_a_free_slot(limiter: RateLimiter) -> None:
    assert not acquire(limiter, latest=99.0)  # the attempt's own timer ends the call


def test_a_pause_revokes_the_slot_of_a_call_that_sleeps(limiter: RateLimiter, clock: Clock) -> None:
    for _ in range(2):
        acquire(limiter)
    clock.at(105.0, lambda: run_sync(limiter.pause(30.0)))
    assert acquire(limiter)
    assert clock.slept == [10.0, 25.0]
    assert clock.time == 135.0


def test_a_pause_that_ended_meanwhile_revokes_nothing(limiter: RateLimiter, clock: Clock) -> None:
    for _ in range(2):
        acquire(limiter)
    clock.at(101.0, lambda: run_sync(limiter.pause(3.0)))
    assert acquire(limiter)
    assert clock.slept == [10.0]


def test_a_shared_budget_is_asked_for_the_account_and_closed_with_the_client(clock: Any) -> None:
    shared = Shared(RateBudget())
    assert isinstance(shared, SharedBudget)
    run_sync(RateLimiter(shared, clock, "hash").close())
    assert (shared.asked_for, shared.closed) == (["hash"], 1)


def test_a_local_budget_is_not_a_shared_one_and_stays_open(clock: Any) -> None:
    budget = RateBudget(requests=1)
    assert not isinstance(budget, SharedBudget)
    limiter = RateLimiter(budget, clock, "hash")
    run_sync(limiter.close())
    assert not acquire(limiter)
