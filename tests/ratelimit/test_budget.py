"""The budget of a process: shared by threads, and by the child of a fork not at all."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from in_turn import in_turn
from momopay import Client, ConfigurationError, FileRateBudget, RateBudget, RedisRateBudget
from momopay.types import Lane
from ratelimit.kit import PATH, Caller


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
        from momopay import RateBudget
        from momopay.types import Lane
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
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=PATH)


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


@pytest.mark.parametrize("foreign", [object(), 58, "58", RateBudget])
def test_a_budget_of_the_users_own_is_refused(foreign: Any) -> None:
    with pytest.raises(ConfigurationError, match="budget must be"):
        Client("pk_test_x", base_url="https://api.example/v1", budget=foreign)
    client = Client("pk_test_x", base_url="https://api.example/v1")
    with pytest.raises(ConfigurationError, match="budget must be"):
        client.with_options(budget=foreign)
