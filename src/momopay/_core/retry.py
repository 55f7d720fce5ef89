"""The retry table: which failures may be retried, and after how long. The only module that imports tenacity.

A payment is never retried once it may have been sent. The service has no idempotency key for payments, so its advice
to retry every 5xx would pay twice. Times are in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Final, TypeVar

from momopay.errors import MomoPayError

T = TypeVar("T")
logger = logging.getLogger("momopay")

BASE_BACKOFF: Final = 0.5
MAX_BACKOFF: Final = 8.0
_MAX_RETRY_AFTER: Final = 1e9


class FailureKind(Enum):
    """How an attempt can fail."""

    NOT_SENT = auto()
    """The request did not reach the service."""
    NO_REPLY = auto()
    """The request was sent, or may have been, and no valid response came."""
    SERVER_ERROR = auto()
    """The service answered 5xx or 408."""
    INVALID_RESPONSE = auto()
    """The response is not the specified one: HTML, broken JSON, missing data."""
    RATE_LIMITED = auto()
    """RATE_LIMIT_EXCEEDED: a definite refusal that may be retried later."""
    REFUSED = auto()
    """Any other refusal in the service's envelope whose code or status says that nothing was executed."""
    UNKNOWN_CODE = auto()
    """A refusal in the envelope whose code and status both leave open whether something was executed."""


# After these failures the request may have executed.
MAY_HAVE_EXECUTED: Final = frozenset(
    {
        FailureKind.NO_REPLY,
        FailureKind.SERVER_ERROR,
        FailureKind.INVALID_RESPONSE,
        FailureKind.UNKNOWN_CODE,
    }
)
_REFUSALS: Final = frozenset({FailureKind.REFUSED, FailureKind.UNKNOWN_CODE})


@dataclass(frozen=True)
class RetryPolicy:
    """What an endpoint allows after a failure.

    Attributes:
        retries_on: The kinds of failure after which the same request may be sent again.
        needs_reconciliation: Whether it raises OutcomeUnknownError where it may have executed, for the caller to
            reconcile.
        raises_own_error: The kinds of failure that raise the service's error even so.
        has_effect: Whether the request changes anything at the service.
    """

    retries_on: frozenset[FailureKind]
    needs_reconciliation: bool = False
    raises_own_error: frozenset[FailureKind] = _REFUSALS
    has_effect: bool = True


_DEFINITE = frozenset({FailureKind.NOT_SENT, FailureKind.RATE_LIMITED})
_REPEATABLE = _DEFINITE | {FailureKind.NO_REPLY, FailureKind.SERVER_ERROR}

# GET.
SAFE: Final = RetryPolicy(_REPEATABLE, has_effect=False)
# Top-up: its Idempotency-Key makes a second request harmless.
IDEMPOTENCY_KEYED: Final = RetryPolicy(_REPEATABLE, needs_reconciliation=True)
# STK prompt, payout and channel creation: never again once the request may have been sent.
AT_MOST_ONCE: Final = RetryPolicy(
    _DEFINITE, needs_reconciliation=True, raises_own_error=frozenset({FailureKind.REFUSED})
)
# A payout with a journal: RATE_LIMITED is not repeated here, because one search goes before any second send.
SEARCHED_FIRST: Final = replace(AT_MOST_ONCE, retries_on=frozenset({FailureKind.NOT_SENT}))
# Channel update and deletion: doing them twice has the effect of doing them once.
IDEMPOTENT: Final = RetryPolicy(_REPEATABLE)


class AttemptFailed(Exception):  # noqa: N818  an attempt failed; the call may still succeed
    """One attempt's failure.

    Attributes:
        kind: What the retry table decides by.
        error: The error to raise if no retry follows.
        retry_after: The pause that the service asked for, seconds.
        body: What arrived of the response's body.
    """

    def __init__(
        self, kind: FailureKind, error: MomoPayError, *, retry_after: float | None = None, body: bytes = b""
    ) -> None:
        super().__init__(kind)
        self.kind = kind
        self.error = error
        self.retry_after = retry_after
        self.body = body


async def retry(
    attempt: Callable[[], Awaitable[T]],
    first_failure: AttemptFailed,
    *,
    policy: RetryPolicy,
    now: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    max_attempts: int,
    deadline: float,
    max_wait: float | None,
    describe: Callable[[], str],
    on_retry: Callable[[float, MomoPayError], None] = lambda _seconds, _error: None,
) -> T:
    """Retry after a first failed attempt while policy, attempts and deadline allow; else raise the last failure.

    After a 429, `max_wait` bounds the pause.
    """
    if first_failure.kind not in policy.retries_on or max_attempts == 1:
        raise first_failure

    # Imported here because most calls succeed at once, and tenacity costs a cold start several milliseconds.
    import tenacity  # noqa: PLC0415

    failures = [first_failure]
    # Full jitter spreads the clients that failed together; a fixed delay would let them collide again.
    backoff = tenacity.wait_random_exponential(multiplier=BASE_BACKOFF, max=MAX_BACKOFF)

    def wait(state: tenacity.RetryCallState) -> float:
        # Never earlier than the service asked.
        return max(backoff(state), failures[-1].retry_after or 0.0)

    def is_over(state: tenacity.RetryCallState) -> bool:
        # A pause that a 429 asks for is a wait for the rate budget, too.
        if max_wait is not None and failures[-1].kind is FailureKind.RATE_LIMITED and state.upcoming_sleep > max_wait:
            return True
        return state.attempt_number >= max_attempts or now() + state.upcoming_sleep >= deadline

    def log(state: tenacity.RetryCallState) -> None:
        logger.warning(
            "%s: retrying in %.2f s after attempt %d: %s",
            describe(),
            state.upcoming_sleep,
            state.attempt_number,
            failures[-1].error,
        )
        on_retry(state.upcoming_sleep, failures[-1].error)

    async for trial in tenacity.AsyncRetrying(
        sleep=sleep,
        stop=is_over,
        wait=wait,
        retry=tenacity.retry_if_exception(
            lambda error: error is failures[-1] and failures[-1].kind in policy.retries_on
        ),
        before_sleep=log,
        reraise=True,
    ):
        with trial:
            if trial.retry_state.attempt_number == 1:  # made by the caller, so that success never comes here
                raise first_failure
            try:
                return await attempt()
            except AttemptFailed as failure:
                failures.append(failure)
                raise
    raise AssertionError("tenacity ends by a result or an error")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, given in digits or as an HTTP date; None for anything else."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _MAX_RETRY_AFTER)
    when = http_date(text)
    return None if when is None else max(0.0, (when - datetime.now(UTC)).total_seconds())


def http_date(text: str) -> datetime | None:
    """Return the time of a header such as ``Date`` or ``Retry-After``; None if it is no HTTP date."""
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # the last two for numbers without measure
        return None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)  # "-0000" means UTC of an unknown zone
