"""`transactions.sweep` over thousands of open entries: requests, CPU and memory of one pass."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from benchmarks.measure import Row, Scale
from benchmarks.mocked import Pages, mocked_client
from journal.kit import PHONE, execute, fill, found
from momopay import Journal
from virtual import transaction

FEW: Final = 1_000
MANY: Final = 10_000
ROUNDS: Final = 3
REQUESTS: Final = 15.0
"""What one pass may make at most, by its documentation."""
_BEGIN: Final = datetime(2026, 1, 5, 6, tzinfo=UTC)


class Pass(NamedTuple):
    """What one pass cost."""

    requests: float
    seconds: float
    megabytes: float
    settled: int


def measure(scale: Scale) -> list[Row]:
    """Sweep journals of both sizes; all their payouts have ended, and a pass settles what it reaches."""
    rounds = min(scale.rounds, ROUNDS)
    few = [_sweep(scale.of(FEW)) for _ in range(rounds)]
    many = [_sweep(scale.of(MANY)) for _ in range(rounds)]
    for each in few:
        assert each.settled == scale.of(FEW)
    rows: list[Row] = []
    for name, passes in (("1,000", few), ("10,000", many)):
        work, limit = f"sweep, {name} open", [REQUESTS] * rounds
        rows.append(Row(work, "requests a pass", [each.requests for each in passes], "the goal", limit, 1.0))
    for unit, place in (("s CPU a pass", 1), ("MB at most", 2)):
        ours, theirs = [each[place] for each in many], [each[place] for each in few]
        rows.append(Row("sweep, 10,000 open", unit, ours, "1,000 open", theirs))
    return rows


def _sweep(entries: int) -> Pass:
    """Sweep twice: once for the time, and once for the memory, as tracing it takes time."""
    with _filled(entries) as (journal, pages), mocked_client(pages) as client:
        begun = time.process_time()
        report = client.transactions.sweep(journal=journal)
        seconds, requests = time.process_time() - begun, pages.requests
    with _filled(entries) as (journal, pages), mocked_client(pages) as client:
        tracemalloc.start()
        client.transactions.sweep(journal=journal)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return Pass(requests, seconds, peak / 1e6, report.settled)


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
