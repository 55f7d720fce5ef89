"""Many at once in virtual time: requests of a sweep, CPU of 10,000 waits, and the memory that an hour of calls takes.

The service is in this process. Trio's work for the tasks counts; memory is traced by tracemalloc, which sees what
Python allocates, while payouts with a journal, prompts, reads, pages, waits and callbacks take turns.
"""

import gc
import tempfile
import time
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import httpx
import trio

from benchmarks.callback_bodies import BODY
from benchmarks.measure import Row, Scale, against_the_goal
from benchmarks.mocked import WALLET, Pages, mocked_client
from benchmarks.processes import KEY
from journal.kit import PHONE, execute, fill, found
from momopay import AsyncClient, Journal, PollSchedule, RateBudget, parse_callback
from scale.simulation import TrioIO, in_virtual_time
from virtual import envelope, install_backend, transaction, virtual_client

MANY: Final = 10_000
ROUNDS: Final = 3
REQUESTS: Final = 15.0
"""What one pass may make at most, by its documentation."""
_BEGIN: Final = datetime(2026, 1, 5, 6, tzinfo=UTC)


def measure_sweep(scale: Scale) -> list[Row]:
    requests = list[float]()
    for _ in range(min(scale.rounds, ROUNDS)):
        with _filled(scale.of(MANY)) as (journal, pages), mocked_client(pages) as client:
            client.transactions.sweep(journal=journal)
        requests.append(pages.requests)
    return [against_the_goal("sweep, 10,000 open", "requests a pass", requests, REQUESTS)]


@contextmanager
def _filled(entries: int) -> Generator[tuple[Journal, Pages]]:
    """Yield a journal of open payouts, one a second, and the list in which all of them succeeded."""
    fields = {"type": "B2C", "amount": 10, "phone": PHONE}
    with tempfile.TemporaryDirectory() as folder, Journal(f"sqlite:///{folder}/payouts.db") as journal:
        fill(journal, entries - 1)  # beside its first one
        seconds = f"'{_BEGIN:%Y-%m-%dT%H:%M:%S}', '+' || CAST(substr(reference, 3) AS INTEGER) || ' seconds'"
        execute(journal, f"UPDATE momopay_payments SET sent_at = strftime('%Y-%m-%dT%H:%M:%f000+00:00', {seconds})")
        names = {f"p-{number}": f"t-{number}" for number in range(entries - 1, 0, -1)}
        names["first"] = found(journal, "first").transaction_id or ""
        items: list[dict[str, Any]] = []
        for place, (name, identity) in enumerate(names.items(), 1):
            when = (_BEGIN + timedelta(seconds=entries - place)).isoformat()
            times = {"createdAt": when, "updatedAt": when}
            items.append(transaction(identity, "SUCCESS", accountReference=name, **times, **fields))
        yield journal, Pages(items)


WAITS: Final = 10_000
MICROSECONDS: Final = 300.0
"""Microseconds a wait."""


def measure_waits(scale: Scale) -> list[Row]:
    taken = [_cpu_a_wait(scale.of(WAITS)) for _ in range(min(scale.rounds, ROUNDS))]
    return [against_the_goal("10,000 waits at once", "us CPU a wait", taken, MICROSECONDS)]


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


HOUR: Final = 3600.0
BEGIN: Final = 600.0
MEGABYTES: Final = 1.0
"""MB."""
_ITEMS: Final = 100
# Of the budget, in a minute. It lets 60 of these calls through, as it keeps slots for polls of other threads.
_REQUESTS: Final = 76


def measure_soak(scale: Scale) -> list[Row]:
    grown = [Hour().megabytes(scale.share) for _ in range(min(scale.rounds, ROUNDS))]
    return [against_the_goal("an hour at 60 requests a minute", "MB after ten minutes", grown, MEGABYTES)]


class Hour:
    def __init__(self) -> None:
        self.numbers = count()
        self.client, self.port = virtual_client(self.answer, budget=RateBudget(requests=_REQUESTS, window=60.0))
        self.requests = 0

    def answer(self, method: str, path: str) -> tuple[int, Any]:
        self.requests += 1
        if path.startswith("/transactions?"):
            overview = {"total": _ITEMS, "completed": _ITEMS, "failed": 0, "pending": 0}
            items = [transaction(f"t-{number}", "SUCCESS") for number in range(_ITEMS)]
            return 200, envelope({"items": items, "overview": overview, "nextCursor": None})
        if path.endswith("/balance"):
            return 200, WALLET
        if method == "GET":
            return 200, envelope(transaction(path.rpartition("/")[2], "SUCCESS"))
        number = next(self.numbers)
        return 201, envelope(transaction(f"t-{number}", accountReference=f"r-{number}", type="B2C", tenantId="tenant"))

    def megabytes(self, share: float) -> float:
        """Return how much more is allocated after a share of the hour than after one of its first ten minutes."""
        found: list[float] = []
        gc.collect()
        tracemalloc.start()
        with tempfile.TemporaryDirectory() as folder, Journal(f"sqlite:///{folder}/payouts.db") as journal:
            begun = self.port.now()
            for until in (BEGIN * share, HOUR * share):
                while self.port.now() - begun < until:
                    self.use(journal)
                gc.collect()
                found.append(tracemalloc.get_traced_memory()[0] / 1e6)
        tracemalloc.stop()
        self.client.close()
        assert share < 1 or self.requests >= 60 * 59
        return found[1] - found[0]

    def use(self, journal: Journal) -> None:
        client, number = self.client, next(self.numbers) + 1
        paid = client.payouts.pay_once(journal=journal, reference=f"r-{number}", amount=100, phone=PHONE)
        prompt = client.stk.initiate(amount=100, phone=PHONE)
        client.transactions.get(paid.transaction_id)
        assert len(client.transactions.list(limit=100).items) == _ITEMS
        client.transactions.notify(parse_callback(BODY))
        assert client.transactions.wait(prompt, schedule=PollSchedule(first=1.0)).status == "SUCCESS"
        # What the port of the tests remembers is not the SDK's.
        del self.port.requests[:], self.port.slept[:]
