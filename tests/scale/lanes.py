"""Payments beside reads and waits, in virtual time: `python tests/scale/lanes.py --minutes 10 --seed 1`.

One key, 60 requests a minute. Payments come at random, 20 a minute, and each is waited for. Beside them so many reads
queue all the time, and so many payouts are outstanding and waited for. No sockets: a seed replays a run.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
import trio

from momopay import AsyncClient, MomoPayError, PollSchedule, RateBudget, WaitTimeoutError
from scale.simulation import BASE, Service, TrioIO, in_virtual_time
from virtual import install_backend

PAYMENTS_A_MINUTE = 20.0
WARM_UP = 180.0
LONG = 1e6
"""Seconds; the deadline of the reads, which are to queue."""


@dataclass
class Run:
    """What a run showed. Times are in seconds of steady state."""

    reads: int
    waits: int
    delays: list[float] = field(default_factory=list[float])
    """How long each payment waited until it was sent."""
    gaps: list[float] = field(default_factory=list[float])
    """How long nothing was polled while somebody waited."""
    settled: float = 0.0
    failed: int = 0
    limited: int = 0

    @property
    def p95(self) -> float:
        return quantiles(self.delays, n=20)[-1]


class Lanes:
    """One run under way."""

    def __init__(self, run: Run, seed: int, minutes: float, nursery: trio.Nursery) -> None:
        self.run = run
        self.nursery = nursery
        self.service = Service(seed)
        self.stop = WARM_UP + 60.0 * minutes
        self.client = AsyncClient("pk_test_lanes", base_url=BASE, budget=RateBudget())
        install_backend(self.client, TrioIO(httpx.MockTransport(self.answer)))
        self.polled_at = 0.0
        self.told = 0

    @property
    def is_steady(self) -> bool:
        return WARM_UP <= self.service.now() < self.stop

    async def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and "q" not in request.url.params:  # which only the reads of this run send
            if self.is_steady:
                self.run.gaps.append(self.service.now() - self.polled_at)
            self.polled_at = self.service.now()
        return await self.service(request)

    async def pay(self) -> None:
        begun = self.service.now()
        try:
            prompt = await self.client.stk.initiate(amount=100, phone="0712345678")
        except MomoPayError:
            self.run.failed += self.is_steady
            return
        made = self.service.lives[prompt.transaction_id].made
        if WARM_UP <= begun < self.stop:
            self.run.delays.append(made - begun)
        await self.wait(prompt.transaction_id, counts=True)

    async def wait(self, identity: str, *, counts: bool = False) -> None:
        try:
            await self.client.transactions.wait(identity, schedule=PollSchedule(limit=600.0))
        except WaitTimeoutError:
            return
        self.told += counts and self.is_steady

    async def read(self) -> None:
        client = self.client.with_options(deadline=LONG, timeout=60.0)
        while True:
            await client.transactions.list(limit=1, q="x")

    async def keep_waiting(self) -> None:
        while True:
            await self.wait(self.service.make("B2C").identity)


def simulate(reads: int, waits: int, *, seed: int = 1, minutes: float = 10.0) -> Run:
    logging.getLogger("momopay").setLevel(logging.ERROR)
    run = Run(reads, waits)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            lanes = Lanes(run, seed, minutes, nursery)
            for _ in range(reads):
                nursery.start_soon(lanes.read)
            for _ in range(waits):
                nursery.start_soon(lanes.keep_waiting)
            while lanes.service.now() < lanes.stop:
                await trio.sleep(lanes.service.chance.expovariate(PAYMENTS_A_MINUTE / 60.0))
                nursery.start_soon(lanes.pay)
            run.settled = lanes.told / minutes
            run.limited = lanes.service.refused
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    return run


def table(runs: Iterable[Run]) -> str:
    lines = [
        f"{'reads':>6}{'waits':>6}{'median':>9}{'p95':>7}{'longest':>9}{'failed':>8}{'settled':>9}{'polls':>8}{'429s':>6}"
    ]
    for run in runs:
        gap = max(run.gaps, default=0.0)
        lines.append(
            f"{run.reads:>6}{run.waits:>6}{median(run.delays):>9.1f}{run.p95:>7.1f}{max(run.delays):>9.1f}"
            f"{run.failed:>8}{run.settled:>9.1f}{gap:>8.1f}{run.limited:>6}"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of steady state in each run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seed, minutes = options.seed, options.minutes
    sys.stdout.write(f"seed {seed}, {minutes:g} minutes of steady state each, virtual time; delays in seconds\n")
    grid = [(reads, waits) for reads in (0, 50, 500) for waits in (0, 50, 300)]
    sys.stdout.write(table(simulate(*each, seed=seed, minutes=minutes) for each in grid))


if __name__ == "__main__":
    main()
