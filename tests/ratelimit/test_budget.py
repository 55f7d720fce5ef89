"""The rate budget: no window is overrun, a burst goes out at once, and each lane gets its share."""

from __future__ import annotations

import math
import random
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from momopay import ConfigurationError, Lane, RateBudget


def most_in_a_window(times: list[float], window: float) -> int:
    """Count the fullest span of that length that a service could cut out of these arrivals."""
    ordered = sorted(times)
    return max((sum(start <= time < start + window for time in ordered) for start in ordered), default=0)


def test_a_burst_goes_out_at_once_and_the_rest_waits_for_the_window() -> None:
    budget = RateBudget()
    delays = [budget.reserve(0.0, Lane.PAYMENT) for _ in range(60)]
    assert delays == [0.0] * 58 + [61.0] * 2


def test_slots_come_back_one_by_one_as_they_were_taken() -> None:
    budget = RateBudget(requests=2, window=10.0)
    assert [budget.reserve(now, Lane.PAYMENT) for now in (0.0, 4.0)] == [0.0, 0.0]
    assert [budget.reserve(5.0, Lane.PAYMENT) for _ in range(2)] == [5.0, 9.0]


@given(
    seed=st.integers(0, 2**32),
    requests=st.integers(1, 60),
    lanes=st.lists(st.sampled_from([*Lane, None]), min_size=1, max_size=150),
)
def test_no_window_is_ever_overrun(seed: int, requests: int, lanes: list[Lane | None]) -> None:
    chance = random.Random(seed)
    budget = RateBudget(requests=requests, window=61.0)
    now, sent = 0.0, list[float]()
    for lane in lanes:
        now += chance.choice([0.0, 0.0, chance.random(), chance.random() * 90])
        if lane is None:
            until = now + chance.random() * 100
            budget.stop(now, until)
            sent = [time for time in sent if not now < time < until]
            continue
        within = chance.choice([math.inf, 30.0])
        delay = budget.reserve(now, lane, within)
        assert delay >= 0
        if delay <= within:
            sent.append(now + delay)
    # Half a second of jitter stays inside the second that the budget's window is longer than the service's.
    arrivals = [time + chance.random() * 0.5 for time in sent]
    assert most_in_a_window(arrivals, 60.0) <= requests


@given(
    seed=st.integers(0, 2**32),
    requests=st.integers(1, 60),
    lanes=st.lists(st.sampled_from([*Lane, None]), min_size=1, max_size=150),
)
def test_the_memory_of_a_queue_changes_no_slot(seed: int, requests: int, lanes: list[Lane | None]) -> None:
    chance = random.Random(seed)
    remembers, forgets = RateBudget(requests, 61.0), RateBudget(requests, 61.0)
    now = 0.0
    for lane in lanes:
        now += chance.choice([0.0, 0.0, 0.0, chance.random(), chance.random() * 90])
        forgets._not_before = dict.fromkeys(Lane, -math.inf)
        if lane is None:
            until = now + chance.random() * 100
            for budget in (remembers, forgets):
                budget.stop(now, until)
        else:
            within = chance.choice([math.inf, 30.0])
            assert remembers.reserve(now, lane, within) == forgets.reserve(now, lane, within)


@pytest.mark.parametrize("lane", list(Lane))
def test_a_call_behind_a_thousand_others_tries_no_more_times_than_a_window_holds(lane: Lane) -> None:
    budget, tried = RateBudget(), 0
    fits = budget._fits

    def counted(slot: float, share: int) -> bool:
        nonlocal tried
        tried += 1
        return fits(slot, share)

    for _ in range(1000):
        budget.reserve(0.0, lane)
    budget._fits = counted  # type: ignore[method-assign]
    for _ in range(100):
        before = tried
        budget.reserve(0.0, lane)
        assert tried - before <= budget.requests + 2


def test_the_overrun_check_can_fail() -> None:
    assert most_in_a_window([0.0, 59.9], 60.0) == 2
    assert most_in_a_window([0.0, 60.0], 60.0) == 1


def test_a_slot_later_than_of_use_is_returned_and_not_taken() -> None:
    budget = RateBudget(requests=1, window=60.0)
    assert budget.reserve(0.0, Lane.READ) == 0.0
    assert budget.reserve(1.0, Lane.READ, within=10.0) == 59.0
    assert budget.reserve(1.0, Lane.READ) == 59.0


def test_polling_leaves_a_quarter_of_the_window_to_everything_else() -> None:
    budget = RateBudget(requests=40, window=60.0)
    polls = [budget.reserve(0.0, Lane.POLL) for _ in range(31)]
    assert polls == [0.0] * 30 + [60.0]
    assert [budget.reserve(0.0, Lane.PAYMENT) for _ in range(10)] == [0.0] * 10
    assert budget.reserve(0.0, Lane.PAYMENT) == 60.0


def test_reads_that_queue_leave_slots_to_payments_and_polling_in_the_next_window() -> None:
    budget = RateBudget(requests=20, window=60.0)
    reads = [budget.reserve(0.0, Lane.READ) for _ in range(60)]
    assert [reads.count(delay) for delay in (0.0, 60.0, 120.0, 180.0)] == [20, 16, 16, 8]
    assert budget.reserve(1.0, Lane.PAYMENT) == 59.0
    assert budget.reserve(1.0, Lane.POLL) == 59.0


def test_payments_that_queue_leave_an_eighth_to_polling_which_takes_it_evenly() -> None:
    budget = RateBudget(requests=16, window=60.0)
    payments = [budget.reserve(0.0, Lane.PAYMENT) for _ in range(40)]
    assert [payments.count(delay) for delay in (0.0, 60.0, 120.0)] == [16, 14, 10]
    assert [budget.reserve(0.0, Lane.POLL) for _ in range(3)] == [60.0, 90.0, 120.0]


def test_a_burst_beside_polling_leaves_what_polling_has_not_used_of_its_eighth() -> None:
    budget = RateBudget(requests=16, window=60.0)
    assert budget.reserve(0.0, Lane.POLL) == 0.0
    assert [budget.reserve(0.0, Lane.PAYMENT) for _ in range(15)] == [0.0] * 14 + [60.0]
    assert budget.reserve(1.0, Lane.POLL) == 29.0


def delays_of_polling(budget: RateBudget, payers: int) -> tuple[list[float], int]:
    """Return the delays of polls beside payers who pay without a pause for twenty minutes, and count the payments."""
    calls = [(0.0, "payment")] * payers + [(15.0, "poll")]
    delays, payments = list[float](), 0
    while calls[0][0] < 1200.0:
        now, lane = heappop(calls)
        delay = budget.reserve(now, Lane(lane))
        if lane == "poll":
            delays.append(delay)
        else:
            payments += now + delay < 1200.0
        heappush(calls, (now + delay + (10.0 if lane == "poll" else 0.001), lane))
    return delays, payments


@pytest.mark.parametrize("payers", [1, 3, 40, 300])
def test_endless_payments_leave_polling_its_pace_and_take_the_rest(payers: int) -> None:
    delays, payments = delays_of_polling(RateBudget(), payers)
    assert max(delays[1:]) <= 61.0 / 7
    assert payments >= 20 * 50


def test_without_its_floor_polling_would_starve() -> None:
    budget = RateBudget()
    budget._floor = 0
    delays, _ = delays_of_polling(budget, 300)
    assert max(delays) > 200.0


def test_a_stop_holds_every_lane_back_and_revokes_the_slots_in_between() -> None:
    budget = RateBudget(requests=2, window=10.0)
    budget.reserve(0.0, Lane.PAYMENT)
    budget.reserve(0.0, Lane.PAYMENT)
    assert budget.reserve(0.0, Lane.PAYMENT) == 10.0
    budget.stop(1.0, until=30.0)
    assert budget.stopped(29.9)
    assert not budget.stopped(30.0)
    assert [budget.reserve(2.0, Lane.PAYMENT) for _ in range(3)] == [28.0, 28.0, 38.0]


def test_a_stop_clears_the_windows_behind_it() -> None:
    budget = RateBudget(requests=2, window=10.0)
    for _ in range(4):
        budget.reserve(0.0, Lane.PAYMENT)
    budget.stop(1.0, until=15.0)
    assert [budget.reserve(2.0, Lane.PAYMENT) for _ in range(3)] == [13.0, 13.0, 23.0]


def test_a_queue_that_a_stop_shortened_is_forgotten() -> None:
    budget = RateBudget(requests=4, window=60.0)
    budget.reserve(0.0, Lane.POLL)
    for lane in (*[Lane.POLL] * 4, Lane.READ, Lane.POLL, Lane.POLL):
        budget.reserve(19.0, lane)
    budget.stop(25.0, until=69.0)
    assert budget.reserve(25.0, Lane.POLL) == 54.0


def test_a_shorter_stop_does_not_end_a_longer_one() -> None:
    budget = RateBudget()
    budget.stop(0.0, until=50.0)
    budget.stop(0.0, until=10.0)
    assert budget.reserve(0.0, Lane.POLL) == 50.0


@pytest.mark.parametrize(
    ("requests", "window"),
    [
        (0, 60.0),
        (-1, 60.0),
        (1, 0.0),
        (1, -1.0),
        (1, math.inf),
        (1, math.nan),
        (58.5, 61.0),
        ("58", 61.0),
        (58, "61"),
        (True, 61.0),
        (58, True),
    ],
)
def test_a_budget_that_could_hand_out_nothing_is_refused(requests: Any, window: Any) -> None:
    with pytest.raises(ConfigurationError):
        RateBudget(requests=requests, window=window)
