"""The rate budget: when the last of many payments gets its slot, in virtual time, and what a slot costs."""

import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

from benchmarks.measure import Row, Scale, cpu
from momopay import RateBudget
from momopay._ratelimit.file_budget import FileSlots
from momopay._ratelimit.slot_log import ALONE
from momopay._transport.sync_backend import SyncBackend
from momopay.types import Lane
from ratelimit.kit import Calls, finish, in_virtual_time

LIMIT: Final = 61.0 * 3
"""Seconds until the last of four windows begins."""
QUEUED: Final = 1000


def measure(scale: Scale) -> list[Row]:
    """Return the rows; the first two are computed and do not vary."""
    rounds = scale.rounds
    rows: list[Row] = []
    for work, payments, other, theirs, goal in (
        ("232 payments at once: last slot", _many_payments, "the window allows", LIMIT, 184 / LIMIT),
        ("20 payments 1 s after 200 reads: last slot", _payments_behind_reads, "the goal", 61.0, 1.0),
    ):
        rows.append(Row(work, "s", [_last_payment(payments)] * rounds, other, [theirs] * rounds, goal))
    for work, side, goal in (
        ("reserve behind 1,000", _reserve_behind_many, 20.0),
        ("FileRateBudget, a slot", _slot_of_a_file, 80.0),
    ):
        ours = [side(scale.of(2000)) for _ in range(rounds)]
        rows.append(Row(work, "us CPU a slot", ours, "the goal", [goal] * rounds, 1.0))
    return rows


async def _many_payments(calls: Calls) -> None:
    await calls.start(232, Lane.PAYMENT)


async def _payments_behind_reads(calls: Calls) -> None:
    await calls.start(200, Lane.READ, deadline=90.0)
    await trio.sleep(1.0)
    await calls.start(20, Lane.PAYMENT, deadline=81.0)


def _last_payment(use: Callable[[Calls], Awaitable[None]]) -> float:
    """Return the seconds from the beginning until the last payment has its slot."""
    return max(in_virtual_time(RateBudget(), use).slots[Lane.PAYMENT.value])


def _reserve_behind_many(calls: int) -> float:
    budget = RateBudget()
    for _ in range(QUEUED):
        budget.reserve(0.0, Lane.PAYMENT)
    return cpu(lambda: budget.reserve(0.0, Lane.PAYMENT), calls)


def _slot_of_a_file(calls: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        # A full log, from which a slot goes as often as one comes.
        slots, backend = FileSlots(Path(folder) / "budget", 58, 0.05, is_private=True), SyncBackend()

        def reserve() -> float:
            delay: float = finish(slots.reserve_now(backend, Lane.PAYMENT, ALONE))
            return delay

        deadline = time.monotonic() + 10.0
        while reserve() == 0 and time.monotonic() < deadline:
            pass
        try:
            return cpu(reserve, calls)
        finally:
            slots.close()
