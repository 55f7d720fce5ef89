"""Nobody is paid twice and no payment is lost, whatever fails; and every safety that this rests on is missed when off.

The simulation runs by default, the campaign over sockets under the marker `campaign`.
"""

import os
from pathlib import Path
from typing import Literal

import pytest

from campaign import collect, simulation
from campaign.controls import CAUGHT, OF_FAULTS, OF_ORDERS, OF_SIMULATION, SURELY_CAUGHT
from campaign.judge import Finding
from campaign.settings import PRESSED, Plan, Result
from campaign.simulation import Batch
from postgresql import required_programs

FIRST = ("repeat_on_read_timeout", "no_lease", "send_again_when_absent")
"""Controls that the default tests try; `whole` tries the others."""
SIZE = 60  # orders of a storm with one more fault


@pytest.fixture
def seed() -> int:
    """Another one each time; the report that a test prints and fails with tells it."""
    return int.from_bytes(os.urandom(3))


def test_simulated_payouts_are_paid_once(seed: int) -> None:
    batches = [Batch(seed, 40, kind) for kind in ("async", "blocking")]
    total = simulation.run(batches)
    told = total.report(str(batches))
    print(told)  # noqa: T201  the seed, for whoever wants it again
    assert total.verdict.holds, told
    assert total.verdict.paid_once == 80
    assert all(total.counts[kind].total() for kind in ("faults", "callbacks")), told
    assert total.counts["events"]["kills"], told


@pytest.mark.parametrize(("keys", "claims"), [("honoured", True), ("honoured", False), ("forgotten", False)])
def test_simulated_payouts_are_paid_once_whatever_the_service_does_with_keys(
    seed: int, keys: str, *, claims: bool
) -> None:
    batches = [Batch(seed, 40, kind, keys=keys, claims_keys=claims) for kind in ("async", "blocking")]
    total = simulation.run(batches)
    told = total.report(str(batches))
    assert total.verdict.holds, told
    assert total.verdict.paid_once == 80
    assert total.counts["events"]["payouts that need a person"] == 0, told


def test_the_simulation_catches_a_claim_about_keys_that_is_not_true() -> None:
    tried = (simulation.simulate(Batch(seed, 40, "async", claims_keys=True)).verdict for seed in range(20))
    assert any(Finding.DOUBLE in verdict.found for verdict in tried)


def test_a_seed_replays_a_simulation_exactly(client_kind: str, seed: int) -> None:
    first, second = (simulation.simulate(Batch(seed, 8, client_kind)) for _ in range(2))
    assert (first.details, first.counts) == (second.details, second.counts), seed


@pytest.mark.parametrize(
    "control", [pytest.param(name, marks=() if name in FIRST else pytest.mark.whole) for name in sorted(OF_SIMULATION)]
)
def test_the_simulation_catches_a_safety_that_is_off(control: str) -> None:
    tried = (simulation.simulate(Batch(seed, 30, "async", control)).verdict for seed in range(20))
    assert any(verdict.found & CAUGHT for verdict in tried), control


def run_plan(plan: Plan, folder: Path) -> tuple[Result, str]:
    if plan.database == "postgresql":
        required_programs()
    result, told = plan.run(folder)
    print(told)  # noqa: T201  the seed, for whoever wants it again
    return result, told


@pytest.mark.campaign
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("what", ["payouts", "orders"])
def test_what_is_paid_over_sockets_is_paid_once(
    what: Literal["payouts", "orders"], database: str, seed: int, tmp_path: Path
) -> None:
    size, seconds, kinds = 500, 60, ["kills", "frozen senders", "releases", "faults struck"]
    if what == "orders":
        size, seconds, kinds = 100, 30, ["kills"]
    result, told = run_plan(Plan(what, size, seconds, seed, database), tmp_path)
    assert result.verdict.holds, told
    assert result.verdict.paid_once == size if what == "payouts" else result.verdict.payments > size, told
    for kind in kinds:
        assert result.counts[kind].total(), told


@pytest.mark.campaign
@pytest.mark.parametrize("keys", ["honoured", "forgotten"])
def test_what_is_paid_over_sockets_is_paid_once_whatever_the_service_does_with_keys(
    keys: str, seed: int, tmp_path: Path
) -> None:
    # Shorter than 15 minutes of the service's time.
    result, told = run_plan(Plan("payouts", 200, 30, seed, keys=keys), tmp_path)
    assert result.verdict.holds, told
    assert result.verdict.paid_once == 200, told
    assert result.details["payouts that need a person"] == 0, told


def with_fault(fault: str, seed: int, control: str | None = None) -> Plan:
    # It takes five seconds to know that a call hangs.
    return Plan("payouts", SIZE, seconds=12 if control else 8, seed=seed, fault=fault, control=control)


@pytest.mark.campaign
@pytest.mark.parametrize("fault", OF_FAULTS)
def test_payouts_are_paid_once_in_the_worst_hour(fault: str, seed: int, tmp_path: Path) -> None:
    result, told = run_plan(with_fault(fault, seed), tmp_path)
    assert result.verdict.holds, told
    assert result.verdict.paid_once == SIZE
    releases, calls = result.counts["releases"], result.counts["calls"]
    happened = {
        **dict.fromkeys(PRESSED, releases["client.payouts.release, without a search: RequestValidationError"]),
        "restored": result.details["calls refused over a restored copy"]
        and result.details["payouts that a restored copy had forgotten"],
        "struck": calls["struck by a signal"] > 5,
    }
    assert happened[fault], told


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("fault", "control", "wanted"),
    [
        # The journal is emptied after the storm, which need not be long.
        *((None, control, CAUGHT) for control in SURELY_CAUGHT),
        *((fault, OF_FAULTS[fault], {Finding.DOUBLE}) for fault in ("late", "stepped", "restored")),
        ("struck", OF_FAULTS["struck"], {Finding.HUNG}),
        *((None, control, collect.CAUGHT) for control in sorted(OF_ORDERS)),
    ],
)
def test_the_campaign_catches_a_safety_that_is_off(
    fault: str | None, control: str, wanted: set[Finding], seed: int, tmp_path: Path
) -> None:
    told: list[str] = []
    for storm in range(3 if control in OF_ORDERS else 1):
        plan = Plan("payouts", 40, seconds=8, seed=seed, control=control)
        if fault is not None:
            plan = with_fault(fault, seed, control)
        elif control in OF_ORDERS:
            plan = Plan("orders", 60, seconds=20, seed=seed + storm, control=control)
        result, report = run_plan(plan, tmp_path)
        if result.verdict.found & wanted:
            return
        told.append(report)
    pytest.fail("\n".join(told))
