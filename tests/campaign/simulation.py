"""Fault campaigns in virtual time: `python tests/campaign/simulation.py --payouts 100000 --seed 1`.

Neither sockets nor threads: a seed replays a campaign exactly. The journal and its database are real.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import controls
from campaign.port import Weather
from campaign.settings import Result
from campaign.world import World

BATCH = 200
"""Payouts of one account and one journal."""
FIERCE = 0.7
"""How likely a fault strikes a payout of a control, which is to be caught soon."""
KINDS = ("async", "blocking")


@dataclass(frozen=True)
class Batch:
    """What one process of the machine simulates at a time."""

    seed: int
    orders: int
    client_kind: str
    control: str | None = None


def simulate(batch: Batch) -> Result:
    """Run one batch. A disk in memory is used where there is one: what is tested is the order of the writes."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL + 1)
    memory = Path("/dev/shm")
    folder = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
    weather = Weather()
    if batch.control is not None:
        weather = Weather(payout=FIERCE, lag=FIERCE, callback=FIERCE, fates=("lost",))
    with folder as name, nullcontext() if batch.control is None else controls.broken(batch.control):
        return World(batch.seed, batch.orders, batch.client_kind, Path(name), weather).run()


def run(batches: Sequence[Batch], jobs: int = 1) -> Result:
    """Simulate batches, in so many processes of this machine; that changes no result."""
    total = Result()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) if jobs > 1 else nullcontext() as pool:
        for result in map(simulate, batches) if pool is None else pool.map(simulate, batches):
            total.add(result)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description="Fault campaigns in virtual time.")
    parser.add_argument("--payouts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)), help="printed, to be given again")
    parser.add_argument("--control", choices=sorted(controls.OF_SIMULATION), help="break one safety on purpose")
    parser.add_argument("--jobs", type=int, default=1, help="processes of this machine; changes no result")
    options = parser.parse_args()
    batches = [
        Batch(options.seed * 1_000_003 + number, min(BATCH, left), KINDS[number % 2], options.control)
        for number, left in enumerate(range(options.payouts, 0, -BATCH))
    ]
    result = run(batches, options.jobs)
    sys.stdout.write(result.report(f"seed {options.seed}, {vars(options)}") + "\n")
    return 0 if result.verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
