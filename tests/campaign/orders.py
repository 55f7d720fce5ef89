"""What a campaign is to pay, made from a seed, and what one call for it said, the same for every client."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import momopay
from campaign.judge import Order, Said, Word

T = TypeVar("T")

PASSES = 2
IMPOSTOR = 0.03
"""How likely another amount is asked for under the reference of a payout."""
JUMPS = 0.02
"""How likely the clock of the process jumps before a call."""
AGAIN = {momopay.JournalState.ACCEPTED: 0.04, momopay.JournalState.UNKNOWN: 0.2}
"""How likely a payout is asked for once more that is paid, or in doubt."""
BY_HAND = "9945"
"""The last digits of a phone whose owner decides at the time."""


def orders_of(kind: momopay.EntryKind, seed: int, count: int) -> list[Order]:
    """Make so many orders of a kind; the same ones for the same seed. Some pay the same amount to the same phone.

    Every third of a collection has a reference that is too long for the wire.
    """
    rng = random.Random(f"orders {seed}")
    phones = [f"2547{rng.randrange(10**8):08}" for _ in range(max(1, count // 2))]
    amounts = [Decimal(rng.randrange(10_00, 999_99)) / 100 for _ in range(max(1, count // 2))]
    made = [Order(f"S{seed}-{number:06}", rng.choice(amounts), rng.choice(phones)) for number in range(count)]
    if kind is momopay.EntryKind.PAYOUT:
        return made
    references = [f"{each.reference}-of-a-shop" if n % 3 == 0 else each.reference[-12:] for n, each in enumerate(made)]
    phones = [f"{each.phone[:8]}{BY_HAND}" for each in made]
    return [Order(name, each.amount, phone) for name, each, phone in zip(references, made, phones, strict=True)]


def lane_of(orders: list[Order], seed: int, number: int, lanes: int) -> list[Order]:
    """Return what to ask for in one of so many lanes: in every process nearly the same, so that they meet."""
    share = orders[number::lanes]
    return [each for n in range(PASSES) for each in random.Random(f"{seed} {n}").sample(share, len(share))]


def next_call(rng: random.Random, order: Order, entry: momopay.JournalEntry | None) -> Order | None:
    """Return what to ask for under a payout's reference, or None."""
    if entry is not None and rng.random() < IMPOSTOR:
        return replace(order, amount=order.amount + 1)
    again = 1.0 if entry is None else AGAIN.get(entry.state, 1.0)
    return order if rng.random() < again else None


def asking(client: Any, kind: momopay.EntryKind, order: Order, call: str, **options: Any) -> Callable[[], Any]:
    """Return what makes one call for an order; the service keeps the name of the call."""
    once = client.payouts.pay_once if kind is momopay.EntryKind.PAYOUT else client.stk.collect_once
    described = {"description" if kind is momopay.EntryKind.PAYOUT else "transaction_desc": call}
    return partial(once, reference=order.reference, amount=order.amount, phone=order.phone, **described, **options)


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, while nobody else goes on."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class Ear:
    record: momopay.Payment | None = None


@contextmanager
def heard(tell: Callable[[Word], None], call: str, reference: str, clock: Callable[[], float]) -> Generator[Ear]:
    """Hear how one call ends, and tell. A kill is not heard."""
    ear, begun, error = Ear(), clock(), ""
    try:
        yield ear
        is_open = ear.record is not None and ear.record.kind is momopay.EntryKind.COLLECTION and not ear.record.is_paid
        said = Said.OPEN if is_open else Said.PAID
    except (momopay.DuplicatePayoutError, momopay.DuplicateCollectionError):
        said = Said.DUPLICATE
    except momopay.ConfigurationError as failure:
        said, error = Said.MISCONFIGURED, str(failure)
    except momopay.JournalError as failure:
        # It speaks of the payout, not of this call alone.
        said = Said.IN_DOUBT if failure.may_have_executed else Said.NO_JOURNAL
        error = str(failure)
    except momopay.MomoPayError as failure:
        said = Said.UNKNOWN if failure.may_have_executed else Said.FAILED
        error = type(failure).__name__
    except asyncio.CancelledError:
        said = Said.CANCELLED
    except Exception as failure:  # noqa: BLE001  an untyped error is what is looked for
        said, error = Said.UNTYPED, repr(failure)
    record = ear.record
    told = (None, None) if record is None else (record.transaction_id, record.amount)
    tell(Word(call, reference, said, begun, clock(), error, *told))
