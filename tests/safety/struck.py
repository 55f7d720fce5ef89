"""Calls the journal while signals strike it at random instructions, as a process of its own.

Each strike raises out of the signal handler, as Celery's soft time limit and Ctrl-C do.
"""

from __future__ import annotations

import faulthandler
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from campaign.bank import Bank
from journal.constants import PHONE
from momopay import Client, EntryKind, Journal, MomoPayError
from strikes import Striker

LONGEST = 0.004
"""Seconds until a strike, at most: about as long as two payments take."""
MANY = 24
"""Threads at once, afterwards: more than a journal has connections."""


def hold_naively() -> Callable[[], object]:
    """Return work that holds a lock of pure Python as code does that forgets about signals: the control."""
    lock = threading.BoundedSemaphore(1)

    def work() -> None:
        if not lock.acquire(timeout=60.0):
            raise AssertionError("a lock that nobody holds")
        time.monotonic()
        lock.release()

    return work


def strike(work: str, folder: Path, seed: int, strikes: int, hang: float, url: str = "") -> None:
    """Write what came of so many strikes to `result.json`. Without a URL, the journal is a file in the folder.

    A call that takes longer than `hang` seconds ends the process, with a traceback of all its threads in `stuck`.
    """
    striker, bank = Striker(seed, LONGEST), Bank(random.Random(seed), lambda _url, _body: None)
    stuck = (folder / "stuck").open("w")

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().removeprefix("/v1")
        status, content = bank.answer(request.method, path, request.content)
        return httpx.Response(status, content=content)

    transport = httpx.MockTransport(answer)
    options: dict[str, Any] = {"base_url": "https://api.example/v1", "budget": None, "deadline": 2.0}
    with (
        Journal(url or f"sqlite:///{folder}/journal.db") as journal,
        Client("pk_test_struck", transport=transport, **options) as client,
    ):

        def pay(reference: str) -> Any:
            return client.payouts.pay_once(journal=journal, reference=reference, amount=100, phone=PHONE)

        number = 0

        def read() -> object:
            return journal.get("r0", kind=EntryKind.PAYOUT)

        def read_and_pay() -> None:
            nonlocal number
            number += 1
            with suppress(MomoPayError):
                read()
                pay(f"r{number}")

        pay("r0")
        worker = hold_naively() if work == "control" else read_and_pay
        while striker.strikes < strikes:
            faulthandler.dump_traceback_later(hang, exit=True, file=stuck)
            striker.strike(worker)
            worker() if work == "control" else read()
            faulthandler.cancel_dump_traceback_later()
        # All connections and locks are still there: many threads at once, and every reference once more.
        faulthandler.dump_traceback_later(60.0, exit=True, file=stuck)
        with ThreadPoolExecutor(MANY) as threads:
            reads = [threads.submit(read) for _ in range(4 * MANY)]
        assert all(each.result() for each in reads)
        errors: list[MomoPayError] = []
        for each in range(1, number + 1, max(1, number // 500)):
            try:
                pay(f"r{each}")
            except MomoPayError as error:
                errors.append(error)
        assert all(each.may_have_executed for each in errors), errors
        faulthandler.cancel_dump_traceback_later()
        count = Counter(payment.reference for payment in bank.ledger)
        result = {
            "strikes": striker.strikes,
            "paid": len(count),
            "twice": [name for name, times in count.items() if times > 1],
        }
        (folder / "result.json").write_text(json.dumps(result))
