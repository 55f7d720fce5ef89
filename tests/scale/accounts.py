"""Payouts from several keys side by side, with one journal: `python tests/scale/accounts.py --keys 1 4 16 --speed 3`.

Each key has its account in the journal, its own budget, and one payer that pays without a pause; every payout is waited
for. The sandbox is the service, its clock runs `speed` times as fast as the wall's, and budgets and schedules are
divided by the same number, so that all figures are in the service's time.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from momopay import AsyncClient, Journal, PollSchedule, RateBudget
from momopay.sandbox import Sandbox

WARM_UP = 2
"""Windows until payouts end as fast as they begin."""


@dataclass(frozen=True)
class Plan:
    """One run, in the service's seconds."""

    keys: int
    url: str
    speed: float = 3.0
    windows: int = 3
    shared: bool = False
    """Whether all keys have one budget: the control."""
    margin: float = 2.0
    """How much longer than the service's minute the budget's window is, for requests that a busy machine delays."""

    @property
    def window(self) -> float:
        return 60.0 + self.margin

    def budget(self) -> RateBudget:
        return RateBudget(58, self.window / self.speed)

    @property
    def schedule(self) -> PollSchedule:
        return PollSchedule(15.0 / self.speed, 10.0 / self.speed, 300.0 / self.speed)


@dataclass
class Report:
    plan: Plan
    settled: Counter[str] = field(default_factory=Counter[str])
    """Payouts that were seen to end in the measured windows, by account."""
    refused: int = 0
    paid_twice: int = 0
    unknown: int = 0
    """Payouts that the service made and the journal does not have as accepted."""

    @property
    def a_minute(self) -> float:
        return self.settled.total() / (self.plan.windows * self.plan.window) * 60.0


async def measure(plan: Plan) -> Report:
    """Pay from all keys over one sandbox until the run is over, and see each payout to its end."""
    report, one_budget = Report(plan), plan.budget()
    end = (WARM_UP + plan.windows) * plan.window
    with Sandbox(speed=plan.speed) as sandbox:
        async with AsyncClient("pk_test_first", base_url=sandbox.base_url, budget=None) as first:
            await first.transactions.list()  # load on both sides what the first request loads
        begun = sandbox.now

        def now() -> float:
            return (sandbox.now - begun).total_seconds()

        async def pay(name: str) -> None:
            account = sandbox.account(f"pk_test_{name}")
            account.switches.rate_window = "sliding"
            account.service_balance = account.b2c_balance = Decimal(1_000_000)
            budget = one_budget if plan.shared else plan.budget()
            with Journal(plan.url, account=name) as journal:
                async with (
                    AsyncClient(f"pk_test_{name}", base_url=sandbox.base_url, budget=budget) as client,
                    asyncio.TaskGroup() as waits,
                ):

                    async def wait(transaction_id: str) -> None:
                        await client.transactions.wait(transaction_id, schedule=plan.schedule)
                        report.settled[name] += WARM_UP * plan.window <= now() < end

                    for number in count():
                        if now() >= end:
                            break
                        reference = f"{name}-{number}"
                        paid = await client.payouts.pay_once(
                            journal=journal, reference=reference, amount=10, phone="0712345678"
                        )
                        waits.create_task(wait(paid.transaction_id))

        await asyncio.gather(*(pay(f"k{number}") for number in range(plan.keys)))
        tally(report, sandbox)
    return report


def tally(report: Report, sandbox: Sandbox) -> None:
    """Compare with the service's own record."""
    moved = Counter(movement.reference for movement in sandbox.ledger if movement.kind == "payout")
    report.paid_twice = sum(times > 1 for times in moved.values())
    report.refused = sum(request.status == 429 for request in sandbox.requests)
    for name in {reference.partition("-")[0] for reference in moved}:
        with Journal(report.plan.url, account=name) as journal:
            known = [journal.get(reference) for reference in moved if reference.startswith(f"{name}-")]
        report.unknown += sum(entry is None or entry.state != "ACCEPTED" for entry in known)


def table(reports: Iterable[Report]) -> str:
    """Lay the runs out; what a key settles alone is that of the first run, divided by its keys."""
    lines = [f"{'keys':>4}{'settled a minute':>18}{'a key':>8}{'x one key':>11}{'429s':>6}{'paid twice':>12}"]
    alone = 0.0
    for report in reports:
        keys, settled = report.plan.keys, report.a_minute
        alone = alone or settled / keys
        lines.append(
            f"{keys:>4}{settled:>18.1f}{settled / keys:>8.1f}{settled / alone:>11.2f}"
            f"{report.refused:>6}{report.paid_twice:>12}"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--speed", type=float, default=3.0)
    options = parser.parse_args()
    logging.getLogger("momopay").setLevel(logging.ERROR)  # the clocks differ
    reports = list[Report]()
    for keys in options.keys:
        with tempfile.TemporaryDirectory() as folder:
            reports.append(asyncio.run(measure(Plan(keys, f"sqlite:///{folder}/payouts.db", options.speed))))
    sys.stdout.write(table(reports))


if __name__ == "__main__":
    main()
