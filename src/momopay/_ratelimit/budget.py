"""The rate budget of a process, and how calls wait for its slots. Times are in seconds, on the backend's clock.

Slots are not assigned ahead of time. Each call estimates from its place in the line when it may have one, sleeps until
then, and takes it itself. So a call whose thread or event loop is stuck takes no slot that others could use, a payment
goes first even if reads joined the line before it, and a slot is logged at the time at which its request is sent.

A call that leaves the line wakes the first of each lane, which may go earlier than it estimated.

Thread safety: no lock is held while a call waits. Calls may belong to threads and to event loops. An exception from a
signal handler (Ctrl-C, Celery's soft time limit) may end a call between any two instructions. Every lock is a C lock in
a `with`, which no such exception can leave held, and a call that could not leave the line counts as stuck.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, TypeAlias

from momopay._fork import renew_in_child
from momopay._locks import SafeLock
from momopay._ratelimit.slot_log import Lane, Place, SlotLog
from momopay.errors import BudgetExhaustedError, ConfigurationError
from momopay.money import is_number, is_whole

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend, AsyncSignal
    from momopay._transport.sync_backend import SyncBackend, SyncSignal

    Backend: TypeAlias = SyncBackend | AsyncBackend

__all__ = ["Lane", "RateBudget"]

logger: logging.Logger = logging.getLogger("momopay")

BUSY: Final = inf  # an unknown delay, because another process is changing the log: ask again in a moment
_STUCK: Final = 1.0  # seconds; a call that is later for its slot is stuck, and holds nobody back
_WORTH_A_WARNING: Final = 1.0  # seconds; a longer wait is logged at once, before a web server kills a silent worker
_WHILE_BUSY: Final = 0.5  # seconds for which even a call that may not wait asks again while others change the log
_WAITS: Final = (
    "%s: waits %.1f s for a slot of the rate budget; max_wait= limits such waits, see 'Rate limits' in the docs"
)


@dataclass(eq=False, slots=True)
class Ticket:
    """A waiting call."""

    lane: Lane
    signal: SyncSignal | AsyncSignal
    asks_at: float  # when it will ask for its slot, or last asked


class Line:
    """The waiting calls of each lane, in order of arrival."""

    def __init__(self) -> None:
        self._lock = SafeLock()
        self._lanes: dict[Lane, OrderedDict[Ticket, None]] = {lane: OrderedDict() for lane in Lane}
        self.departures: int = 0

    def place(self, lane: Lane, now: float, ticket: Ticket | None = None) -> Place:
        """Return the place of a waiting call; without a ticket, that of a call that would join now."""
        with self._lock:
            before, queue = 0, self._lanes[lane]
            for other in Lane:
                _remove_stuck(self._lanes[other], now, ticket)
                if other is lane:
                    break
                before += len(self._lanes[other])
            same = len(queue) if ticket is None else _position(queue, ticket)
            payments = len(self._lanes[Lane.PAYMENT]) + (ticket is None and lane is Lane.PAYMENT)
        return Place(ticket is not None or before + same > 0, before, same, payments)

    def join(self, ticket: Ticket) -> None:
        with self._lock:
            self._lanes[ticket.lane][ticket] = None

    def leave(self, ticket: Ticket, now: float) -> None:
        """Remove a call, with a slot or without one, and wake the first of each lane."""
        with self._lock:
            self._lanes[ticket.lane].pop(ticket, None)
            self.departures += 1
            first = [next(iter(queue)) for queue in filter(None, self._lanes.values())]
            for each in first:
                each.asks_at = min(each.asks_at, now)
        for each in first:
            each.signal.set()


def _remove_stuck(queue: OrderedDict[Ticket, None], now: float, ticket: Ticket | None) -> None:
    while queue and (first := next(iter(queue))) is not ticket and first.asks_at + _STUCK < now:
        del queue[first]


def _position(queue: OrderedDict[Ticket, None], ticket: Ticket) -> int:
    """Return how many go before the call. One that was removed as stuck becomes the first."""
    if ticket not in queue:
        queue[ticket] = None
        queue.move_to_end(ticket, last=False)
    return next(place for place, other in enumerate(queue) if other is ticket)


class Slots(ABC):
    """The slots of one account, and the calls of this process that wait for them."""

    def __init__(self) -> None:
        self.line: Line = Line()

    async def acquire(self, backend: Backend, lane: Lane, *, latest: float, describe: Callable[[], str]) -> bool:
        """Take a slot, after waiting for it if necessary, and return whether the call had to wait.

        Raise BudgetExhaustedError at once, with no slot taken, if there is none by the monotonic time `latest`.
        """
        line, departures = self.line, self.line.departures
        delay = await self.reserve_now(backend, lane, line.place(lane, backend.now()))
        if delay <= 0:
            return False
        began, pause, is_logged = backend.now(), 0.0005, False
        ticket = Ticket(lane, backend.signal(), began)
        line.join(ticket)
        try:
            if departures != line.departures:  # a call that left before this one joined could not wake it
                ticket.signal.set()
            while delay > 0:
                now, give_up = backend.now(), latest
                if delay == BUSY:
                    delay = pause = min(0.25, 2 * pause)
                    give_up = max(latest, began + _WHILE_BUSY)
                # A free slot is taken even if the time is up: then the deadline ends the call, and not the budget.
                if delay > max(0.0, give_up - now):
                    reason = f"{describe()}: the rate budget has no slot for {delay:.1f} s; not sent"
                    raise BudgetExhaustedError(reason, retry_after=delay)
                if delay > _WORTH_A_WARNING and not is_logged:
                    is_logged = True
                    # Polls wait routinely, at the pace that the budget leaves to them.
                    level = logging.INFO if lane is Lane.POLL else logging.WARNING
                    logger.log(level, _WAITS, describe(), delay)
                ticket.asks_at = now + delay
                await ticket.signal.wait(delay)
                ticket.asks_at = now = backend.now()
                delay = await self.reserve_now(backend, lane, line.place(lane, now, ticket))
        finally:
            ticket.asks_at = -inf  # so that it holds nobody back, even if an exception keeps it from leaving the line
            line.leave(ticket, backend.now())
        return True

    @abstractmethod
    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        """Take a slot and return 0 if this call may have one now; else return the seconds until it may, or BUSY."""

    @abstractmethod
    async def stop(self, backend: Backend, seconds: float) -> None:
        """Give no slot for so many seconds to anyone who shares the budget."""

    @abstractmethod
    def note_remaining(self, now: float, remaining: int, seconds: float) -> None:
        """Leave at most `remaining` slots for so many seconds, because others use the key, too. Never raise."""

    def close(self) -> None:  # noqa: B027  slots in memory have nothing to close
        """Close what is open; the next request opens it again."""

    def abandon(self) -> None:  # noqa: B027  as above
        """Close what a forked child inherited. Take no lock, because a thread of the parent may hold it."""


class BaseBudget(ABC):
    """A limit of requests in any window, and the slots of each account that uses it."""

    def __init__(self, requests: int, window: float) -> None:
        if not is_whole(requests) or requests < 1 or not is_number(window) or not (isfinite(window) and window > 0):
            raise ConfigurationError(
                "a rate budget needs a whole number of requests, at least 1, and a window of more than 0 seconds"
            )
        self.requests = requests
        self.window = window
        self._accounts: dict[str, Slots] = {}
        renew_in_child(self._start_again)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(requests={self.requests}, window={self.window})"

    def close(self) -> None:
        """Close the files or connections that are open; they open again when needed."""
        for slots in list(self._accounts.values()):
            slots.close()

    def _slots(self, account_hash: str) -> Slots:
        return self._accounts.get(account_hash) or self._accounts.setdefault(account_hash, self._open(account_hash))

    @abstractmethod
    def _open(self, account_hash: str) -> Slots:
        """Return new slots of an account."""

    def _start_again(self) -> None:
        """Replace all locks, lines, open files and connections that a forked child shares with its parent."""
        inherited, self._accounts = self._accounts, {}
        for slots in inherited.values():
            slots.abandon()


class RateBudget(BaseBudget):
    """A limit on the requests in any window of time, for all users of one key in this process.

    A burst of up to a whole window goes out at once. Calls that must wait get slots by lane: payments first, then
    reads, then polls, each lane in order of arrival. While somebody polls, an eighth of the window is for polls, evenly
    spread. While somebody pays, waiting reads leave a quarter of the window to payments; while somebody pays or reads,
    so do polls. Nothing is held back for a lane that was not used in the last two windows. Safe to use from many
    threads and event loops, and across a fork.

    Args:
        requests: How many requests a window holds. Two below the service's 60, because clocks differ.
        window: Its length, seconds. One above the service's 60, because requests travel at different speeds.
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
        """Give no slot before `until`, and revoke slots that were reserved for that time."""
        with self._lock:
            self._log.stop(now, until)

    def _open(self, account_hash: str) -> Slots:  # noqa: ARG002  one log, and so one line, for all who use it
        return self._local

    def _start_again(self) -> None:
        super()._start_again()
        self._lock = SafeLock()
        self._local = LocalSlots(self, self._log, self._lock)


class LocalSlots(Slots):
    """The slots of a `RateBudget`. A separate class, so that editors do not offer its methods."""

    def __init__(self, budget: RateBudget, log: SlotLog, lock: SafeLock) -> None:
        super().__init__()
        self._budget, self._log, self._lock = budget, log, lock

    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        now = backend.now()
        if place.queued:
            with self._lock:
                delay = self._log.expect(now, lane, place)
            if delay > 0:
                return delay
        return self._budget.reserve(now, lane, 0.0)

    async def stop(self, backend: Backend, seconds: float) -> None:
        now = backend.now()
        self._budget.stop(now, now + seconds)

    def note_remaining(self, now: float, remaining: int, seconds: float) -> None:
        with self._lock:
            self._log.leave(now, remaining, seconds)
