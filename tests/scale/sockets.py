"""Waiting at scale over real sockets: `python tests/scale/sockets.py --seconds 86 --speed 6 --seed 1`.

The sandbox is the service, its clock runs `speed` times as fast as the wall's, and budget and schedule are divided by
the same number, so that all figures are in the service's seconds. Each way to wait has a sandbox of its
own, all at once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from momopay import AsyncClient, Lane, PollSchedule, RateBudget, parse_callback
from momopay.sandbox import Sandbox
from scale.receiver import Receiver
from scale.report import Report, Told, table

ENDED = {"SUCCESS", "FAILED", "CANCELLED", "EXPIRED"}
CANCELLED = 0.08
STUCK = 0.02
DRAIN = 120.0
"""For how long, after the last payment, ends are still awaited."""
WINDOWS = 4
"""Over how many of the budget's windows a run is measured: whole ones, for payments come in bursts."""


@dataclass(frozen=True)
class Plan:
    """One run, in the service's seconds."""

    speed: float = 6.0
    warm_up: float = 150.0
    seconds: float = 360.0
    drain: float = DRAIN
    seed: int = 1
    margin: float = 2.0
    """How much longer than the service's minute the budget's window is; two of its seconds are a third of a real one,
    for requests that a busy machine delays."""
    workers: int = 8

    def budget(self) -> RateBudget:
        return RateBudget(58, (60.0 + self.margin) / self.speed)

    @property
    def schedule(self) -> PollSchedule:
        return PollSchedule(15.0 / self.speed, 10.0 / self.speed, 300.0 / self.speed)


class Way:
    """One way to wait, with a key and customers of its own."""

    def __init__(self, name: str, plan: Plan, sandbox: Sandbox, *, lost: float | None = None) -> None:
        self.plan = plan
        self.sandbox = sandbox
        self.lost = lost
        self.key = "pk_test_" + "".join(letter for letter in name.lower() if letter.isalnum())
        self.chance = random.Random(f"{plan.seed} {name}")
        self.report = Report(name, begin=plan.warm_up, end=plan.seconds)
        self.begun = sandbox.now
        self.made = set[str]()
        self.heard = set[str]()
        account = sandbox.account(self.key)
        account.switches.rate_window = "sliding"
        account.switches.health_rule = False
        account.service_balance = Decimal(1_000_000)

    def now(self) -> float:
        return (self.sandbox.now - self.begun).total_seconds()

    @property
    def paying(self) -> bool:
        return self.now() < self.plan.seconds

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.plan.speed)

    async def be_the_customer(self, identity: str) -> None:
        """Enter the PIN or cancel, so that the payment ends 35 to 110 s after it was made; or do nothing at all."""
        self.made.add(identity)
        luck = self.chance.random()
        await self.pass_time(self.chance.uniform(5.0, 80.0) + (30.0 if luck < CANCELLED else 0.0))
        if luck < CANCELLED:
            await asyncio.to_thread(self.sandbox.cancel, identity)
        elif luck >= CANCELLED + STUCK:
            await asyncio.to_thread(self.sandbox.enter_pin, identity)

    def hear(self, identity: str, ended: datetime, status: str, *, reasoned: bool) -> None:
        self.heard.add(identity)
        end = (ended - self.begun).total_seconds()
        self.report.told.append(Told(end, self.now(), status == "SUCCESS", reasoned))

    def tally(self) -> None:
        """Count what the service was asked, and what it refused."""
        for request in self.sandbox.requests:
            read = "pages" if request.path == "/transactions" else "reads"
            self.report.requests["payments" if request.method == "POST" else read] += 1
            self.report.refused += request.status == 429

    async def look_back(self) -> None:
        """Ask the service, without a rate limit now, what became of those that were not heard of."""
        self.tally()
        self.sandbox.account(self.key).rate_limit = 1_000_000
        async with AsyncClient(self.key, base_url=self.sandbox.base_url, budget=None) as client:
            for identity in self.made - self.heard:
                seen = await client.transactions.get(identity)
                late = (seen.updated_at - self.begun).total_seconds() > self.plan.seconds + self.plan.drain - 60.0
                self.report.timed_out(ended=seen.status.is_terminal and not late)


async def with_the_sdk(way: Way, receiver: Receiver) -> None:
    """Payers pay without a pause and wait for each payment in a task of its own."""
    async with (
        AsyncClient(way.key, base_url=way.sandbox.base_url, budget=way.plan.budget()) as client,
        asyncio.TaskGroup() as tasks,
    ):
        waits = list[asyncio.Task[None]]()
        url = None
        if way.lost is not None:
            url = receiver.url(way.key, lambda body: client.transactions.notify(parse_callback(body)), way.lost)

        async def wait(identity: str) -> None:
            ended = await client.transactions.wait(identity, schedule=way.plan.schedule)
            way.hear(identity, ended.updated_at, ended.status, reasoned=ended.result_desc is not None)

        async def pay() -> None:
            while way.paying:
                prompt = await client.stk.initiate(amount=100, phone="254712349945", callback_url=url)
                waits.append(asyncio.create_task(wait(prompt.transaction_id)))
                tasks.create_task(way.be_the_customer(prompt.transaction_id))

        await asyncio.gather(*(pay() for _ in range(4)))
        await way.pass_time(way.plan.drain)
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def by_the_guidance(way: Way) -> None:
    """The reader that follows the service's advice, behind the SDK's limiter: see the simulation."""
    budget, schedule = way.plan.budget(), way.plan.schedule
    clock = asyncio.get_running_loop().time
    async with (
        httpx.AsyncClient(base_url=way.sandbox.base_url, auth=(way.key, "")) as http,
        asyncio.TaskGroup() as tasks,
    ):

        async def ask(method: str, path: str, body: object = None) -> dict[str, str]:
            await asyncio.sleep(budget.reserve(clock(), Lane.PAYMENT))
            answer = (await http.request(method, path, json=body)).json()
            return dict(answer["data"])

        async def work() -> None:
            while way.paying:
                prompt = await ask("POST", "/payments/stk", {"amount": 100, "phone": "254712349945"})
                tasks.create_task(way.be_the_customer(prompt["transactionId"]))
                begun = clock()
                await asyncio.sleep(schedule.first)
                while clock() < begun + schedule.limit and way.now() < way.plan.seconds + way.plan.drain:
                    asked = clock()
                    seen = await ask("GET", f"/transactions/{prompt['transactionId']}")
                    if seen["status"] in ENDED:
                        ended = datetime.fromisoformat(seen["updatedAt"])
                        way.hear(prompt["transactionId"], ended, seen["status"], reasoned=True)
                        break
                    await asyncio.sleep(max(0.0, asked + schedule.every - clock()))

        for _ in range(way.plan.workers):
            tasks.create_task(work())


async def run(plan: Plan) -> list[Report]:
    """Run all ways side by side, each against a service of its own."""
    logging.getLogger("momopay").setLevel(logging.ERROR)
    names: dict[str, float | None] = {
        f"the guidance, on time ({plan.workers} workers)": None,
        "momopay, sweeps alone": None,
        "momopay, callbacks and notify": 0.0,
        "momopay, half the callbacks lost": 0.5,
        "momopay, all callbacks lost": 1.0,
    }
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(Receiver(plan.seed))
        sandboxes = [stack.enter_context(Sandbox(speed=plan.speed)) for _ in names]
        for sandbox in sandboxes:
            await warm_up(sandbox)
        ways = [Way(name, plan, sandbox, lost=names[name]) for name, sandbox in zip(names, sandboxes, strict=True)]
        await asyncio.gather(by_the_guidance(ways[0]), *(with_the_sdk(way, receiver) for way in ways[1:]))
        for way in ways:
            await way.look_back()
        return [way.report for way in ways]


async def warm_up(sandbox: Sandbox) -> None:
    """Load on both sides what the first request loads, and forget it; a burst is not to wait for imports."""
    async with AsyncClient("pk_test_first", base_url=sandbox.base_url, budget=None) as client:
        first = await client.stk.initiate(amount=100, phone="254712349945")
        await client.transactions.get(first)
        await client.transactions.list()
    sandbox.reset()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=86.0, help="of the wall's clock, about")
    parser.add_argument("--speed", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    plan = Plan(options.speed, seconds=options.seconds * options.speed - DRAIN, seed=options.seed)
    plan = replace(plan, warm_up=plan.seconds - WINDOWS * (60.0 + plan.margin))
    sys.stdout.write(f"seed {plan.seed}, the service's clock {plan.speed:g} times as fast, {plan.seconds:g} s of it\n")
    reports = asyncio.run(run(plan))
    sys.stdout.write(table(reports, reports[0].settled))


if __name__ == "__main__":
    main()
