"""Every benchmark still runs and still gives its rows. Never a timing: those are read, not asserted."""

from collections.abc import Mapping
from math import isfinite
from typing import Final

import pytest

from benchmarks.measure import Row, Scale, against_the_goal
from benchmarks.run import BENCHMARKS, HEADINGS, cells, table

A_TASTE: Final = Scale(rounds=1, share=0.01, warms_up=False)
ROWS: Final[Mapping[str, set[str]]] = {
    "imports": {"import momopay", "from momopay import parse_callback", "import, build a client"},
    "cold_start": {"cold start to first answer"},
    "get": {"GET one record, sync", "GET one record, asyncio", "GET one record, asyncio, aiohttp extra"},
    "list": {"list, 50 pages of 100, sync", "list, 50 pages of 100, asyncio"},
    "in_flight": {"100 in flight"},
    "callback": {"callback body to record", "callback with its token checked"},
    "pay_once": {"pay_once, SQLite", "pay_once, 1,000,000 rows"},
    "sweep": {"sweep, 10,000 open"},
    "rate_budget": {"FileRateBudget, a slot"},
    "waits": {"10,000 waits at once"},
}


def test_every_benchmark_is_tasted() -> None:
    assert list(ROWS) == list(BENCHMARKS)


@pytest.mark.parametrize("name", ROWS)
def test_a_benchmark_gives_its_rows(name: str) -> None:
    rows = BENCHMARKS[name](A_TASTE)
    assert {row.work for row in rows} >= ROWS[name]
    for row in rows:
        assert len(row.ours) == len(row.theirs) == len(row.ratios) == A_TASTE.rounds
        assert all(map(isfinite, row.ratios))
        assert len(cells(row)) == len(HEADINGS)


def test_the_table_shows_whether_the_median_reached_its_goal() -> None:
    cost = Row("read", "us", [1.0, 2.0, 9.0], "httpx", [2.0, 2.0, 3.0], goal=1.0)
    memory = against_the_goal("memory", "MB", [2.0], 1.0)
    assert cost.ratios == [0.5, 1.0, 3.0]
    assert (cost.is_held, memory.is_held) == (True, False)
    _, first, second = table([cost, memory]).splitlines()
    assert first.split() == ["read", "httpx", "<=", "1.00", "1.00", "0.50", "3.00", "held", "2.0", "2.0", "us"]
    assert "MISSED" in second
