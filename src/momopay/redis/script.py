"""The script that Redis runs: its text and its arguments. Seconds here are whole microseconds there."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from momopay._ratelimit.lane import Lane, Place

# The server's clock is the only one that all who share a budget agree on. A test puts another line here.
SERVER_CLOCK: Final = "local time = redis.call('TIME'); local now = time[1] * 1000000 + time[2]\n"

_LETTERS: Final = {Lane.PAYMENT: "P", Lane.READ: "R", Lane.POLL: "L"}


@cache
def script_text(clock: str = SERVER_CLOCK) -> str:
    """Return the script, with the line that reads its clock."""
    return clock + files("momopay.redis").joinpath("script.lua").read_text(encoding="utf-8")


def arguments(
    member: str, requests: int, window: float, operation: str, lane: Lane, place: Place, span: float = 0.0
) -> list[str]:
    """Return the script's arguments, which it describes itself."""
    size = [str(requests), str(round(window * 1e6))]
    numbers = [str(int(each)) for each in place]
    return [operation, member, *size, _LETTERS[lane], *numbers, str(round(span * 1e6))]


class Reply(NamedTuple):
    """What the script answered."""

    delay: float
    stop: float
    taken: int
    number: int
    members: int
    now: int
    slots: str | bytes

    def ages(self) -> list[float]:
        """Return how long ago each slot of the log was taken, in seconds before the answer."""
        slots = self.slots if isinstance(self.slots, str) else self.slots.decode()
        return [(self.now - int(word[:-1])) / 1e6 for word in slots.split()]


def parsed(reply: Any) -> Reply:
    """Return the script's answer, with its spans in seconds."""
    delay, stop, count, number, members, now, slots = reply
    return Reply(int(delay) / 1e6, int(stop) / 1e6, int(count), int(number), int(members), int(now), slots)
