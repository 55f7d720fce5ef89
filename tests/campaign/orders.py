"""What a campaign is to pay, made from a seed, and what one call for it said, the same for every client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from campaign.judge import Order, Said, Word
from momopay import (
    ConfigurationError,
    DuplicateCollectionError,
    DuplicatePayoutError,
    EntryKind,
    JournalError,
    MomoPayError,
    Payment,
)
from strikes import StruckError

BY_HAND = "9945"
"""The last digits of a phone whose owner decides at the time."""


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


class Ear:
    """Takes what a call returned."""

    record: Payment | None = None


@contextmanager
def heard(tell: Callable[[Word], None], call: str, reference: str, clock: Callable[[], float]) -> Generator[Ear]:
    """Hear how one call ends, and tell. A kill is not heard."""
    ear, begun, error = Ear(), clock(), ""
    try:
        yield ear
        is_open = ear.record is not None and ear.record.kind is EntryKind.COLLECTION and not ear.record.is_paid
        said = Said.OPEN if is_open else Said.PAID
    except (DuplicatePayoutError, DuplicateCollectionError):
        said = Said.DUPLICATE
    except ConfigurationError as failure:
        said, error = Said.MISCONFIGURED, str(failure)
    except JournalError as failure:
        # It speaks of the payout, not of this call alone.
        said = Said.IN_DOUBT if failure.may_have_executed else Said.NO_JOURNAL
        error = str(failure)
    except MomoPayError as failure:
        said = Said.UNKNOWN if failure.may_have_executed else Said.FAILED
        error = type(failure).__name__
    except asyncio.CancelledError:
        said = Said.CANCELLED
    except StruckError:
        said = Said.STRUCK
    except Exception as failure:  # noqa: BLE001  an untyped error is what is looked for
        # pydantic and Python raise errors of their own for what strikes while they build a class that is needed first.
        struck = StruckError.__name__ in f"{failure!r} {failure.__cause__!r}"
        said, error = Said.STRUCK if struck else Said.UNTYPED, repr(failure)
    record = ear.record
    told = (None, None) if record is None else (record.transaction_id, record.amount)
    tell(Word(call, reference, said, begun, clock(), error, *told))
