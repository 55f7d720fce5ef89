"""What is fixed about an endpoint, and what identifies the payment that one call of it makes."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Generic, TypeVar

from momopay._core.retry import RetryPolicy
from momopay._ratelimit.budget import Lane
from momopay.models.records import Envelope, Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Endpoint(Generic[R]):
    """What is fixed about an endpoint.

    Attributes:
        method: The HTTP method.
        retry_policy: Which failures may be retried.
        lane: The priority of its requests in the rate budget.
        envelope: What a success parses into; None where nothing is returned.
        prompts: Whether it sends an STK prompt, and so respects the pauses that the service orders.
        has_id: Whether its path ends in an id.
    """

    method: str
    retry_policy: RetryPolicy
    lane: Lane
    envelope: type[Envelope[R]] | None
    prompts: bool = False
    has_id: bool = False


@dataclass(frozen=True)
class PaymentDetails:
    """What a payment can be found by if its outcome is unknown."""

    reference: str | None = None
    amount: Decimal | None = None
    phone: str | None = None
    idempotency_key: str | None = None


NO_DETAILS: Final = PaymentDetails()
