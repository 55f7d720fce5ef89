"""The campaign for the shared rate budget in short: eight processes, with and without an outage, and a control."""

from __future__ import annotations

from typing import Literal

import pytest

from campaign.redis_budget import PROCESSES, REQUESTS, Plan, run
from redis_server import need_redis

pytestmark = pytest.mark.campaign

SEED = 11


def plan(seconds: float, limiting: Literal["fixed", "sliding"], *, shared: bool = True, outage: bool = False) -> Plan:
    need_redis()
    # The margin is for requests that travel at different speeds; around an outage, processes start over together.
    margin = 2.0 if outage else 1.0
    return Plan(SEED, seconds=seconds, window=15.0, margin=margin, limiting=limiting, shared=shared, outage=outage)


@pytest.mark.parametrize("limiting", ["fixed", "sliding"])
def test_while_redis_answers_no_window_holds_more_than_the_budget(limiting: Literal["fixed", "sliding"]) -> None:
    result = run(plan(35.0, limiting))
    assert result.fullest <= REQUESTS
    assert sum(result.limited) == 0, f"seed {SEED}"
    assert result.counts["paid"] > 20


def test_around_an_outage_there_are_few_limits() -> None:
    result = run(plan(60.0, "sliding", outage=True))
    assert sum(result.limited) <= PROCESSES, f"seed {SEED}: {result.limited}"  # one for each on average
    # Not each: one that waits for a slot while the server is away does not need it.
    assert result.warnings >= PROCESSES // 2
    assert result.counts["paid"] > 20


def test_budgets_that_are_not_shared_break_the_promise() -> None:
    result = run(plan(20.0, "sliding", shared=False))
    assert max(result.limited) > 1, f"seed {SEED}"
    assert not result.keeps_the_promise
