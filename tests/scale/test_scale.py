"""Waiting at scale keeps its promises: bounded runs, in virtual time; `accounts.py` waits over real sockets."""

from __future__ import annotations

from functools import partial

import pytest

from momopay import RateBudget
from scale import simulation
from scale.simulation import Plan, simulate

CEILING = 60.0
"""One initiation for each request of a minute: what a key could settle if nothing had to be looked at."""


@pytest.mark.parametrize(
    "plan",
    [
        Plan("sweeps alone", minutes=15.0),
        Plan("callbacks", minutes=15.0, callbacks=True),
        Plan("half of them lost", minutes=15.0, callbacks=True, lost=0.5),
        Plan("all of them lost", minutes=15.0, callbacks=True, lost=1.0),
    ],
    ids=lambda plan: str(plan.name),
)
def test_a_key_settles_what_it_can_begin(plan: Plan) -> None:
    report, refused = simulate(plan)
    assert report.settled >= 0.8 * CEILING, plan
    assert (report.left_waiting, refused) == (0, 0)


def test_three_hundred_payouts_are_awaited_beside_payments_without_end() -> None:
    report, refused = simulate(Plan("payouts", minutes=10.0, outstanding=300))
    assert refused == 0
    # Polling has its floor and no more: one in a hundred ends too shortly before its limit for a page to show it.
    assert report.left_waiting <= 3


def test_a_run_replays_by_its_seed() -> None:
    plan = Plan("again", minutes=3.0, callbacks=True, lost=0.5)
    assert simulate(plan) == simulate(plan)


def test_with_a_larger_budget_the_service_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "RateBudget", partial(RateBudget, requests=70))
    _, refused = simulate(Plan("a larger budget", minutes=1.0))
    assert refused > 0


def test_without_its_floor_polling_starves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Floorless(RateBudget):
        def __init__(self) -> None:
            super().__init__()
            self._log._floor = 0

    monkeypatch.setattr(simulation, "PAYERS", 40)
    plan = Plan("many payers", minutes=5.0)
    floored, _ = simulate(plan)
    assert floored.left_waiting == 0
    assert floored.p95 < 60.0
    monkeypatch.setattr(simulation, "RateBudget", Floorless)
    report, _ = simulate(plan)
    assert report.left_waiting > 0 or report.p95 > 100.0
