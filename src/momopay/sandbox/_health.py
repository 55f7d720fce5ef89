"""The two rules that pause STK: transaction health (the last 100) and the abuse ban (recent pushes)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil

from momopay.sandbox._clock import iso
from momopay.sandbox._outcomes import Kind, Status
from momopay.sandbox._refusals import throttled
from momopay.sandbox._switches import Switches
from momopay.sandbox._transactions import COMPLETED, Transaction

SAMPLE = 100
MINIMUM = 0.3
PAUSE = timedelta(minutes=30)
BAN = timedelta(hours=1)


@dataclass(slots=True)
class Health:
    """What is remembered of completed STK payments, and the pauses that run."""

    results: list[bool] = field(default_factory=list[bool])
    blocked_until: datetime | None = None
    success_rate: float = 0.0
    banned_until: datetime | None = None

    def completed(self, now: datetime, *, succeeded: bool) -> None:
        """Count one completed payment; the hundredth may begin a pause. Nothing counts while a pause runs."""
        if self.blocked_until is not None and now < self.blocked_until:
            return
        self.results.append(succeeded)
        del self.results[:-SAMPLE]
        rate = sum(self.results) / SAMPLE
        if len(self.results) == SAMPLE and rate < MINIMUM:
            self.block(now, rate)

    def block(self, now: datetime, rate: float = 0.0) -> None:
        """Begin the health pause; after it, counting restarts from zero."""
        self.blocked_until, self.success_rate = now + PAUSE, rate
        self.results.clear()

    def ban(self, now: datetime) -> None:
        """Begin the abuse ban."""
        self.banned_until = now + BAN

    def check(self, now: datetime) -> None:
        """Let a new STK request through.

        Raises:
            Refusal: TRANSACTION_HEALTH_BLOCKED or STK_TEMP_BANNED.
        """
        if self.blocked_until is not None and now < self.blocked_until:
            wait = ceil((self.blocked_until - now).total_seconds())
            details = {
                "retryAfterSeconds": wait,
                "blockedUntil": iso(self.blocked_until),
                "successRate": self.success_rate,
                "sampleSize": SAMPLE,
                "minSuccessRate": MINIMUM,
            }
            raise throttled("TRANSACTION_HEALTH_BLOCKED", "STK is paused: low success rate", wait, details)
        if self.banned_until is not None and now < self.banned_until:
            wait = ceil((self.banned_until - now).total_seconds())
            message = "STK is blocked for this key: low success rate"
            raise throttled("STK_TEMP_BANNED", message, wait, {"retryAfterSeconds": wait})


def is_abuse(newest_first: Iterable[Transaction], switches: Switches, now: datetime) -> bool:
    """Whether enough pushes of the window have completed, and too few of them succeeded."""
    if switches.ban_pushes is None:
        return False
    since = now - timedelta(seconds=switches.ban_window)
    completed = succeeded = 0
    for transaction in newest_first:
        if transaction.created_at < since:
            break
        if transaction.kind is Kind.STK and transaction.status in COMPLETED:
            completed += 1
            succeeded += transaction.status is Status.SUCCESS
    return completed >= switches.ban_pushes and succeeded < switches.ban_success_rate * completed
