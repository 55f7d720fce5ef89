"""A key settles by confirmed callbacks nearly what it can begin: in virtual time, and over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from momopay._polling.wait import Confirmation
from scale import sockets
from scale.confirmations import CEILING, Plan, one_by_one, simulate
from scale.confirmations_over_sockets import ceiling, settle

SEED = 1


@pytest.mark.parametrize(
    ("kind", "payers", "waits"), [("STK", 4, False), ("B2C", 40, False), ("STK", 200, True), ("B2C", 200, True)]
)
def test_a_key_settles_what_it_can_begin_with_every_callback_confirmed(kind: str, payers: int, *, waits: bool) -> None:
    shop = simulate(Plan(payers, kind, waits, SEED, minutes=10.0))
    assert shop.report.settled >= 0.8 * CEILING, SEED
    assert shop.report.left_waiting == shop.unconfirmed == 0
    assert shop.service.refused == 0
    assert len(shop.report.told) == len(shop.service.lives)


def test_a_run_replays_by_its_seed() -> None:
    plan = Plan(4, minutes=3.0)
    assert simulate(plan).report.told == simulate(plan).report.told


def test_without_sharing_a_key_settles_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Confirmation, "read", one_by_one)
    shop = simulate(Plan(200, one_by_one=True, seed=SEED, minutes=10.0))
    assert shop.report.settled <= 0.5 * CEILING, SEED
    at_once = simulate(Plan(4, seed=SEED, minutes=10.0))
    assert at_once.unconfirmed > 0


def test_over_real_sockets_too() -> None:
    plan = sockets.Plan(speed=20.0, warm_up=122.0, seconds=386.0, drain=120.0, seed=SEED, margin=6.0)
    report = asyncio.run(settle(plan))
    # Of so short a run, the payments at its edges count for a tenth: 0.82 to 0.97 of the ceiling were seen.
    assert report.settled >= 0.7 * ceiling(plan), (SEED, report.requests)
    assert report.left_waiting == report.refused == 0
    assert report.delays == []
