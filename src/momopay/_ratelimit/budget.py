"""The rate budget of a process, and how calls wait for its slots. Times are in seconds, on the backend's clock.

Nobody hands out slots: each call sleeps until its slot may come, as its place in the line lets expect, and then takes
it itself. So a call whose thread or event loop is stuck takes no slot that others could use, a payment that joins goes
first whatever was promised to reads before, and a slot is logged at the time at which its request is sent.

Only what lets calls go earlier than they expected must wake them: others that give up. Whoever leaves the line wakes
the first of each lane, which asks again; it wakes the next when it leaves.

Thread safety: no lock is held while anybody waits; the calls may belong to threads and to event loops. An exception out
of a signal handler (Ctrl-C, Celery's soft time limit) may end a call between any two instructions. Every lock is one of
C's in a `with`, which no such exception can leave held, and a call that could not leave the line counts as stuck.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, TypeAlias

from momopay._fork import renew_in_child
from momopay._numbers import is_number, is_whole
from momopay._ratelimit.slot_log import Lane, Place, SlotLog
from momopay.errors import BudgetExhaustedError, ConfigurationError

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend, AsyncSignal
    from momopay._transport.sync_backend import SyncBackend, SyncSignal

    Backend: TypeAlias = SyncBackend | AsyncBackend

__all__ = ["Lane", "RateBudget"]

logger = logging.getLogger("momopay")

BUSY: Final = inf  # a delay that is not known, as others are changing the log: ask again in a moment
# Seconds after which a call that should have asked for its slot holds nobody back: its thread or loop is stuck.
_STUCK: Final = 1.0
# A longer wait is logged at once. Web servers kill a worker that is silent for half a minute, and then nobody would
# know what it waited for.
_WORTH_A_WARNING: Final = 1.0
# Seconds for which a call that may not wait asks again, if others are changing the log: it may have a free slot.
_WHILE_BUSY: Final = 0.5
_WAITS: Final = (
    "%s: waits %.1f s for a slot of the rate budget; max_wait= limits such waits, see 'Rate limits' in the docs"
)


@dataclass(eq=False, slots=True)
class Ticket:
    """A call that waits."""

    lane: Lane
    signal: SyncSignal | AsyncSignal
    asks_at: float  # when it asks for its slot, or began to


class Line:
    """Who waits, and who goes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[Lane, OrderedDict[Ticket, None]] = {lane: OrderedDict() for lane in Lane}
        self.departures: int = 0

    def place(self, lane: Lane, now: float, ticket: Ticket | None = None) -> Place:
        """Return the place of a call that waits, or that of one which would join now."""
        with self._lock:
            before, queue = 0, self._lanes[lane]
            for other in Lane:
                _skip_stuck(self._lanes[other], now, ticket)
                if other is lane:
                    break
                before += len(self._lanes[other])
            same = len(queue) if ticket is None else _position(queue, ticket)
            payments = len(self._lanes[Lane.PAYMENT]) + (ticket is None and lane is Lane.PAYMENT)
        return Place(ticket is not None or before + same > 0, before, same, payments)

    def join(self, ticket: Ticket) -> None:
        """Begin to wait, as the last of the lane."""
        with self._lock:
            self._lanes[ticket.lane][ticket] = None

    def leave(self, ticket: Ticket, now: float) -> None:
        """End a wait, with a slot or without one."""
        with self._lock:
            self._lanes[ticket.lane].pop(ticket, None)
            self.departures += 1
            first = [next(iter(queue)) for queue in filter(None, self._lanes.values())]
            for each in first:
                each.asks_at = min(each.asks_at, now)
        for each in first:
            each.signal.set()


def _skip_stuck(queue: OrderedDict[Ticket, None], now: float, ticket: Ticket | None) -> None:
    while queue and (first := next(iter(queue))) is not ticket and first.asks_at + _STUCK < now:
        del queue[first]


def _position(queue: OrderedDict[Ticket, None], ticket: Ticket) -> int:
    """Return how many go before the call. One that was taken for stuck is the first again."""
    if ticket not in queue:
        queue[ticket] = None
        queue.move_to_end(ticket, last=False)
    return next(place for place, other in enumerate(queue) if other is ticket)


class Slots(ABC):
    """The slots of one account, and the line of those who wait for them in this process."""

    def __init__(self) -> None:
        self.line: Line = Line()

    @abstractmethod
    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until then, or BUSY."""

    @abstractmethod
    async def stop(self, backend: Backend, seconds: float) -> None:
        """Hand out no slot for so long, to nobody who shares the budget."""

    def close(self) -> None:  # noqa: B027  what is in memory has nothing to close
        """Close what is open; the next request opens it again."""

    def abandon(self) -> None:  # noqa: B027  as above
        """Close, in the child of a fork, what it inherited. A thread of the parent may hold any lock."""


class BaseBudget(ABC):
    """A number of requests in any window, and the slots of each account that uses it."""

    def __init__(self, requests: int, window: float) -> None:
        if not is_whole(requests) or requests < 1 or not is_number(window) or not (isfinite(window) and window > 0):
            raise ConfigurationError(
                "a rate budget needs a whole number of requests, at least 1, and a window of more than 0 seconds"
            )
        self.requests = requests
        self.window = window
        self._accounts: dict[str, Slots] = {}
        renew_in_child(self._start_again)

    def close(self) -> None:
        """Close the files or connections that are open; they open again when needed."""
        for slots in list(self._accounts.values()):
            slots.close()

    def _slots(self, account_hash: str) -> Slots:
        """Return this process's slots of one address and key."""
        return self._accounts.get(account_hash) or self._accounts.setdefault(account_hash, self._open(account_hash))

    @abstractmethod
    def _open(self, account_hash: str) -> Slots:
        """Return new slots of one address and key."""

    def _start_again(self) -> None:
        """Share no lock, line, open file or connection with the process that this one was forked from."""
        inherited, self._accounts = self._accounts, {}
        for slots in inherited.values():
            slots.abandon()


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
    """

    def __init__(self, requests: int = 58, window: float = 61.0) -> None:
        super().__init__(requests, window)
        self._log = SlotLog(requests, window)
        self._start_again()

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

    def _open(self, account_hash: str) -> Slots:  # noqa: ARG002  one log, and so one line, for all who use it
        return self._local

    def _start_again(self) -> None:
        super()._start_again()
        self._lock = threading.Lock()
        self._local = LocalSlots(self)


class LocalSlots(Slots):
    """A `RateBudget` as calls that wait in its line ask for slots. Apart from it, to be hidden from completion."""

    def __init__(self, budget: RateBudget) -> None:
        super().__init__()
        self._budget = budget

    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        now = backend.now()
        delay = self._budget._expect(now, lane, place) if place.queued else 0.0  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return delay if delay > 0 else self._budget.reserve(now, lane, 0.0)

    async def stop(self, backend: Backend, seconds: float) -> None:
        now = backend.now()
        self._budget.stop(now, now + seconds)


class RateLimiter:
    """Waits on behalf of one client until its budget has a slot. As safe to share as the backend is."""

    def __init__(self, budget: BaseBudget, backend: Backend, account_hash: str) -> None:
        self._budget = budget
        self._backend = backend
        self._account_hash = account_hash

    async def acquire(self, lane: Lane, *, latest: float, describe: Callable[[], str]) -> bool:
        """Take a slot, wait until it has come, and return whether the call had to wait.

        Raise BudgetExhaustedError at once, with nothing taken, if there is no slot by the monotonic time `latest`.
        """
        slots = self._slots()
        line, departures = slots.line, slots.line.departures
        delay = await slots.reserve_now(self._backend, lane, line.place(lane, self._backend.now()))
        if delay <= 0:
            return False
        began, pause, is_logged = self._backend.now(), 0.0005, False
        ticket = Ticket(lane, self._backend.signal(), began)
        line.join(ticket)
        try:
            if departures != line.departures:  # what left just now could not wake this call
                ticket.signal.set()
            while delay > 0:
                now, give_up = self._backend.now(), latest
                if delay == BUSY:
                    delay = pause = min(0.25, 2 * pause)
                    give_up = max(latest, began + _WHILE_BUSY)
                # A free slot is taken even when the time is up: the call's deadline ends it, and not the budget.
                if delay > max(0.0, give_up - now):
                    reason = f"{describe()}: the rate budget has no slot for {delay:.1f} s; not sent"
                    raise BudgetExhaustedError(reason, retry_after=delay)
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

    def _slots(self) -> Slots:
        # Asked for each time, as they are others after a fork.
        return self._budget._slots(self._account_hash)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
