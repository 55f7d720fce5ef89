"""A process of the campaign for the budget in a file: `file_worker.py prefork|command|crash KEY URL SECONDS [PATH]`.

- prefork: a parent makes the budget, as a preloaded application does, and forks four workers; each pays, reads, polls.
- command: one payment and one read, then it ends, as a command does that cron starts.
- crash: it pays and kills itself in the middle of the next call, as a worker in a crash loop does.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from momopay import Client, FileRateBudget, MomoPayError, PollSchedule

WINDOW = 16.0
"""Of the budget: a second longer than the service's in this campaign."""
FORKS = 4
PHONE = "0712345678"


def pay(client: Client) -> str | None:
    with suppress(MomoPayError):
        return client.stk.initiate(amount=10, phone=PHONE, account_reference="NEW").transaction_id
    return None


def read(client: Client) -> None:
    with suppress(MomoPayError):
        client.wallet.balance()


def worker(options: dict[str, Any], seconds: float, number: int) -> None:
    """Pay and read in threads, and wait for what was paid, until the time is over."""
    end, chance = time.monotonic() + seconds, random.Random(number)
    schedule = PollSchedule(first=WINDOW / 4, every=WINDOW / 6, limit=2 * WINDOW)
    client = Client(**options)

    def work() -> None:
        while time.monotonic() < end:
            identity = pay(client)
            read(client)
            if identity is not None:
                with suppress(MomoPayError):
                    client.transactions.wait(identity, schedule=schedule)
            time.sleep(chance.random())

    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(seconds)
    os._exit(0)  # threads that still wait end here


def prefork(options: dict[str, Any], seconds: float) -> None:
    children: list[int] = []
    for number in range(FORKS):
        child = os.fork()
        if child == 0:
            worker(options, seconds, number)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def crash(options: dict[str, Any]) -> None:
    client = Client(**options)
    pay(client)
    threading.Timer(random.random() * 0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
    while True:
        read(client)


def main() -> None:
    mode, key, url, seconds, *path = sys.argv[1:]
    options: dict[str, Any] = {"api_key": key, "base_url": url, "deadline": 2 * WINDOW}
    if path:
        options["budget"] = FileRateBudget(path[0], window=WINDOW)
    if mode == "prefork":
        prefork(options, float(seconds))
    elif mode == "crash":
        crash(options)
    else:
        with Client(**options) as client:
            pay(client)
            read(client)


if __name__ == "__main__":
    main()
