"""Wait for slots of a rate budget. Times are in seconds, on the backend's monotonic clock.

The budget does the arithmetic and the backend sleeps; no lock is held meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from momopay._ratelimit.budget import Budget, Lane
from momopay.errors import BudgetExhaustedError

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

__all__ = ["SharedBudget"]


class SlotSource(Protocol):
    """A shared budget as one client sees it: `Budget`, but asking takes a round trip to a server."""

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

    async def acquire(self, lane: Lane, *, latest: float, describe: Callable[[], str]) -> bool:
        """Take a slot, wait until it has come, and return whether the call had to wait.

        Raises:
            BudgetExhaustedError: There is no slot by the monotonic time `latest`; none was taken.
        """
        # A slot is taken before the wait for it, so that calls that wait keep their order and each sleeps only once.
        # A call that is cancelled while it waits loses its slot to nobody: at worst the window holds one less.
        waited = False
        while True:
            now = self._backend.now()
            # A free slot is taken even when the time is up: the call's deadline ends it, and not the budget.
            within = max(0.0, latest - now)
            delay: float = await _answer(self._budget.reserve(now, lane, within))
            if delay <= 0:
                return waited
            if delay > within:
                raise BudgetExhaustedError(
                    f"{describe()}: the rate budget has no slot for {delay:.1f} s; not sent", retry_after=delay
                )
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


async def _answer(asked: Any) -> Any:
    # A budget of this process answers at once, a shared one after a round trip. So `Budget`, which users may
    # implement, needs no coroutines and no adapter around it.
    return await asked if isawaitable(asked) else asked
