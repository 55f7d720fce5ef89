"""One process of the campaign for the shared rate budget: it waits, pays and reads until its time is over."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from momopay import (
    AsyncClient,
    Client,
    MomoPayError,
    PollSchedule,
    RateBudget,
    RedisRateBudget,
    WaitTimeoutError,
)
from momopay._ratelimit.limiter import RateLimiter


@dataclass(frozen=True)
class Job:
    """What one process has to do. Times are in seconds."""

    is_async: bool
    seed: int
    key: str
    base_url: str
    redis_url: str | None
    requests: int
    window: float
    seconds: float
    payments_every: float
    reads_every: float
    identities: list[str]


@dataclass
class Outcome:
    """What a process saw: delays of payments, calls by their end, and how often it was limited."""

    payments: list[float] = field(default_factory=list[float])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    warnings: int = 0
    limited: int = 0


class Worker:
    """What both clients have in common."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.counts = Counter[str]()
        self.outcome = Outcome()
        self.lock = threading.Lock()
        self.end = time.monotonic() + job.seconds
        # The guidance for polling, in proportion to the window.
        self.schedule = PollSchedule(first=job.window / 4, every=job.window / 6, limit=2 * job.seconds)
        local = RateBudget(job.requests, job.window)
        url = job.redis_url
        self.options: dict[str, Any] = {
            "base_url": job.base_url,
            "budget": RedisRateBudget(url, requests=job.requests, window=job.window) if url else local,
            "deadline": max(1.5 * job.window, 30.0),
        }

    def agenda(self) -> Iterator[tuple[float, str]]:
        """Yield each call and the time of its arrival: payments and reads, at random but at a steady rate."""
        chance = random.Random(self.job.seed)
        means = {"stk": 2 * self.job.payments_every, "payout": 2 * self.job.payments_every}
        means["read"] = self.job.reads_every
        due = {call: time.monotonic() + chance.random() * mean for call, mean in means.items()}
        while True:
            call = min(due, key=lambda name: due[name])
            if due[call] >= self.end:
                return
            yield due[call], call
            due[call] += chance.expovariate(1 / means[call])

    def ended(self, call: str, begun: float, error: MomoPayError | None) -> None:
        """Note how a call ended."""
        with self.lock:
            if error is not None:
                self.counts[type(error).__name__] += 1
            else:
                self.counts["read" if call == "read" else "paid"] += 1
            if call != "read" and error is None:
                self.outcome.payments.append(round(time.monotonic() - begun, 4))

    def report(self) -> None:
        """Write the outcome to the parent."""
        with self.lock:
            self.outcome.counts = dict(self.counts)
            sys.stdout.write(json.dumps(asdict(self.outcome)))
            sys.stdout.flush()

    def begin(self, client: Any, call: str) -> Any:
        """Make one call; with an AsyncClient, return what has to be awaited."""
        match call:
            case "stk":
                return client.stk.initiate(amount=10, phone="0712345678", account_reference="NEW")
            case "payout":
                return client.payouts.initiate(amount=10, phone="0712345678", reference="NEW")
            case _:
                return client.wallet.balance()


def work_in_threads(worker: Worker) -> None:
    """Do the job with a Client."""
    with Client(worker.job.key, **worker.options) as client:

        def wait(identities: list[str]) -> None:
            with suppress(MomoPayError, RuntimeError):
                for _transaction in client.transactions.wait_all(identities, schedule=worker.schedule):
                    pass

        def call(name: str) -> None:
            begun, made, error = time.monotonic(), None, None
            try:
                made = worker.begin(client, name)
            except MomoPayError as failure:
                error = failure
            worker.ended(name, begun, error)
            if made is not None and name != "read":
                wait([made.transaction_id])

        threading.Thread(target=wait, args=(worker.job.identities,), daemon=True).start()
        for due, name in worker.agenda():
            time.sleep(max(0.0, due - time.monotonic()))
            threading.Thread(target=call, args=(name,), daemon=True).start()
        time.sleep(max(0.0, worker.end - time.monotonic()))
        worker.report()
        os._exit(0)  # threads that still wait end here


async def work_in_tasks(worker: Worker) -> None:
    """Do the job with an AsyncClient."""
    async with AsyncClient(worker.job.key, **worker.options) as client:

        async def wait(identities: list[str]) -> None:
            with suppress(WaitTimeoutError):
                async for _transaction in client.transactions.wait_all(identities, schedule=worker.schedule):
                    pass

        async def call(name: str) -> None:
            begun, made, error = time.monotonic(), None, None
            try:
                made = await worker.begin(client, name)
            except MomoPayError as failure:
                error = failure
            worker.ended(name, begun, error)
            if made is not None and name != "read":
                await wait([made.transaction_id])

        tasks = [asyncio.create_task(wait(worker.job.identities))]
        for due, name in worker.agenda():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.append(asyncio.create_task(call(name)))
        await asyncio.sleep(max(0.0, worker.end - time.monotonic()))
        worker.report()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class CountWarnings(logging.Handler):
    """Counts the warnings that Redis is away."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(logging.WARNING)
        self._outcome = outcome

    def emit(self, record: logging.LogRecord) -> None:
        if "budget is away" in record.getMessage():
            self._outcome.warnings += 1


def count_limits(outcome: Outcome) -> None:
    """Count how often the service limits this process. Requests that were under way together count as one time."""
    pause, paused_until = RateLimiter.pause, 0.0

    async def counted(self: RateLimiter, seconds: float) -> None:  # only a 429 comes here
        nonlocal paused_until
        now = time.monotonic()
        outcome.limited += now >= paused_until
        paused_until = max(paused_until, now + seconds)
        await pause(self, seconds)

    RateLimiter.pause = counted  # type: ignore[method-assign]


def main() -> None:
    """Do the job that is described on the command line."""
    worker = Worker(Job(**json.loads(sys.argv[1])))
    logging.getLogger("momopay").addHandler(CountWarnings(worker.outcome))
    logging.getLogger("momopay").propagate = False
    count_limits(worker.outcome)
    if worker.job.is_async:
        asyncio.run(work_in_tasks(worker))
    else:
        work_in_threads(worker)


if __name__ == "__main__":
    main()
