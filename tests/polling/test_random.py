"""Random waits and confirmations on one key keep their promises, whatever befalls them. A seed replays a run."""

import random
from collections.abc import Iterator
from math import inf
from threading import Lock
from typing import Any

import anyio
import httpx
import pytest

from momopay import AsyncClient, PollSchedule, RateBudget, WaitTimeoutError, parse_callback
from momopay._polling.loop import PollLoop
from polling.kit import Concurrent, Service, callback, in_trio
from virtual import refusal

LIMIT = 300.0
NOTICE = 60.0  # how long before its limit a payment has to end for its wait to see it, seconds
SEEDS = range(1, 26)


class World(Concurrent):
    """Payments of which some end, and a service that lags, fails now and then, and answers after a while."""

    def __init__(self, seed: int) -> None:
        super().__init__(Service())
        self.chance = random.Random(seed)
        self.ends: dict[str, tuple[float, str]] = {}
        self.begun: dict[str, float] = {}
        self.in_flight = 0
        self.most_in_flight = 0
        for number in range(self.chance.choice([1, 3, 40, 200])):
            identity, chance = f"t{number}", self.chance
            if chance.random() < 0.9:
                self.ends[identity] = (chance.uniform(0.0, 250.0), chance.choice(["SUCCESS", "SUCCESS", "FAILED"]))
            self.service.add(identity, *([self.ends[identity]] if identity in self.ends else []))
            if chance.random() < 0.05:
                self.service.unlisted.add(identity)

    async def respond(self, request: httpx.Request) -> httpx.Response:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await anyio.sleep(self.chance.expovariate(2.0))
            failure = self.chance.random()
            if failure < 0.05:
                return httpx.Response(503)
            if failure < 0.06:
                return httpx.Response(429, json=refusal("RATE_LIMIT_EXCEEDED", resetInSeconds=5))
            return self.service.respond(request)
        finally:
            self.in_flight -= 1

    async def begin(self, client: AsyncClient, tasks: Any, identity: str) -> None:
        await anyio.sleep(self.chance.uniform(0.0, 60.0))
        self.begun[identity] = self.service.clock()
        fate = self.chance.random()
        if fate < 0.1:
            tasks.start_soon(self.cancel, identity)
        elif fate < 0.5 and identity in self.ends:
            tasks.start_soon(self.call_back, client, identity)
        await self.wait(client, identity, schedule=PollSchedule(limit=LIMIT))

    async def cancel(self, identity: str) -> None:
        await anyio.sleep(self.chance.uniform(0.0, 100.0))
        if identity in self.scopes:
            self.scopes[identity].cancel()

    async def call_back(self, client: AsyncClient, identity: str) -> None:
        when, status = self.ends[identity]
        await anyio.sleep(max(0.0, when - self.service.clock()))
        client.transactions.notify(parse_callback(callback(identity, status)))

    async def __call__(self, client: AsyncClient) -> None:
        async with anyio.create_task_group() as tasks:
            for identity in self.service.moves:
                tasks.start_soon(self.begin, client, tasks, identity)

    def broken_promises(self) -> Iterator[str]:
        """Run it, and report what should not have happened."""
        in_trio(self.service, self, RateBudget(), httpx.MockTransport(self.respond))
        times = self.service.times
        if self.most_in_flight > 1:
            yield f"{self.most_in_flight} requests at once"
        if any(sum(start <= when < start + 60.0 for when in times) > 60 for start in times):
            yield "over the rate limit"
        for identity, ended_at in self.ended_at.items():
            if ended_at > self.begun[identity] + LIMIT + 0.1:
                yield f"{identity} waited beyond its limit"
        for identity, seen in self.seen.items():
            if seen.status != self.ends[identity][1] or self.ended_at[identity] < self.ends[identity][0] - 0.01:
                yield f"{identity} ended as {seen.status} at {self.ended_at[identity]}, not {self.ends[identity]}"
        for identity, error in self.errors.items():
            ends, _ = self.ends.get(identity, (inf, ""))
            if not isinstance(error, WaitTimeoutError) or ends < self.begun[identity] + LIMIT - NOTICE:
                yield f"{identity} gave up at {self.ended_at[identity]}, but ended at {ends}: {error!r}"


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.whole if seed > 8 else ()) for seed in SEEDS])
def test_waits_keep_their_promises(seed: int, no_backoff: None) -> None:
    assert list(World(seed).broken_promises()) == [], seed


def test_two_turns_at_once_would_be_noticed(monkeypatch: pytest.MonkeyPatch, no_backoff: None) -> None:
    def always(loop: PollLoop, held: Lock) -> bool:
        return True

    monkeypatch.setattr(PollLoop, "_replace_lock", always)
    assert any("at once" in each for seed in (5, 7) for each in World(seed).broken_promises())


def test_a_turn_that_nobody_hands_over_would_be_noticed(monkeypatch: pytest.MonkeyPatch, no_backoff: None) -> None:
    taken = set[int]()

    def once(loop: PollLoop, held: Lock) -> bool:
        if id(loop) in taken:
            return False
        taken.add(id(loop))
        return True

    monkeypatch.setattr(PollLoop, "_replace_lock", once)
    assert any("gave up" in each for seed in SEEDS for each in World(seed).broken_promises())
