"""The campaign of collections in short: it finds nothing on both databases, and finds what a safety prevents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from campaign import collect
from campaign.controls import OF_ORDERS
from campaign.plan import Plan
from postgresql import required_programs

pytestmark = pytest.mark.campaign


@pytest.fixture
def seed() -> int:
    """Another one each time; the table that a test prints and fails with tells it."""
    return int.from_bytes(os.urandom(3))


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_orders_are_collected_once(database: str, seed: int, tmp_path: Path) -> None:
    if database == "postgresql":
        required_programs()
    result, report = Plan("orders", 100, seconds=30, seed=seed, database=database).run(tmp_path)
    print(report)  # noqa: T201  the seed, for whoever wants it again
    assert not result.verdict.found, report
    assert result.verdict.prompts > 100, report
    assert result.counts["kills"].total(), report


@pytest.mark.parametrize("control", sorted(OF_ORDERS))
def test_the_campaign_catches_a_safety_that_is_off(control: str, seed: int, tmp_path: Path) -> None:
    told: list[str] = []
    for storm in range(3):
        result, report = Plan("orders", 60, seconds=20, seed=seed + storm, control=control).run(tmp_path)
        if result.verdict.found & collect.CAUGHT:
            return
        told.append(report)
    pytest.fail("\n".join(told))
