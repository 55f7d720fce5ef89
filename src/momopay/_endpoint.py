"""What a resource says of a call: what is fixed about its endpoint, and what it can be reconciled with."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

from momopay._budget import Lane
from momopay._retry import Rule
from momopay.models.records import Envelope, Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Endpoint(Generic[R]):
    """What is fixed about an endpoint.

    Attributes:
        method: The HTTP method.
        rule: What may follow a failure.
        lane: Whose share of the budget it draws on.
        envelope: What a success parses into, None where nothing is returned.
        prompts: Whether it sends an STK prompt, and so waits for the pauses that the service orders.
    """

    method: str
    rule: Rule
    lane: Lane
    envelope: type[Envelope[R]] | None
    prompts: bool = False


@dataclass(frozen=True)
class Facts:
    """What a payment can be found by, should its outcome be unknown."""

    reference: str | None = None
    amount: Decimal | None = None
    phone: str | None = None
    idempotency_key: str | None = None


NO_FACTS = Facts()
