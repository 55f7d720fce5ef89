"""Every benchmark still runs and still gives its rows. Never a timing: those are read, not asserted."""

from collections.abc import Mapping
from math import isfinite
from typing import Final

import pytest

from benchmarks.measure import Row, Scale
from benchmarks.run import BENCHMARKS, HEADINGS, cells, table

A_TASTE: Final = Scale(rounds=1, share=0.01, warms_up=False)
ROWS: Final[Mapping[str, set[str]]] = {
    "imports": {
        "import momopay",
        "from momopay import parse_callback",
        "import, build a client",
        "import, client.transactions",
    },
    "cold_start": {"cold start to first answer"},
    "get": {"GET one record, sync", "GET one record, asyncio", "GET one record, asyncio, aiohttp extra"},
    "list": {"list, 50 pages of 100, sync", "list, 50 pages of 100, asyncio"},
    "in_flight": {"100 in flight", "100 in flight: p99"},
    "callback": {"callback body to record", "callback with its token checked"},
    "events": {"initiate, an on_event"},
    "pay_once": {"pay_once, SQLite", "pay_once, 1,000,000 rows"},
    "sweep": {"sweep, 1,000 open", "sweep, 10,000 open"},
    "rate_budget": {
        "232 payments at once: last slot",
        "20 payments 1 s after 200 reads: last slot",
        "reserve behind 1,000",
        "FileRateBudget, a slot",
    },
    "waits": {"10,000 waits at once"},
    "soak": {"an hour at 60 requests a minute"},
    "sandbox": {"sandbox: GET one record"},
}


def test_every_benchmark_is_tasted() -> None:
    assert list(ROWS) == list(BENCHMARKS)


@pytest.mark.parametrize("name", ROWS)
def test_a_benchmark_gives_its_rows(name: str) -> None:
    rows = BENCHMARKS[name](A_TASTE)
    assert {row.work for row in rows} >= ROWS[name]
    for row in rows:
        assert len(row.ours) == len(row.theirs) == len(row.ratios) == A_TASTE.rounds
        assert all(isfinite(figure) and figure > 0 for figure in (*row.ours, *row.theirs))
        assert len(cells(row)) == len(HEADINGS)


def test_the_table_shows_whether_the_median_reached_its_goal() -> None:
    cost = Row("read", "us", [1.0, 2.0, 9.0], "httpx", [2.0, 2.0, 3.0], goal=1.0)
    speed = Row("reads", "a second", [80.0], "bare", [100.0], goal=0.9, at_least=True)
    memory = Row("memory", "MB", [52.0], "floor", [50.0], is_difference=True)
    assert cost.ratios == [0.5, 1.0, 3.0]
    assert [row.reaches_its_goal for row in (cost, speed, memory)] == [True, False, None]
    _, first, second, third = table([cost, speed, memory]).splitlines()
    assert first.split() == ["read", "httpx", "<=", "1.00", "1.00", "0.50", "3.00", "held", "2.0", "2.0", "us"]
    assert "MISSED" in second
    assert "2.00" in third
