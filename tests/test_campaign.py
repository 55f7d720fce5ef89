"""Nobody is paid twice and no payment is lost, whatever fails; and every safety that this rests on is missed when off.

The simulation runs by default, the campaign over sockets under the marker `campaign`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from campaign import simulation
from campaign.controls import CAUGHT, CONTROLS, OF_FAULTS, OF_ORDERS, OF_SOCKETS, SURELY_CAUGHT
from campaign.judge import Finding
from campaign.plan import Plan
from campaign.simulation import Batch
from postgresql import required_programs

FIRST = ("repeat_on_read_timeout", "no_lease", "send_again_when_absent", "forged_callback_settles")
"""Controls that the default tests try; `whole` tries the others."""
SIZE = 60
"""Orders of a storm with one more fault."""


@pytest.fixture
def seed() -> int:
    """Another one each time; the table that a test prints and fails with tells it."""
    return int.from_bytes(os.urandom(3))


def test_simulated_payouts_are_paid_once(seed: int) -> None:
    batches = [Batch(seed, 100, kind) for kind in ("async", "blocking")]
    total = simulation.run(batches, jobs=1)
    told = simulation.report(total, seed, str(batches), 0)
    print(told)  # noqa: T201  the seed, for whoever wants it again
    assert total.verdict.holds, told
    assert total.verdict.paid_once == 200
    assert all(total.counts[kind].total() for kind in ("faults", "callbacks")), told
    assert total.counts["events"]["kills"], told


def test_a_seed_replays_a_simulation_exactly(client_kind: str, seed: int) -> None:
    first, second = (simulation.simulate(Batch(seed, 30, client_kind)) for _ in range(2))
    assert (first.trace, first.counts, first.left_unknown) == (second.trace, second.counts, second.left_unknown), seed


@pytest.mark.parametrize(
    "control",
    [
        pytest.param(name, marks=() if name in FIRST else pytest.mark.whole)
        for name in CONTROLS
        if name not in OF_SOCKETS | OF_ORDERS
    ],
)
def test_the_simulation_catches_a_safety_that_is_off(control: str) -> None:
    tried = (simulation.simulate(Batch(seed, 30, "async", control)).verdict for seed in range(20))
    assert any(verdict.found & CAUGHT for verdict in tried), control


@pytest.mark.campaign
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_payouts_over_sockets_are_paid_once(database: str, seed: int, tmp_path: Path) -> None:
    if database == "postgresql":
        required_programs()
    result, told = Plan("payouts", 500, seconds=60, seed=seed, database=database).run(tmp_path)
    print(told)  # noqa: T201  the seed, for whoever wants it again
    assert result.verdict.holds, told
    assert result.verdict.paid_once == 500
    for kind in ("kills", "frozen senders", "releases", "faults struck"):
        assert result.counts[kind].total(), told


@pytest.mark.campaign
@pytest.mark.parametrize("control", SURELY_CAUGHT)
def test_the_campaign_catches_a_safety_that_is_off(control: str, seed: int, tmp_path: Path) -> None:
    # The journal is emptied after the storm, which need not be long.
    result, told = Plan("payouts", 40, seconds=8, seed=seed, control=control).run(tmp_path)
    assert result.verdict.found & CAUGHT, told


def with_fault(fault: str, seed: int, control: str | None = None) -> Plan:
    # Signals raise into blocking workers only. It takes five seconds to know that a call hangs.
    kind, seconds = ("blocking" if fault == "struck" else "both"), 12 if control else 8
    return Plan("payouts", SIZE, seconds=seconds, seed=seed, client_kind=kind, fault=fault, control=control)


@pytest.mark.campaign
@pytest.mark.parametrize("fault", OF_FAULTS)
def test_payouts_are_paid_once_in_the_worst_hour(fault: str, seed: int, tmp_path: Path) -> None:
    result, told = with_fault(fault, seed).run(tmp_path)
    print(told)  # noqa: T201  the seed, for whoever wants it again
    assert result.verdict.holds, told
    assert result.verdict.paid_once == SIZE
    releases, calls = result.counts["releases"], result.counts["calls of pay_once"]
    happened = {
        "late": releases["client.payouts.release, without a search: RequestValidationError"]
        and releases["released without a look, then found by the search"],
        "restored": result.details["calls refused over a restored copy"]
        and result.details["payouts that a restored copy had forgotten"],
        "struck": calls["struck by a signal"] > 5,
    }
    assert happened[fault], told


@pytest.mark.campaign
@pytest.mark.parametrize(("fault", "control"), OF_FAULTS.items())
def test_the_worst_hour_catches_a_safety_that_is_off(fault: str, control: str, seed: int, tmp_path: Path) -> None:
    result, told = with_fault(fault, seed, control).run(tmp_path)
    wanted = Finding.HUNG if fault == "struck" else Finding.DOUBLE
    assert wanted in result.verdict.found, told
