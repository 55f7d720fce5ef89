"""What a call is given: the constants of its endpoint, what it is about, and what was sent of that before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar

from momopay._core.retry import IDEMPOTENCY_KEYED, MAY_HAVE_EXECUTED, RetryPolicy
from momopay._core.session import Session
from momopay._ratelimit.budget import Lane
from momopay.models.records import Envelope, Record

# Minimum fraction of the deadline that must remain to start a payment: one cut short has an unknown outcome.
_MIN_REMAINING: Final = 0.1

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Endpoint(Generic[R]):
    """The constants of an endpoint."""

    operation: str  # that calls it, such as "stk.initiate"
    method: str
    retry_policy: RetryPolicy
    lane: Lane
    envelope: type[Envelope[R]] | None  # what a success parses into; None where nothing is returned
    prompts: bool = False  # whether it sends an STK prompt, and so respects the session's STK pause
    has_id: bool = False  # whether its path ends in an id

    def __post_init__(self) -> None:
        repeats = self.retry_policy.retries_on & MAY_HAVE_EXECUTED
        if self.method == "POST" and repeats and self.retry_policy is not IDEMPOTENCY_KEYED:
            raise ValueError("a POST that may have executed is repeated only with an Idempotency-Key")

    def least_seconds(self, session: Session[Any]) -> float:
        """Return the seconds that must be left until the deadline to send a request."""
        return _MIN_REMAINING * session.limits.deadline if self.retry_policy.needs_reconciliation else 0.0


@dataclass(frozen=True)
class PaymentDetails:
    """The fields by which to find a payment whose outcome is unknown."""

    reference: str | None = None
    amount: Decimal | None = None
    phone: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Sent:
    """What a durable call has sent of its payment so far."""

    started: float  # when the durable call began, on the backend's clock
    attempts: int = 0
    first_at: datetime | None = None  # when the first attempt was sent; a search must cover all of them
    may_have_executed: bool = False
    transaction_id: str | None = None  # that a broken response showed
