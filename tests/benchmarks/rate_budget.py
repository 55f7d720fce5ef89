"""What a slot of a shared file costs."""

import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import Row, Scale, against_the_goal, cpu
from momopay._ratelimit.file_budget import FileSlots
from momopay._ratelimit.slot_log import ALONE
from momopay._transport.sync_backend import SyncBackend
from momopay.types import Lane
from ratelimit.kit import finish

CALLS: Final = 2000


def measure(scale: Scale) -> list[Row]:
    taken = [_slot_of_a_file(scale.of(CALLS)) for _ in range(scale.rounds)]
    return [against_the_goal("FileRateBudget, a slot", "us CPU a slot", taken, 80.0)]


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
