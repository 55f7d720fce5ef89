"""Calls that wait for slots in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from momopay import BudgetExhaustedError, Lane
from momopay._ratelimit.limiter import RateLimiter
from momopay._transport.async_backend import AsyncBackend


class VirtualBackend(AsyncBackend):
    """The asynchronous backend on trio's own clock, which jumps where nothing else is to be done."""

    def now(self) -> float:
        return trio.current_time()


@dataclass
class Calls:
    """Calls that ask for slots at the same limiter. Times are in seconds from the start of the run."""

    limiter: RateLimiter
    nursery: trio.Nursery
    begun: float = field(default_factory=trio.current_time)
    slots: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    refused: dict[str, list[tuple[float, float]]] = field(default_factory=dict[str, list[tuple[float, float]]])
    """By name: when a call was refused, and the `retry_after` that it was told."""

    def now(self) -> float:
        # Rounded, because a sum of floats may differ from the time that was meant in its last digit.
        return round(trio.current_time() - self.begun, 6)

    async def call(self, lane: Lane, name: str = "", deadline: float = 1e6) -> None:
        name = name or lane.value
        try:
            await self.limiter.acquire(lane, latest=trio.current_time() + deadline, describe=lambda: name)
        except BudgetExhaustedError as error:
            self.refused.setdefault(name, []).append((self.now(), round(error.retry_after, 6)))
        else:
            self.slots.setdefault(name, []).append(self.now())

    async def start(self, count: int, lane: Lane, name: str = "", deadline: float = 1e6) -> list[trio.CancelScope]:
        """Begin so many calls, in order; return what cancels each of them."""
        scopes = [trio.CancelScope() for _ in range(count)]

        async def call(scope: trio.CancelScope) -> None:
            with scope:
                await self.call(lane, name, deadline)

        for scope in scopes:
            self.nursery.start_soon(call, scope)
            await trio.testing.wait_all_tasks_blocked()
        return scopes


def in_virtual_time(budget: Any, use: Callable[[Calls], Awaitable[None]]) -> Calls:
    """Run on a clock that jumps until all calls have ended."""

    async def main() -> Calls:
        async with trio.open_nursery() as nursery:
            calls = Calls(RateLimiter(budget, VirtualBackend(), "hash"), nursery)
            await use(calls)
        return calls

    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(main, clock=clock)
