"""Waits, confirmations, lanes, keys and journals keep their promises at scale: bounded runs in virtual time."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from journal.kit import fill
from momopay import Journal, RateBudget, Transaction
from momopay._polling.wait import ConfirmCall
from momopay._ratelimit.budget import Slots
from momopay._ratelimit.slot_log import Lane, SlotLog
from scale import lanes
from scale.simulation import Plan, simulate, simulate_keys

KEY = 60.0  # payments a minute that a key could settle if nothing had to be read
CEILING = 58.0  # that it could begin
WINDOW = 61.0
ENTRIES = 10_000
MOST = 8_000_000  # bytes; all entries at once take some 30 MB


@pytest.mark.parametrize("lost", [0.5, 1.0])
def test_a_key_settles_what_it_can_begin_by_waiting(lost: float) -> None:
    shop = simulate(Plan(minutes=15.0, lost=lost))
    assert shop.settled >= 0.8 * KEY
    assert (shop.left_waiting, shop.service.refused) == (0, 0)


def test_with_a_larger_budget_the_service_refuses() -> None:
    (shop,) = simulate_keys(Plan(minutes=1.0, lost=1.0), RateBudget(requests=70))
    assert shop.service.refused > 0


@pytest.mark.parametrize(
    ("kind", "payers", "waits"), [("STK", 4, False), ("B2C", 40, False), ("STK", 200, True), ("B2C", 200, True)]
)
def test_a_key_settles_what_it_can_begin_with_every_callback_confirmed(kind: str, payers: int, *, waits: bool) -> None:
    shop = simulate(Plan(payers, kind, waits, confirms=True, minutes=5.0))
    assert shop.settled >= 0.8 * CEILING
    assert shop.left_waiting == shop.unconfirmed == shop.service.refused == 0
    assert len(shop.told) == len(shop.service.lives)


async def one_by_one(confirmation: ConfirmCall) -> Transaction:
    (wait,) = confirmation.waits.values()
    return await confirmation.read_by_id(wait.transaction_id, wait.deadline)


def test_without_sharing_a_key_settles_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConfirmCall, "read", one_by_one)
    assert simulate(Plan(200, one_by_one=True, confirms=True, minutes=3.0)).settled <= 0.5 * CEILING
    assert simulate(Plan(confirms=True, minutes=3.0)).unconfirmed > 0


@pytest.mark.parametrize(("reads", "waits"), [(0, 0), (50, 50), (500, 0), (0, 300), (500, 300)])
def test_payments_are_sent_at_once_whatever_queues_beside_them(reads: int, waits: int) -> None:
    result = lanes.simulate(reads, waits, minutes=3.0)
    assert result.p95 <= 1.0
    assert result.failed == result.service.refused == 0
    assert result.settled >= 0.75 * lanes.PAYMENTS_A_MINUTE  # payments come at random
    assert max(result.gaps) <= WINDOW


def test_without_lanes_payments_wait_for_the_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = Slots.acquire

    async def in_one_lane(self: Slots, backend: Any, _lane: Lane, **options: Any) -> bool:
        return await acquire(self, backend, Lane.READ, **options)

    monkeypatch.setattr(Slots, "acquire", in_one_lane)
    result = lanes.simulate(50, 0, minutes=3.0)
    assert result.failed > 0 or result.p95 > 10.0


def test_without_what_reads_leave_payments_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    share = SlotLog._share

    def greedy(self: SlotLog, slot: float, lane: Lane, *, queued: bool = True) -> int:
        return share(self, slot, lane, queued=queued and lane is not Lane.READ)

    monkeypatch.setattr(SlotLog, "_share", greedy)
    assert lanes.simulate(50, 50, minutes=3.0).p95 > 5.0


def test_what_is_settled_grows_with_the_keys_and_not_with_one_budget_for_all() -> None:
    one_budget, settled = RateBudget(), list[float]()
    for budgets in ([RateBudget() for _ in range(4)], [one_budget] * 4):
        shops = simulate_keys(Plan(minutes=3.0, lost=1.0), *budgets)
        assert [(shop.left_waiting, shop.service.refused) for shop in shops] == [(0, 0)] * 4
        settled.append(sum(shop.settled for shop in shops))
    assert settled[0] >= 2.5 * KEY
    assert settled[1] <= KEY


def test_the_memory_for_a_journal_is_bounded_by_a_page(tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        fill(journal, ENTRIES)
        tracemalloc.start()
        assert sum(1 for _ in journal.entries()) == ENTRIES + 1
        journal.backup(tmp_path / "copy.db")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < MOST
    with Journal(f"sqlite:///{tmp_path / 'copy.db'}", create=False) as copy:
        assert copy.get(f"p-{ENTRIES}") is not None
