"""What the budgets of several processes have in common: the text that they share, and how a process changes it."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self

from momopay._ratelimit.limiter import Slots
from momopay._ratelimit.slot_log import Lane, Place, SlotLog

if TYPE_CHECKING:
    from momopay._ratelimit.limiter import Backend

_VERSION: Final = 1
_GRACE: Final = 1.0  # seconds that a process may take to wake up for a payment's slot


@dataclass
class SharedState:
    """The log, and the payments that wait: by process, how many of them, and until when that is believed.

    Times are in seconds of one clock, the machine's or the server's.
    """

    log: SlotLog
    waiting: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])

    @classmethod
    def full(cls, requests: int, window: float, now: float) -> Self:
        """Return a state in which the whole window was used just now."""
        log = SlotLog(requests, window)
        log.slots = [now] * requests
        log.stop(now, now + window)  # for others who allow more requests
        return cls(log)

    @classmethod
    def parse(cls, text: str | bytes, requests: int, window: float, now: float) -> Self | None:
        """Return what the first line of the text holds, or None if it is damaged."""
        try:
            data: Any = json.loads(text.splitlines()[0])
            if data["version"] != _VERSION:
                return None
            # The machine restarted, or the clock of the server was set back. Then it counts as written just now.
            shift = max(0.0, data["now"] - now)
            log = SlotLog(requests, window)
            log.kept_for = max(window, data["window"])
            log.slots = [each - shift for each in data["slots"]]
            log.polls = [each - shift for each in data["polls"]]
            log.stopped_until = data["stop"] - shift
            log.asked = {lane: data["asked"][lane.value] - shift for lane in Lane}
            return cls(log, {process: (count, until - shift) for process, count, until in data["waiting"]})
        except (IndexError, KeyError, RecursionError, TypeError, ValueError):
            return None

    def dump(self, now: float) -> bytes:
        """Return the text, one line of JSON. In a file, the rest of a longer text may follow it."""
        log = self.log
        data = {
            "version": _VERSION,
            "now": now,
            "window": log.kept_for,
            "slots": log.slots,
            "polls": log.polls,
            "stop": log.stopped_until,
            "asked": {lane.value: asked for lane, asked in log.asked.items()},
            "waiting": [(process, *each) for process, each in self.waiting.items() if each[0] > 0 and each[1] > now],
        }
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"

    def reserve_now(self, now: float, lane: Lane, place: Place, process: str) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        others = sum(count for name, (count, until) in self.waiting.items() if name != process and until > now)
        if others and lane is not Lane.PAYMENT:  # payments go first, in whatever process they wait
            place = place._replace(queued=True, before=place.before + others)
        delay = self.log.reserve(now, lane, 0.0, place)
        count, until = place.payments, self.waiting.get(process, (0, now))[1]
        if delay <= 0:
            count -= lane is Lane.PAYMENT
        elif lane is Lane.PAYMENT:
            until = max(until, now + delay + _GRACE)
        self.waiting[process] = (count, until)
        return delay


Change = Callable[[SharedState, float], float]
"""What a call does with the state at a time of its clock; it returns a delay."""


class SharedSlots(Slots):
    """The slots of one account that several processes share, as one of them asks for them."""

    def __init__(self, requests: int, window: float) -> None:
        super().__init__()
        self.size: tuple[int, float] = (requests, window)
        self._process = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._stopped_until = -inf  # on this machine's clock; kept here until the shared text has it

    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        return await self._change(backend, lambda state, at: state.reserve_now(at, lane, place, self._process))

    async def stop(self, backend: Backend, seconds: float) -> None:
        """Hand out no slot for so long, to any process; in this one even if the text cannot be changed now."""
        self._stopped_until = max(self._stopped_until, backend.now() + seconds)
        await self._change(backend, lambda _state, _at: 0.0)

    async def _change(self, backend: Backend, change: Change) -> float:
        """Change the shared state and return the delay."""
        raise NotImplementedError

    def _apply(self, change: Change, state: SharedState, at: float, now: float) -> float:
        """Change a state at a time of its own clock, which is `now` on this machine's."""
        if self._stopped_until > now:
            state.log.stop(at, at + self._stopped_until - now)
        return change(state, at)
