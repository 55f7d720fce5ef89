"""Many at once: requests of a sweep, and CPU of 10,000 waits in virtual time.

The service is in this process. Trio's work for the tasks counts.
"""

import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx
import trio

from benchmarks.measure import Scale
from benchmarks.mocked import Pages, mocked_client
from benchmarks.processes import KEY
from bodies import transaction
from journal.constants import PHONE
from journal.database_kit import execute
from journal.kit import fill, found
from momopay import AsyncClient, Journal, PollSchedule, RateBudget
from scale.simulation import TrioIO, in_virtual_time
from virtual import install_backend

MANY: Final = 10_000
ROUNDS: Final = 3
"""At most."""
_BEGIN: Final = datetime(2026, 1, 5, 6, tzinfo=UTC)


def sweep(scale: Scale) -> dict[str, list[float]]:
    """Count the requests of a pass over so many open payments."""
    requests = list[float]()
    for _ in range(min(scale.rounds, ROUNDS)):
        with _filled(scale.of(MANY)) as (journal, pages), mocked_client(pages) as client:
            client.transactions.sweep(journal=journal)
        requests.append(pages.requests)
    return {"sweep": requests}


def waits(scale: Scale) -> dict[str, list[float]]:
    return {"waits": [_cpu_a_wait(scale.of(MANY)) for _ in range(min(scale.rounds, ROUNDS))]}


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


def _cpu_a_wait(many: int) -> float:
    names = [f"t-{number}" for number in range(many)]
    times = [(_BEGIN + timedelta(seconds=number)).isoformat() for number in range(many)]
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
        assert ended == many
        return seconds / many * 1e6

    return in_virtual_time(main)
