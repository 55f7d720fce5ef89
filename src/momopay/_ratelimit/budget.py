"""The rate budget of one key in one process. Nothing in it sleeps or reads a clock."""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING

from momopay._ratelimit.limiter import BaseBudget, Slots
from momopay._ratelimit.slot_log import Lane, Place, SlotLog

if TYPE_CHECKING:
    from momopay._ratelimit.limiter import Backend

__all__ = ["Lane", "RateBudget"]


class RateBudget(BaseBudget):
    """A number of requests in any window, for all users of one key in this process.

    A burst goes out at once, up to the whole window. Calls of clients that have to wait take their slots when these
    come: payments first, then reads, then polls, and within each lane the first come first. While somebody polls, an
    eighth of the window is polling's, evenly spread. While somebody pays, reads that wait leave a quarter of the
    window to payments; while somebody pays or reads, so do polls. Nothing is held back for a lane that was not asked
    for in the last two windows. Safe to use from many threads and event loops, and across a fork.

    Args:
        requests: How many requests a window holds. Two below the service's 60, for clocks that differ.
        window: Its length, seconds. One above the service's 60, for requests that travel at different speeds.
    """

    def __init__(self, requests: int = 58, window: float = 61.0) -> None:
        super().__init__(requests, window)
        self._lock = threading.Lock()
        self._log = SlotLog(requests, window)

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        """Take the lane's next slot and return the seconds until it; take none if that is more than `within`."""
        with self._lock:
            return self._log.reserve(now, lane, within)

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`, and revoke those that were taken ahead for the time between."""
        with self._lock:
            self._log.stop(now, until)

    def _expect(self, now: float, lane: Lane, place: Place) -> float:
        with self._lock:
            return self._log.expect(now, lane, place)

    def _slots(self, account_hash: str) -> Slots:  # noqa: ARG002  one log, and so one line, for all who use it
        return super()._slots("")

    def _open(self, account_hash: str) -> Slots:  # noqa: ARG002
        return LocalSlots(self)

    def _start_again(self) -> None:
        self._lock = threading.Lock()
        super()._start_again()


class LocalSlots(Slots):
    """A `RateBudget` as calls that wait in its line ask for slots. Apart from it, to be hidden from completion."""

    def __init__(self, budget: RateBudget) -> None:
        super().__init__()
        self._budget = budget

    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        now = backend.now()
        delay = self.expect(now, lane, place) if place.queued else 0.0
        return delay if delay > 0 else self._budget.reserve(now, lane, 0.0)

    def expect(self, now: float, lane: Lane, place: Place) -> float:
        """Return the seconds until a call at this place in the line may have a slot; take none."""
        return self._budget._expect(now, lane, place)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def stop(self, backend: Backend, seconds: float) -> None:
        """Hand out no slot for so long."""
        now = backend.now()
        self._budget.stop(now, now + seconds)
