"""A key that settles payments by callbacks: `python tests/scale/confirmations.py --minutes 30 --seed 1`.

Virtual time, no sockets: a seed replays a run. One key, 60 requests a minute. A payment counts as settled when its
callback is confirmed. A callback that could not be confirmed comes again, as the service's retries do.
"""

import argparse
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from momopay._polling.wait import ConfirmCall
from momopay.models.transactions import Transaction
from scale.simulation import Plan, simulate

CEILING = 58.0
"""Payments a minute: what a key could begin if nothing had to be read."""


async def one_by_one(confirmation: ConfirmCall) -> Transaction:
    """Confirm without sharing: the negative control."""
    (wait,) = confirmation.waits.values()
    return await confirmation.read_by_id(wait.transaction_id, wait.deadline)


HEAD = (
    f"{'':<34}{'sharing':>8}{'begun':>7}{'settled':>9}{'of 58':>7}{'never':>7}{'failed':>8}{'429s':>6}"
    f"{'median':>8}{'p95':>8}{'pages':>7}{'reads':>7}"
)


def row(plan: Plan, *, shares: bool) -> str:
    shop = simulate(plan)
    name = f"{plan.payers} payers, {plan.kind}, {'one by one' if plan.one_by_one else 'without a pause'}"
    count, minutes = shop.service.requests, plan.minutes
    return (
        f"{name:<34}{'yes' if shares else 'no':>8}{shop.made / minutes:>7.1f}{shop.settled:>9.1f}"
        f"{shop.settled / CEILING:>7.2f}{shop.left_waiting:>7}{shop.unconfirmed:>8}{shop.service.refused:>6}"
        f"{median(shop.latencies):>8.1f}{shop.p95:>8.1f}{count['pages']:>7}{count['reads']:>7}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of steady state in each run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}, {options.minutes:g} minutes of steady state each, virtual time\n{HEAD}\n")
    shared = ConfirmCall.read
    for shares in (True, False):
        setattr(ConfirmCall, "read", shared if shares else one_by_one)  # noqa: B010  mypy forbids an assignment
        for kind in ("STK", "B2C"):
            for payers, waits in ((4, False), (200, True)):
                plan = Plan(payers, kind, waits, confirms=True, seed=options.seed, minutes=options.minutes)
                sys.stdout.write(row(plan, shares=shares) + "\n")


if __name__ == "__main__":
    main()
