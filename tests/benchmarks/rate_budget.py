"""The rate budget: what a slot costs, behind a queue and with a file."""

import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import Row, Scale, against_the_goal, cpu
from momopay import RateBudget
from momopay._ratelimit.file_budget import FileSlots
from momopay._ratelimit.slot_log import ALONE
from momopay._transport.sync_backend import SyncBackend
from momopay.types import Lane
from ratelimit.kit import finish

QUEUED: Final = 1000
CALLS: Final = 2000


def measure(scale: Scale) -> list[Row]:
    behind_many = [_reserve_behind_many(scale.of(CALLS)) for _ in range(scale.rounds)]
    of_a_file = [_slot_of_a_file(scale.of(CALLS)) for _ in range(scale.rounds)]
    return [
        against_the_goal("reserve behind 1,000", "us CPU a slot", behind_many, 20.0),
        against_the_goal("FileRateBudget, a slot", "us CPU a slot", of_a_file, 80.0),
    ]


def _reserve_behind_many(calls: int) -> float:
    budget = RateBudget()
    for _ in range(QUEUED):
        budget.reserve(0.0, Lane.PAYMENT)
    return cpu(lambda: budget.reserve(0.0, Lane.PAYMENT), calls)


def _slot_of_a_file(calls: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        # A full log, from which a slot goes as often as one comes.
        slots, backend = FileSlots(Path(folder) / "budget", 58, 0.05, is_private=True), SyncBackend()

        def reserve() -> float:
            delay: float = finish(slots.reserve_now(backend, Lane.PAYMENT, ALONE))
            return delay

        deadline = time.monotonic() + 10.0
        while reserve() == 0 and time.monotonic() < deadline:
            pass
        try:
            return cpu(reserve, calls)
        finally:
            slots.close()
