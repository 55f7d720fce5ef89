"""What a campaign is to pay: orders made from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from momopay import EntryKind

BY_HAND = "9945"
"""The last digits of a phone whose owner decides at the time."""


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


def orders_of(kind: EntryKind, seed: int, count: int) -> list[Order]:
    """Make so many orders of a kind; every third of a collection has a reference that is too long for the wire."""
    made = make_orders(seed, count)
    if kind is EntryKind.PAYOUT:
        return made
    return [
        replace(
            order,
            reference=f"{order.reference}-of-a-shop" if number % 3 == 0 else order.reference[-12:],
            phone=f"{order.phone[:8]}{BY_HAND}",
        )
        for number, order in enumerate(made)
    ]


def asked(kind: EntryKind, order: Order, call: str) -> dict[str, Any]:
    """Return what `once` takes; the service keeps the name of the call."""
    described = "description" if kind is EntryKind.PAYOUT else "transaction_desc"
    return {"reference": order.reference, "amount": order.amount, "phone": order.phone, described: call}


def once(client: Any, kind: EntryKind) -> Any:
    return client.payouts.pay_once if kind is EntryKind.PAYOUT else client.stk.collect_once
