"""Keys add up: each has a budget of its own, and one journal serves all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from scale.accounts import Plan, Report, measure


def test_what_is_settled_grows_with_the_keys_and_not_with_one_budget_for_all(tmp_path: Path) -> None:
    async def run() -> list[Report]:
        plans = [
            Plan(keys, f"sqlite:///{tmp_path / name}", speed=5.0, windows=1, shared=name == "shared.db")
            for name, keys in (("one.db", 1), ("four.db", 4), ("shared.db", 4))
        ]
        return await asyncio.gather(*map(measure, plans))

    reports = asyncio.run(run())
    for report in reports:
        assert report.refused == report.paid_twice == report.unknown == 0
    alone, together, shared = (report.a_minute for report in reports)
    # One window is measured in real time, beside other tests.
    assert together >= 0.8 * 4 * alone
    assert shared <= 1.5 * alone
