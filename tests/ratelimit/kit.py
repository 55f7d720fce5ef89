"""Calls that wait for slots in virtual time, and processes that share a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from momopay import BudgetExhaustedError
from momopay._ratelimit.budget import Slots
from momopay._transport import attempt as attempts
from momopay._transport.async_backend import AsyncBackend
from momopay._transport.sync_backend import SyncBackend
from momopay.types import Lane
from scale.simulation import TrioIO, in_virtual_time

ACCOUNT = "ab" * 32
BASE = "https://api.example/v1"
finish = attempts.run_blocking


@dataclass
class Limiter:
    """A client that asks a budget for slots."""

    budget: Any
    backend: Any
    account_hash: str = "hash"

    def slots(self) -> Slots:
        slots: Slots = self.budget._slots(self.account_hash)
        return slots

    async def acquire(self, lane: Lane, *, latest: float, describe: Callable[[], str] = str) -> bool:
        return await self.slots().acquire(self.backend, lane, latest=latest, describe=describe)

    async def pause(self, seconds: float) -> None:
        await self.slots().stop(self.backend, seconds)


class Caller:
    """One process's client at a budget. `time` sets its clock, and `ahead` moves it."""

    def __init__(
        self, budget: Any, account_hash: str = ACCOUNT, *, is_async: bool = False, time: float | None = None
    ) -> None:
        self.time = time
        self.ahead = 0.0
        self.budget = budget
        self._runner = asyncio.Runner() if is_async else None
        backend: Any = AsyncBackend() if is_async else SyncBackend()
        backend.now = self.now
        self._limiter = Limiter(budget, backend, account_hash)

    def now(self) -> float:
        return (attempts.now() if self.time is None else self.time) + self.ahead

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return finish(work) if self._runner is None else self._runner.run(work)

    def reserve(self, lane: Lane = Lane.PAYMENT, within: float = 0.0) -> float:
        """Take a slot if there is one in time; return the seconds until there may be one."""
        try:
            self._run(self._limiter.acquire(lane, latest=self.now() + within))
        except BudgetExhaustedError as full:
            return full.retry_after
        return 0.0

    def at_once(self, calls: int, lane: Lane = Lane.PAYMENT) -> int:
        """Return how many of so many calls get a slot at once."""
        return [self.reserve(lane) for _ in range(calls)].count(0.0)

    def stop(self, seconds: float) -> None:
        """Stop the budget, as a 429 does."""
        self._run(self._limiter.pause(seconds))

    def note_remaining(self, remaining: int, seconds: float) -> None:
        self._limiter.slots().note_remaining(self.now(), remaining, seconds)

    def close(self) -> None:
        self.budget.close()
        if self._runner is not None:
            self._runner.close()


def most_in_a_window(times: list[float], window: float) -> int:
    """Count the fullest span of that length that a service could cut out of these arrivals."""
    ordered = sorted(times)
    return max((sum(start <= time < start + window for time in ordered) for start in ordered), default=0)


@dataclass
class SlotCalls:
    """Calls that ask for slots at the same limiter. Times are in seconds from the start of the run."""

    limiter: Limiter
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


def run_calls(budget: Any, use: Callable[[SlotCalls], Awaitable[None]]) -> SlotCalls:
    """Run on a clock that jumps until all calls have ended."""

    async def main() -> SlotCalls:
        async with trio.open_nursery() as nursery:
            calls = SlotCalls(Limiter(budget, TrioIO()), nursery)
            await use(calls)
        return calls

    return in_virtual_time(main)
