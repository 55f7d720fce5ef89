"""Every benchmark still runs and still gives its rows. Never a timing: those are read, not asserted."""

from math import isfinite
from typing import Final

import pytest

from benchmarks.measure import Goal, Row, Scale, row_of
from benchmarks.run import BENCHMARKS, HEADINGS, cells, measure, table

A_TASTE: Final = Scale(rounds=1, share=0.01, warms_up=False)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_gives_its_rows(name: str) -> None:
    rows = measure(name, A_TASTE)
    assert rows
    for row in rows:
        assert len(row.ours) == len(row.theirs) == len(row.ratios) == A_TASTE.rounds
        assert all(map(isfinite, row.ratios))
        assert len(cells(row)) == len(HEADINGS)


def test_the_table_shows_whether_the_median_reached_its_goal() -> None:
    cost = Row("read", "us", [1.0, 2.0, 9.0], "httpx", [2.0, 2.0, 3.0], goal=1.0)
    memory = row_of(Goal("memory", "MB", "ours", 1.0), {"ours": [2.0]})
    assert cost.ratios == [0.5, 1.0, 3.0]
    assert (cost.is_held, memory.is_held) == (True, False)
    _, first, second = table([cost, memory]).splitlines()
    assert first.split() == ["read", "httpx", "<=", "1.00", "1.00", "0.50", "3.00", "held", "2.0", "2.0", "us"]
    assert "MISSED" in second
