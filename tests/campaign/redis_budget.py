"""Eight processes on one key, over real sockets: `python tests/campaign/redis_budget.py [--seed N] [--seconds S]`.

Half of them are blocking and half asyncio. Together they wait for 300 outstanding payments, begin others (STK prompts
and payouts), read, and share one Redis. Every row of the table is one such run against the sandbox, which limits as
The service allows 60 requests in a window of 60 seconds, fixed or sliding. `--speed` shortens that window on the wall's
clock, and the budget's with it; `--speed 1` is the real thing. In an outage, Redis is killed for a fifth of the run and
comes back empty. The control gives each process a budget of its own. Times are in seconds on the wall's clock.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from campaign.redis_worker import Job, Outcome
from momopay.sandbox import Outcome as Ending
from momopay.sandbox import Sandbox, phone_for
from redis_server import RedisServer

WORKER = Path(__file__).with_name("redis_worker.py")
PROCESSES = 8
OUTSTANDING = 300
PAYMENTS_A_MINUTE = 30.0
READS_A_MINUTE = 8.0
"""With the polling of 300, more than the budget holds: the lanes have something to decide."""
REQUESTS = 58
"""What the budget hands out in a window; the service lets 60 in."""
_ENDINGS = (
    Ending.never_confirmed,
    Ending.never_answers,
    Ending.late_success,
    Ending.success,
    Ending.insufficient_funds,
)


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        seed: Of the arrivals and of the endings.
        seconds: How long it goes on.
        speed: How many of the service's seconds go into one of the wall's.
        margin: How much longer the budget's window is than the service's.
        window: How the service limits.
        shared: Whether the budget is shared over Redis; the control's is not.
        outage: Whether Redis goes away in the middle.
    """

    seed: int
    seconds: float
    speed: float
    margin: float
    window: Literal["fixed", "sliding"]
    shared: bool = True
    outage: bool = False

    @property
    def budget_window(self) -> float:
        """The budget's window on the wall's clock."""
        return 60.0 / self.speed + self.margin


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    plan: Plan
    seconds: float
    requests: int
    limited: int
    money: Sequence[float]
    outcomes: Counter[str]
    settled: int
    warnings: int

    @property
    def share_of_the_ceiling(self) -> float:
        """How many requests the service let in, of as many as the budget could have handed out in whole windows."""
        return (self.requests - self.limited) / (REQUESTS * ceil(self.seconds / self.plan.budget_window))


def run(plan: Plan) -> Result:
    """Make one run, from a service with payments outstanding to the count of its answers."""
    key = f"pk_test_budget_{plan.seed}"
    with Sandbox(speed=plan.speed) as sandbox, RedisServer() as redis:
        identities = _outstanding(sandbox, key, plan)
        account = sandbox.account(key)
        account.rate_limit = 60
        account.switches.rate_window = plan.window
        before = len(sandbox.requests)
        with _workers(plan, key, sandbox.base_url, redis.url, identities) as workers:
            if plan.outage:
                time.sleep(0.4 * plan.seconds)
                redis.kill()
                time.sleep(0.2 * plan.seconds)
                redis.start()
            reports = [worker.communicate(timeout=plan.seconds + 120)[0] for worker in workers]
        requests = sandbox.requests[before:]
    answers = Counter(request.status for request in requests)
    seconds = (requests[-1].at - requests[0].at).total_seconds() / plan.speed
    outcomes = [Outcome(**json.loads(report)) for report in reports]
    return Result(
        plan=plan,
        seconds=seconds,
        requests=answers.total(),
        limited=answers[429],
        money=sorted(latency for outcome in outcomes for latency in outcome.money),
        outcomes=sum((Counter(outcome.counts) for outcome in outcomes), Counter[str]()),
        settled=sum(outcome.settled for outcome in outcomes),
        warnings=sum(outcome.warnings for outcome in outcomes),
    )


def _outstanding(sandbox: Sandbox, key: str, plan: Plan) -> list[str]:
    """Begin the payments that will be waited for, before anything is limited."""
    chance = random.Random(plan.seed)
    account = sandbox.account(key)
    account.rate_limit = None
    account.switches.health_rule = False
    identities: list[str] = []
    with httpx.Client(base_url=sandbox.base_url, auth=(key, ""), trust_env=False) as client:
        for number in range(OUTSTANDING):
            body: dict[str, Any] = {"amount": 10, "phone": phone_for(chance.choice(_ENDINGS))}
            if number % 2:
                answer = client.post("/b2c/payouts", json={**body, "reference": f"OLD-{number}"})
            else:
                answer = client.post("/payments/stk", json={**body, "accountReference": f"OLD-{number}"})
            identities.append(answer.raise_for_status().json()["data"]["transactionId"])
    return identities


@contextmanager
def _workers(
    plan: Plan, key: str, base_url: str, redis_url: str, identities: Sequence[str]
) -> Generator[list[subprocess.Popen[str]]]:
    workers: list[subprocess.Popen[str]] = []
    try:
        for number in range(PROCESSES):
            job = Job(
                colour="async" if number % 2 else "blocking",
                seed=plan.seed * 1000 + number,
                key=key,
                base_url=base_url,
                redis_url=redis_url if plan.shared else None,
                requests=REQUESTS,
                window=plan.budget_window,
                seconds=plan.seconds,
                speed=plan.speed,
                payments_every=60.0 * PROCESSES / PAYMENTS_A_MINUTE / plan.speed,
                reads_every=60.0 * PROCESSES / READS_A_MINUTE / plan.speed,
                identities=list(identities[number::PROCESSES]),
            )
            command = [sys.executable, str(WORKER), json.dumps(asdict(job))]
            workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        yield workers
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()


HEADINGS = (
    "budget", "window", "outage", "seconds", "requests", "429", "of ceiling",
    "payments", "median", "p99", "max", "unpaid", "settled", "went away",
)  # fmt: skip


def row(result: Result) -> tuple[str, ...]:
    """Write one line of the table."""
    plan, money = result.plan, result.money
    worst = quantiles(money, n=100, method="inclusive")[98] if len(money) > 1 else 0.0
    unpaid = sum(result.outcomes.values()) - result.outcomes["paid"] - result.outcomes["read"]
    return (
        "shared" if plan.shared else "each its own",
        plan.window,
        "yes" if plan.outage else "no",
        f"{result.seconds:.0f}",
        str(result.requests),
        str(result.limited),
        f"{result.share_of_the_ceiling:.0%}",
        str(len(money)),
        *(f"{figure:.2f}" for figure in (median(money) if money else 0.0, worst, max(money, default=0.0))),
        str(unpaid),
        str(result.settled),
        str(result.warnings),
    )


def main(arguments: Sequence[str] | None = None, tell: Callable[[str], object] = sys.stdout.write) -> int:
    """Make every run and write the table; the status is 1 where a shared budget met a 429, or none of its own did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run (default: %(default)s)")
    parser.add_argument("--speed", type=float, default=6.0, help="1 is the real minute (default: %(default)s)")
    parser.add_argument("--margin", type=float, default=1.0, help="of the budget's window (default: %(default)s)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # so that no process is left over

    def plan(window: Literal["fixed", "sliding"], *, shared: bool = True, outage: bool = False) -> Plan:
        return Plan(options.seed, options.seconds, options.speed, options.margin, window, shared, outage)

    plans = [
        plan("fixed"),
        plan("sliding"),
        plan("fixed", outage=True),
        plan("sliding", outage=True),
        plan("fixed", shared=False),
        plan("sliding", shared=False),
    ]
    tell(
        f"seed {options.seed}; {PROCESSES} processes, {OUTSTANDING} payments outstanding, the service's minute in"
        f" {60 / options.speed:g} s, the budget's window {plans[0].budget_window:g} s; the money lane in seconds\n"
    )
    tell("  ".join(HEADINGS) + "\n")
    results: list[Result] = []
    for each in plans:
        results.append(run(each))
        cells = zip(row(results[-1]), HEADINGS, strict=True)
        tell("  ".join(cell.rjust(len(heading)) for cell, heading in cells) + f"   {dict(results[-1].outcomes)}\n")
    return int(any((result.limited > 0) == result.plan.shared for result in results))


if __name__ == "__main__":
    sys.exit(main())
