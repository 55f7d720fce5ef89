"""What the file of a shared rate budget holds. Pure: text in, text out. Times are in whole microseconds.

The file has one line of JSON. What follows that line is the rest of a longer one that was there before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from momopay._ratelimit.lane import Lane, Place
from momopay._ratelimit.slot_log import SlotLog

SECOND: Final = 1_000_000
_VERSION: Final = 1
_GRACE: Final = SECOND  # how long a process may take to wake up for a payment's slot
_NEVER: Final = -(2**60)  # before any clock's beginning; JSON knows no infinity


@dataclass
class FileState:
    """The log, and the payments that wait: by process, how many of them, and until when that is believed."""

    log: SlotLog
    waiting: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    @classmethod
    def empty(cls, requests: int, window: int) -> FileState:
        """Return the state of a file that nobody used yet."""
        log = SlotLog(requests, window)
        log.stopped_until, log.asked = _NEVER, dict.fromkeys(Lane, _NEVER)
        return cls(log)

    @classmethod
    def full(cls, requests: int, window: int, now: int) -> FileState:
        """Return a state in which the whole window was taken just now."""
        state = cls.empty(requests, window)
        state.log.slots = [now] * requests
        return state

    @classmethod
    def parse(cls, text: bytes, requests: int, window: int, now: int) -> FileState:
        """Return what the file holds; raise KeyError, RecursionError, TypeError or ValueError if not ours."""
        line, end, _rest = text.partition(b"\n")
        data: Any = json.loads(line)
        if not end or data["version"] != _VERSION:
            raise ValueError(line)
        # Since the machine restarted, its clock is behind what was written. Then it counts as written just now.
        shift = max(0, _whole(data["now"]) - now)
        state = cls.empty(requests, window)
        log = state.log
        log.kept_for = max(window, _whole(data["window"]))
        log.slots = sorted(_whole(each) - shift for each in data["slots"])
        log.polls = sorted(_whole(each) - shift for each in data["polls"])
        log.stopped_until = _whole(data["stop"]) - shift
        log.asked = {lane: _whole(data["asked"][lane.value]) - shift for lane in Lane}
        for member, count, until in data["waiting"]:
            state.waiting[str(member)] = (_whole(count), _whole(until) - shift)
        return state

    def dump(self, now: int) -> bytes:
        """Return the text of the file."""
        log = self.log
        data = {
            "version": _VERSION,
            "now": now,
            "window": log.kept_for,
            "slots": [int(slot) for slot in log.slots],  # the pace of polling may make one a float
            "polls": [int(slot) for slot in log.polls],
            "stop": int(log.stopped_until),
            "asked": {lane.value: int(asked) for lane, asked in log.asked.items()},
            "waiting": [(member, *each) for member, each in self.waiting.items() if each[0] > 0 and each[1] > now],
        }
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"

    def reserve_now(self, now: int, lane: Lane, place: Place, member: str) -> float:
        """Take a slot if there is one for this call now and return 0; else return the time until there may be one."""
        others = sum(count for name, (count, until) in self.waiting.items() if name != member and until > now)
        if others and lane is not Lane.PAYMENT:  # payments go first, in whatever process they wait
            place = place._replace(queued=True, before=place.before + others)
        delay = self.log.expect(now, lane, place)
        count, until = place.payments, self.waiting.get(member, (0, 0))[1]
        if delay <= 0:
            self.log.reserve(now, lane, 0)
            count -= lane is Lane.PAYMENT
        elif lane is Lane.PAYMENT:
            until = max(until, now + int(delay) + _GRACE)
        self.waiting[member] = (count, until)
        return delay


def _whole(value: Any) -> int:
    """Return the value; raise TypeError if it is no whole number."""
    if type(value) is not int:
        raise TypeError(value)
    return value
