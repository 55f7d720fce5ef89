"""Requests per minute of one key, in a fixed window (opened by its first request) or a sliding one."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Literal

from momopay.sandbox._refusals import throttled

WINDOW = timedelta(seconds=60)


@dataclass(slots=True)
class RateWindow:
    """The requests of one key that were let in."""

    opened_at: datetime | None = None
    count: int = 0
    hits: deque[datetime] = field(default_factory=deque[datetime])

    def admit(self, now: datetime, limit: int, window: Literal["fixed", "sliding"]) -> None:
        """Count one request in; a refused one does not count.

        Raises:
            Refusal: RATE_LIMIT_EXCEEDED, with `limit`, `remaining`, `resetInSeconds`.
        """
        opened = self._slide(now) if window == "sliding" else self._open(now)
        used = len(self.hits) if window == "sliding" else self.count
        if used >= limit:
            wait = max(1, ceil((opened + WINDOW - now).total_seconds()))
            details = {"limit": limit, "remaining": 0, "resetInSeconds": wait}
            raise throttled("RATE_LIMIT_EXCEEDED", "Too many requests", wait, details)
        self.count += 1
        if window == "sliding":
            self.hits.append(now)

    def _open(self, now: datetime) -> datetime:
        if self.opened_at is None or now - self.opened_at >= WINDOW:
            self.opened_at, self.count = now, 0
        return self.opened_at

    def _slide(self, now: datetime) -> datetime:
        while self.hits and now - self.hits[0] >= WINDOW:
            self.hits.popleft()
        return self.hits[0] if self.hits else now
