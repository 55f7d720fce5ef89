"""The budget of a process that cannot ask the others. It knows no Redis."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from momopay._ratelimit.budget import Lane, RateBudget


class FallbackBudget(RateBudget):
    """A static share: what was taken before counts once, whoever took it; a slot taken here counts for each sharer.

    So the room that is left when the others fall silent is divided evenly, from the first moment on.

    Args:
        requests: How many requests a window holds, for all sharers.
        window: Its length, seconds.
        sharers: Among how many it is divided.
        taken: The slots that were taken before.
    """

    def __init__(self, requests: int, window: float, sharers: int, taken: Iterable[tuple[float, Lane]]) -> None:
        super().__init__(requests, window)
        self.weight: int = max(1, min(sharers, requests))
        for slot, lane in taken:
            self._take(slot, lane)

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        """Take the next slot by which all sharers could have taken one."""
        before = list(self._slots), list(self._polls)
        delay = max(super(FallbackBudget, self).reserve(now, lane) for _ in range(self.weight))
        if delay > within:
            self._slots, self._polls = before
        return delay
