"""Eight processes on one key, over real sockets: `python tests/campaign/redis_budget.py [--seed N] [--seconds S]`.

Half of them are blocking and half asyncio. Together they wait for 300 outstanding payments, begin others (STK prompts
and payouts), read, and share one Redis. Every row of the table is one such run against the sandbox, which limits as
the service does: 60 requests in a window, fixed or sliding. `--window` is the length of that window in seconds; 60 is
the real thing. The budget's window is longer by `--margin`. In an outage, Redis is killed for a fifth of the run and
comes back empty. The control gives each process a budget of its own.

The promise: while Redis answers, no window of the service holds more requests than the budget allows, and nothing is
limited; around an outage there is at most one limit for each process on average.
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
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from campaign.redis_worker import Job, Outcome
from momopay.sandbox import Outcome as Ending
from momopay.sandbox import Sandbox, _throttling, phone_for
from redis_server import RedisServer

WORKER = Path(__file__).with_name("redis_worker.py")
PROCESSES = 8
OUTSTANDING = 300
PAYMENTS_IN_A_WINDOW = 30.0
READS_IN_A_WINDOW = 8.0
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
        window: The service's window, seconds.
        margin: How much longer the budget's window is.
        limiting: How the service limits.
        shared: Whether the budget is shared over Redis; the control's is not.
        outage: Whether Redis goes away in the middle.
    """

    seed: int
    seconds: float
    window: float
    margin: float
    limiting: Literal["fixed", "sliding"]
    shared: bool = True
    outage: bool = False


@dataclass(frozen=True)
class Result:
    """What a run showed. `fullest` is the most that the service let in within one window's length."""

    plan: Plan
    seconds: float
    admitted: int
    fullest: int
    outcomes: Sequence[Outcome]

    @property
    def limited(self) -> list[int]:
        """How often each process was limited."""
        return [outcome.limited for outcome in self.outcomes]

    @property
    def warnings(self) -> int:
        """How often a process logged that Redis is away."""
        return sum(outcome.warnings for outcome in self.outcomes)

    @property
    def counts(self) -> Counter[str]:
        """The calls by their end."""
        return sum((Counter(outcome.counts) for outcome in self.outcomes), Counter[str]())

    @property
    def keeps_the_promise(self) -> bool:
        """Whether what the module promises was seen."""
        if self.plan.outage:
            return sum(self.limited) <= PROCESSES
        return sum(self.limited) == 0 and self.fullest <= REQUESTS


def run(plan: Plan) -> Result:
    """Make one run, from a service with payments outstanding to the reports of the processes."""
    key = f"pk_test_budget_{plan.seed}"
    with _window_of(plan.window), Sandbox() as sandbox, RedisServer() as redis:
        identities = _outstanding(sandbox, key, plan)
        account = sandbox.account(key)
        account.rate_limit = 60
        account.switches.rate_window = plan.limiting
        before = len(sandbox.requests)
        with _workers(plan, key, sandbox.base_url, redis.url, identities) as workers:
            if plan.outage:
                time.sleep(0.4 * plan.seconds)
                redis.kill()
                time.sleep(0.2 * plan.seconds)
                redis.start()
            reports = [worker.communicate(timeout=plan.seconds + 120)[0] for worker in workers]
        requests = sandbox.requests[before:]
    times = [request.at for request in requests if request.status != 429]
    return Result(
        plan=plan,
        seconds=(requests[-1].at - requests[0].at).total_seconds(),
        admitted=len(times),
        fullest=_fullest(times, plan.window),
        outcomes=[Outcome(**json.loads(report)) for report in reports],
    )


@contextmanager
def _window_of(seconds: float) -> Generator[None]:
    """Shorten the window of the sandbox, and not its clock: what it says of a reset must be true for the clients."""
    whole, _throttling.WINDOW = _throttling.WINDOW, timedelta(seconds=seconds)
    try:
        yield
    finally:
        _throttling.WINDOW = whole


def _fullest(times: Sequence[datetime], window: float) -> int:
    span = timedelta(seconds=window)
    return max((sum(start <= each < start + span for each in times) for start in times), default=0)


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
                is_async=bool(number % 2),
                seed=plan.seed * 1000 + number,
                key=key,
                base_url=base_url,
                redis_url=redis_url if plan.shared else None,
                requests=REQUESTS,
                window=plan.window + plan.margin,
                seconds=plan.seconds,
                payments_every=plan.window * PROCESSES / PAYMENTS_IN_A_WINDOW,
                reads_every=plan.window * PROCESSES / READS_IN_A_WINDOW,
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
    "budget", "limiting", "outage", "seconds", "admitted", "fullest", "limited", "most", "of ceiling",
    "payments", "median", "p99", "max", "unpaid", "warnings",
)  # fmt: skip


def row(result: Result) -> tuple[str, ...]:
    """Return one line of the table."""
    plan, counts = result.plan, result.counts
    delays = sorted(delay for outcome in result.outcomes for delay in outcome.payments)
    worst = quantiles(delays, n=100, method="inclusive")[98] if len(delays) > 1 else 0.0
    ceiling = REQUESTS * ceil(result.seconds / (plan.window + plan.margin))
    return (
        "shared" if plan.shared else "each its own",
        plan.limiting,
        "yes" if plan.outage else "no",
        f"{result.seconds:.0f}",
        str(result.admitted),
        str(result.fullest),
        str(sum(result.limited)),
        str(max(result.limited)),
        f"{result.admitted / ceiling:.0%}",
        str(len(delays)),
        *(f"{figure:.2f}" for figure in (median(delays) if delays else 0.0, worst, max(delays, default=0.0))),
        str(sum(counts.values()) - counts["paid"] - counts["read"]),
        str(result.warnings),
    )


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> int:
    """Make every run and write the table; return 1 if a shared budget broke the promise, or a control kept it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run (default: %(default)s)")
    parser.add_argument("--window", type=float, default=15.0, help="of the service (default: %(default)s)")
    parser.add_argument("--margin", type=float, default=1.0, help="of the budget's window (default: %(default)s)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # so that no process is left over

    def plan(limiting: Literal["fixed", "sliding"], *, shared: bool = True, outage: bool = False) -> Plan:
        return Plan(options.seed, options.seconds, options.window, options.margin, limiting, shared, outage)

    plans = [
        plan("fixed"),
        plan("sliding"),
        plan("fixed", outage=True),
        plan("sliding", outage=True),
        plan("fixed", shared=False),
        plan("sliding", shared=False),
    ]
    write(
        f"seed {options.seed}; {PROCESSES} processes, {OUTSTANDING} payments outstanding, the service's window"
        f" {options.window:g} s, the budget's {options.window + options.margin:g} s; delays of payments in seconds\n"
    )
    write("  ".join(HEADINGS) + "\n")
    results: list[Result] = []
    for each in plans:
        results.append(run(each))
        cells = zip(row(results[-1]), HEADINGS, strict=True)
        write("  ".join(cell.rjust(len(heading)) for cell, heading in cells) + f"   {dict(results[-1].counts)}\n")
    return int(any(result.keeps_the_promise != result.plan.shared for result in results))


if __name__ == "__main__":
    sys.exit(main())
