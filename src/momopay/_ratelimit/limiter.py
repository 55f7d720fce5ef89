"""Wait for slots of a rate budget. Times are in seconds, on the backend's monotonic clock.

The budget does the arithmetic and the backend sleeps; no lock is held meanwhile. The budgets of this package let calls
wait in a `Line` and take a slot when it has come. From a user's own budget a call takes its slot ahead of time.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from momopay._ratelimit.budget import Budget, Lane, LocalSlots, RateBudget
from momopay._ratelimit.line import Line, Ticket
from momopay.errors import BudgetExhaustedError

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend
else:  # for `typing.get_type_hints`
    AsyncBackend = SyncBackend = Any

__all__ = ["SharedBudget"]


class SlotSource(Protocol):
    """A shared budget as one client sees it: `Budget`, but asking may take a round trip to a server."""

    async def reserve(self, now: float, lane: Lane, within: float) -> float:
        """Take the next slot and return the seconds until it; take none if that is more than `within`."""
        ...

    async def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`, to nobody who shares the budget."""

    async def stopped(self, now: float) -> bool:
        """Return whether slots handed out for now were revoked by a stop."""
        ...

    async def close(self) -> None:
        """Release what this client held open."""


@runtime_checkable
class SharedBudget(Protocol):
    """A budget that several processes share."""

    def slots(self, backend: SyncBackend | AsyncBackend, account_hash: str) -> SlotSource:
        """Return the slots of one address and key, asked for through this backend."""
        ...


class RateLimiter:
    """Waits on behalf of one client until its budget has a slot. As safe to share as the backend is."""

    def __init__(self, budget: Budget | SharedBudget, backend: SyncBackend | AsyncBackend, account_hash: str) -> None:
        self._backend = backend
        self._source = budget.slots(backend, account_hash) if isinstance(budget, SharedBudget) else None
        self._budget: Any = budget if self._source is None else self._source
        self._slots: Any = LocalSlots(budget) if isinstance(budget, RateBudget) else self._source

    async def acquire(self, lane: Lane, *, latest: float, describe: Callable[[], str]) -> bool:
        """Take a slot, wait until it has come, and return whether the call had to wait.

        Raises:
            BudgetExhaustedError: There is no slot by the monotonic time `latest`; none was taken.
        """
        # Asked for each time: after a fork it is another one.
        line = getattr(self._slots, "line", None)
        if not isinstance(line, Line):
            return await self._acquire_ahead(lane, latest, describe)
        departures = line.departures
        delay = await self._take(line, lane)
        if delay <= 0:
            return False
        ticket = Ticket(lane, self._backend.signal())
        line.join(ticket)
        try:
            if departures != line.departures:  # what left just now could not wake this call
                ticket.signal.set()
            while delay > 0:
                now = self._backend.now()
                _check(delay, latest - now, describe)
                ticket.looks_at = now + delay
                await ticket.signal.wait(delay)
                ticket.looks_at = inf
                delay = await self._take(line, lane, ticket)
        finally:
            line.leave(ticket, self._backend.now())
        return True

    async def _take(self, line: Line, lane: Lane, ticket: Ticket | None = None) -> float:
        """Take a slot if this call may have one now and return 0, else the seconds until it may."""
        now = self._backend.now()
        delay: float = await _answer(self._slots.reserve_now(now, lane, line.place(lane, now, ticket)))
        return delay

    async def _acquire_ahead(self, lane: Lane, latest: float, describe: Callable[[], str]) -> bool:
        """Take a slot of a budget that knows nothing of lines: ahead of time, and then sleep until it comes."""
        waited = False
        while True:
            now = self._backend.now()
            within = max(0.0, latest - now)
            delay: float = await _answer(self._budget.reserve(now, lane, within))
            if delay <= 0:
                return waited
            _check(delay, within, describe)
            await self._backend.sleep(delay)
            waited = True
            # A 429 that came while this call slept revoked the slot; then queue for another one.
            if not await _answer(self._budget.stopped(self._backend.now())):
                return waited

    async def pause(self, seconds: float) -> None:
        """Hand out no slot for so long, because the service answered 429."""
        now = self._backend.now()
        await _answer(self._budget.stop(now, now + seconds))

    async def close(self) -> None:
        """Release what this client held open; a budget of this process holds nothing open."""
        if self._source is not None:
            await self._source.close()


def _check(delay: float, remaining: float, describe: Callable[[], str]) -> None:
    # A free slot is taken even when the time is up: the call's deadline ends it, and not the budget.
    if delay > max(0.0, remaining):
        raise BudgetExhaustedError(
            f"{describe()}: the rate budget has no slot for {delay:.1f} s; not sent", retry_after=delay
        )


async def _answer(asked: Any) -> Any:
    # A budget of this process answers at once, a shared one after a round trip. So `Budget`, which users may
    # implement, needs no coroutines and no adapter around it.
    return await asked if isawaitable(asked) else asked
