"""A process's share while Redis is away."""

from __future__ import annotations

import pytest

from momopay import Lane
from momopay.redis.fallback import FallbackBudget


def fallback(
    requests: int = 58, sharers: int = 8, *, free: int | None, ahead: tuple[float, ...] = ()
) -> FallbackBudget:
    return FallbackBudget(requests, 70.0, sharers, now=100.0, free=free, ahead=ahead)


def delays(budget: FallbackBudget, count: int) -> list[float]:
    return [round(budget.reserve(100.0, Lane.PAYMENT), 6) for _ in range(count)]


@pytest.mark.parametrize(("requests", "sharers", "share"), [(58, 8, 7), (58, 1, 58), (12, 3, 4), (3, 8, 1)])
def test_a_process_that_never_met_redis_has_its_whole_share(requests: int, sharers: int, share: int) -> None:
    budget = fallback(requests, sharers, free=None)
    assert delays(budget, share + 1) == [0.0] * share + [70.0]


@pytest.mark.parametrize(("free", "at_once"), [(58, 7), (56, 7), (40, 5), (8, 1), (7, 1), (0, 1)])
def test_a_process_begins_with_its_part_of_what_was_free_and_at_least_one(free: int, at_once: int) -> None:
    assert delays(fallback(free=free), 7).count(0.0) == at_once


def test_the_rest_of_the_share_comes_back_evenly_over_the_first_window() -> None:
    assert delays(fallback(sharers=8, free=24), 8) == [0.0, 0.0, 0.0, 17.5, 35.0, 52.5, 70.0, 70.0]


def test_all_processes_together_stay_within_the_budget_from_the_start() -> None:
    begun = [sum(delay == 0.0 for delay in delays(fallback(free=24), 7)) for _ in range(8)]
    assert sum(begun) <= 24


def test_no_window_holds_more_than_the_share() -> None:
    taken = delays(fallback(free=16), 60)
    assert all(sum(start <= each < start + 70.0 for each in taken) <= 7 for start in taken)


def test_slots_that_redis_gave_for_later_count() -> None:
    assert delays(fallback(12, 4, free=0, ahead=(90.0, 110.0, 111.0)), 3) == [70.0, 80.0, 81.0]
