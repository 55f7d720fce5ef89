"""The rate budget of one key in one process, and what it has in common with those of several processes.

Nothing here sleeps or waits. Every lock is one of C's in a `with`, so that no exception out of a signal handler
(Ctrl-C, Celery's soft time limit) can leave it held.
"""

from __future__ import annotations

import os
import threading
from math import inf, isfinite
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

from momopay._numbers import is_number, is_whole
from momopay._ratelimit.line import Line
from momopay._ratelimit.slot_log import Lane, Place, SlotLog
from momopay.errors import ConfigurationError

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

    Backend: TypeAlias = SyncBackend | AsyncBackend

__all__ = ["Lane", "RateBudget"]


class Slots:
    """The slots of one account, and the line of those who wait for them in this process."""

    def __init__(self) -> None:
        self.line: Line = Line()

    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        raise NotImplementedError

    async def stop(self, backend: Backend, seconds: float) -> None:
        """Hand out no slot for so long, to nobody who shares the budget."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what is open; the next request opens it again."""

    def abandon(self) -> None:
        """Close, in the child of a fork, what it inherited. A thread of the parent may hold any lock."""


class BaseBudget:
    """A number of requests in any window, and the slots of each account that uses it."""

    def __init__(self, requests: int, window: float) -> None:
        if not is_whole(requests) or requests < 1 or not is_number(window) or not (isfinite(window) and window > 0):
            raise ConfigurationError(
                "a rate budget needs a whole number of requests, at least 1, and a window of more than 0 seconds"
            )
        self.requests = requests
        self.window = window
        self._accounts: dict[str, Slots] = {}
        _budgets[id(self)] = self

    def close(self) -> None:
        """Close the files or connections that are open; they open again when needed."""
        for slots in list(self._accounts.values()):
            slots.close()

    def _slots(self, account_hash: str) -> Slots:
        """Return this process's slots of one address and key."""
        return self._accounts.get(account_hash) or self._accounts.setdefault(account_hash, self._open(account_hash))

    def _open(self, account_hash: str) -> Slots:
        raise NotImplementedError

    def _start_again(self) -> None:
        """Share no lock, line, open file or connection with the process that this one was forked from."""
        inherited, self._accounts = self._accounts, {}
        for slots in inherited.values():
            slots.abandon()

    @staticmethod
    def _start_all_again() -> None:
        for budget in list(_budgets.values()):
            budget._start_again()  # noqa: SLF001  this class's own


_budgets: WeakValueDictionary[int, BaseBudget] = WeakValueDictionary()  # a subclass may not be hashable

if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=BaseBudget._start_all_again)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class RateBudget(BaseBudget):
    """A number of requests in any window, for all users of one key in this process.

    A burst goes out at once, up to the whole window. Calls of clients that have to wait take their slots when these
    come: payments first, then reads, then polls, and within each lane the first come first. While somebody polls, an
    eighth of the window is polling's, evenly spread. While somebody pays, reads that wait leave a quarter of the
    window to payments; while somebody pays or reads, so do polls. Nothing is held back for a lane that was not asked
    for in the last two windows. Safe to use from many threads and event loops, and across a fork.

    Args:
        requests: How many requests a window holds. Two below the service's 60, for clocks that differ.
        window: Its length, seconds. One above the service's 60, for requests that travel at different speeds.

    Raises:
        ConfigurationError: Not at least one request, or a window that is not a positive number.
    """

    def __init__(self, requests: int = 58, window: float = 61.0) -> None:
        super().__init__(requests, window)
        self._lock = threading.Lock()
        self._log = SlotLog(requests, window)

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        """Take the lane's next slot and return the seconds until it; take none if that is more than `within`."""
        with self._lock:
            return self._log.reserve(now, lane, within)

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot before `until`, and revoke those that were taken ahead for the time between."""
        with self._lock:
            self._log.stop(now, until)

    def _expect(self, now: float, lane: Lane, place: Place) -> float:
        with self._lock:
            return self._log.expect(now, lane, place)

    def _slots(self, account_hash: str) -> Slots:  # noqa: ARG002  one log, and so one line, for all who use it
        return super()._slots("")

    def _open(self, account_hash: str) -> Slots:  # noqa: ARG002
        return LocalSlots(self)

    def _start_again(self) -> None:
        self._lock = threading.Lock()
        super()._start_again()


class LocalSlots(Slots):
    """A `RateBudget` as calls that wait in its line ask for slots. Apart from it, to be hidden from completion."""

    def __init__(self, budget: RateBudget) -> None:
        super().__init__()
        self._budget = budget

    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        now = backend.now()
        delay = self.expect(now, lane, place) if place.queued else 0.0
        return delay if delay > 0 else self._budget.reserve(now, lane, 0.0)

    def expect(self, now: float, lane: Lane, place: Place) -> float:
        """Return the seconds until a call at this place in the line may have a slot; take none."""
        return self._budget._expect(now, lane, place)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def stop(self, backend: Backend, seconds: float) -> None:
        """Hand out no slot for so long."""
        now = backend.now()
        self._budget.stop(now, now + seconds)
