"""Nobody is paid twice and no payment is lost, whatever fails; and every safety that this rests on is missed when off.

The simulation runs by default, the campaign over sockets under the marker `campaign`.
"""

import os
from pathlib import Path
from typing import Literal

import pytest

from campaign import collect, simulation
from campaign.controls import CAUGHT, OF_LATE, OF_ORDERS, OF_SIMULATION
from campaign.judge import Finding
from campaign.settings import Plan, Result
from campaign.simulation import Batch
from postgresql import required_programs

FIRST = ("repeat_on_read_timeout",)
"""Controls that the default tests try; `whole` tries the others."""
DATABASES = ("sqlite", "postgresql")
SHARE = float(os.environ.get("MOMOPAY_CAMPAIGN") or 1)
"""How much of its full size a campaign has. One of payouts ends when all are made, one of orders by time."""


@pytest.fixture
def seed() -> int:
    """Another one each time; the report that a test prints and fails with tells it."""
    return int.from_bytes(os.urandom(3))


@pytest.mark.parametrize(
    ("keys", "claims", "size"),
    [
        ("ignored", False, 60),
        *(
            pytest.param(keys, claims, 40, marks=pytest.mark.whole)
            for keys, claims in (("honoured", True), ("honoured", False), ("forgotten", False))
        ),
        pytest.param("ignored", False, round(SHARE * 600), marks=pytest.mark.campaign),
    ],
)
def test_simulated_payouts_are_paid_once(seed: int, keys: str, size: int, *, claims: bool) -> None:
    batch = Batch(seed, size, keys=keys, claims_keys=claims)
    total = simulation.simulate(batch)
    told = total.report(str(batch))
    print(told)  # noqa: T201  the seed, for whoever wants it again
    assert total.verdict.holds, told
    assert total.verdict.paid_once == size
    if keys == "ignored":  # a smaller one may have no kill
        assert all(total.counts[kind].total() for kind in ("faults", "callbacks")), told
        assert total.counts["events"]["kills"], told
    assert not claims or total.counts["events"]["payouts that need a person"] == 0, told


@pytest.mark.whole
def test_the_simulation_catches_a_claim_about_keys_that_is_not_true() -> None:
    tried = (simulation.simulate(Batch(seed, 40, claims_keys=True)).verdict for seed in range(20))
    assert any(Finding.DOUBLE in verdict.found for verdict in tried)


def test_a_seed_replays_a_simulation_exactly(seed: int) -> None:
    first, second = (simulation.simulate(Batch(seed, 8)) for _ in range(2))
    assert (first.details, first.counts) == (second.details, second.counts), seed


@pytest.mark.parametrize(
    "control", [pytest.param(name, marks=() if name in FIRST else pytest.mark.whole) for name in sorted(OF_SIMULATION)]
)
def test_the_simulation_catches_a_safety_that_is_off(control: str) -> None:
    tried = (simulation.simulate(Batch(seed, 15, control)).verdict for seed in range(20))
    assert any(verdict.found & CAUGHT for verdict in tried), control


def run_plan(plan: Plan, folder: Path) -> tuple[Result, str]:
    if plan.database == "postgresql":
        required_programs()
    result, told = plan.run(folder)
    print(told)  # noqa: T201  the seed, for whoever wants it again
    return result, told


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("what", "size", "seconds", "database", "keys"),
    [
        *(("payouts", 500, 60, database, "ignored") for database in DATABASES),
        # Shorter than 15 minutes of the service's time, and perhaps than what it takes to kill somebody.
        *(("payouts", 200, SHARE * 30, "sqlite", keys) for keys in ("honoured", "forgotten")),
        *(("orders", 100, SHARE * 30, database, "ignored") for database in DATABASES),
    ],
)
def test_what_is_paid_over_sockets_is_paid_once(
    what: Literal["payouts", "orders"], size: int, seconds: float, database: str, keys: str, seed: int, tmp_path: Path
) -> None:
    size = round(SHARE * size)
    result, told = run_plan(Plan(what, size, seconds, seed, database, keys=keys), tmp_path)
    assert result.verdict.holds, told
    assert result.verdict.paid_once == size if what == "payouts" else result.verdict.payments > size, told
    assert result.details["payouts that need a person"] == 0, told  # which is counted where keys are honoured
    kinds = {"payouts": ("kills", "frozen senders", "releases", "faults struck"), "orders": ("kills",)}[what]
    for kind in kinds if keys == "ignored" else ():
        assert result.counts[kind].total(), told


def late(seed: int, control: str | None = None) -> Plan:
    return Plan("payouts", 60, seconds=8, seed=seed, late=True, control=control)


@pytest.mark.campaign
def test_payouts_that_are_executed_late_are_paid_once(seed: int, tmp_path: Path) -> None:
    result, told = run_plan(late(seed), tmp_path)
    assert result.verdict.holds, told
    assert result.verdict.paid_once == 60
    assert result.counts["releases"]["client.payouts.release, without a search: RequestValidationError"], told


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("control", "wanted"),
    [*((name, {Finding.DOUBLE}) for name in OF_LATE), *((name, collect.CAUGHT) for name in OF_ORDERS)],
)
def test_the_campaign_catches_a_safety_that_is_off(
    control: str, wanted: set[Finding], seed: int, tmp_path: Path
) -> None:
    told: list[str] = []
    for storm in range(3):
        plan = late(seed + storm, control)
        if control in OF_ORDERS:
            plan = Plan("orders", 60, seconds=20, seed=seed + storm, control=control)
        result, report = run_plan(plan, tmp_path)
        if result.verdict.found & wanted:
            return
        told.append(report)
    pytest.fail("\n".join(told))
