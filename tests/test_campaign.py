"""Nobody is paid twice and no payment is lost, whatever fails; and every safety that this rests on is missed when off.

The simulation runs by default, the campaign over sockets under the marker `campaign`.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from campaign import run, simulation
from campaign.controls import CONTROLS
from campaign.judge import Finding
from campaign.simulation import Batch
from postgresql import running_postgresql

CAUGHT = {Finding.DOUBLE, Finding.LOST, Finding.WRONG_STATE}


@pytest.fixture
def seed() -> int:
    """Another one each time; the table that a test prints and fails with tells it."""
    return int.from_bytes(os.urandom(3))


def test_simulated_payouts_are_paid_once(seed: int) -> None:
    total = simulation.run(simulation.batches(seed, 400, "both"), jobs=2)
    told = simulation.report(total, seed, f"python tests/campaign/simulation.py --payouts 400 --seed {seed}", 0)
    print(told)  # noqa: T201  the seed, for whoever wants it again
    assert total.verdict.holds, told
    assert total.verdict.paid_once == 400
    assert all(total.counts[kind].total() for kind in ("faults", "callbacks")), told
    assert total.counts["events"]["kills"], told


def test_a_seed_replays_a_simulation_exactly(client_kind: str, seed: int) -> None:
    first, second = (simulation.simulate(Batch(seed, 30, client_kind)) for _ in range(2))
    assert (first.trace, first.counts, first.left_unknown) == (second.trace, second.counts, second.left_unknown), seed


@pytest.mark.parametrize("control", CONTROLS)
def test_the_simulation_catches_a_safety_that_is_off(control: str) -> None:
    tried = (simulation.simulate(Batch(seed, 30, "async", control)).verdict for seed in range(20))
    assert any(verdict.found & CAUGHT for verdict in tried), control


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Generator[str]:
    if request.param == "sqlite":
        yield "sqlite"
    else:
        with running_postgresql() as server:
            yield server.new_database()


@pytest.mark.campaign
def test_payouts_over_sockets_are_paid_once(database: str, seed: int) -> None:
    plan = run.Plan(payouts=500, seconds=60, seed=seed, database=database)
    result = run.campaign(plan)
    told = result.report(plan)
    print(told)  # noqa: T201  the seed, for whoever wants it again
    assert result.verdict.holds, told
    assert result.verdict.paid_once == 500
    assert result.counts["kills"].total(), told
    assert result.counts["faults struck"].total(), told


@pytest.mark.campaign
@pytest.mark.parametrize("control", CONTROLS)
def test_the_campaign_catches_a_safety_that_is_off(control: str, seed: int) -> None:
    """What meets what is up to the machine: one short storm may pass it by, three hardly can."""
    told: list[str] = []
    for storm in range(3):
        plan = run.Plan(payouts=150, seconds=60, seed=seed + storm, control=control)
        result = run.campaign(plan)
        if result.verdict.found & CAUGHT:
            return
        told.append(result.report(plan))
    pytest.fail("\n".join(told))
