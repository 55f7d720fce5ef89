"""How far this machine's clock is from the service's, measured by the ``Date`` header of its responses.

A search for a payment begins at the time when it was sent, by this machine's clock. If that clock is ahead, the payment
is older than the search reaches.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from momopay._core.http_date import http_date
from momopay._transport.clock import now

logger = logging.getLogger("momopay")

# Seconds. Less is latency, and the header's resolution of one second.
_WORTH_A_WARNING: Final = 60.0
# Seconds. A greater offset is nonsense in the header, by which no search should be led.
_LARGEST: Final = 10 * 365 * 86_400.0


class ServiceClock:
    """What one client knows of the service's time. Threads share it without a lock: each measures the same."""

    def __init__(self, *, on_loopback: bool = False) -> None:
        # A service on loopback is a sandbox. Its time is virtual, so a difference is no fault of this machine.
        self._may_warn: bool = not on_loopback
        # The service's time, and what this machine's boot clock showed then. Nobody sets that clock, so the two show
        # the service's time at every later moment, whatever was done to this machine's time of day in between.
        self._measured: tuple[datetime, float] | None = None
        self._warned: float = 0.0

    @property
    def offset(self) -> float | None:
        """Seconds by which this machine's clock is ahead at this moment; None if no response had a ``Date``."""
        if self._measured is None:
            return None
        return (datetime.now(UTC) - self.service_now()).total_seconds()

    @property
    def ahead(self) -> float:
        """Seconds by which this machine's clock is ahead, 0 if it is behind or that is not known."""
        return max(0.0, self.offset or 0.0)

    def service_now_if_known(self) -> datetime | None:
        """Return the service's time, None where no response showed it."""
        return None if self._measured is None else self.service_now()

    def service_now(self) -> datetime:
        """Return the service's time, this machine's where no response showed it."""
        if self._measured is None:
            return datetime.now(UTC)
        date, at = self._measured
        return date + timedelta(seconds=now() - at)

    def observe(self, headers: Mapping[str, str]) -> None:
        """Measure the offset by a response that came just now."""
        # Only for responses that matter, since parsing the date takes a twentieth of a request's time.
        date = http_date(headers.get("date", ""))
        if date is None:
            return
        offset = (datetime.now(UTC) - date).total_seconds()
        if abs(offset) > _LARGEST:
            return
        self._measured = date, now()
        # Once, and again only if the clock jumps: a payroll would repeat it for each payout.
        if self._may_warn and abs(offset) > _WORTH_A_WARNING and abs(offset - self._warned) > _WORTH_A_WARNING:
            self._warned = offset
            direction = "ahead of" if offset > 0 else "behind"
            logger.warning("this machine's clock is %.0f s %s the service's: set it", abs(offset), direction)
