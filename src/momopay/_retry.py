"""May this failure be repeated, and after how long? The repeat table of the design, and the only tenacity import.

A payment is never repeated once it may have been sent: the service has no idempotency key for it, and SPEC.md's
"retry 5xx" would pay twice. Times are in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Protocol, TypeVar

from momopay.errors import MomoPayError

T = TypeVar("T")
logger = logging.getLogger("momopay")

BACKOFF = 0.5
LONGEST_BACKOFF = 8.0
_FOREVER = 1e9


class Kind(Enum):
    """How an attempt can fail."""

    NOT_SENT = auto()
    """It surely did not reach the service."""
    NO_REPLY = auto()
    """It was sent, and no valid reply came."""
    SERVER = auto()
    """5xx or 408."""
    UNREADABLE = auto()
    """An answer that is not SPEC.md's."""
    LIMITED = auto()
    """RATE_LIMIT_EXCEEDED: a definite refusal, and welcome again later."""
    REFUSED = auto()
    """Any other enveloped refusal."""


UNCLEAR = frozenset({Kind.NO_REPLY, Kind.SERVER, Kind.UNREADABLE})
"""After these, the request may have taken effect."""


@dataclass(frozen=True)
class Rule:
    """What an endpoint allows after a failure.

    Attributes:
        repeats: The kinds of failure after which the same request may go out again.
        settles: Whether an unclear end must be reconciled, and so raises OutcomeUnknownError.
        changes: Whether the request changes anything at the service.
    """

    repeats: frozenset[Kind]
    settles: bool = False
    changes: bool = True


_ALWAYS = frozenset({Kind.NOT_SENT, Kind.LIMITED})
_IDEMPOTENT = _ALWAYS | {Kind.NO_REPLY, Kind.SERVER}

READ = Rule(_IDEMPOTENT, changes=False)
"""GET."""
KEYED = Rule(_IDEMPOTENT, settles=True)
"""Top-up: the Idempotency-Key makes a repeat harmless."""
ONCE = Rule(_ALWAYS, settles=True)
"""STK, payout, channel creation: never again once it may have been sent."""
REPLACE = Rule(_IDEMPOTENT)
"""Channel update and deletion: doing it twice is doing it once."""


class Failed(Exception):  # noqa: N818  an attempt failed; the call may yet succeed
    """One attempt's failure.

    Attributes:
        kind: What the repeat table goes by.
        error: The error to raise if nothing follows.
        retry_after: The pause that the service asked for, seconds.
        body: What came of the answer's body.
    """

    def __init__(self, kind: Kind, error: MomoPayError, *, retry_after: float | None = None, body: bytes = b"") -> None:
        super().__init__(kind)
        self.kind = kind
        self.error = error
        self.retry_after = retry_after
        self.body = body


class Clock(Protocol):
    """The part of the IO port that repeating needs."""

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        ...

    def now(self) -> float:
        """Tell the time."""
        ...


async def repeat(
    attempt: Callable[[], Awaitable[T]],
    failed: Failed,
    *,
    rule: Rule,
    clock: Clock,
    max_attempts: int,
    deadline: float,
    describe: Callable[[], str],
) -> T:
    """Go on after a first failed attempt, as far as the rule, the attempts and the deadline allow.

    Full jitter from 0.5 s, doubling to 8 s, and never earlier than the service asked.

    Raises:
        Failed: The last failure, when no more may follow.
    """
    if failed.kind not in rule.repeats or max_attempts == 1:
        raise failed

    import tenacity  # noqa: PLC0415  a call that succeeds at once does not pay for it

    jitter = tenacity.wait_random_exponential(multiplier=BACKOFF, max=LONGEST_BACKOFF)
    first: list[Failed] = [failed]

    async def again() -> T:
        if first:
            raise first.pop()
        return await attempt()

    def may_repeat(error: BaseException) -> bool:
        return isinstance(error, Failed) and error.kind in rule.repeats

    def wait(state: tenacity.RetryCallState) -> float:
        return max(jitter(state), _failure(state).retry_after or 0.0)

    def enough(state: tenacity.RetryCallState) -> bool:
        return state.attempt_number >= max_attempts or clock.now() + state.upcoming_sleep >= deadline

    def tell(state: tenacity.RetryCallState) -> None:
        failure = _failure(state)
        logger.warning(
            "%s: repeating in %.2f s after attempt %d: %s",
            describe(),
            state.upcoming_sleep,
            state.attempt_number,
            failure.error,
        )

    retrying = tenacity.AsyncRetrying(
        sleep=clock.sleep,
        stop=enough,
        wait=wait,
        retry=tenacity.retry_if_exception(may_repeat),
        before_sleep=tell,
        reraise=True,
    )
    return await retrying(again)


def _failure(state: object) -> Failed:
    outcome = getattr(state, "outcome", None)
    failure = outcome.exception() if outcome is not None else None
    assert isinstance(failure, Failed)  # noqa: S101  `may_repeat` let nothing else through
    return failure


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read a Retry-After header: digits or an HTTP date; its format is not shown, so junk is ignored."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _FOREVER)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
