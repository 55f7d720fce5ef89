"""Waiting at scale in virtual time, and the payments service as a simulation sees it.

No sockets: a seed replays a run. One key, a strict limit of 60 requests a minute, payments as fast as the budget lets.
"""

from __future__ import annotations

import json
import logging
import math
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles
from typing import Any, TypeVar

import httpx
import trio
import trio.testing

from momopay import AsyncClient, PollSchedule, RateBudget, WaitTimeoutError, parse_callback
from momopay._transport.async_backend import AsyncBackend
from virtual import envelope, install_backend, refusal, transaction

T = TypeVar("T")

BASE = "https://api.example/v1"
WARM_UP = 300.0
"""Seconds until a run is in its steady state."""
LIMIT = 300.0
PAYERS = 4
PER_WINDOW = 60
WINDOW = 60.0
START = datetime(2026, 11, 20, 8, tzinfo=UTC)
FAILED = 0.08
STUCK = 0.02


@dataclass
class Life:
    """How one payment goes: when it was made, when it ends and how."""

    identity: str
    made: float
    pin: float
    ends: float
    end: str
    kind: str = "STK"

    def status(self, now: float) -> str:
        if now >= self.ends:
            return self.end
        return "PROCESSING" if now >= self.pin else "PENDING"

    def record(self, now: float) -> dict[str, Any]:
        made = START + timedelta(seconds=self.made)
        return transaction(self.identity, self.status(now), type=self.kind, createdAt=made.isoformat())

    def callback(self) -> dict[str, Any]:
        made = (START + timedelta(seconds=self.made)).isoformat()
        told = {
            "id": self.identity,
            "type": self.kind,
            "status": self.end,
            "amount": 100,
            "phone_number": "254712345678",
            "created_at": made,
            "updated_at": made,
        }
        return {"event": "transaction.updated", "event_type": f"transaction.{self.end.lower()}", "transaction": told}


@dataclass
class Limiter:
    """The window is not specified: a request that exceeds any 60 seconds, fixed or sliding, is refused."""

    phase: float
    admitted: deque[float] = field(default_factory=deque[float])
    window: int = -1
    count: int = 0

    def admit(self, now: float) -> float | None:
        """Let a request in, or say in how many seconds there is room again."""
        while self.admitted and self.admitted[0] + WINDOW <= now:
            self.admitted.popleft()
        window = math.floor((now - self.phase) / WINDOW)
        if window != self.window:
            self.window, self.count = window, 0
        if len(self.admitted) >= PER_WINDOW or self.count >= PER_WINDOW:
            return max(self.admitted[0], self.phase + window * WINDOW) + WINDOW - now
        self.admitted.append(now)
        self.count += 1
        return None


class Service:
    """One key at the service; times are virtual seconds since it began."""

    def __init__(self, seed: int, lost: float = 0.0, notify: Callable[[bytes], None] | None = None) -> None:
        """`lost` is the share of callbacks that never come; the others are given to `notify`."""
        self.chance = random.Random(seed)
        self.lost = lost
        self.notify = notify
        self.begun = trio.current_time()
        self.limiter = Limiter(self.chance.random() * WINDOW)
        self.lives: dict[str, Life] = {}
        self.requests: Counter[str] = Counter()
        self.refused = 0
        self.callbacks: trio.Nursery | None = None

    def now(self) -> float:
        return trio.current_time() - self.begun

    def make(self, kind: str = "STK") -> Life:
        """Begin a payment: a PIN after 5 to 20 s, an end 30 to 90 s later; or a payout, 30 s to 5 minutes."""
        chance, now = self.chance, self.now()
        pin = now + (chance.uniform(5.0, 20.0) if kind == "STK" else 0.0)
        luck = chance.random()
        ends = pin + chance.uniform(30.0, 90.0 if kind == "STK" else 270.0)
        if luck < STUCK:
            ends = now + chance.uniform(310.0, 900.0)
        end = "FAILED" if STUCK <= luck < STUCK + FAILED else "SUCCESS"
        life = Life(f"t{len(self.lives)}", now, pin, ends, end, kind)
        self.lives[life.identity] = life
        if self.callbacks is not None and self.notify is not None and chance.random() >= self.lost:
            self.callbacks.start_soon(self._call_back, life)
        return life

    async def _call_back(self, life: Life) -> None:
        await trio.sleep(life.ends - self.now() + self.chance.uniform(0.1, 1.0))
        if self.notify is not None:
            self.notify(json.dumps(life.callback()).encode())

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer, after a way there and a way back of their own lengths."""
        await trio.sleep(self.chance.uniform(0.02, 0.4))
        response = self._answer(request)
        await trio.sleep(self.chance.uniform(0.02, 0.2))
        return response

    def _answer(self, request: httpx.Request) -> httpx.Response:
        now, path = self.now(), request.url.path.removeprefix("/v1")
        wait = self.limiter.admit(now)
        if wait is not None:
            self.refused += 1
            details = {"limit": PER_WINDOW, "remaining": 0, "resetInSeconds": math.ceil(wait)}
            return httpx.Response(429, json=refusal("RATE_LIMIT_EXCEEDED", **details))
        if request.method == "POST":
            self.requests["payments"] += 1
            return httpx.Response(200, json=envelope(self.make().record(now)))
        if path == "/transactions":
            self.requests["pages"] += 1
            return httpx.Response(200, json=envelope(self._page(request.url.params, now)))
        self.requests["reads"] += 1
        life = self.lives[path.rpartition("/")[2]]
        code = {"SUCCESS": "0", "FAILED": "1"}.get(life.status(now))
        return httpx.Response(200, json=envelope(life.record(now) | {"resultCode": code, "resultDesc": code}))

    def _page(self, query: httpx.QueryParams, now: float) -> dict[str, Any]:
        size, newest_first = int(query["limit"]), list(reversed(self.lives.values()))
        before = query.get("cursor")
        start = 0 if before is None else len(self.lives) - int(before)
        items = newest_first[start : start + size]
        following = str(len(self.lives) - start - size) if start + size < len(newest_first) else None
        return {
            "items": [life.record(now) for life in items],
            "overview": {"total": 0, "completed": 0, "failed": 0, "pending": 0},
            "nextCursor": following,
        }


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
