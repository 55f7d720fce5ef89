"""An exception out of a signal handler (Ctrl-C, Celery's soft time limit) leaves no lock held, wherever it strikes."""

import random
import threading
import time
from math import inf
from pathlib import Path
from typing import Any

import pytest

from momopay import FileRateBudget, RateBudget, RedisRateBudget
from momopay.types import Lane
from ratelimit.kit import Caller
from redis_server import RedisServer
from strikes import MARKS, Striker

pytestmark = MARKS
PATIENCE = 20.0  # seconds after which another thread counts as held up for ever
SIZE: Any = {"requests": 3, "window": 0.001}


def strikes_until_stuck(budget: Any, other: Any, strikes: int, seed: int, patience: float = PATIENCE) -> int | None:
    """Return after how many strikes another thread or another process was held up, or None."""
    caller, second = Caller(budget), Caller(other)

    def take(taken: list[float]) -> None:
        # The other process first: the next request of this one would release what it had left locked.
        taken += [each.reserve(Lane.PAYMENT, within=patience) for each in (second, caller)]

    with Striker(seed, 1e-3) as striker:
        for count in range(strikes):
            striker.strike(lambda: caller.reserve(Lane.PAYMENT, within=1.0))
            taken = list[float]()
            thread = threading.Thread(target=take, args=(taken,), daemon=True)
            thread.start()
            thread.join(patience)
            if thread.is_alive() or taken != [0.0, 0.0]:
                return count
    for each in (caller, second):
        each.close()
    return None


def test_every_budget_stays_usable(tmp_path: Path, server: RedisServer) -> None:
    seed, local = random.randrange(2**32), RateBudget(**SIZE)
    files = [FileRateBudget(tmp_path / "budget", **SIZE) for _ in range(2)]
    shared = [RedisRateBudget(server.url, **SIZE) for _ in range(2)]
    for one, other in ((local, local), files, shared):
        assert strikes_until_stuck(one, other, 50, seed) is None, f"{one!r} {seed=}"


@pytest.mark.whole
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
