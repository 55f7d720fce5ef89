"""One account's budget as this process sees it: asked of Redis, or a share of it while Redis is away.

The log lives in Redis, on Redis's clock. What was last seen of it is kept, so that a process that is cut off begins
from what everybody had taken. When Redis answers again, the slots that were taken meanwhile are told, and everybody
goes on alone for as long as the absence was, so that the others can tell theirs. Times are in seconds.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Awaitable, Callable
from math import ceil, inf
from typing import Any

from momopay._ratelimit.budget import Lane
from momopay.errors import MomoPayError
from momopay.redis.fallback import FallbackBudget
from momopay.redis.script import LETTERS, Reading, Token, microseconds

logger: logging.Logger = logging.getLogger("momopay")

RETRY = 2.0
"""How long Redis is left alone after it did not answer."""
SETTLE = 2.5 * RETRY
"""The least time for which everybody goes on alone once Redis is back: whoever is at work asks within it."""
_PROMPT = 0.05
"""Within this, an answer tells how the server's clock differs."""
_SKEW = 1.0
"""A difference of clocks above this is no delay: another server has taken over."""
UNMET = 8
"""Among how many the budget is divided, at least, where Redis has not watched for a window how many share it."""

Run = Callable[[tuple[str, ...]], Awaitable[Any]]
Clock = Callable[[], float]
Slot = tuple[float, Lane]
"""When, by this process's clock, and for what."""


class RemoteLog:
    """One account's log, with all that this process knows of it. Safe to use from many threads.

    Together, the script hands out slots. Cut off, or settling after somebody was, `FallbackBudget` does, and what it
    handed out is told as soon as may be.
    """

    def __init__(self, requests: int, window: float, sharers: int | None) -> None:
        self._requests = requests
        self._window = window
        self._sharers = sharers
        self._member = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._seen: Reading | None = None
        self._seen_at = -inf
        self._ahead = 0.0
        """The server's clock less this one."""
        self._stop = -inf
        self._members = 0
        """How many shared a log that Redis lost; they count until they had the time to come back."""
        self._alone: FallbackBudget | None = None
        self._cut_off_at: float | None = None
        self._ask_at = -inf
        """When alone: not before this is Redis asked for a slot."""
        self._untold: list[Slot] = []

    async def reserve(self, run: Run, clock: Clock, lane: Lane, within: float) -> float:
        """Take the next slot, from Redis or from this process's share."""
        if self._may_ask(clock()):
            reading = await self._ask(run, clock, "reserve", LETTERS[lane], within)
            if reading is not None and reading.status == "taken":
                return reading.delay / 1e6
        with self._lock:
            now = clock()
            alone = self._alone = self._alone or self._begin_alone(now)
            delay = alone.reserve(now, lane, within)
            if delay <= within:
                self._untold = [slot for slot in self._untold if self._counts(slot, now)]
                self._untold.append((now + delay, lane))
            tells = delay <= within and self._cut_off_at is None
        if tells:
            await self._ask(run, clock, "tell")
        return delay

    async def stop(self, run: Run, clock: Clock, until: float) -> None:
        """Hold everybody back until then."""
        with self._lock:
            now = clock()
            self._stop = max(self._stop, until)
            if self._alone is not None:
                self._alone.stop(now, until)
        if self._cut_off_at is None or self._may_ask(now):
            await self._ask(run, clock, "stop", span=until - now)

    async def stopped(self, run: Run, clock: Clock) -> bool:
        """Tell whether a stop is in force, whoever was told of it."""
        if self._cut_off_at is None:
            await self._ask(run, clock, "look")
        return clock() < self._stop

    def _may_ask(self, now: float) -> bool:
        """Whether Redis is to be asked; while it is away, one in so many seconds tries."""
        with self._lock:
            if self._alone is None:
                return True
            if now < self._ask_at:
                return False
            if self._cut_off_at is not None:
                self._ask_at = now + RETRY
            return True

    async def _ask(
        self, run: Run, clock: Clock, operation: str, letter: str = "P", span: float = 0.0
    ) -> Reading | None:
        """Run the script; None when Redis is away."""
        try:
            if self._seen is None and self._untold:
                asked = clock()
                reading = Reading.of(await run(self._arguments(asked, "look", letter, 0.0)))
                self._meet(asked, clock(), reading)
            told, asked = list(self._untold), clock()
            reading = Reading.of(await run(self._arguments(clock(), operation, letter, span)))
            if reading.status == "tell":
                asked = clock()
                again = self._arguments(asked, operation, letter, span, everything=True)
                reading = Reading.of(await run(again))
        except MomoPayError:
            raise
        except Exception as error:  # noqa: BLE001  whatever ails Redis, a payment goes on without it
            self._lose(clock(), error)
            return None
        self._hear(asked, clock(), reading, told)
        return reading

    def _arguments(
        self, now: float, operation: str, letter: str, span: float, *, everything: bool = False
    ) -> tuple[str, ...]:
        """Say what the script is to do, and tell it what it cannot know.

        A log that is not the one last seen is told `everything`: Redis lost it, and slots were taken from it.
        """
        with self._lock:
            seen, tokens, lapse = self._seen, list[Token](), 0.0
            if seen is not None:
                tokens = [Token(microseconds(slot + self._ahead), lane) for slot, lane in self._untold]
                if everything:
                    taken = zip(seen.tokens(), self._taken(seen), strict=True)
                    tokens += [token for token, slot in taken if self._counts(slot, now)]
            if tokens and (everything or self._cut_off_at is not None):
                absence = 0.0 if self._cut_off_at is None else now - self._cut_off_at
                lapse = min(self._window, max(SETTLE, absence))
            tells_stop = (everything or self._cut_off_at is not None) and seen is not None and now < self._stop
            return (
                operation,
                self._member,
                str(0 if seen is None or everything else seen.born),
                " ".join(map(str, tokens)),
                str(microseconds(self._stop + self._ahead) if tells_stop else 0),
                str(microseconds(lapse)),
                str(self._requests),
                str(microseconds(self._window)),
                letter,
                str(microseconds(span)),
            )

    def _meet(self, asked: float, now: float, reading: Reading) -> None:
        """Keep what the log looks like, and how the server's clock differs."""
        # What was taken alone keeps its time, so that telling it twice adds nothing; and a slow answer's time is vague.
        ahead = reading.now / 1e6 - (asked + now) / 2
        vague = now - asked > _PROMPT or bool(self._untold)
        if self._seen is None or not vague or abs(ahead - self._ahead) > _SKEW:
            self._ahead = ahead
        if self._seen is not None and self._seen.born != reading.born:
            self._members = max(self._members, self._seen.members)
        elif reading.now > reading.born + microseconds(self._window):
            self._members = 0
        if self._seen is None or self._seen.born != reading.born or self._seen.now <= reading.now:
            self._seen, self._seen_at = reading, now  # answers to threads may overtake each other
        if reading.stop > reading.now:
            self._stop = max(self._stop, reading.stop / 1e6 - self._ahead)

    def _hear(self, asked: float, now: float, reading: Reading, told: list[Slot]) -> None:
        """Take in what Redis said, after these slots were told to it."""
        with self._lock:
            absent = self._cut_off_at is not None
            self._cut_off_at = None
            self._meet(asked, now, reading)
            if self._alone is not None and now < self._stop:
                self._alone.stop(now, self._stop)
            if reading.alone > reading.now:
                self._alone = self._alone or self._begin_alone(now)
                self._ask_at = now + (reading.alone - reading.now) / 1e6
            elif reading.status == "taken":
                self._untold = [slot for slot in self._untold if slot not in told]
                self._alone = self._alone if self._untold else None
            else:
                self._ask_at = now
        if absent:
            logger.info("the shared rate budget is back")

    def _lose(self, now: float, error: Exception) -> None:
        """Go on alone."""
        with self._lock:
            known, self._ask_at = self._cut_off_at is not None, now + RETRY
            if not known:
                self._cut_off_at = now
            self._alone = self._alone or self._begin_alone(now)
            share = self._requests // self._alone.weight
        if not known:
            logger.warning(
                "the shared rate budget is away (%s): this process goes on with %d of %d requests in %g s",
                _reason(error),
                share,
                self._requests,
                self._window,
            )

    def _taken(self, seen: Reading) -> list[Slot]:
        return [(token.time / 1e6 - self._ahead, token.lane) for token in seen.tokens()]

    def _counts(self, slot: Slot, now: float) -> bool:
        return slot[0] + self._window > now

    def _begin_alone(self, now: float) -> FallbackBudget:
        taken, members = list[Slot](), UNMET
        if self._seen is not None:
            taken = self._taken(self._seen)
            # The others went on since; at the pace of the window before, for all that is known.
            pace = sum(slot <= self._seen_at < slot + self._window for slot, _lane in taken) / self._window
            taken += [(now, Lane.PAYMENT)] * ceil(pace * min(now - self._seen_at, self._window))
            # A log younger than a window has not met everybody yet, unless it follows one that had.
            watched = self._members > 0 or self._seen.now - self._seen.born >= microseconds(self._window)
            known = watched and now - self._seen_at < self._window
            members = max(self._seen.members, self._members, 0 if known else UNMET)
        alone = FallbackBudget(self._requests, self._window, self._sharers or members, taken)
        if now < self._stop:
            alone.stop(now, self._stop)
        return alone


def _reason(error: Exception) -> str:
    """Name an error by its class, and by Redis's own first word where there is one; never by an address."""
    word = str(error).partition(" ")[0]
    return f"{type(error).__name__}: {word}" if word.isalpha() and word.isupper() else type(error).__name__
