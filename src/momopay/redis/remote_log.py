"""What one process knows of an account's budget: whether Redis hands out the slots, or a fallback does. In seconds.

States. *Shared*: Redis hands out every slot. *Away*: Redis did not answer, and a `FallbackBudget` hands out the slots;
one request in `RETRY` seconds asks Redis as well. *Returning*: Redis is back, but its log lacks what the processes
sent meanwhile, so for one window each slot has to be free in both. What was sent is never exchanged.

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

from momopay._ratelimit.budget import Lane
from momopay.redis.fallback import FallbackBudget
from momopay.redis.script import arguments

logger: logging.Logger = logging.getLogger("momopay")

RETRY: Final = 2.0  # how long Redis is left alone after it did not answer, so that a timeout delays few requests


class RemoteLog:
    """One account's slots, for all clients of one process. Safe to use from many threads and event loops."""

    def __init__(self, requests: int, window: float, sharers: int | None) -> None:
        self._requests = requests
        self._window = window
        self._sharers = sharers
        self.arguments: partial[list[str]] = partial(arguments, secrets.token_hex(8), requests, window)
        self._lock = threading.Lock()
        self._seen_sharers = 8  # a cautious guess, until Redis says how many processes there are
        self._seen_free: int | None = None
        self._seen_born: int = 0
        self._answered_at = -inf
        self._ahead: list[float] = []  # slots that are still to come
        self.stopped_until: float = -inf
        self._is_away = False
        self._retry_at = -inf
        self._fallback: FallbackBudget | None = None  # None in the state "shared"
        self._fallback_ends = inf

    def reserve_locally(self, now: float, lane: Lane, within: float) -> float | None:
        """Take a slot of the fallback and return its delay; return None in the state "shared"."""
        with self._lock:
            if now >= self._fallback_ends:
                self._fallback, self._fallback_ends = None, inf
            if self._fallback is None:
                return None
            delay = self._fallback.reserve(now, lane, within)
            self._note(now, delay, within)
            return delay

    def stop(self, now: float, until: float) -> None:
        """Hand out no slot of the fallback before `until`."""
        with self._lock:
            self.stopped_until = max(self.stopped_until, until)
            if self._fallback is not None:
                self._fallback.stop(now, until)

    def should_ask(self, now: float) -> bool:
        """Return whether to ask Redis; while it is away, one caller in `RETRY` seconds gets True."""
        with self._lock:
            if self._is_away and now < self._retry_at:
                return False
            self._retry_at = now + RETRY
            return True

    def answered(self, now: float, reply: Any, within: float) -> float:
        """Take note of an answer, which may be the first one after an outage, and return the slot's delay."""
        delay, stop, free, sharers, born = (int(each) for each in reply)
        with self._lock:
            was_away, self._is_away = self._is_away, False
            # A log that began anew has lost slots, unless it expired, which takes two windows without a question.
            was_lost = born != self._seen_born and now < self._answered_at + 2 * self._window
            if was_away or was_lost:
                # Slots of the fallback that are still to come are not in Redis: it holds for a window beyond them.
                self._fall_back(now, ends=max([now, *self._ahead]) + self._window)
            self._seen_free, self._seen_sharers, self._seen_born, self._answered_at = free, sharers, born, now
            self._note(now, delay / 1e6, within)
            if stop > 0:
                self.stopped_until = now + stop / 1e6
        if was_away:
            logger.info("the shared rate budget is back")
        return delay / 1e6

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

    def _fall_back(self, now: float, ends: float) -> FallbackBudget:
        if self._fallback is None:
            size = (self._requests, self._window, self._sharers or self._seen_sharers)
            self._fallback = FallbackBudget(*size, now=now, free=self._seen_free, ahead=self._ahead)
        self._fallback.stop(now, self.stopped_until)
        self._fallback_ends = ends
        return self._fallback

    def _note(self, now: float, delay: float, within: float) -> None:
        taken = [now + delay] if delay <= within else []
        self._ahead = [slot for slot in [*self._ahead, *taken] if slot > now]
