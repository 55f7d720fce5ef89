"""A process of the campaign for shared budgets: `budget_worker.py prefork|command|crash KEY URL SECONDS WINDOW BUDGET`.

- prefork: a parent makes the budget, as a preloaded application does, and forks four workers; each pays, reads, polls.
- command: one payment and one read, then it ends, as a command does that cron starts.
- crash: it pays and kills itself in the middle of the next call, as a worker in a crash loop does.

BUDGET is a path, the URL of a Redis, or empty for a budget of its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from momopay import AsyncClient, Client, FileRateBudget, MomoPayError, PollSchedule, RedisRateBudget

FORKS = 4
PAYMENT: dict[str, Any] = {"amount": 10, "phone": "0712345678", "account_reference": "NEW"}


def pay_and_read(client: Client) -> str | None:
    identity = None
    with suppress(MomoPayError):
        identity = client.stk.initiate(**PAYMENT).transaction_id
    with suppress(MomoPayError):
        client.wallet.balance()
    return identity


def work_in_threads(options: dict[str, Any], seconds: float, schedule: PollSchedule) -> None:
    """Pay and read in threads, and wait for what was paid, until the time is over."""
    end, chance, client = time.monotonic() + seconds, random.Random(os.getpid()), Client(**options)

    def work() -> None:
        while time.monotonic() < end:
            identity = pay_and_read(client)
            if identity is not None:
                with suppress(MomoPayError):
                    client.transactions.wait(identity, schedule=schedule)
            time.sleep(chance.random())

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(seconds)


async def work_in_tasks(options: dict[str, Any], seconds: float, schedule: PollSchedule) -> None:
    chance = random.Random(os.getpid())

    async def work(client: AsyncClient) -> None:
        while True:
            with suppress(MomoPayError):
                prompt = await client.stk.initiate(**PAYMENT)
                await client.wallet.balance()
                await client.transactions.wait(prompt, schedule=schedule)
            await asyncio.sleep(chance.random())

    async with AsyncClient(**options) as client:
        tasks = [asyncio.create_task(work(client)) for _ in range(3)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def prefork(options: dict[str, Any], seconds: float, schedule: PollSchedule) -> None:
    children: list[int] = []
    for number in range(FORKS):
        child = os.fork()
        if child == 0:
            if number % 2:
                asyncio.run(work_in_tasks(options, seconds, schedule))
            else:
                work_in_threads(options, seconds, schedule)
            os._exit(0)  # threads that still wait end here
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def crash(options: dict[str, Any]) -> None:
    client = Client(**options)
    pay_and_read(client)
    threading.Timer(random.random() * 0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
    while True:
        with suppress(MomoPayError):
            client.wallet.balance()


def main(mode: str, key: str, url: str, seconds: str, window: str, budget: str) -> None:
    size: dict[str, Any] = {"window": float(window)}
    options: dict[str, Any] = {"api_key": key, "base_url": url, "deadline": 2 * float(window)}
    if budget:
        options["budget"] = (RedisRateBudget if budget.startswith("redis") else FileRateBudget)(budget, **size)
    if mode == "prefork":
        schedule = PollSchedule(first=float(window) / 4, every=float(window) / 6, limit=2 * float(window))
        prefork(options, float(seconds), schedule)
    elif mode == "crash":
        crash(options)
    else:
        with Client(**options) as client:
            pay_and_read(client)


if __name__ == "__main__":
    main(*sys.argv[1:])
