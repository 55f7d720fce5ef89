"""Keys add up: each has a budget of its own, and one journal serves all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from scale.accounts import Plan, Report, measure

ONE_KEY = 60
"""What the service takes of one key in a minute."""


def test_what_is_settled_grows_with_the_keys_and_not_with_one_budget_for_all(tmp_path: Path) -> None:
    async def run() -> list[Report]:
        plans = [
            Plan(4, f"sqlite:///{tmp_path / name}", speed=10.0, windows=1, shared=name == "shared.db", margin=4.0)
            for name in ("together.db", "shared.db")
        ]
        return await asyncio.gather(*map(measure, plans))

    reports = asyncio.run(run())
    for report in reports:
        assert report.refused == report.paid_twice == report.unknown == 0
    together, shared = (report.a_minute for report in reports)
    # One window is measured in real time, beside other tests; it could settle 4 * 56, and 56.
    assert together >= 2 * ONE_KEY
    assert shared <= 1.5 * ONE_KEY
