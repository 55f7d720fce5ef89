"""Payments at scale in virtual time, waited for or confirmed, and the service as a simulation sees it.

No sockets: a seed replays a run. One key, a strict limit of 60 requests a minute, payments as fast as the budget lets.
"""

import json
import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import httpx
import trio
import trio.testing

from bodies import envelope, page, refusal, transaction
from journal.records import callback_body
from momopay import AsyncClient, Callback, MomoPayError, PollSchedule, RateBudget, WaitTimeoutError, parse_callback
from momopay._transport.async_backend import AsyncBackend
from virtual import install_backend

T = TypeVar("T")

BASE = "https://api.example/v1"
WARM_UP = 300.0  # seconds until a run is in its steady state
LIMIT = 300.0
RETRIES = (10.0, 30.0, 60.0, 120.0, 300.0)  # seconds between the service's attempts to deliver a callback
PAUSE = 5.0  # seconds until a payer for whom there was no slot tries again
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

    def callback(self) -> bytes:
        made = (START + timedelta(seconds=self.made)).isoformat()
        stated = {"type": self.kind, "amount": 100, "created_at": made, "updated_at": made}
        return json.dumps(callback_body(self.identity, self.identity, self.end, **stated)).encode()


@dataclass
class ServiceLimit:
    """The window is not specified: a request that exceeds any 60 seconds, fixed or sliding, is refused."""

    phase: float
    admitted: deque[float] = field(default_factory=deque[float])
    window: int = -1
    count: int = 0

    def admit(self, now: float) -> float | None:
        """Admit a request, or return in how many seconds there is room again."""
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


class OneKey:
    """One key at the service; times are virtual seconds since it began."""

    def __init__(
        self, seed: int, kind: str = "STK", lost: float = 1.0, call_back: Callable[[Life], None] | None = None
    ) -> None:
        """`kind` is that of payments by request; `lost` is the share of callbacks that never come."""
        self.chance = random.Random(seed)
        self.kind = kind
        self.lost = lost
        self.call_back = call_back
        self.begun = trio.current_time()
        self.limiter = ServiceLimit(self.chance.random() * WINDOW)
        self.lives: dict[str, Life] = {}
        self.refused = 0

    def now(self) -> float:
        return trio.current_time() - self.begun

    def make(self, kind: str) -> Life:
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
        if self.call_back is not None and chance.random() >= self.lost:
            self.call_back(life)
        return life

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
            return httpx.Response(200, json=envelope(self.make(self.kind).record(now)))
        if path == "/transactions":
            return httpx.Response(200, json=envelope(self._page(request.url.params, now)))
        life = self.lives[path.rpartition("/")[2]]
        code = {"SUCCESS": "0", "FAILED": "1"}.get(life.status(now))
        return httpx.Response(200, json=envelope(life.record(now) | {"resultCode": code, "resultDesc": code}))

    def _page(self, query: httpx.QueryParams, now: float) -> dict[str, Any]:
        size, newest_first = int(query["limit"]), list(reversed(self.lives.values()))
        before = query.get("cursor")
        start = 0 if before is None else len(self.lives) - int(before)
        items = newest_first[start : start + size]
        following = str(len(self.lives) - start - size) if start + size < len(newest_first) else None
        return page([life.record(now) for life in items], following)


class TrioIO(AsyncBackend):
    """The suspending port on trio's own clock, which jumps where nothing else is to be done."""

    def now(self) -> float:
        return trio.current_time()


def in_virtual_time(work: Callable[[], Awaitable[T]]) -> T:
    """Run on a clock that jumps; trio's own dice, by which it shuffles tasks, are set, so that a seed replays a run."""
    setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)  # noqa: B010  trio calls it final
    trio._core._run._r.seed(0)
    return trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))


@dataclass(frozen=True)
class Plan:
    """One run: who pays how, and hears of the end."""

    payers: int = 4
    # STK prompts, which end within two minutes, or payouts (B2C), which take up to five. The requests of both are those
    # of prompts.
    kind: str = "STK"
    one_by_one: bool = False  # a payer begins the next payment only when its last one is settled
    # Each callback is confirmed, and one that could not be comes again. Else a task waits for each payment.
    confirms: bool = False
    lost: float = 0.0  # the share of callbacks that never come
    seed: int = 1
    minutes: float = 30.0  # for which payments are made, in steady state

    @property
    def stop(self) -> float:
        return WARM_UP + 60.0 * self.minutes


class BusyShop:
    """One run, and what it came to; times in the service's seconds."""

    def __init__(self, plan: Plan, client: AsyncClient, nursery: trio.Nursery) -> None:
        self.plan = plan
        self.client = client
        self.nursery = nursery
        self.service = OneKey(plan.seed, plan.kind, plan.lost, lambda life: nursery.start_soon(self.call_back, life))
        self.over: dict[str, trio.Event] = {}
        self.told: list[float] = []  # when each payer heard of an end
        self.left_waiting = 0  # payments that had ended when their wait, or their callbacks, gave up
        self.unconfirmed = 0  # attempts to confirm that failed

    @property
    def settled(self) -> float:
        """Payments a minute whose end was heard of."""
        return sum(WARM_UP <= told < self.plan.stop for told in self.told) / self.plan.minutes

    async def pay(self) -> None:
        while self.service.now() < self.plan.stop:
            try:
                prompt = await self.client.stk.initiate(amount=100, phone="0712345678")
            except MomoPayError:
                await trio.sleep(PAUSE)
                continue
            over = self.over.setdefault(prompt.transaction_id, trio.Event())
            if not self.plan.confirms:
                self.nursery.start_soon(self.wait, prompt.transaction_id)
            if self.plan.one_by_one:
                await over.wait()

    async def wait(self, identity: str) -> None:
        life = self.service.lives[identity]
        try:
            await self.client.transactions.wait(identity, schedule=PollSchedule(limit=LIMIT))
        except WaitTimeoutError:
            self.left_waiting += life.ends < self.service.now()
        else:
            self.told.append(self.service.now())
        self.over[identity].set()

    async def call_back(self, life: Life) -> None:
        await trio.sleep(life.ends - self.service.now() + self.service.chance.uniform(0.1, 1.0))
        callback = parse_callback(life.callback())
        if self.plan.confirms:
            self.nursery.start_soon(self.confirm, life, callback)
        else:
            self.client.transactions.notify(callback)

    async def confirm(self, life: Life, callback: Callback) -> None:
        for pause in (*RETRIES, None):
            try:
                await self.client.transactions.confirm(callback)
            except MomoPayError:
                self.unconfirmed += 1
                if pause is None:
                    self.left_waiting += 1
                else:
                    await trio.sleep(pause)
            else:
                self.told.append(self.service.now())
                break
        self.over.setdefault(life.identity, trio.Event()).set()


def simulate(plan: Plan) -> BusyShop:
    (shop,) = simulate_keys(plan, RateBudget())
    return shop


def simulate_keys(plan: Plan, *budgets: RateBudget) -> list[BusyShop]:
    """Run payments with a key for each budget, side by side."""
    logging.getLogger("momopay").setLevel(logging.CRITICAL)
    shops = list[BusyShop]()

    async def run(number: int) -> None:
        key = f"pk_test_scale_{number}"
        async with AsyncClient(key, base_url=BASE, budget=budgets[number]) as client, trio.open_nursery() as nursery:
            shops.append(BusyShop(plan, client, nursery))
            install_backend(client, TrioIO(httpx.MockTransport(shops[-1].service)))
            for _ in range(plan.payers):
                nursery.start_soon(shops[-1].pay)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(len(budgets)):
                nursery.start_soon(run, number)

    in_virtual_time(main)
    return shops
