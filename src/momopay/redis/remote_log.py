"""What one process knows of an account's budget: whether Redis hands out the slots, or a fallback does. In seconds.

States. *Shared*: Redis hands out every slot. *Away*: Redis did not answer, and a `fallback` hands out the slots; one
request in `RETRY` seconds asks Redis as well. *Returning*: Redis is back, but its log lacks what the processes sent
meanwhile, so for one window each slot has to be free in both. What was sent is never exchanged.

Thread safety: one lock guards the state and is never held while Redis is asked. So answers to two threads may
overtake each other; each is right about its own slot, and the state follows the one that was read last.
"""

from __future__ import annotations

import logging
import secrets
import threading
from functools import partial
from math import inf
from typing import Any, Final

from momopay._ratelimit.lane import Lane, Place
from momopay._ratelimit.line import Line
from momopay._ratelimit.slot_log import SlotLog
from momopay.redis.fallback import fallback
from momopay.redis.script import Reply, arguments, parsed

logger: logging.Logger = logging.getLogger("momopay")

RETRY: Final = 2.0  # how long Redis is left alone after it did not answer, so that a timeout delays few requests


class RemoteLog:
    """One account's slots, for all clients of one process. Safe to use from many threads and event loops."""

    def __init__(self, requests: int, window: float, sharers: int | None) -> None:
        self._requests = requests
        self._window = window
        self._sharers = sharers
        self.line: Line = Line()
        self.arguments: partial[list[str]] = partial(arguments, secrets.token_hex(8), requests, window)
        self._lock = threading.Lock()
        self._reply: Reply | None = None
        self._answered_at = -inf
        self._stopped_until: float = -inf
        self._is_away = False
        self._retry_at = -inf
        self._fallback: SlotLog | None = None  # None in the state "shared"
        self._fallback_ends = inf

    def expect_locally(self, now: float, lane: Lane, place: Place) -> float:
        """Return the seconds until the fallback may have a slot for this call; 0 in the state "shared"."""
        with self._lock:
            if now >= self._fallback_ends:
                self._fallback, self._fallback_ends = None, inf
            return 0.0 if self._fallback is None else self._fallback.expect(now, lane, place)

    def reserve_locally(self, now: float, lane: Lane) -> float:
        """Take a slot of the fallback if one is free now and return 0, else the seconds until there is one."""
        with self._lock:
            return 0.0 if self._fallback is None else self._fallback.reserve(now, lane, 0.0)

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot of the fallback before `until`."""
        with self._lock:
            self._stopped_until = max(self._stopped_until, until)
            if self._fallback is not None:
                self._fallback.stop(now, until)

    def should_ask(self, now: float) -> bool:
        """Return whether to ask Redis; while it is away, one caller in `RETRY` seconds gets True."""
        with self._lock:
            if self._is_away and now < self._retry_at:
                return False
            self._retry_at = now + RETRY
            return True

    def answered(self, now: float, answer: Any) -> float:
        """Take note of an answer, which may be the first one after an outage, and return the slot's delay."""
        reply = parsed(answer)
        with self._lock:
            was_away, self._is_away = self._is_away, False
            # A log that counts fewer slots than before was lost, unless it expired, which takes two windows without a
            # question.
            seen = 0 if self._reply is None else self._reply.taken
            was_lost = reply.taken < seen and now < self._answered_at + 2 * self._window
            if was_away or was_lost:
                self._fall_back(now, ends=now + self._window)
            self._reply, self._answered_at = reply, now
            if reply.stop > 0:
                self._stopped_until = now + reply.stop
        if was_away:
            logger.info("the shared rate budget is back")
        return reply.delay

    def failed(self, now: float, error: Exception) -> None:
        """Go on without Redis."""
        with self._lock:
            was_away, self._is_away = self._is_away, True
            self._retry_at = now + RETRY
            share = self._fall_back(now, ends=inf).requests
        if not was_away:
            # Only the error's class and Redis's own first word: redis-py's messages name addresses.
            word, reason = str(error).partition(" ")[0], type(error).__name__
            logger.warning(
                "the shared rate budget is away (%s): this process goes on with %d of %d requests in %g s",
                f"{reason}: {word}" if word.isalpha() and word.isupper() else reason,
                *(share, self._requests, self._window),
            )

    def _fall_back(self, now: float, ends: float) -> SlotLog:
        if self._fallback is None:
            seen = 8 if self._reply is None else self._reply.members  # a cautious guess if Redis never said
            size = (self._requests, self._window, self._sharers or seen)
            self._fallback = fallback(*size, now=now, answered_at=self._answered_at, reply=self._reply)
        self._fallback.stop(now, self._stopped_until)
        self._fallback_ends = ends
        return self._fallback
