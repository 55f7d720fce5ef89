"""The arithmetic of a rate budget: lanes, and a log of slots. It never sleeps, reads no clock and takes no lock.

The service allows 60 requests a minute and does not specify whether the minute is fixed or sliding (service page,
"Limits"). Times are in seconds on one monotonic clock.

Invariants:
    - No span of `window` seconds holds more than `requests` slots. So neither a fixed nor a sliding window of the
      service is overrun, and a whole window may go out as one burst. A token bucket would allow a burst and then its
      refill within one window.
    - The log is sorted. Clients take a slot only when it is due, so the most urgent lane gets it. Only a direct caller
      of `reserve` takes slots ahead of time.
    - A slot that was taken is never moved. Only a stop removes slots, and only future ones.
    - None of the window is held back for a lane that was not used lately.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from enum import Enum
from math import inf
from typing import Final, NamedTuple

# Windows for which a lane counts as used after a call asked for it. A call asks once and then sleeps up to a window.
_IN_USE: Final = 2


class Lane(Enum):
    """What a request is for. Waiting requests go in this order."""

    PAYMENT = "payment"
    READ = "read"
    POLL = "poll"


class Place(NamedTuple):
    """Where a call is in the line of its process."""

    queued: bool = False  # it has waited already, or others go before it
    before: int = 0  # how many calls of the lanes before its own wait
    same: int = 0  # how many calls of its own lane wait and go before it
    payments: int = 0  # how many payments wait in this process, the call itself included


ALONE: Final = Place()


class SlotLog:
    """Slots that were taken, and when each lane was last asked for."""

    def __init__(self, requests: int, window: float) -> None:
        self.requests = requests
        self.window = window
        self.kept_for: float = window  # how long a slot stays in the log; longer if others have a longer window
        self.slots: list[float] = []
        self.polls: list[float] = []  # the slots that are for polls
        self.asked: dict[Lane, float] = dict.fromkeys(Lane, -inf)
        self.stopped_until: float = -inf
        self._now = -inf
        self._floor = requests // 8
        self._pace = window / max(1, self._floor)

    def reserve(self, now: float, lane: Lane, within: float, place: Place = ALONE) -> float:
        """Take the next slot and return the seconds until it; take none if that is more than `within`."""
        delay = self.expect(now, lane, place)
        if delay <= within:
            slot = self._now + delay
            insort(self.slots, slot)
            self.asked[lane] = max(slot, self.asked[lane])
            if lane is Lane.POLL:
                insort(self.polls, slot)
        return delay

    def expect(self, now: float, lane: Lane, place: Place = ALONE) -> float:
        """Return the seconds until a call may have a slot, after those before it; take none."""
        # Two threads may read the clock in one order and get here in the other.
        now = self._now = max(now, self._now)
        for slots in (self.slots, self.polls):
            del slots[: bisect_right(slots, now, key=lambda slot: slot + self.kept_for)]
        self.asked[lane] = max(now, self.asked[lane])
        start, ahead = max(now, self.stopped_until), place.before + place.same
        share = self._share(start, lane, queued=place.queued)
        if ahead < share and self._fits(start, share - ahead):
            return start - now
        slot, later = start, self._after_all(start, self._share(start, lane), ahead)
        while later > slot:  # by then more polls will have left the window, and polling will need more of its floor
            slot, later = later, self._after_all(start, self._share(later, lane), ahead)
        if lane is Lane.POLL and self._floor:
            slot = min(slot, self._of_the_floor(start) + self._pace * place.same)
        return slot - now

    def leave(self, now: float, remaining: int, seconds: float) -> None:
        """Take slots for what others sent with the key, so that at most `remaining` are left for the next `seconds`."""
        now = self._now = max(now, self._now)
        slot = now + min(seconds, self.window) - self.window  # one that leaves the window then
        known = len(self.slots) - bisect_right(self.slots, now, key=self._end_of)
        of_others = self.requests - known - remaining
        if seconds > 0:
            place = bisect_right(self.slots, slot)
            self.slots[place:place] = [slot] * of_others  # none if it is negative

    def stop(self, now: float, until: float) -> None:
        # If two requests are refused at the same time, the later answer may state the shorter stop.
        self.stopped_until = max(self.stopped_until, until)
        now = max(now, self._now)  # a slot that another thread took a moment ago was used
        for slots in (self.slots, self.polls):
            kept = bisect_right(slots, now)
            del slots[kept : bisect_left(slots, self.stopped_until)]

    def _end_of(self, slot: float) -> float:
        return slot + self.window

    def _share(self, slot: float, lane: Lane, *, queued: bool = True) -> int:
        """Return how many requests the window that ends with this slot may hold if the lane takes it."""
        since = self._now - _IN_USE * self.window
        is_paying = self.asked[Lane.PAYMENT] > since
        if lane is Lane.POLL:
            return self.requests - (self.requests // 4 if is_paying or self.asked[Lane.READ] > since else 0)
        held_back = 0
        if self.asked[Lane.POLL] > since:  # what polling has not used of its floor
            recent = bisect_right(self.polls, slot) - bisect_right(self.polls, slot, key=self._end_of)
            held_back = max(0, self._floor - recent)
        if lane is Lane.READ and queued and is_paying:
            # Otherwise waiting reads would take every slot that becomes free, and each payment would have to wait.
            held_back += self.requests // 4
        return self.requests - held_back

    def _after_all(self, start: float, share: int, ahead: int) -> float:
        """Return the first time after the whole log, and after those ahead, at which the window has room."""
        # Those ahead fill whole windows first, each of which ends one window after the one before it.
        windows, rest = divmod(ahead, share)
        if self.slots:
            start = max(start, self.slots[-1])
        if len(self.slots) >= share - rest:
            start = max(start, self._end_of(self.slots[rest - share]))
        return start + windows * self.window

    def _of_the_floor(self, start: float) -> float:
        """Return the next slot of polling's floor, which goes before payments and reads that wait."""
        # One slot at a time, evenly over the window, so that waits keep a steady pace however many payments queue.
        # Otherwise polls would take the whole floor at once and then none for a window.
        if self.polls:
            start = max(start, self.polls[-1] + self._pace)
        if len(self.polls) >= self._floor:
            start = max(start, self._end_of(self.polls[-self._floor]))
        return start if self._fits(start, self.requests) else self._after_all(start, self.requests, 0)

    def _fits(self, slot: float, share: int) -> bool:
        """Return whether the window that ends with this slot has room for it, and no later window is overfilled."""
        slots, most = self.slots, self.requests
        place = bisect_right(slots, slot)
        if place >= share and self._end_of(slots[place - share]) > slot:
            return False
        if place == len(slots):
            return True
        # Slots that were taken ahead follow. With the new one in its place, each must still come a whole window
        # after the one `most` places before it.
        return all(
            slots[i] >= self._end_of(slots[i - most + 1] if i - most + 1 < place else slot)
            for i in range(max(place, most - 1), min(place + most, len(slots)))
        )
