"""The show in short: no 429 among eight processes, few while Redis dies; the control has some."""

from __future__ import annotations

from typing import Literal

import pytest

from campaign.redis_budget import Plan, run
from redis_server import need_redis

pytestmark = pytest.mark.campaign

SEED = 11


def plan(seconds: float, window: Literal["fixed", "sliding"], *, shared: bool = True, outage: bool = False) -> Plan:
    need_redis()
    return Plan(SEED, seconds=seconds, speed=12.0, margin=1.0, window=window, shared=shared, outage=outage)


@pytest.mark.parametrize("window", ["fixed", "sliding"])
def test_eight_processes_stay_within_the_limit(window: Literal["fixed", "sliding"]) -> None:
    result = run(plan(14.0, window))
    assert result.limited == 0, f"seed {SEED}"
    assert result.outcomes["paid"] > 20


def test_while_redis_dies_and_comes_back_payments_go_on_and_few_are_limited() -> None:
    result = run(plan(20.0, "sliding", outage=True))
    # What others took since a process last asked can only be estimated, and windows of 5 s are all bursts.
    assert result.limited <= 0.15 * result.requests, f"seed {SEED}"
    assert result.warnings > 0  # a process that had not begun yet has nothing to warn of
    assert result.outcomes["paid"] > 20


def test_the_show_sees_budgets_that_are_not_shared() -> None:
    assert run(plan(8.0, "sliding", shared=False)).limited > 0, f"seed {SEED}"
