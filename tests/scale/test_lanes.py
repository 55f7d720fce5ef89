"""Payments beside reads and waits: bounded runs in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from momopay._ratelimit.budget import RateLimiter
from momopay._ratelimit.slot_log import Lane, SlotLog
from scale.lanes import PAYMENTS_A_MINUTE, Run, simulate

SEED = 1
WINDOW = 61.0


def run(reads: int, waits: int) -> Run:
    return simulate(reads, waits, seed=SEED, minutes=5.0)


@pytest.mark.parametrize(("reads", "waits"), [(0, 0), (50, 50), (500, 0), (0, 300), (500, 300)])
def test_payments_are_sent_at_once_whatever_queues_beside_them(reads: int, waits: int) -> None:
    result = run(reads, waits)
    assert result.p95 <= 1.0, SEED
    assert result.failed == result.limited == 0
    assert result.settled >= 0.75 * PAYMENTS_A_MINUTE  # payments come at random
    assert max(result.gaps) <= WINDOW


def test_without_lanes_payments_wait_for_the_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = RateLimiter.acquire

    async def in_one_lane(self: RateLimiter, _lane: Lane, *, latest: float, describe: Callable[[], str]) -> bool:
        return await acquire(self, Lane.READ, latest=latest, describe=describe)

    monkeypatch.setattr(RateLimiter, "acquire", in_one_lane)
    result = run(50, 0)
    assert result.failed > 0 or result.p95 > 10.0


def test_without_what_reads_leave_payments_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    share = SlotLog._share

    def greedy(self: SlotLog, slot: float, lane: Lane, *, queued: bool = True) -> int:
        return share(self, slot, lane, queued=queued and lane is not Lane.READ)

    monkeypatch.setattr(SlotLog, "_share", greedy)
    assert run(50, 50).p95 > 5.0
