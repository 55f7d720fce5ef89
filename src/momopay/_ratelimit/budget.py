"""The rate budget of one key in one process. It never sleeps and never reads a clock.

Thread safety: one lock around each method, and nothing in it waits. The child of a fork gets a lock and a line of its
own.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from math import inf, isfinite
from typing import Protocol
from weakref import WeakValueDictionary

from momopay._numbers import is_number, is_whole
from momopay._ratelimit.lane import Lane, Place
from momopay._ratelimit.line import Line
from momopay._ratelimit.slot_log import SlotLog
from momopay.errors import ConfigurationError

__all__ = ["Budget", "Lane", "RateBudget"]


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

    A burst goes out at once, up to the whole window. Calls of clients that have to wait take their slots when these
    come: payments first, then reads, then polls, and within each lane the first come first. While somebody polls, an
    eighth of the window is polling's, evenly spread. While somebody pays, reads that wait leave a quarter of the
    window to payments; while somebody pays or reads, so do polls. Nothing is held back for a lane that was not asked
    for in the last two windows. Safe to use from many threads and event loops, and across a fork.

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
        self._log = SlotLog(requests, window)
        self._renew()
        _budgets[id(self)] = self

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        """Take the lane's next slot and return the seconds until it; take none if that is more than `within`."""
        with self._lock:
            return self._log.reserve(now, lane, within)

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`; whoever took one ahead for the time between must reserve again."""
        with self._lock:
            self._log.stop(now, until)

    def stopped(self, now: float) -> bool:
        """Return whether a stop is in force."""
        return now < self._log.stopped_until

    def _expect(self, now: float, lane: Lane, place: Place) -> float:
        with self._lock:
            return self._log.expect(now, lane, place)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._line = Line()

    @staticmethod
    def _renew_all() -> None:
        # Another thread of the parent may hold a lock, and its waiting calls do not exist in the child.
        for budget in list(_budgets.values()):
            budget._renew()  # noqa: SLF001  this class's own


_budgets: WeakValueDictionary[int, RateBudget] = WeakValueDictionary()  # a subclass may not be hashable

if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=RateBudget._renew_all)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


@dataclass(frozen=True)
class LocalSlots:
    """A `RateBudget` as calls that wait in its line ask for slots. Apart from it, to be hidden from completion."""

    budget: RateBudget

    @property
    def line(self) -> Line:
        """Where the calls of this process wait."""
        return self.budget._line  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  this module's own class

    def reserve_now(self, now: float, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        if place.queued:
            delay = self.expect(now, lane, place)
            if delay > 0:
                return delay
        return self.budget.reserve(now, lane, 0.0)

    def expect(self, now: float, lane: Lane, place: Place) -> float:
        """Return the seconds until a call at this place in the line may have a slot; take none."""
        return self.budget._expect(now, lane, place)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  as above
