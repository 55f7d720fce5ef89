"""The clock of deadlines and leases, which nobody sets and which runs while the machine sleeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Final
from uuid import getnode

now: Callable[[], float]
"""Return the seconds of the monotonic clock of all deadlines. It also runs while the machine sleeps."""

if sys.platform == "linux":
    # Linux stops CLOCK_MONOTONIC while the machine is suspended. A payment whose deadline passed meanwhile would be
    # sent when the machine wakes up, after somebody has searched for it and found nothing.
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    now = time.monotonic

_PROC: Final = Path("/proc")


@cache
def machine() -> str:
    """Return an id that two processes share only if `now` returns the same time in both."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        uptime = float((_PROC / "uptime").read_text().split()[0])
    except OSError:  # not on Linux
        return f"{getnode()} {round(time.time() - now(), -1)}"
    namespace = _PROC / "self/ns/time"
    # The two clocks differ if a library changes the clocks of this process, or a container has an uptime of its own.
    return f"{boot} {namespace.readlink() if namespace.exists() else None} {round(now() - uptime)}"
