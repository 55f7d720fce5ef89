"""The budget of a process: shared by threads, and by the child of a fork not at all."""

import math
from functools import partial
from typing import Any

import pytest

from in_turn import in_turn
from momopay import ConfigurationError, FileRateBudget, RateBudget, RedisRateBudget
from momopay.types import Lane
from ratelimit.kit import Caller


def test_clients_of_all_accounts_share_what_they_were_given() -> None:
    budget = RateBudget(requests=2, window=10.0)
    one, other = Caller(budget, "one", time=0.0), Caller(budget, "other", time=0.0)
    assert [one.reserve(), other.reserve(), one.reserve()] == [0.0, 0.0, 10.0]


def test_what_a_subclass_does_in_reserve_happens_for_every_slot() -> None:
    class Counting(RateBudget):
        taken = 0

        def reserve(self, now: float, lane: Lane, within: float = math.inf) -> float:
            delay = super().reserve(now, lane, within)
            self.taken += delay <= within
            return delay

    budget = Counting(requests=2, window=10.0)
    assert Caller(budget, time=0.0).at_once(3) == 2
    assert budget.taken == 2


def test_a_subclass_may_compare_its_budgets() -> None:
    class Comparable(RateBudget):  # noqa: PLW1641  that it has no hash is the point
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Comparable)

    assert Comparable().reserve(0.0, Lane.READ) == 0.0


SIZE: list[dict[str, Any]] = [
    *({"requests": wrong} for wrong in (0, -1, 58.5, "58", True)),
    *({"window": wrong} for wrong in (0.0, -1.0, math.inf, math.nan, "61", True)),
]


@in_turn(
    ("budget", "options"),
    [
        *((RateBudget, wrong) for wrong in SIZE),
        *((FileRateBudget, wrong) for wrong in [*SIZE, {"path": 7}, {"path": b"x"}]),
        *((partial(RedisRateBudget, "redis://127.0.0.1:1"), wrong) for wrong in SIZE),
        *((partial(RedisRateBudget, "redis://127.0.0.1:1"), {"sharers": wrong}) for wrong in (0, 2.5, True)),
        *((partial(RedisRateBudget, "redis://127.0.0.1:1"), {"timeout": wrong}) for wrong in (0.0, math.nan, "1")),
    ],
)
def test_an_argument_out_of_range_is_refused(budget: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        budget(**options)
