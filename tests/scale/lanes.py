"""Payments beside reads and waits, in virtual time: `python tests/scale/lanes.py --minutes 10 --seed 1`.

One key, 60 requests a minute. Payments come at random, 20 a minute, and each is waited for. Beside them so many reads
queue all the time, and so many payouts are outstanding and waited for. No sockets: a seed replays a run.
"""

import argparse
import logging
import sys
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
import trio

from momopay import AsyncClient, MomoPayError, PollSchedule, RateBudget, WaitTimeoutError
from scale.simulation import BASE, OneKey, TrioIO, in_virtual_time
from virtual import install_backend

PAYMENTS_A_MINUTE = 20.0
WARM_UP = 180.0
LONG = 1e6  # seconds; the deadline of the reads, which are to queue


class LaneTimes:
    """One run, and what it showed in its steady state. Times are in seconds."""

    def __init__(self, seed: int, minutes: float) -> None:
        self.service = OneKey(seed)
        self.minutes = minutes
        self.stop = WARM_UP + 60.0 * minutes
        self.client = AsyncClient("pk_test_lanes", base_url=BASE, budget=RateBudget())
        install_backend(self.client, TrioIO(httpx.MockTransport(self.answer)))
        self.polled_at = 0.0
        self.delays: list[float] = []  # how long each payment waited until it was sent
        self.gaps: list[float] = []  # how long nothing was polled while somebody waited
        self.told = 0
        self.failed = 0

    @property
    def settled(self) -> float:
        return self.told / self.minutes

    @property
    def p95(self) -> float:
        return quantiles(self.delays, n=20)[-1]

    @property
    def is_steady(self) -> bool:
        return WARM_UP <= self.service.now() < self.stop

    async def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and "q" not in request.url.params:  # which only the reads of this run send
            if self.is_steady:
                self.gaps.append(self.service.now() - self.polled_at)
            self.polled_at = self.service.now()
        return await self.service(request)

    async def pay(self) -> None:
        begun = self.service.now()
        try:
            prompt = await self.client.stk.initiate(amount=100, phone="0712345678")
        except MomoPayError:
            self.failed += self.is_steady
            return
        made = self.service.lives[prompt.transaction_id].made
        if WARM_UP <= begun < self.stop:
            self.delays.append(made - begun)
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


def simulate(reads: int, waits: int, *, seed: int = 1, minutes: float = 10.0) -> LaneTimes:
    logging.getLogger("momopay").setLevel(logging.ERROR)

    async def main() -> LaneTimes:
        async with trio.open_nursery() as nursery:
            lanes = LaneTimes(seed, minutes)
            for _ in range(reads):
                nursery.start_soon(lanes.read)
            for _ in range(waits):
                nursery.start_soon(lanes.keep_waiting)
            while lanes.service.now() < lanes.stop:
                await trio.sleep(lanes.service.chance.expovariate(PAYMENTS_A_MINUTE / 60.0))
                nursery.start_soon(lanes.pay)
            nursery.cancel_scope.cancel()
        return lanes

    return in_virtual_time(main)


ROW = "{:>6}{:>6}{:>9}{:>7}{:>9}{:>8}{:>9}{:>8}{:>6}\n"
HEAD = ("reads", "waits", "median", "p95", "longest", "failed", "settled", "polls", "429s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of steady state in each run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seed, minutes = options.seed, options.minutes
    sys.stdout.write(f"seed {seed}, {minutes:g} minutes of steady state each, virtual time; delays in seconds\n")
    sys.stdout.write(ROW.format(*HEAD))
    for reads in (0, 50, 500):
        for waits in (0, 50, 300):
            run = simulate(reads, waits, seed=seed, minutes=minutes)
            times = [f"{each:.1f}" for each in (median(run.delays), run.p95, max(run.delays))]
            shown = (*times, run.failed, f"{run.settled:.1f}", f"{max(run.gaps, default=0.0):.1f}", run.service.refused)
            sys.stdout.write(ROW.format(reads, waits, *shown))


if __name__ == "__main__":
    main()
