"""The clock of deadlines and leases, which nobody sets and which runs while the machine sleeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final
from uuid import uuid4

now: Callable[[], float]
"""Return the seconds of the monotonic clock of all deadlines. It also runs while the machine sleeps."""

if sys.platform == "linux":
    # Linux stops CLOCK_MONOTONIC while the machine is suspended. A payment whose deadline passed meanwhile would be
    # sent when the machine wakes up, after somebody has searched for it and found nothing.
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    now = time.monotonic

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UPTIME: Final = Path("/proc/uptime")
_NAMESPACE: Final = Path("/proc/self/ns/time")


@cache
def machine() -> str:
    """Return an id that two processes share only if `now` returns the same time in both."""
    try:
        boot, uptime = _BOOT_ID.read_text().strip(), float(_UPTIME.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # not on Linux
        return uuid4().hex
    namespace = ""
    with suppress(OSError):  # an old kernel
        namespace = str(_NAMESPACE.readlink())
    # The two clocks differ if a library changes the clocks of this process, or a container has an uptime of its own.
    return f"{boot} {namespace} {round(now() - uptime)}"
