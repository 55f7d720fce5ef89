"""The budget of a process: shared by threads, and by the child of a fork not at all."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from momopay import ConfigurationError, Lane, RateBudget
from momopay._ratelimit.budget import LocalSlots
from momopay._ratelimit.lane import Place


def test_it_hands_out_a_window_and_then_the_next() -> None:
    budget = RateBudget(requests=2, window=10.0)
    assert [budget.reserve(0.0, Lane.PAYMENT) for _ in range(3)] == [0.0, 0.0, 10.0]
    assert budget.reserve(1.0, Lane.PAYMENT, within=5.0) == 9.0


def test_a_stop_is_in_force_until_its_end() -> None:
    budget = RateBudget()
    budget.stop(1.0, until=30.0)
    assert [budget.stopped(now) for now in (29.9, 30.0)] == [True, False]
    assert budget.reserve(2.0, Lane.READ) == 28.0


def test_a_call_that_waits_takes_a_slot_only_when_those_before_it_leave_one() -> None:
    slots = LocalSlots(RateBudget(requests=2, window=10.0))
    assert slots.reserve_now(0.0, Lane.READ, Place(queued=True, before=2)) == 10.0
    assert slots.reserve_now(0.0, Lane.READ, Place(queued=True, before=1)) == 0.0
    assert slots.reserve_now(0.0, Lane.PAYMENT, Place()) == 0.0
    assert slots.reserve_now(0.0, Lane.PAYMENT, Place()) == 10.0


def test_what_a_subclass_does_in_reserve_happens_for_every_slot() -> None:
    class Counting(RateBudget):
        taken = 0

        def reserve(self, now: float, lane: Lane, within: float = math.inf) -> float:
            delay = super().reserve(now, lane, within)
            self.taken += delay <= within
            return delay

    budget = Counting(requests=2, window=10.0)
    for place in (Place(), Place(queued=True), Place(queued=True)):
        LocalSlots(budget).reserve_now(0.0, Lane.READ, place)
    assert budget.taken == 2


def test_a_subclass_may_compare_its_budgets() -> None:
    class Comparable(RateBudget):  # noqa: PLW1641  that it has no hash is the point
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Comparable)

    assert Comparable().reserve(0.0, Lane.READ) == 0.0


def test_threads_take_no_slot_twice() -> None:
    budget = RateBudget()
    with ThreadPoolExecutor(20) as threads:
        delays = list(threads.map(budget.reserve, [0.0] * 500, [Lane.PAYMENT] * 500))
    assert sorted(delays) == [61.0 * (number // 58) for number in range(500)]


def test_the_child_of_a_fork_does_not_wait_for_a_thread_of_its_parent() -> None:
    code = """if True:
        import os, signal
        from momopay import Lane, RateBudget
        from momopay._ratelimit.budget import LocalSlots
        from momopay._ratelimit.line import Ticket
        budget = RateBudget(requests=2, window=60.0)
        assert budget.reserve(0.0, Lane.READ) == 0.0
        slots = LocalSlots(budget)
        slots.line.join(Ticket(Lane.PAYMENT, None))
        with budget._lock:  # as a thread of the parent may hold it
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                fresh = slots.line.place(Lane.READ, 0.0)
                delays = [slots.reserve_now(0.0, Lane.READ, fresh) for _ in range(2)]
                os._exit(delays != [0.0, 60.0])  # it remembers what the parent sent
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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
