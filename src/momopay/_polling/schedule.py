"""When to poll for a transaction, when it has ended, and after which failures a wait continues."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from momopay.errors import (
    APIConnectionError,
    APIError,
    BudgetExhaustedError,
    ConfigurationError,
    ProtocolError,
    ServerError,
    ThrottledError,
)
from momopay.models.enums import has_settled
from momopay.models.transactions import Transaction

# A thread cannot wait much longer.
_LONGEST: Final = 1e9
# Seconds in which the service may not find a transaction whose id it has just given.
NOT_FOUND_GRACE: Final = 60.0
_TRANSIENT = (APIConnectionError, BudgetExhaustedError, ProtocolError, ServerError, ThrottledError)


@dataclass(frozen=True)
class PollSchedule:
    """When to poll; the defaults are the service's guidance (service page, "GET /transactions/{id}").

    Args:
        first: Seconds from the start of the wait to the first poll.
        every: Seconds between polls.
        limit: Seconds after which the wait gives up.

    Raises:
        ConfigurationError: A time is not finite (or over 1e9), or negative, or there is no pause between polls.
    """

    first: float = 15.0
    every: float = 10.0
    limit: float = 300.0

    def __post_init__(self) -> None:
        times = (self.first, self.every, self.limit)
        are_finite = all(isinstance(time, int | float) and 0 <= time <= _LONGEST for time in times)
        if not are_finite or self.every <= 0 or self.limit <= 0:
            raise ConfigurationError("a PollSchedule needs finite seconds: first >= 0, every > 0, limit > 0")


def terminal(transaction: Transaction) -> bool:
    """Return whether the transaction has ended."""
    return transaction.status.is_terminal


def settled(transaction: Transaction) -> bool:
    """Return whether the money is where it will stay: a payout that FAILED is settled once it is REVERSED."""
    return has_settled(transaction.type, transaction.status)


def is_transient(error: BaseException) -> bool:
    """Return whether a wait continues after the failure: no answer, no slot, or 408, 429 or 5xx with any code.

    It also continues after a malformed answer, but not after two in a row; see `Wait`.
    """
    if isinstance(error, _TRANSIENT):
        return True
    status = error.status_code if isinstance(error, APIError) else 0
    may_pass = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
    return status in may_pass or status >= HTTPStatus.INTERNAL_SERVER_ERROR
