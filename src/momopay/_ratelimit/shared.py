"""What the budgets of several processes have in common: the text that they share, and how a process changes it.

The text is one line of JSON. In a file, the rest of a longer text that was there before may follow that line. Times in
it are in whole microseconds of one clock, the machine's or the server's.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

from momopay._ratelimit.budget import Slots
from momopay._ratelimit.slot_log import Lane, Place, SlotLog

if TYPE_CHECKING:
    from momopay._ratelimit.budget import Backend

SECOND: Final = 1_000_000
_VERSION: Final = 1
_GRACE: Final = SECOND  # how long a process may take to wake up for a payment's slot
_NEVER: Final = -(2**60)  # before any clock's beginning; JSON knows no infinity


@dataclass
class SharedState:
    """The log, and the payments that wait: by process, how many of them, and until when that is believed."""

    log: SlotLog
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    @classmethod
    def empty(cls, requests: int, window: int) -> SharedState:
        """Return the state of a budget that nobody used yet."""
        log = SlotLog(requests, window)
        log.stopped_until, log.asked = _NEVER, dict.fromkeys(Lane, _NEVER)
        return cls(log)

    @classmethod
    def full(cls, requests: int, window: int, now: int) -> SharedState:
        """Return a state in which the whole window was used just now."""
        state = cls.empty(requests, window)
        state.log.slots = [now] * requests
        state.log.stop(now, now + window)  # for others who allow more requests
        return state

    @classmethod
    def parse(cls, text: str | bytes, requests: int, window: int, now: int) -> SharedState | None:
        """Return what the text holds, or None if it is damaged."""
        try:
            return cls._parse(text if isinstance(text, bytes) else text.encode(), requests, window, now)
        except (KeyError, RecursionError, TypeError, ValueError):
            return None

    @classmethod
    def _parse(cls, text: bytes, requests: int, window: int, now: int) -> SharedState:
        line, end, _rest = text.partition(b"\n")
        data: Any = json.loads(line)
        if not end or data["version"] != _VERSION:
            raise ValueError(line)
        # The machine restarted, or the clock of the server was set back. Then it counts as written just now.
        shift = max(0, _whole(data["now"]) - now)
        state = cls.empty(requests, window)
        log = state.log
        log.kept_for = max(window, _whole(data["window"]))
        log.slots = sorted(_whole(each) - shift for each in data["slots"])
        log.polls = sorted(_whole(each) - shift for each in data["polls"])
        log.stopped_until = _whole(data["stop"]) - shift
        log.asked = {lane: _whole(data["asked"][lane.value]) - shift for lane in Lane}
        for process, count, until in data["waiting"]:
            state.waiting[str(process)] = (_whole(count), _whole(until) - shift)
        return state

    def dump(self, now: int) -> bytes:
        """Return the text."""
        log = self.log
        data = {
            "version": _VERSION,
            "now": now,
            "window": log.kept_for,
            "slots": [int(slot) for slot in log.slots],  # the pace of polling may make one a float
            "polls": [int(slot) for slot in log.polls],
            "stop": int(log.stopped_until),
            "asked": {lane.value: int(asked) for lane, asked in log.asked.items()},
            "waiting": [(process, *each) for process, each in self.waiting.items() if each[0] > 0 and each[1] > now],
        }
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"

    def reserve_now(self, now: int, lane: Lane, place: Place, process: str) -> float:
        """Take a slot if there is one for this call now and return 0; else return the time until there may be one."""
        others = sum(count for name, (count, until) in self.waiting.items() if name != process and until > now)
        if others and lane is not Lane.PAYMENT:  # payments go first, in whatever process they wait
            place = place._replace(queued=True, before=place.before + others)
        delay = self.log.reserve(now, lane, 0, place)
        count, until = place.payments, self.waiting.get(process, (0, 0))[1]
        if delay <= 0:
            count -= lane is Lane.PAYMENT
        elif lane is Lane.PAYMENT:
            until = max(until, now + int(delay) + _GRACE)
        self.waiting[process] = (count, until)
        return delay


def _whole(value: Any) -> int:
    """Return the value; raise TypeError if it is no whole number."""
    if type(value) is not int:
        raise TypeError(value)
    return value


Change = Callable[[SharedState, int], float]
"""What a call does with the state at a time of the shared clock; it returns a delay in microseconds."""


class SharedSlots(Slots):
    """The slots of one account that several processes share, as one of them asks for them."""

    def __init__(self, requests: int, window: float) -> None:
        super().__init__()
        self.size: tuple[int, int] = (requests, round(window * SECOND))
        self._process = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._stopped_until = -inf  # on this machine's clock; kept here until the shared text has it

    async def reserve_now(self, backend: Backend, lane: Lane, place: Place) -> float:
        """Take a slot if there is one for this call now and return 0; else return the seconds until there may be."""
        return await self._change(backend, lambda state, at: state.reserve_now(at, lane, place, self._process))

    async def stop(self, backend: Backend, seconds: float) -> None:
        """Hand out no slot for so long, to any process; in this one even if the text cannot be changed now."""
        self._stopped_until = max(self._stopped_until, backend.now() + seconds)
        await self._change(backend, lambda _state, _at: 0)

    async def _change(self, backend: Backend, change: Change) -> float:
        """Change the shared state and return the delay in seconds."""
        raise NotImplementedError

    def _apply(self, change: Change, state: SharedState, at: int, now: float) -> float:
        """Change a state at a time of its own clock, which is `now` on this machine's."""
        if self._stopped_until > now:
            state.log.stop(at, at + round((self._stopped_until - now) * SECOND))
        return change(state, at)
