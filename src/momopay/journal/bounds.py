"""Until when a thread waits for the journal's database.

The bound belongs to the thread, as everything that waits is called by the one thread that uses a connection: locks, the
pool, the connect, each statement. All of them ask `seconds_left`. Times are in seconds, on the monotonic clock.
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

_bounds: Final = threading.local()


@contextmanager
def bounded(seconds: float) -> Generator[None]:
    """Let everything within the context end in so many seconds, and no later than the contexts around it."""
    outer = getattr(_bounds, "until", None)
    until = time.monotonic() + seconds
    _bounds.until = until if outer is None else min(until, outer)
    try:
        yield
    finally:
        _bounds.until = outer


def seconds_left() -> float:
    """Return how long this thread may still wait; raise JournalError if its time is over."""
    until = getattr(_bounds, "until", None)
    left = LONGEST_WAIT if until is None else until - time.monotonic()
    if left <= 0:
        raise JournalError("the journal's database did not answer in time")
    return left
