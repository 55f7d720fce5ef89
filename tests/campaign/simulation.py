"""Fault campaigns in virtual time: `python tests/campaign/simulation.py --payouts 100000 --seed 1`.

Neither sockets nor threads: a seed replays a campaign exactly. The journal and its database are real.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import controls
from campaign.judge import Verdict
from campaign.plan import table
from campaign.port import Weather
from campaign.world import Outcome, World

BATCH = 200
"""Payouts of one account and one journal."""

FIERCE = 0.7
"""How likely a fault strikes a payout of a control, which is to be caught soon."""


@dataclass(frozen=True)
class Batch:
    """What one process of the machine simulates at a time."""

    seed: int
    orders: int
    client_kind: str
    control: str | None = None


def simulate(batch: Batch) -> Outcome:
    """Run one batch. A disk in memory is used where there is one: what is tested is the order of the writes."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    memory = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
    safety = nullcontext() if batch.control is None else controls.broken(batch.control)
    with folder as name, safety:
        weather = (
            Weather() if batch.control is None else Weather(payout=FIERCE, lag=FIERCE, callback=FIERCE, fates=("lost",))
        )
        return World(batch.seed, batch.orders, batch.client_kind, Path(name), weather).run()


def batches(seed: int, payouts: int, client_kind: str, control: str | None = None) -> list[Batch]:
    """Divide a campaign into batches, each with a seed of its own, in turn for both clients."""
    kinds = ["async", "blocking"] if client_kind == "both" else [client_kind]
    sizes = [min(BATCH, payouts - begun) for begun in range(0, payouts, BATCH)]
    return [Batch(seed * 1_000_003 + n, size, kinds[n % len(kinds)], control) for n, size in enumerate(sizes)]


@dataclass
class Sum:
    """Many batches, summed up."""

    verdict: Verdict
    left_unknown: int
    released: int
    counts: dict[str, Counter[str]]
    trace: int


def summed(outcomes: Iterable[Outcome]) -> Sum:
    """Sum up."""
    total = Sum(Verdict(0, 0, 0, 0), 0, 0, {}, 0)
    for outcome in outcomes:
        total.verdict.add(outcome.verdict)
        total.left_unknown += outcome.left_unknown
        total.released += outcome.released
        total.trace = (total.trace * 31 + outcome.trace) % (1 << 61)
        for name, counts in outcome.counts.items():
            total.counts.setdefault(name, Counter()).update(counts)
    return total


def run(work: Sequence[Batch], jobs: int) -> Sum:
    """Simulate batches, in so many processes of this machine; that changes no result."""
    if jobs == 1:
        return summed(map(simulate, work))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return summed(pool.map(simulate, work))


def report(total: Sum, seed: int, command: str, seconds: float) -> str:
    """Write the table."""
    details = {
        "seed": seed,
        "trace": f"{total.trace:x}",
        "seconds": f"{seconds:.0f}",
        "left UNKNOWN when the faults were over": total.left_unknown,
        "released by a human, then paid": total.released,
    }
    return f"{command}\n{table(total.verdict, details, total.counts)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 0 if it holds, 1 if it does not."""
    parser = argparse.ArgumentParser(description="Fault campaigns in virtual time.")
    parser.add_argument("--payouts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None, help="printed, so that it can be given again")
    parser.add_argument("--client", dest="client_kind", choices=("both", "blocking", "async"), default="both")
    parser.add_argument(
        "--control",
        choices=sorted(controls.CONTROLS.keys() - controls.OF_ORDERS - controls.OF_SOCKETS),
        help="break one safety on purpose",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes of this machine; changes no result")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(3))
    work = batches(seed, options.payouts, options.client_kind, options.control)
    begun = time.monotonic()
    total = run(work, options.jobs)
    command = (
        f"python tests/campaign/simulation.py --payouts {options.payouts} --seed {seed} --client {options.client_kind}"
    )
    if options.control:
        command += f" --control {options.control}"
    sys.stdout.write(report(total, seed, command, time.monotonic() - begun) + "\n")
    return 0 if total.verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
