"""The calls that wait for one budget in one process, lane by lane, first come first served.

Nobody hands out slots: each call sleeps until its slot may come, as its place in the line lets expect, and then takes
it itself. So a call whose thread or event loop is stuck takes no slot that others could use, a payment that joins goes
first whatever was promised to reads before, and a slot is logged at the time at which its request is sent.

Only what lets calls go earlier than they expected must wake them: others that give up. Whoever leaves the line wakes
the first of each lane, which asks again; it wakes the next when it leaves.

Thread safety: one lock, never held while anybody waits. The calls may belong to threads and to event loops. An
exception out of a signal handler may end a call between any two instructions. The lock is one of C's in a `with`,
which no such exception can leave held, and a call that was ended before it could leave the line counts as stuck.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from momopay._ratelimit.slot_log import Lane, Place

if TYPE_CHECKING:  # a blocking client must not load the other backend
    from momopay._transport.async_backend import AsyncSignal
    from momopay._transport.sync_backend import SyncSignal

# Seconds after which a call that should have asked for its slot holds nobody back: its thread or loop is stuck.
_STUCK: Final = 1.0


class Ticket:
    """A call that waits."""

    __slots__ = ("asks_at", "lane", "signal")

    def __init__(self, lane: Lane, signal: SyncSignal | AsyncSignal, now: float) -> None:
        self.lane: Lane = lane
        self.signal = signal
        self.asks_at: float = now  # when it asks for its slot, or began to


class Line:
    """Who waits, and who goes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[Lane, OrderedDict[Ticket, None]] = {lane: OrderedDict() for lane in Lane}
        self.departures: int = 0

    def place(self, lane: Lane, now: float, ticket: Ticket | None = None) -> Place:
        """Return the place of a call that waits, or that of one which would join now."""
        if ticket is None and not any(self._lanes.values()):
            return Place(payments=int(lane is Lane.PAYMENT))
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
            first = [next(iter(queue)) for queue in self._lanes.values() if queue]
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
