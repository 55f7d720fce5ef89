"""Calls the journal while signals strike it at random instructions: WORK URL SEED STRIKES HANG.

Each strike raises out of the signal handler, as Celery's soft time limit and Ctrl-C do. Prints what came of it as JSON.
A call that takes longer than HANG seconds ends the process with a traceback of all its threads.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import httpx

from momopay import Client, EntryKind, Journal, MomoPayError
from safety.kit import PHONE
from virtual import envelope

LONGEST = 0.004
"""Seconds until a strike, at most: about as long as two payments take."""
MANY = 24
"""Threads at once, afterwards: more than a journal has connections."""


class StruckError(Exception):
    """Raised by the signal handler."""


class Striker:
    """Lets one signal strike each piece of work, after a random time."""

    def __init__(self, seed: int, longest: float = LONGEST) -> None:
        self._random = random.Random(seed)
        self._longest = longest
        self._is_armed = False
        self.strikes = 0
        signal.signal(signal.SIGALRM, self._strike)

    def _strike(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_armed:
            self._is_armed = False
            self.strikes += 1
            raise StruckError

    def strike(self, work: Callable[[], object]) -> None:
        """Repeat the work until a signal has struck."""
        before = self.strikes
        try:
            self._is_armed = True
            signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-5, self._longest))
            while self.strikes == before:
                with suppress(MomoPayError):
                    work()
        except StruckError:
            pass
        finally:
            self._is_armed = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)


class Service:
    """Accepts payouts in memory, lists them, and counts them by reference."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.count: Counter[str] = Counter()
        self.transport = httpx.MockTransport(self._respond)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1")
        if path == "/b2c/payouts":
            body = json.loads(request.content)
            now = datetime.now(UTC).isoformat()
            record = {
                "transactionId": f"t-{body['reference']}-{self.count[body['reference']]}",
                "tenantId": "tenant",
                "type": "B2C",
                "status": "SUCCESS",
                "amount": body["amount"],
                "phone": body["phone"],
                "accountReference": body["reference"],
                "createdAt": now,
                "updatedAt": now,
            }
            self.made[record["transactionId"]] = record
            self.count[body["reference"]] += 1
            return httpx.Response(201, json=envelope({**record, "status": "PENDING", "reference": body["reference"]}))
        if path == "/transactions":
            overview = {"total": 0, "completed": 0, "failed": 0, "pending": 0}
            newest = list(reversed(self.made.values()))[:100]
            return httpx.Response(200, json=envelope({"items": newest, "overview": overview, "nextCursor": None}))
        if path.startswith("/transactions/"):
            return httpx.Response(200, json=envelope(self.made[path.removeprefix("/transactions/")]))
        wallet = {"walletId": "w", "tenantId": "tenant", "currency": "KES", "availableBalance": 1, "ledgerBalance": 1}
        return httpx.Response(200, json=envelope({**wallet, "updatedAt": datetime.now(UTC).isoformat()}))


def hold_naively() -> Callable[[], object]:
    """Return work that holds a lock of pure Python as code does that forgets about signals: the control."""
    lock = threading.BoundedSemaphore(1)

    def work() -> None:
        if not lock.acquire(timeout=60.0):
            raise AssertionError("a lock that nobody holds")
        time.monotonic()
        lock.release()

    return work


def main(work: str, url: str, seed: str, strikes: str, hang: str) -> None:
    striker, service = Striker(int(seed)), Service()
    with (
        Journal(url) as journal,
        Client(
            "pk_test_struck",
            base_url="https://api.example/v1",
            transport=service.transport,
            budget=None,
            deadline=2.0,
        ) as client,
    ):

        def pay(reference: str) -> Any:
            return client.payouts.pay_once(journal=journal, reference=reference, amount=100, phone=PHONE)

        number = 0

        def pay_next() -> None:
            nonlocal number
            number += 1
            pay(f"r{number}")

        def read() -> object:
            return journal.get("r0", kind=EntryKind.PAYOUT)

        pay("r0")
        worker = {"read": read, "pay": pay_next, "control": hold_naively()}[work]
        slowest = 0.0
        while striker.strikes < int(strikes):
            faulthandler.dump_traceback_later(float(hang), exit=True)
            striker.strike(worker)
            began = time.monotonic()
            worker() if work == "control" else read()
            slowest = max(slowest, time.monotonic() - began)
            faulthandler.cancel_dump_traceback_later()
        # All connections and locks are still there: many threads at once, and every reference once more.
        faulthandler.dump_traceback_later(60.0, exit=True)
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
        result = {
            "strikes": striker.strikes,
            "slowest": slowest,
            "references": number,
            "unresolved": len(errors),
            "paid": len(service.count),
            "twice": [name for name, times in service.count.items() if times > 1],
        }
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
