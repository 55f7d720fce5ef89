"""The rate budget of one key: pure arithmetic over a log of slots. It sleeps never and reads no clock.

SPEC.md allows 60 requests a minute and does not show the window. A log in which no span of `window` seconds
holds more than `requests` slots keeps within fixed and sliding windows alike, and lets a burst go out at once.
Times are in seconds on one monotonic clock.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from enum import Enum
from math import inf, isfinite
from typing import Protocol

from momopay.errors import ConfigurationError


class Lane(Enum):
    """What a request is for. Payments go first; polling leaves a reserve for everything else."""

    PAYMENT = "payment"
    READ = "read"
    POLL = "poll"


class Budget(Protocol):
    """Whatever hands out slots."""

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        """Take the next slot and say in how many seconds it comes; take none if that is later than `within`."""
        ...

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`, and take back those that were handed out for the time between."""
        ...

    def stopped(self, now: float) -> bool:
        """Tell whether slots handed out for now are taken back."""
        ...


class RateBudget:
    """So many requests in any window, for all users of one key in this process.

    Polling never takes the last quarter of a window, and reads that have to queue leave the last tenth, so
    that a payment finds a slot soon. Safe to use from many threads.

    Args:
        requests: How many requests a window holds. Two below SPEC.md's 60, for clocks that differ.
        window: Its length, seconds. One above SPEC.md's 60, for requests that travel at different speeds.

    Raises:
        ConfigurationError: Not at least one request, or a window that is not a positive number.
    """

    def __init__(self, requests: int = 58, window: float = 61.0) -> None:
        if requests < 1 or not (isfinite(window) and window > 0):
            raise ConfigurationError("a rate budget needs at least 1 request and a window of more than 0 seconds")
        self.requests = requests
        self.window = window
        self._slots: list[float] = []
        self._stop = -inf
        self._lock = threading.Lock()

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        """Take the next slot that the lane may have.

        Args:
            now: The time.
            lane: What the request is for.
            within: The longest delay of use, seconds; a later slot is told but not taken.

        Returns:
            The delay until the slot, seconds; 0 when it is now.
        """
        with self._lock:
            self._forget(now)
            slot = self._first_free(max(now, self._stop), lane)
            delay = slot - now
            if delay <= within:
                insort(self._slots, slot)
            return delay

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`; whoever holds one for the time between must reserve again."""
        with self._lock:
            self._stop = max(self._stop, until)
            kept = bisect_right(self._slots, now)
            del self._slots[kept : bisect_left(self._slots, self._stop, kept)]

    def stopped(self, now: float) -> bool:
        """Tell whether a stop is in force."""
        return now < self._stop

    def _forget(self, now: float) -> None:
        past = 0
        while past < len(self._slots) and self._slots[past] + self.window <= now:
            past += 1
        del self._slots[:past]

    def _first_free(self, start: float, lane: Lane) -> float:
        share = self.requests - (self.requests // 4 if lane is Lane.POLL else 0)
        if self._fits(start, share):
            return start
        if lane is Lane.READ:
            share -= self.requests // 10
        ends = (slot + self.window for slot in self._slots)
        return next(end for end in ends if end > start and self._fits(end, share))

    def _fits(self, slot: float, share: int) -> bool:
        """Whether one more slot keeps the lane's share of the window before it, and fills no later window."""
        slots, most = self._slots, self.requests
        place = bisect_right(slots, slot)
        if place >= share and slots[place - share] + self.window > slot:
            return False
        # With the new slot in place, no slot may come within a window of the one `most` places before it.
        later = range(place, min(place + most, len(slots)))
        return all(
            slots[i] >= (slots[i - most + 1] if i - most + 1 < place else slot) + self.window
            for i in later
            if i >= most - 1
        )
