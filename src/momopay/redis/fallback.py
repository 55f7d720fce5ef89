"""The budget of a process that cannot ask Redis. Pure: it knows neither Redis nor a clock. Times are in seconds."""

from __future__ import annotations

from collections.abc import Iterable

from momopay._ratelimit.budget import RateBudget


class FallbackBudget(RateBudget):
    """A process's share, ``requests // sharers`` and at least 1, from `now` on.

    `free` is how many requests the window could still hold when Redis last answered, None if it never did. `ahead`
    has the slots that Redis gave to this process and that are still to come.
    """

    def __init__(
        self, requests: int, window: float, sharers: int, *, now: float, free: int | None, ahead: Iterable[float]
    ) -> None:
        super().__init__(max(1, requests // sharers), window)
        # The others may have filled the window before `now`. So each process begins with its part of what was free,
        # but at least one request; the rest of its share comes back evenly over the first window, as everybody's does.
        at_once = self.requests if free is None else min(self.requests, max(1, free // sharers))
        later = self.requests - at_once
        past = [now - window + window * number / later for number in range(1, later + 1)]
        self._slots = past + sorted(slot for slot in ahead if slot > now)
