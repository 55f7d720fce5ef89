"""Until when a thread waits for the journal's database.

The bound belongs to the thread, as the one thread that uses a connection does all the waiting: for locks, for the pool,
to connect, for each statement. Times are in seconds, on the monotonic clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from momopay.errors import JournalError

LONGEST_WAIT: Final = 30.0
"""For how many seconds one use of the database waits where nothing shorter is set."""

_TOO_LATE: Final = "the journal's database did not answer in time"
_bounds: Final = threading.local()


# The contexts are generators. Classes would save a microsecond each, but an interrupt may come just before a context
# ends: a generator that nobody holds any more still ends it, and a class would leave the lock taken, or the thread
# without time, for ever.
@contextmanager
def bounded(seconds: float) -> Generator[None]:
    """Let everything within the context end in so many seconds, and no later than the contexts around it."""
    outer = getattr(_bounds, "until", None)
    until = time.monotonic() + seconds
    try:
        _bounds.until = until if outer is None else min(until, outer)
        yield
    finally:
        _bounds.until = outer


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


@contextmanager
def holding(lock: threading.Lock | threading.Semaphore) -> Generator[None]:
    """Hold a lock; raise JournalError if it does not come free in time."""
    if not lock.acquire(timeout=seconds_left()):
        raise JournalError(_TOO_LATE)
    try:
        yield
    finally:
        lock.release()
