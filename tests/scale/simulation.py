"""Waiting at scale in virtual time.

No sockets: a seed replays a run. One key, 60 requests a minute, payments as fast as the budget lets.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TypeVar

import httpx
import trio
import trio.testing

from momopay import AsyncClient, PollSchedule, RateBudget, WaitTimeoutError, parse_callback
from momopay._transport.async_backend import AsyncBackend
from scale.service import Service
from virtual import install_backend

T = TypeVar("T")

BASE = "https://api.example/v1"
WARM_UP = 300.0
"""Seconds until a run is in its steady state."""
LIMIT = 300.0
PAYERS = 4


class TrioIO(AsyncBackend):
    """The suspending port on trio's own clock, which jumps where nothing else is to be done."""

    def now(self) -> float:
        return trio.current_time()


@dataclass
class Report:
    """What a run came to between two moments of its steady state; times in the service's seconds."""

    begin: float
    end: float
    told: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When each payment ended, and when the payer heard of it."""
    left_waiting: int = 0
    """Payments that had ended when their wait gave up."""

    @property
    def settled(self) -> float:
        """Payments a minute whose end was heard of."""
        return sum(self.begin <= told < self.end for _, told in self.told) / (self.end - self.begin) * 60.0

    @property
    def latencies(self) -> list[float]:
        return [told - ended for ended, told in self.told]

    @property
    def median(self) -> float:
        return median(self.latencies)

    @property
    def p95(self) -> float:
        return quantiles(self.latencies, n=20)[-1]


@dataclass(frozen=True)
class Plan:
    """One run: how long payments are made, and what befalls them."""

    seed: int = 1
    minutes: float = 30.0
    lost: float = 1.0
    """The share of callbacks that never come."""

    @property
    def stop(self) -> float:
        return WARM_UP + 60.0 * self.minutes


def in_virtual_time(work: Callable[[], Awaitable[T]]) -> T:
    """Run on a clock that jumps; trio's own dice, by which it shuffles tasks, are set, so that a seed replays a run."""
    setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)  # noqa: B010  trio calls it final
    trio._core._run._r.seed(0)
    return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


def simulate(plan: Plan) -> tuple[Report, int]:
    """Let payers pay without a pause and wait for each payment in a task of its own; count the refused requests too."""
    logging.getLogger("momopay").setLevel(logging.WARNING)

    async def main() -> tuple[Report, int]:
        service, report = Service(plan.seed, plan.lost), Report(WARM_UP, plan.stop)
        async with AsyncClient("pk_test_scale", base_url=BASE, budget=RateBudget()) as client, trio.open_nursery() as n:
            install_backend(client, TrioIO(httpx.MockTransport(service)))

            service.callbacks = n

            def notify(body: bytes) -> None:
                client.transactions.notify(parse_callback(body))

            service.notify = notify

            async def wait(identity: str) -> None:
                life = service.lives[identity]
                try:
                    await client.transactions.wait(identity, schedule=PollSchedule(limit=LIMIT))
                except WaitTimeoutError:
                    report.left_waiting += life.ends < service.now()
                else:
                    report.told.append((life.ends, service.now()))

            async def pay() -> None:
                while service.now() < plan.stop:
                    prompt = await client.stk.initiate(amount=100, phone="0712345678")
                    n.start_soon(wait, prompt.transaction_id)

            for _ in range(PAYERS):
                n.start_soon(pay)
        return report, service.refused

    return in_virtual_time(main)
