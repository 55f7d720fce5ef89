"""The three rules that answer 429: the rate limit of a key, transaction health, and the abuse ban.

They know no clock: `now` is always passed in.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Literal

from momopay.sandbox._accounts import Switches
from momopay.sandbox._records import COMPLETED, Kind, Status, Transaction, iso
from momopay.sandbox._refusals import Refusal

WINDOW = timedelta(seconds=60)
SAMPLE = 100
MINIMUM_SUCCESS = 0.3
HEALTH_PAUSE = timedelta(minutes=30)
BAN = timedelta(hours=1)


def throttled(code: str, seconds: int, **details: object) -> Refusal:
    """Return a 429 with its wait, whole seconds, in a Retry-After header too."""
    return Refusal(code, details=details, headers={"retry-after": str(seconds)})


# The names of the fields of both dataclasses are also the format of the state file, see `_store`.
@dataclass(slots=True)
class RateWindow:
    """The requests of one key that were let in, in a fixed window (its first request opens it) or a sliding one."""

    opened_at: datetime | None = None
    count: int = 0
    hits: deque[datetime] = field(default_factory=deque[datetime])

    def admit(self, now: datetime, limit: int, window: Literal["fixed", "sliding"]) -> None:
        """Count one request in; a refused one does not count."""
        opened = self._slide(now) if window == "sliding" else self._open(now)
        used = len(self.hits) if window == "sliding" else self.count
        if used >= limit:
            # Rounded up, so that a client which waits exactly this long is not refused again.
            wait = max(1, ceil((opened + WINDOW - now).total_seconds()))
            raise throttled("RATE_LIMIT_EXCEEDED", wait, limit=limit, remaining=0, resetInSeconds=wait)
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


@dataclass(slots=True)
class StkHealth:
    """The results of the last completed STK payments, and the two pauses of STK."""

    results: list[bool] = field(default_factory=list[bool])
    blocked_until: datetime | None = None
    success_rate: float = 0.0
    banned_until: datetime | None = None

    def add_result(self, now: datetime, *, succeeded: bool) -> None:
        """Count one completed payment; the hundredth may begin a pause. Nothing counts during a pause."""
        if self.blocked_until is not None and now < self.blocked_until:
            return
        # Only the newest 100 are judged, and not before there are 100.
        self.results.append(succeeded)
        del self.results[:-SAMPLE]
        rate = sum(self.results) / SAMPLE
        if len(self.results) == SAMPLE and rate < MINIMUM_SUCCESS:
            self.block(now, rate)

    def block(self, now: datetime, rate: float = 0.0) -> None:
        """Begin the health pause; after it, counting restarts from zero."""
        self.blocked_until, self.success_rate = now + HEALTH_PAUSE, rate
        self.results.clear()

    def ban(self, now: datetime) -> None:
        """Begin the abuse ban."""
        self.banned_until = now + BAN

    def check(self, now: datetime) -> None:
        """Raise if a new STK request must not be let through."""
        if self.blocked_until is not None and now < self.blocked_until:
            wait = ceil((self.blocked_until - now).total_seconds())
            until, rates = (
                iso(self.blocked_until),
                {"successRate": self.success_rate, "minSuccessRate": MINIMUM_SUCCESS},
            )
            code = "TRANSACTION_HEALTH_BLOCKED"
            raise throttled(code, wait, retryAfterSeconds=wait, blockedUntil=until, sampleSize=SAMPLE, **rates)
        if self.banned_until is not None and now < self.banned_until:
            wait = ceil((self.banned_until - now).total_seconds())
            raise throttled("STK_TEMP_BANNED", wait, retryAfterSeconds=wait)


def is_abuse(newest_first: Iterable[Transaction], switches: Switches, now: datetime) -> bool:
    """Return whether enough pushes of the window have completed, and too few of them succeeded."""
    if switches.ban_pushes is None:
        return False
    since = now - timedelta(seconds=switches.ban_window)
    completed = succeeded = 0
    for transaction in newest_first:
        # The history is in order of creation, so nothing older can be within the window.
        if transaction.created_at < since:
            break
        if transaction.kind is Kind.STK and transaction.status in COMPLETED:
            completed += 1
            succeeded += transaction.status is Status.SUCCESS
    return completed >= switches.ban_pushes and succeeded < switches.ban_success_rate * completed
