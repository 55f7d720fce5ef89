"""An exception out of a signal handler (Ctrl-C, Celery's soft time limit) leaves no lock held, wherever it strikes."""

from __future__ import annotations

import queue
import random
import signal
import threading
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from momopay import FileRateBudget, Lane, RateBudget, RedisRateBudget
from patience import untraced
from ratelimit.kit import Caller
from redis_server import RedisServer

# An exception may strike a call before its coroutine has begun, or in a finalizer.
pytestmark = [
    pytest.mark.usefixtures("alarm"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE = 20.0
"""Seconds after which another thread counts as held up for ever."""


class StruckError(Exception):
    pass


def strike(*_: object) -> None:
    raise StruckError


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, strike)
    with untraced():
        yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def struck(caller: Caller, span: float) -> bool:
    """Ask for slots, of which some have to be waited for, until an exception strikes."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, span)
            for _ in range(1000):
                caller.reserve(Lane.PAYMENT, within=1.0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except StruckError:
        return True
    return False


def take(callers: list[Caller], patience: float, taken: queue.SimpleQueue[float]) -> None:
    for caller in callers:
        taken.put(caller.reserve(Lane.PAYMENT, within=patience))


def strikes_until_stuck(budget: Any, other: Any, strikes: int, seed: int, patience: float = PATIENCE) -> int | None:
    """Return after how many strikes another thread or another process was held up, or None."""
    chance, caller, second = random.Random(seed), Caller(budget), Caller(other)
    for count in range(strikes):
        while not struck(caller, chance.uniform(1e-6, 1e-3)):
            pass
        # The other process first: the next request of this one would release what it had left locked.
        taken = queue.SimpleQueue[float]()
        thread = threading.Thread(target=take, args=([second, caller], patience, taken), daemon=True)
        thread.start()
        thread.join(patience)
        if thread.is_alive() or [taken.get(), taken.get()] != [0.0, 0.0]:
            return count
    for each in (caller, second):
        each.close()
    return None


SIZE: Any = {"requests": 3, "window": 0.001}


def test_a_budget_of_a_process_stays_usable() -> None:
    budget, seed = RateBudget(**SIZE), random.randrange(2**32)
    assert strikes_until_stuck(budget, budget, 500, seed) is None, f"{seed=}"


def test_a_budget_in_a_file_stays_usable(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    one, other = (FileRateBudget(tmp_path / "budget", **SIZE) for _ in range(2))
    assert strikes_until_stuck(one, other, 400, seed) is None, f"{seed=}"


def test_a_budget_in_redis_stays_usable(server: RedisServer) -> None:
    seed = random.randrange(2**32)
    one, other = (RedisRateBudget(server.url, **SIZE) for _ in range(2))
    assert strikes_until_stuck(one, other, 200, seed) is None, f"{seed=}"


def test_a_lock_that_is_written_in_python_does_not() -> None:
    class Fragile(RateBudget):
        gate = threading.BoundedSemaphore()

        def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
            with self.gate:
                return super().reserve(now, lane, within)

    budget = Fragile(**SIZE)
    begun = time.monotonic()
    assert any(strikes_until_stuck(budget, budget, 2000, seed, patience=1.0) is not None for seed in range(5))
    assert time.monotonic() - begun < 60.0
