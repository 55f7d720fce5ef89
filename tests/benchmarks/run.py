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

from benchmarks import accounts, at_scale, calls, imports, reads
from benchmarks.measure import Goal, Row, Scale, row_of

FAR = "ms a payment, at 20 ms a round trip"
A_CALL, AN_ITEM, BARE = "us CPU a call", "us CPU an item", "httpx, tenacity, pydantic"
BENCHMARKS: dict[str, tuple[Callable[[Scale], dict[str, list[float]]], list[Goal]]] = {
    "imports": (
        imports.imports,
        [
            Goal("import momopay", "ms CPU", "momopay", 0.02, BARE),
            Goal("from momopay import parse_callback", "ms CPU", "callbacks", 1.10, "a deferred BaseModel"),
            Goal("import, build a client", "ms CPU", "client", 0.35, BARE),
        ],
    ),
    "cold_start": (imports.cold_start, [Goal("cold start to first answer", "ms CPU", "momopay", 1.45, "httpx")]),
    "get": (reads.get, [Goal("GET one record, sync", A_CALL, "momopay", 0.84, "httpx")]),
    "get_async": (
        reads.get_async,
        [
            Goal("GET one record, asyncio", A_CALL, "momopay", 0.70, "httpx"),
            Goal("GET one record, asyncio, aiohttp extra", A_CALL, "aiohttp", 0.40, "httpx"),
        ],
    ),
    "list": (reads.walk, [Goal("list, 50 pages of 100, sync", AN_ITEM, "momopay", 1.10, "httpx")]),
    "list_async": (reads.walk_async, [Goal("list, 50 pages of 100, asyncio", AN_ITEM, "momopay", 1.06, "httpx")]),
    "in_flight": (reads.in_flight, [Goal("100 in flight", "us wall a request", "momopay", 0.35, "httpx")]),
    "callback": (
        calls.callback,
        [
            Goal("callback body to record", "us CPU a body", "record", 1.0, "json.loads"),
            Goal("callback with its token checked", "us CPU a body", "checked", 1.7, "json.loads"),
        ],
    ),
    "pay_once": (
        calls.pay_once,
        [
            Goal("pay_once, SQLite", A_CALL, "SQLite", 1_200.0),
            Goal("pay_once, PostgreSQL", A_CALL, "PostgreSQL", 1_200.0),
            Goal("pay_once, 1,000,000 rows", A_CALL, "1,000,000 rows", 1.05, "SQLite"),
        ],
    ),
    "accounts": (
        accounts.accounts,
        [
            Goal("8 accounts, 1 process", FAR, "8 x 1", 1.3, "1 x 1"),
            Goal("8 accounts, 4 processes", FAR, "8 x 4", 1.3, "1 x 1"),
            Goal("8 accounts, 8 processes", FAR, "8 x 8", 1.3, "1 x 1"),
            Goal("1 account, 4 processes", FAR, "1 x 4", 2.0, "1 x 1"),
            Goal("1 account, 8 processes", FAR, "1 x 8", 3.0, "1 x 1"),
            Goal("8 accounts, 8 processes: waits for a lock", "% of the time", "8 x 8 waits", 1.0),
            Goal("1 account, 8 processes: waits for a lock", "% of the time", "1 x 8 waits", 90.0),
        ],
    ),
    "sweep": (at_scale.sweep, [Goal("sweep, 10,000 open", "requests a pass", "sweep", 15.0)]),
    "rate_budget": (calls.slot_of_a_file, [Goal("FileRateBudget, a slot", "us CPU a slot", "file", 80.0)]),
    "waits": (at_scale.waits, [Goal("10,000 waits at once", "us CPU a wait", "waits", 300.0)]),
}
NEEDS_POSTGRESQL = {"PostgreSQL", *(f"{a} x {b}{more}" for a, b in accounts.SIDES for more in ("", " waits"))}
HEADINGS = ("work", "against", "goal", "median", "min", "max", "", "ours", "theirs", "unit")


def measure(name: str, scale: Scale) -> list[Row]:
    """Return the rows of a benchmark, without those of a database that is not installed."""
    work, goals = BENCHMARKS[name]
    taken = work(scale)
    return [row_of(goal, taken) for goal in goals if goal.side in taken or goal.side not in NEEDS_POSTGRESQL]


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
        rows += measure(name, Scale(rounds=options.rounds))
    heading = f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, "
    sys.stdout.write(f"{heading}{options.rounds} rounds; goals are for the median ratio, ours / theirs\n\n")
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
