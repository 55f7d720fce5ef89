"""The script that Redis runs: its text and its arguments. Seconds here are whole microseconds there."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from momopay._ratelimit.budget import Lane

# The server's clock is the only one that all who share a budget agree on. A test puts another line here.
SERVER_CLOCK: Final = "local time = redis.call('TIME'); local now = time[1] * 1000000 + time[2]\n"

_LETTERS: Final = {Lane.PAYMENT: "P", Lane.READ: "R", Lane.POLL: "L"}
# Microseconds, as good as forever: the sum of this and a time is still a whole number that Lua keeps exactly.
_LONGEST: Final = 2**52


@cache
def script_text(clock: str = SERVER_CLOCK) -> str:
    """Return the script, with the line that reads its clock."""
    return clock + files("momopay.redis").joinpath("script.lua").read_text(encoding="utf-8")


def arguments(
    member: str, requests: int, window: float, operation: str, lane: Lane, earliest: float, span: float
) -> list[str]:
    """Return the script's arguments, which it describes itself."""
    spans = [str(round(min(each * 1e6, _LONGEST))) for each in (window, earliest, span)]
    return [operation, member, str(requests), spans[0], _LETTERS[lane], *spans[1:]]
