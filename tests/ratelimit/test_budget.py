"""The budget of a process: shared by threads, and by the child of a fork not at all."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from momopay import Client, ConfigurationError, Lane, RateBudget
from momopay._ratelimit.budget import LocalSlots
from momopay._ratelimit.slot_log import Place
from ratelimit.kit import Caller

PATH = os.pathsep.join(filter(None, sys.path))


def test_it_hands_out_a_window_and_then_the_next() -> None:
    budget = RateBudget(requests=2, window=10.0)
    assert [budget.reserve(0.0, Lane.PAYMENT) for _ in range(3)] == [0.0, 0.0, 10.0]
    assert budget.reserve(1.0, Lane.PAYMENT, within=5.0) == 9.0


def test_a_stop_lasts_until_its_end() -> None:
    budget = RateBudget()
    budget.stop(1.0, until=30.0)
    assert budget.reserve(2.0, Lane.READ) == 28.0


def test_a_call_that_waits_expects_the_slot_that_those_before_it_leave() -> None:
    budget = RateBudget(requests=2, window=10.0)
    slots = LocalSlots(budget)
    assert slots.expect(0.0, Lane.READ, Place(queued=True, before=2)) == 10.0
    assert slots.expect(0.0, Lane.READ, Place(queued=True, before=1)) == 0.0
    assert [budget.reserve(0.0, Lane.PAYMENT) for _ in range(2)] == [0.0] * 2  # nothing was taken


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


def test_threads_take_no_slot_twice() -> None:
    budget = RateBudget()
    with ThreadPoolExecutor(20) as threads:
        delays = list(threads.map(budget.reserve, [0.0] * 500, [Lane.PAYMENT] * 500))
    assert sorted(delays) == [61.0 * (number // 58) for number in range(500)]


def test_the_child_of_a_fork_does_not_wait_for_a_thread_of_its_parent() -> None:
    code = """if True:
        import os, signal, threading, time
        from momopay import Lane, RateBudget
        from ratelimit.kit import Caller
        class Slow(RateBudget):
            def reserve(self, *arguments):
                delay = super().reserve(*arguments)
                if threading.current_thread() is not threading.main_thread():
                    with self._lock:  # a thread of the parent holds it at the fork
                        locked.set()
                        time.sleep(60)
                return delay
        budget, locked = Slow(requests=3, window=60.0), threading.Event()
        caller = Caller(budget)
        assert caller.reserve() == 0.0
        threading.Thread(target=caller.reserve, daemon=True).start()
        locked.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(caller.at_once(3) != 1)  # it remembers what the parent sent
        os._exit(os.waitpid(child, 0)[1] != 0)
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=os.environ | {"PYTHONPATH": PATH})


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


class Meter:
    """What hands out slots, but is none of the package's budgets."""

    def reserve(self, now: float, lane: Lane, within: float = math.inf) -> float:
        raise AssertionError

    def stop(self, now: float, until: float) -> None:
        raise AssertionError

    def slots(self, backend: Any, account_hash: str) -> Any:
        raise AssertionError


@pytest.mark.parametrize("foreign", [Meter(), 58, "58", RateBudget])
def test_a_budget_of_the_users_own_is_refused(foreign: Any) -> None:
    with pytest.raises(ConfigurationError, match="budget must be"):
        Client("pk_test_x", base_url="https://api.example/v1", budget=foreign)
    client = Client("pk_test_x", base_url="https://api.example/v1")
    with pytest.raises(ConfigurationError, match="budget must be"):
        client.with_options(budget=foreign)
