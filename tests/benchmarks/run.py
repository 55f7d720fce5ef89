"""What momopay costs beside the bare libraries it stands on: `python tests/benchmarks/run.py [names...]`.

How to read the table: both sides of a row were measured in turn, in the same rounds of one run on this machine.
Absolute figures move from machine to machine and from hour to hour; the ratios count, and of those the median.
Where their spread (min, max) is wide, the machine was busy: run it again. A ratio of 0.8 means four fifths of
the other side's cost. CPU is this process's alone: servers run in processes of their own, on another core where cores
can be chosen.
"""

import argparse
import logging
import platform
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import at_scale, callback_bodies, imports, pay_once, rate_budget, reads
from benchmarks.measure import Row, Scale

BENCHMARKS: dict[str, Callable[[Scale], list[Row]]] = {
    "imports": imports.measure,
    "cold_start": imports.measure_cold_start,
    "get": reads.measure,
    "list": reads.measure_walk,
    "in_flight": reads.measure_in_flight,
    "callback": callback_bodies.measure,
    "pay_once": pay_once.measure,
    "sweep": at_scale.measure_sweep,
    "rate_budget": rate_budget.measure,
    "waits": at_scale.measure_waits,
}
HEADINGS = ("work", "against", "goal", "median", "min", "max", "", "ours", "theirs", "unit")


def cells(row: Row) -> tuple[str, ...]:
    ratios = row.ratios
    figures = (f"{figure:.{2 if abs(figure) >= 0.1 else 3}f}" for figure in (median(ratios), min(ratios), max(ratios)))
    sides = (f"{median(side):.1f}" for side in (row.ours, row.theirs))
    return row.work, row.other, f"<= {row.goal:.2f}", *figures, "held" if row.is_held else "MISSED", *sides, row.unit


def table(rows: Iterable[Row]) -> str:
    """Lay rows out in columns: words to the left, figures to the right."""
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    words = {HEADINGS.index(name) for name in ("work", "against", "", "unit")}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place in words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--rounds", type=int, default=9, help="how many rounds each (default 9)")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown or options.rounds < 1:
        parser.error(f"no benchmark {', '.join(unknown)}" if unknown else "at least one round")
    logging.getLogger("momopay").setLevel(logging.ERROR)  # some benchmarks let hundreds wait for the rate budget
    rows: list[Row] = []
    for name in options.names or BENCHMARKS:
        sys.stderr.write(f"{name} ...\n")
        rows += BENCHMARKS[name](Scale(rounds=options.rounds))
    heading = f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, "
    sys.stdout.write(f"{heading}{options.rounds} rounds; goals are for the median ratio, ours / theirs\n\n")
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
