"""Waiting at scale in virtual time: `python tests/scale/simulation.py --minutes 30 --seed 1`.

No sockets: a seed replays a run. One key, 60 requests a minute, payments as fast as the budget lets.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
import trio
import trio.testing

from momopay import AsyncClient, Lane, PollSchedule, RateBudget, WaitTimeoutError, parse_callback
from momopay._transport.async_backend import AsyncBackend
from scale.report import Report, Told, table
from scale.service import Service
from virtual import install_backend

T = TypeVar("T")

BASE = "https://api.example/v1"
WARM_UP = 300.0
"""Seconds until a run is in its steady state."""
LIMIT = 300.0
PAYERS = 4
ON_TIME = 1.0
"""The guidance is followed while 19 of 20 reads are made within this of their time, seconds."""


class TrioIO(AsyncBackend):
    """The suspending port on trio's own clock, which jumps where nothing else is to be done."""

    def now(self) -> float:
        return trio.current_time()


@dataclass(frozen=True)
class Plan:
    """One run: how long payments are made, and what befalls them."""

    name: str
    seed: int = 1
    minutes: float = 30.0
    callbacks: bool = False
    lost: float = 0.0
    outstanding: int = 0
    """Payouts that were made before the run."""

    @property
    def stop(self) -> float:
        return WARM_UP + 60.0 * self.minutes


def in_virtual_time(work: Callable[[], Awaitable[T]]) -> T:
    """Run on a clock that jumps; trio's own dice, by which it shuffles tasks, are set, so that a seed replays a run."""
    setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)  # noqa: B010  trio calls it final
    trio._core._run._r.seed(0)
    return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


def notify(client: AsyncClient, body: bytes) -> None:
    """Do what a callback's handler does."""
    client.transactions.notify(parse_callback(body))


def with_the_sdk(plan: Plan) -> Report:
    """Payers pay without a pause and wait for each payment in a task of its own."""
    logging.getLogger("momopay").setLevel(logging.WARNING)

    async def main() -> Report:
        service, report = Service(plan.seed, plan.lost), Report(plan.name, begin=WARM_UP, end=plan.stop)
        async with AsyncClient("pk_test_scale", base_url=BASE, budget=RateBudget()) as client, trio.open_nursery() as n:
            install_backend(client, TrioIO(httpx.MockTransport(service)))
            if plan.callbacks:
                service.callbacks = n
                service.notify = partial(notify, client)

            async def wait(identity: str) -> None:
                life = service.lives[identity]
                try:
                    schedule = PollSchedule(limit=LIMIT if life.kind == "STK" else 2 * LIMIT)
                    ended = await client.transactions.wait(identity, schedule=schedule)
                except WaitTimeoutError:
                    report.timed_out(ended=life.ends < service.now())
                    return
                reasoned = ended.result_desc is not None
                report.told.append(Told(life.ends, service.now(), ended.status == "SUCCESS", reasoned))

            async def pay() -> None:
                while service.now() < plan.stop:
                    prompt = await client.stk.initiate(amount=100, phone="0712345678")
                    n.start_soon(wait, prompt.transaction_id)

            for _ in range(plan.outstanding):
                n.start_soon(wait, service.make("B2C").identity)
            for _ in range(PAYERS):
                n.start_soon(pay)
        report.refused, report.requests = service.refused, service.requests
        return report

    return in_virtual_time(main)


def by_the_guidance(plan: Plan, workers: int) -> Report:
    """Let so many workers each take one payment at a time through to its end, as `Reader` does."""

    async def main() -> Report:
        service, report = Service(plan.seed), Report(plan.name, begin=WARM_UP, end=plan.stop)
        async with httpx.AsyncClient(transport=httpx.MockTransport(service), base_url=BASE) as http:
            reader = Reader(http, service, report)
            async with trio.open_nursery() as n:
                for _ in range(workers):
                    n.start_soon(reader.work, plan.stop)
        report.refused, report.requests = service.refused, service.requests
        return report

    return in_virtual_time(main)


class Reader:
    """A reader that follows the service's advice: a read 15 s after the payment and every 10 s, for five minutes.

    Written with care: all requests pass one limiter, the SDK's own, first come first served, and heed a 429.
    """

    def __init__(self, http: httpx.AsyncClient, service: Service, report: Report) -> None:
        self.http = http
        self.service = service
        self.report = report
        self.budget = RateBudget()

    async def work(self, stop: float) -> None:
        while self.service.now() < stop:
            await self.wait(str((await self.ask("POST", "/payments/stk"))["transactionId"]))

    async def wait(self, identity: str) -> None:
        service, life, made = self.service, self.service.lives[identity], self.service.now()
        await trio.sleep(15.0)
        while service.now() < made + LIMIT:
            asked = service.now()
            status = (await self.ask("GET", f"/transactions/{identity}"))["status"]
            if status not in {"PENDING", "PROCESSING"}:
                self.report.told.append(Told(life.ends, service.now(), status == "SUCCESS", reasoned=True))
                return
            await trio.sleep(max(0.0, asked + 10.0 - service.now()))
        self.report.timed_out(ended=life.ends < service.now())

    async def ask(self, method: str, path: str) -> dict[str, Any]:
        delay = self.budget.reserve(self.service.now(), Lane.PAYMENT)
        if method == "GET":
            self.report.delays.append(delay)
        await trio.sleep(delay)
        response = await self.http.request(method, path)
        while response.status_code == 429:
            await trio.sleep(response.json()["error"]["details"]["resetInSeconds"])
            response = await self.http.request(method, path)
        return dict(response.json()["data"])


def on_time(plan: Plan) -> tuple[Report, int]:
    """Follow the guidance with as many workers as it bears before its reads are late; give their number, too."""
    workers, best = 6, by_the_guidance(plan, 6)
    while True:
        report = by_the_guidance(plan, workers + 1)
        if quantiles(report.delays, n=20)[-1] > ON_TIME:
            return best, workers
        workers, best = workers + 1, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of steady state in each run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seed, minutes = options.seed, options.minutes
    sys.stdout.write(f"seed {seed}, {minutes:g} minutes of steady state each, virtual time\n")
    naive, workers = on_time(Plan("the guidance, on time", seed, minutes))
    naive.name += f" ({workers} workers)"
    reports = [
        naive,
        *(
            by_the_guidance(Plan(f"the guidance, late ({many} workers)", seed, minutes), many)
            for many in (30, 100, 300)
        ),
        with_the_sdk(Plan("momopay, sweeps alone", seed, minutes)),
        with_the_sdk(Plan("momopay, callbacks and notify", seed, minutes, callbacks=True)),
        with_the_sdk(Plan("momopay, half the callbacks lost", seed, minutes, callbacks=True, lost=0.5)),
        with_the_sdk(Plan("momopay, all callbacks lost", seed, minutes, callbacks=True, lost=1.0)),
        with_the_sdk(Plan("momopay, 300 payouts beside", seed, minutes, outstanding=300)),
    ]
    sys.stdout.write(table(reports, naive.settled))


if __name__ == "__main__":
    main()
