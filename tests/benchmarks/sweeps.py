"""`transactions.sweep` over thousands of open entries: requests of one pass."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

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


def measure(scale: Scale) -> list[Row]:
    """Sweep journals of both sizes; all their payouts have ended, and a pass settles what it reaches."""
    rounds = min(scale.rounds, ROUNDS)
    few = [_requests(scale.of(FEW), settles_all=True) for _ in range(rounds)]
    many = [_requests(scale.of(MANY), settles_all=False) for _ in range(rounds)]
    return [
        Row(f"sweep, {name} open", "requests a pass", requests, "the goal", [REQUESTS] * rounds, 1.0)
        for name, requests in (("1,000", few), ("10,000", many))
    ]


def _requests(entries: int, *, settles_all: bool) -> float:
    with _filled(entries) as (journal, pages), mocked_client(pages) as client:
        report = client.transactions.sweep(journal=journal)
    assert not settles_all or report.settled == entries
    return pages.requests


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
