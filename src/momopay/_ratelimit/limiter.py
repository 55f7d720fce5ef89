"""Wait for slots of a rate budget. Times are in seconds, on the backend's monotonic clock.

The budget does the arithmetic and the backend sleeps; no lock is held meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

from momopay._ratelimit.budget import BaseBudget, Slots
from momopay._ratelimit.line import Ticket
from momopay._ratelimit.slot_log import Lane
from momopay.errors import BudgetExhaustedError

if TYPE_CHECKING:
    from momopay._ratelimit.budget import Backend

logger = logging.getLogger("momopay")

# Seconds: a longer wait is logged at once. Web servers kill a worker that is silent for half a minute, and then nobody
# would know what it waited for.
_WORTH_A_WARNING: Final = 1.0
_WAITS: Final = (
    "%s: waits %.1f s for a slot of the rate budget; max_wait= limits such waits, see 'Rate limits' in the docs"
)


class RateLimiter:
    """Waits on behalf of one client until its budget has a slot. As safe to share as the backend is."""

    def __init__(self, budget: BaseBudget, backend: Backend, account_hash: str) -> None:
        self._budget = budget
        self._backend = backend
        self._account_hash = account_hash

    async def acquire(self, lane: Lane, *, latest: float, describe: Callable[[], str]) -> bool:
        """Take a slot, wait until it has come, and return whether the call had to wait.

        Raises:
            BudgetExhaustedError: There is no slot by the monotonic time `latest`; none was taken.
        """
        slots = self._slots()
        line, departures = slots.line, slots.line.departures
        delay = await slots.reserve_now(self._backend, lane, line.place(lane, self._backend.now()))
        if delay <= 0:
            return False
        ticket, is_logged = Ticket(lane, self._backend.signal(), self._backend.now()), False
        line.join(ticket)
        try:
            if departures != line.departures:  # what left just now could not wake this call
                ticket.signal.set()
            while delay > 0:
                now = self._backend.now()
                _check(delay, latest - now, describe)
                if delay > _WORTH_A_WARNING and not is_logged:
                    is_logged = True
                    # Polls wait as a matter of course: they have the pace that the budget leaves to them.
                    level = logging.INFO if lane is Lane.POLL else logging.WARNING
                    logger.log(level, _WAITS, describe(), delay)
                ticket.asks_at = now + delay
                await ticket.signal.wait(delay)
                ticket.asks_at = now = self._backend.now()
                delay = await slots.reserve_now(self._backend, lane, line.place(lane, now, ticket))
        finally:
            ticket.asks_at = -inf  # so that it holds nobody back, even if an exception keeps it from leaving the line
            line.leave(ticket, self._backend.now())
        return True

    async def pause(self, seconds: float) -> None:
        """Hand out no slot for so long, because the service answered 429."""
        await self._slots().stop(self._backend, seconds)

    async def close(self) -> None:
        """Close what this client held open."""
        self._slots().close()

    def _slots(self) -> Slots:
        # Asked for each time, as they are others after a fork.
        return self._budget._slots(self._account_hash)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _check(delay: float, remaining: float, describe: Callable[[], str]) -> None:
    # A free slot is taken even when the time is up: the call's deadline ends it, and not the budget.
    if delay > max(0.0, remaining):
        raise BudgetExhaustedError(
            f"{describe()}: the rate budget has no slot for {delay:.1f} s; not sent", retry_after=delay
        )
