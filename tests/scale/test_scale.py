"""Waiting at scale keeps its promises: bounded runs, in virtual time and over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from momopay import RateBudget
from scale import simulation, sockets
from scale.report import CEILING, Report
from scale.simulation import Plan, by_the_guidance, on_time, with_the_sdk

SEED = 1


@pytest.fixture(scope="module")
def naive() -> float:
    report, _ = on_time(Plan("the guidance", SEED, minutes=10.0))
    assert report.refused == 0
    return report.settled


def check(report: Report, naive: float) -> None:
    assert report.settled >= 5 * naive, SEED
    assert report.settled >= 0.8 * CEILING
    assert report.refused == 0
    assert report.left_waiting == 0


@pytest.mark.parametrize(
    "plan",
    [
        Plan("sweeps alone", SEED, minutes=15.0),
        Plan("callbacks", SEED, minutes=15.0, callbacks=True),
        Plan("half of them lost", SEED, minutes=15.0, callbacks=True, lost=0.5),
        Plan("all of them lost", SEED, minutes=15.0, callbacks=True, lost=1.0),
    ],
    ids=lambda plan: str(plan.name),
)
def test_a_key_settles_what_it_can_begin(plan: Plan, naive: float) -> None:
    check(with_the_sdk(plan), naive)


def test_three_hundred_payouts_are_awaited_beside_payments_without_end() -> None:
    report = with_the_sdk(Plan("payouts", SEED, minutes=10.0, outstanding=300))
    assert report.refused == 0
    # Polling has its floor and no more: one in a hundred ends too shortly before its limit for a page to show it.
    assert report.left_waiting <= 3


def test_a_run_replays_by_its_seed() -> None:
    plan = Plan("again", SEED, minutes=3.0, callbacks=True, lost=0.5)
    assert with_the_sdk(plan).told == with_the_sdk(plan).told


def test_without_a_limiter_the_service_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(*_: object) -> float:
        return 0.0

    monkeypatch.setattr(RateBudget, "reserve", at_once)
    report = by_the_guidance(Plan("no limiter", SEED, minutes=1.0), workers=100)
    assert report.refused > 0


def test_without_its_floor_polling_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Floorless(RateBudget):
        def __init__(self) -> None:
            super().__init__()
            self._log._floor = 0

    monkeypatch.setattr(simulation, "PAYERS", 40)
    plan = Plan("many payers", SEED, minutes=5.0)
    floored = with_the_sdk(plan)
    assert floored.left_waiting == 0
    assert floored.p95 < 60.0
    monkeypatch.setattr(simulation, "RateBudget", Floorless)
    report = with_the_sdk(plan)
    assert report.left_waiting > 0 or report.p95 > 100.0


def test_over_real_sockets_nothing_is_refused_and_nothing_left_waiting() -> None:
    # A second of the service is 33 real milliseconds here, too little a margin for a machine with other work.
    plan = sockets.Plan(speed=30.0, warm_up=60.0, seconds=120.0, drain=120.0, seed=SEED, margin=6.0)
    for report in asyncio.run(sockets.run(plan)):
        assert report.told
        assert report.refused == 0
        assert report.left_waiting == 0
