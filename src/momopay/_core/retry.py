"""The retry table: which failures may be retried.

A payment is never retried once it may have been sent. The service has no idempotency key for prompts and may ignore
that of payouts, so its advice to retry every 5xx would pay twice. `momopay.durable` repeats a payout with its key
if the client says that keys are honoured. Times are in seconds.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from importlib import import_module
from threading import Thread
from typing import Final

from momopay.errors import MomoPayError

BASE_BACKOFF: Final = 0.5  # seconds, the most before the second attempt
MAX_BACKOFF: Final = 8.0  # seconds, the most before any attempt


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
    OTHER_PAYMENT = auto()
    """The response is an acceptance of another payment."""
    RATE_LIMITED = auto()
    """RATE_LIMIT_EXCEEDED: a definite refusal that may be retried later."""
    REFUSED = auto()
    """Any other refusal whose code or status says that nothing was executed."""
    SENT_BEFORE = auto()
    """DUPLICATE_IDEMPOTENCY_KEY: an earlier request with this key arrived, and its outcome is unknown."""
    UNKNOWN_CODE = auto()
    """A refusal whose code and status both leave open whether something was executed."""


# After these failures the request may have executed.
MAY_HAVE_EXECUTED: Final = frozenset(
    {
        *(FailureKind.NO_REPLY, FailureKind.SERVER_ERROR, FailureKind.INVALID_RESPONSE),
        *(FailureKind.OTHER_PAYMENT, FailureKind.SENT_BEFORE, FailureKind.UNKNOWN_CODE),
    }
)
_REFUSALS: Final = frozenset({FailureKind.REFUSED, FailureKind.UNKNOWN_CODE})


@dataclass(frozen=True)
class RetryPolicy:
    """What an endpoint allows after a failure."""

    retries_on: frozenset[FailureKind]  # the kinds of failure after which the same request may be sent again
    needs_reconciliation: bool = False  # whether OutcomeUnknownError is raised where it may have executed
    raises_own_error: frozenset[FailureKind] = _REFUSALS  # these raise the service's own error even there
    has_effect: bool = True  # whether the request changes anything at the service


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
# A payment with a journal: RATE_LIMITED is not retried here, because a search goes before any second send.
SEARCHED_FIRST: Final = replace(AT_MOST_ONCE, retries_on=frozenset({FailureKind.NOT_SENT}))
# Channel update and deletion.
IDEMPOTENT: Final = RetryPolicy(_REPEATABLE)


class AttemptFailed(Exception):  # noqa: N818  an attempt failed; the call may still succeed
    def __init__(
        self, kind: FailureKind, error: MomoPayError, *, retry_after: float | None = None, body: bytes = b""
    ) -> None:
        self.kind = kind
        self.error = error  # to raise if no retry follows
        self.retry_after = retry_after  # the pause that the service asked for, seconds
        self.body = body  # as much of the response's body as arrived


def load_tenacity() -> None:
    """Import tenacity in a thread, because handlers of signals run in the main thread only.

    One that raises while the main thread imports leaves half of tenacity. Every later import of it would then fail.
    """
    if "tenacity" not in sys.modules:
        loading = Thread(target=import_module, args=("tenacity",))
        with suppress(RuntimeError):  # Python is ending and starts no thread
            loading.start()
            loading.join()
