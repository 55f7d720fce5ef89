"""What a campaign is to pay: orders made from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Order:
    """One payment that somebody is owed, exactly once."""

    reference: str
    amount: Decimal
    phone: str


def make_orders(seed: int, count: int) -> list[Order]:
    """Make so many orders; the same ones for the same seed. Some pay the same amount to the same phone."""
    rng = random.Random(f"orders {seed}")
    phones = [f"2547{rng.randrange(10**8):08}" for _ in range(max(1, count // 2))]
    amounts = [Decimal(rng.randrange(10_00, 999_99)) / 100 for _ in range(max(1, count // 2))]
    return [Order(f"S{seed}-{number:06}", rng.choice(amounts), rng.choice(phones)) for number in range(count)]
