"""The script that Redis runs, in whole microseconds of its own clock."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from momopay._ratelimit.budget import Lane

SERVER_CLOCK = "local time = redis.call('TIME'); local now = time[1] * 1000000 + time[2]\n"
LETTERS = {Lane.PAYMENT: "P", Lane.READ: "R", Lane.POLL: "L"}
LANES = {letter: lane for lane, letter in LETTERS.items()}

_EVER = 2**53 - 1
"""The longest span: whole numbers up to here are exact in Lua."""


@cache
def rules() -> str:
    """Give the arithmetic, without the clock it goes by."""
    return files("momopay.redis").joinpath("script.lua").read_text(encoding="utf-8")


class Script(NamedTuple):
    """A script, and the name by which Redis knows it once it was sent."""

    text: str
    digest: str

    @classmethod
    def of(cls, text: str) -> Script:
        """Name it."""
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@cache
def script() -> Script:
    """Give the script as it is used."""
    return Script.of(SERVER_CLOCK + rules())


def microseconds(seconds: float) -> int:
    """Give seconds in the script's unit."""
    return round(min(seconds * 1e6, _EVER))


class Token(NamedTuple):
    """One slot in the log, in microseconds of the server's clock."""

    time: int
    lane: Lane

    def __str__(self) -> str:
        return f"{self.time}{LETTERS[self.lane]}"


class Reading(NamedTuple):
    """What the script said; times in microseconds of the server's clock."""

    status: str
    delay: int
    now: int
    born: int
    stop: int
    alone: int
    members: int
    log: str

    @classmethod
    def of(cls, reply: Any) -> Reading:
        """Read a reply, decoded or not."""
        status, delay, now, born, stop, alone, members, log = (
            each.decode() if isinstance(each, bytes) else str(each) for each in reply
        )
        return cls(status, int(delay), int(now), int(born), int(stop), int(alone), int(members), log)

    def tokens(self) -> list[Token]:
        """Read the log."""
        return [Token(int(word[:-1]), LANES[word[-1]]) for word in self.log.split()]
