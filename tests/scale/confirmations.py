"""A key that settles payments by callbacks: `python tests/scale/confirmations.py --minutes 30 --seed 1`.

Virtual time, no sockets: a seed replays a run. One key, 60 requests a minute. A payment counts as settled when its
callback is confirmed. A callback that could not be confirmed comes again, as the service's retries do.
"""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
import trio

from momopay import AsyncClient, MomoPayError, RateBudget, parse_callback
from momopay._polling.wait import Confirmation
from momopay.models.transactions import Transaction
from scale.simulation import BASE, WARM_UP, Report, Service, TrioIO, in_virtual_time
from virtual import install_backend

CEILING = 58.0
"""Payments a minute: what a key could begin if nothing had to be read."""
RETRIES = (10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds between the service's attempts to deliver a callback."""
PAUSE = 5.0
"""Seconds until a payer for whom there was no slot tries again."""


@dataclass(frozen=True)
class Plan:
    """One run: who pays how.

    Attributes:
        payers: How many pay.
        kind: STK prompts, which end within two minutes, or payouts (B2C), which take up to five.
        one_by_one: Whether a payer begins the next payment only when its last one is settled. Else it pays at once.
    """

    payers: int
    kind: str = "STK"
    one_by_one: bool = False
    seed: int = 1
    minutes: float = 30.0

    @property
    def name(self) -> str:
        return f"{self.payers} payers, {self.kind}, {'one by one' if self.one_by_one else 'without a pause'}"

    @property
    def stop(self) -> float:
        return WARM_UP + 60.0 * self.minutes


class Shop:
    """One run under way."""

    def __init__(self, plan: Plan, client: AsyncClient, nursery: trio.Nursery) -> None:
        self.plan = plan
        self.client = client
        self.nursery = nursery
        self.report = Report(WARM_UP, plan.stop)
        self.service = Service(plan.seed, notify=lambda body: nursery.start_soon(self.handle, body))
        self.service.callbacks = nursery
        self.settled: dict[str, trio.Event] = {}
        self.made = 0
        self.unconfirmed = 0
        """How many attempts to confirm failed."""

    def until_settled(self, identity: str) -> trio.Event:
        return self.settled.setdefault(identity, trio.Event())

    async def handle(self, body: bytes) -> None:
        """Confirm a callback, at each of its attempts until one succeeds."""
        callback = parse_callback(body)
        life = self.service.lives[callback.transaction_id]
        for pause in (*RETRIES, None):
            try:
                await self.client.transactions.confirm(callback)
            except MomoPayError:
                self.unconfirmed += 1
                if pause is None:
                    self.report.left_waiting += 1
                else:
                    await trio.sleep(pause)
            else:
                self.report.told.append((life.ends, self.service.now()))
                break
        self.until_settled(life.identity).set()

    async def pay(self) -> None:
        while self.service.now() < self.plan.stop:
            try:
                prompt = await self.client.stk.initiate(amount=100, phone="0712345678")
            except MomoPayError:
                await trio.sleep(PAUSE)
                continue
            self.made += WARM_UP <= self.service.now() < self.plan.stop
            if self.plan.one_by_one:
                await self.until_settled(prompt.transaction_id).wait()


def simulate(plan: Plan) -> Shop:
    """Run payments whose callbacks are confirmed, to the end of the last one."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL)
    shops = list[Shop]()

    async def main() -> None:
        async with (
            AsyncClient("pk_test_confirm", base_url=BASE, budget=RateBudget()) as client,
            trio.open_nursery() as nursery,
        ):
            shop = Shop(plan, client, nursery)
            shops.append(shop)
            install_backend(client, TrioIO(httpx.MockTransport(shop.service)))
            if plan.kind == "B2C":
                # The requests are those of prompts, and only the service's times are those of payouts.
                make = shop.service.make
                shop.service.make = lambda kind="B2C": make("B2C")  # type: ignore[method-assign]
            for _ in range(plan.payers):
                nursery.start_soon(shop.pay)

    in_virtual_time(main)
    return shops[0]


async def one_by_one(confirmation: Confirmation) -> Transaction:
    """Confirm without sharing: the negative control."""
    (waiter,) = confirmation.pending.values()
    return await confirmation.read_by_id(waiter.transaction_id, waiter.deadline)


HEAD = (
    f"{'':<34}{'sharing':>8}{'begun':>7}{'settled':>9}{'of 58':>7}{'never':>7}{'failed':>8}{'429s':>6}"
    f"{'median':>8}{'p95':>8}{'pages':>7}{'reads':>7}"
)


def row(shop: Shop, *, shares: bool) -> str:
    report, count, minutes = shop.report, shop.service.requests, shop.plan.minutes
    return (
        f"{shop.plan.name:<34}{'yes' if shares else 'no':>8}{shop.made / minutes:>7.1f}{report.settled:>9.1f}"
        f"{report.settled / CEILING:>7.2f}{report.left_waiting:>7}{shop.unconfirmed:>8}{shop.service.refused:>6}"
        f"{report.median:>8.1f}{report.p95:>8.1f}{count['pages']:>7}{count['reads']:>7}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of steady state in each run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}, {options.minutes:g} minutes of steady state each, virtual time\n{HEAD}\n")
    shared = Confirmation.read
    for shares in (True, False):
        setattr(Confirmation, "read", shared if shares else one_by_one)  # noqa: B010  mypy forbids an assignment
        for kind in ("STK", "B2C"):
            for payers, waits in ((4, False), (200, True)):
                plan = Plan(payers, kind, waits, options.seed, options.minutes)
                sys.stdout.write(row(simulate(plan), shares=shares) + "\n")


if __name__ == "__main__":
    main()
