"""Every benchmark still runs and still gives its rows. Never a timing: those are read, not asserted."""

from math import isfinite
from typing import Final

import pytest

from benchmarks.measure import Scale
from benchmarks.run import BENCHMARKS, table

A_TASTE: Final = Scale(rounds=1, share=0.01, warms_up=False)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_gives_its_rows(name: str) -> None:
    rows = BENCHMARKS[name](A_TASTE)
    assert len(table(rows).splitlines()) == 1 + len(rows) > 1
    for row in rows:
        assert len(row.ours) == len(row.theirs) == len(row.ratios) == A_TASTE.rounds
        assert all(isfinite(figure) and figure > 0 for figure in (*row.ours, *row.theirs))
