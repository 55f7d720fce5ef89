"""Four processes share a budget by its file, none gets more than its slots, and a killed one frees the lock."""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from momopay import FileRateBudget
from momopay._ratelimit import file_budget
from momopay._ratelimit.budget import BUSY
from momopay._ratelimit.slot_log import Lane, Place

CHANGES, PROCESSES = 200, 4
PLACE = Place(queued=False, before=0, payments=0)


def slots_of(path: str) -> Any:
    budget = FileRateBudget(path, requests=CHANGES * PROCESSES)
    return budget._open("account")


def take(slots: Any, backend: Any) -> float:
    delay: float = BUSY
    while delay == BUSY:
        delay = asyncio.run(slots.reserve_now(backend, Lane.READ, PLACE))
        time.sleep(0.001 * (delay == BUSY))
    return delay


def main(path: str) -> None:
    arguments = [sys.executable, __file__, path]
    workers = [subprocess.Popen([*arguments, "work"], stdin=subprocess.DEVNULL) for _ in range(PROCESSES)]
    assert [each.wait() for each in workers] == [0] * PROCESSES
    slots, backend = slots_of(path), SimpleNamespace(now=time.monotonic)
    delay = take(slots, backend)
    assert delay > 0, "a change was lost: there is a slot left"
    print(f"{PROCESSES * CHANGES} of {PROCESSES * CHANGES} changes")
    holder = subprocess.Popen([*arguments, "hold"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert b"held" in holder.stdout.readline()
    assert asyncio.run(slots.reserve_now(backend, Lane.READ, PLACE)) == BUSY
    holder.kill()
    holder.wait()
    begun = time.monotonic()
    take(slots, backend)
    print(f"freed {time.monotonic() - begun:.3f} s after its holder was killed")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main(str(Path(tempfile.mkdtemp()) / "shared.budget"))
    elif sys.argv[2] == "work":
        slots, backend = slots_of(sys.argv[1]), SimpleNamespace(now=time.monotonic)
        assert all(take(slots, backend) == 0 for _ in range(CHANGES))
    else:
        slots = slots_of(sys.argv[1])
        slots._open_file()
        file_budget._lock(slots._descriptor)
        print("held", flush=True)
        time.sleep(600)
