"""The campaign of collections in short: it finds nothing on both databases, and finds what a safety prevents."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from campaign import collect
from campaign.collect_plan import Plan, Result
from campaign.controls import OF_ORDERS
from postgresql import required_programs

pytestmark = pytest.mark.campaign


@pytest.fixture
def seed() -> int:
    """Another one each time; the table that a test prints and fails with tells it."""
    return int.from_bytes(os.urandom(3))


def campaign(plan: Plan, folder: Path) -> Result:
    """Run a campaign in a process of its own, which has a network of its own."""
    path = folder / f"{plan.seed}.pickle"
    program = [sys.executable, collect.__file__, *plan.arguments, "--result", str(path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert path.exists(), done.stderr
    return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_orders_are_collected_once(database: str, seed: int, tmp_path: Path) -> None:
    if database == "postgresql":
        required_programs()
    result = campaign(Plan(orders=100, seconds=30, seed=seed, database=database), tmp_path)
    print(result.report)  # noqa: T201  the seed, for whoever wants it again
    assert not result.verdict.found, result.report
    assert result.verdict.prompts > 100, result.report
    assert result.counts["kills"].total(), result.report


@pytest.mark.parametrize("control", sorted(OF_ORDERS))
def test_the_campaign_catches_a_safety_that_is_off(control: str, seed: int, tmp_path: Path) -> None:
    told: list[str] = []
    for storm in range(3):
        result = campaign(Plan(orders=60, seconds=20, seed=seed + storm, control=control), tmp_path)
        if result.verdict.found & collect.CAUGHT:
            return
        told.append(result.report)
    pytest.fail("\n".join(told))
