"""10,000 waits at once on one key, in virtual time: CPU a wait, until all have ended.

The service is in this process and writes its pages beforehand. Trio's work for the tasks counts.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

import httpx
import trio

from benchmarks.measure import Row, Scale
from benchmarks.mocked import Pages
from benchmarks.processes import KEY
from momopay import AsyncClient, PollSchedule, RateBudget
from scale.simulation import TrioIO, in_virtual_time
from virtual import install_backend, transaction

WAITS: Final = 10_000
GOAL: Final = 300.0
"""Microseconds a wait."""
ROUNDS: Final = 3
_BEGIN: Final = datetime(2026, 1, 5, 6, tzinfo=UTC)


def measure(scale: Scale) -> list[Row]:
    rounds = min(scale.rounds, ROUNDS)
    taken = [_cpu_a_wait(scale.of(WAITS)) for _ in range(rounds)]
    return [Row("10,000 waits at once", "us CPU a wait", taken, "the goal", [GOAL] * rounds, 1.0)]


def _cpu_a_wait(waits: int) -> float:
    names = [f"t-{number}" for number in range(waits)]
    times = [(_BEGIN + timedelta(seconds=number)).isoformat() for number in range(waits)]
    records = zip(names, times, strict=True)
    items = [transaction(name, "SUCCESS", createdAt=when, updatedAt=when) for name, when in records]
    pages = Pages(items[::-1])

    async def main() -> float:
        ended = 0
        async with AsyncClient(KEY, base_url="https://api.example/v1", budget=RateBudget()) as client:
            install_backend(client, TrioIO(httpx.MockTransport(pages)))

            async def wait(name: str) -> None:
                nonlocal ended
                await client.transactions.wait(name, schedule=PollSchedule(limit=3600))
                ended += 1

            begun = time.process_time()
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(wait, name)
            seconds = time.process_time() - begun
        assert ended == waits
        return seconds / waits * 1e6

    return in_virtual_time(main)
