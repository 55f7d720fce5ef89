"""The clock of deadlines and leases, which nobody sets and which runs while the machine sleeps; and waits by it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Final, TypeVar
from uuid import getnode

T = TypeVar("T")

now: Callable[[], float]
"""Return the seconds of the monotonic clock of all deadlines. It also runs while the machine sleeps."""

if sys.platform == "linux":
    # Linux stops CLOCK_MONOTONIC while the machine is suspended. A payment whose deadline passed meanwhile would be
    # sent when the machine wakes up, after somebody has searched for it and found nothing.
    now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    now = time.monotonic

LONGEST_TURN: Final = 0.5 if sys.platform == "win32" else inf
"""The seconds that one call of the system may wait. On Windows, Ctrl-C is noticed only between such calls."""

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


def wait_in_turns(seconds: float, wait_once: Callable[[float], bool]) -> bool:
    """Wait until `wait_once` returns True, in calls of at most `LONGEST_TURN`; return whether it did in time."""
    until = time.monotonic() + seconds
    while not wait_once(min(LONGEST_TURN, max(0.0, until - time.monotonic()))):
        if time.monotonic() >= until:
            return False
    return True


def _is_done(outcome: Future[T], turn: float) -> bool:
    return bool(wait([outcome], turn).done)


def done_within(seconds: float, work: Callable[[], T], name: str) -> T:
    """Do work that has no timeout, such as looking up a host name, in a thread with this name, and return its result.

    Raise TimeoutError if it takes longer. Then the thread goes on by itself, and drops the result.
    """
    outcome = Future[T]()
    try:
        threading.Thread(target=_do, args=(work, outcome), name=name, daemon=True).start()  # lets the process end
        wait_in_turns(seconds, partial(_is_done, outcome))
        return outcome.result(0)
    finally:
        del outcome  # a traceback would keep a late result, such as a connection


def _do(work: Callable[[], T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as error:  # noqa: BLE001  the waiting thread raises it
        outcome.set_exception(error)
