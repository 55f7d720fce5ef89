"""Wrong wall clocks: each process has its own, without a touch of the machine's.

Everything that momopay asks of `datetime.now` is answered with the service's virtual time, plus the skew of the
process. So payers agree with the service as real ones do, or differ from it by as much as a campaign wants. Timeouts
and deadlines are not on this clock: they run on the machine's monotonic one.
"""

import inspect
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from unittest.mock import patch

from sqlalchemy import update

from campaign.settings import SPEED
from momopay import Journal, JournalError, OutcomeUnknownError
from momopay._core import state as service_clock
from momopay._transport.clock import now
from momopay.journal.journal import internals
from momopay.journal.schema import payments
from momopay.types import TransactionSummary

SPED_UP = {"_LEASE_GRACE": 1.5, "RELEASE_AFTER_LEASE": 3.0}
"""Seconds of the machine's time, for which leases outlive deadlines and people wait: the twentieth part, as all time of
the campaign, so that a lease of 33 s and a minute are over within 7.5 s."""
A_DAY = 86_400.0
"""Seconds."""
SKEWS = (0.0, 0.0, 301.0, -301.0, 3600.0, -3600.0, 86_400.0, -86_400.0)
"""Seconds by which a payer's clock is ahead."""


of_this_process: "Clock | MachineClock | None" = None
"""The clock that momopay's modules read."""


def shown() -> float:
    """Return the seconds that this process shows at the machine's pace, with every step of its clock."""
    return time.monotonic() + getattr(of_this_process, "skew", 0.0)


class Clock:
    """The wall clock of one process: `epoch` is the service's time, in Unix seconds, when the monotonic clock was 0."""

    def __init__(self, epoch: float, skew: float = 0.0) -> None:
        self.skew = skew
        self._epoch = epoch
        self._own = threading.local()

    def now(self) -> datetime:
        """Return what this process takes for the present."""
        ahead = self.skew + getattr(self._own, "ahead", 0.0)
        return datetime.fromtimestamp(self._epoch + time.monotonic() * SPEED + ahead, UTC)

    def boot(self) -> float:
        """Return the seconds of the service's time since some moment, which no skew changes."""
        return time.monotonic() * SPEED

    @contextmanager
    def ahead(self, seconds: float) -> Generator[None]:
        """Put the clock ahead, for this thread only."""
        self._own.ahead = seconds
        try:
            yield
        finally:
            self._own.ahead = 0.0


class MachineClock:
    """The machine's wall clock, as a process has it whose clock stepped `ahead` by so many seconds."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead)

    def boot(self) -> float:
        return now()


@contextmanager
def own_time(clock: Any, *, hastened: bool) -> Generator[None]:
    """Make the modules of momopay read this clock, which has a `now()` and a `boot()`; `hastened`: leases end sooner.

    The sandbox is left alone: it is the service, and its own time is the true one.
    """

    class AnyDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Wound(datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            now: datetime = clock.now()
            return now.astimezone(tz)

    changed: list[tuple[Any, str, Any]] = [(service_clock, "now", clock.boot)]
    changed.append((sys.modules[__name__], "of_this_process", clock))
    ours = [name for name in sys.modules if name.startswith("momopay.") and not name.startswith("momopay.sandbox")]
    for module in map(sys.modules.__getitem__, ours):
        # Models keep the class itself: pydantic knows no subclass of it.
        has_class = getattr(module, "datetime", None) is datetime
        if has_class and "datetime.now(" in inspect.getsource(module):
            changed.append((module, "datetime", Wound))
        changed += [(module, name, SPED_UP[name]) for name in SPED_UP if hastened and name in vars(module)]
    with ExitStack() as stack:
        for module, name, instead in changed:
            stack.enter_context(patch.object(module, name, instead))
        yield


def end_lease(journal: Journal, reference: str) -> None:
    """End a lease and the minute after it, as after an hour, or as if the database's clock had jumped."""
    statement = update(payments).where(payments.c.reference == reference)
    with suppress(JournalError), internals(journal).store.database.connection() as connection:
        connection.execute(statement.values(lease_until=payments.c.lease_until - A_DAY))


def settle_near(journal: Journal, error: OutcomeUnknownError) -> int:
    """Compare near matches as a person does: a clock that jumped just before a payout dates it wrongly for ever.

    Return how many were settled.
    """
    near = [each for each in error.near_matches if isinstance(each, TransactionSummary)]
    return sum(journal.settle(each) is not None for each in near)
