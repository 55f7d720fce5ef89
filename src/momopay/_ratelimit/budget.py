"""The rate budget of one key: pure arithmetic over a log of slots. It never sleeps and never reads a clock.

The service allows 60 requests a minute and does not specify which minute is meant (service page, "Limits"). Times
are in seconds on one monotonic clock.

Invariants:
    - No span of `window` seconds holds more than `requests` slots. A fixed window of the service is one such span,
      whenever it begins, and so is a sliding one, so neither is overrun; and a whole window may go out as one burst.
      A token bucket would allow a burst and then its refill within one window.
    - The log is sorted. It may reach into the future: a caller that has to wait takes its slot ahead of time.
    - A slot that was handed out is never moved. Only a stop removes slots, and their callers ask again.

Thread safety: one lock around each method that changes the log, and nothing in it waits.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from enum import Enum
from math import inf, isfinite
from typing import Protocol

from momopay._numbers import is_number, is_whole
from momopay.errors import ConfigurationError

__all__ = ["Budget", "Lane", "RateBudget"]


class Lane(Enum):
    """What a request is for. Payments go first; polling leaves a reserve for everything else."""

    PAYMENT = "payment"
    READ = "read"
    POLL = "poll"


class Budget(Protocol):
    """What hands out slots."""

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        """Take the next slot and return the seconds until it; take none if that is more than `within`."""
        ...

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`, and revoke those that were handed out for the time between."""

    def stopped(self, now: float) -> bool:
        """Return whether slots handed out for now are revoked."""
        ...


def check_size(requests: int, window: float) -> None:
    """Raise ConfigurationError if a budget of this size could hand out nothing."""
    if not is_whole(requests) or requests < 1 or not is_number(window) or not (isfinite(window) and window > 0):
        raise ConfigurationError(
            "a rate budget needs a whole number of requests, at least 1, and a window of more than 0 seconds"
        )


class RateBudget:
    """A number of requests in any window, for all users of one key in this process.

    A burst goes out at once, up to the whole window, while nobody polls. Polling leaves the last quarter of a
    window to everything else, and reads that have to queue leave the last tenth, so that a payment finds a slot
    soon. In return an eighth of the window is kept for polling. Safe to use from many threads.

    Args:
        requests: How many requests a window holds. Two below the service's 60, for clocks that differ.
        window: Its length, seconds. One above the service's 60, for requests that travel at different speeds.

    Raises:
        ConfigurationError: Not at least one request, or a window that is not a positive number.
    """

    def __init__(self, requests: int = 58, window: float = 61.0) -> None:
        check_size(requests, window)
        self.requests = requests
        self.window = window
        self._floor = requests // 8
        self._pace = window / max(1, self._floor)
        self._slots: list[float] = []
        self._polls: list[float] = []
        self._stop = -inf
        self._not_before = dict.fromkeys(Lane, -inf)
        self._lock = threading.Lock()

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        """Take the lane's next slot and return the seconds until it; take none if that is more than `within`."""
        with self._lock:
            self._forget(now)
            slot = self._first_free(max(now, self._stop), lane)
            delay = slot - now
            if delay <= within:
                insort(self._slots, slot)
                if lane is Lane.POLL:
                    insort(self._polls, slot)
            return delay

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`; whoever holds one for the time between must reserve again."""
        with self._lock:
            # Of two refused requests that were under way together, the later answer may name the shorter stop.
            self._stop = max(self._stop, until)
            self._not_before = dict.fromkeys(Lane, -inf)
            for slots in (self._slots, self._polls):
                kept = bisect_right(slots, now)
                del slots[kept : bisect_left(slots, self._stop, kept)]

    def stopped(self, now: float) -> bool:
        """Return whether a stop is in force."""
        return now < self._stop

    def _forget(self, now: float) -> None:
        """Drop slots that no window from now on contains."""
        for slots in (self._slots, self._polls):
            del slots[: bisect_right(slots, now, key=lambda slot: slot + self.window)]

    def _first_free(self, start: float, lane: Lane) -> float:
        if self._fits(start, self._share(start, lane, queued=False)):
            return start
        # A window gains room only where a slot leaves it, so no other times need to be tried; polling may also come
        # due. Until a stop, slots are only added, so what was too early for a lane stays too early: without that
        # memory each of many queued calls would walk past all the others.
        first = bisect_left(self._slots, self._not_before[lane], key=lambda slot: slot + self.window)
        times = [slot + self.window for slot in self._slots[first:]]
        if lane is Lane.POLL and self._polls:
            insort(times, self._polls[-1] + self._pace)
        later = times[bisect_right(times, start) :]
        slot = next(time for time in later if self._fits(time, self._share(time, lane, queued=True)))
        self._not_before[lane] = slot
        return slot

    def _share(self, slot: float, lane: Lane, *, queued: bool) -> int:
        """Return how many requests the window that ends with this slot may hold if the lane is to have it."""
        # Polling has a floor: payments and reads that queue, or come while somebody polls, leave what polling has not
        # used of it. From the last quarter polling takes its floor one slot at a time, evenly over the window, so
        # that waits keep a steady pace however many payments queue.
        polls = self._polls
        if lane is not Lane.POLL and not queued and not polls:
            return self.requests
        recent = bisect_right(polls, slot) - bisect_right(polls, slot - self.window)
        unused = max(0, self._floor - recent)
        if lane is Lane.POLL:
            # Without the pace, a queue of polls would take the whole floor at once and then none for a window.
            paced = unused and (not polls or polls[-1] + self._pace <= slot)
            return self.requests - (0 if paced else self.requests // 4)
        return self.requests - unused - (self.requests // 10 if queued and lane is Lane.READ else 0)

    def _fits(self, slot: float, share: int) -> bool:
        """Return whether the slot keeps to the lane's share of the window before it and overfills no later window."""
        slots, most = self._slots, self.requests
        place = bisect_right(slots, slot)
        if place >= share and slots[place - share] + self.window > slot:
            return False
        # Slots that were taken ahead may follow. With the new one in its place, each slot must still come a whole
        # window after the one `most` places before it.
        later = range(place, min(place + most, len(slots)))
        return all(
            slots[i] >= (slots[i - most + 1] if i - most + 1 < place else slot) + self.window
            for i in later
            if i >= most - 1
        )
