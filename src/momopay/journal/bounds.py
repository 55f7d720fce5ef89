"""Until when a thread waits for the journal's database.

The bound belongs to the thread, as the one thread that uses a connection does all the waiting: for locks, for the pool,
to connect, for each statement. Times are in seconds, on the monotonic clock.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

from momopay.errors import JournalError

LONGEST_WAIT: Final = 30.0
"""For how many seconds one use of the database waits where nothing shorter is set."""

_TOO_LATE: Final = "the journal's database did not answer in time"
_bounds: Final = threading.local()


# The two contexts are classes, as each use of the database enters several: a generator's context takes three times as
# long to enter and to leave.
class bounded:  # noqa: N801  used as a function
    """Let everything within the context end in so many seconds, and no later than the contexts around it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._outer: float | None = getattr(_bounds, "until", None)
        until = time.monotonic() + self._seconds
        _bounds.until = until if self._outer is None else min(until, self._outer)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _bounds.until = self._outer


def is_over() -> bool:
    """Return whether this thread must wait no more."""
    until = getattr(_bounds, "until", None)
    return until is not None and time.monotonic() >= until


def seconds_left() -> float:
    """Return for how long this thread may still wait; raise JournalError if its time is over."""
    until = getattr(_bounds, "until", None)
    left = LONGEST_WAIT if until is None else until - time.monotonic()
    if left <= 0:
        raise JournalError(_TOO_LATE)
    return left


class holding:  # noqa: N801  used as a function
    """Hold a lock; raise JournalError if it does not come free in time."""

    def __init__(self, lock: threading.Lock | threading.Semaphore) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=seconds_left()):
            raise JournalError(_TOO_LATE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
