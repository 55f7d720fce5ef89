"""`payouts.pay_once`, CPU a call: what the journal costs, on disk and on a server.

Writes to a disk are synced, and the kernel's work for that counts. PostgreSQL's own processes are not counted.
"""

import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Final

import pytest

from benchmarks.measure import Row, Scale, against_the_goal, cpu, take_turns
from benchmarks.mocked import PHONE, Accepts, mocked_client
from journal.kit import fill
from momopay import Client, Journal
from postgresql import running_postgresql

CALLS: Final = 200
MANY: Final = 1_000_000
GOAL: Final = 1_200.0  # in the unit of the rows
_UNIT: Final = "us CPU a call"
_references = count()


def measure(scale: Scale) -> list[Row]:
    """Time all in the same rounds; those whose database is not installed here are left out."""
    calls = scale.of(CALLS)
    with ExitStack() as open_things:
        client = open_things.enter_context(mocked_client(Accepts()))
        journals = {"SQLite": open_things.enter_context(_in_a_file())}
        url = _server(open_things)
        if url is not None:
            journals["PostgreSQL"] = open_things.enter_context(Journal(url))
        large = open_things.enter_context(_in_a_file())
        fill(large, scale.of(MANY))
        sides: dict[str, Callable[[], float]] = {
            name: partial(cpu, partial(_pay, client, journal), calls)
            for name, journal in {**journals, "1,000,000 rows": large}.items()
        }
        for side in sides.values():
            side()
        taken = take_turns(sides, scale)
    rows = [against_the_goal(f"pay_once, {name}", _UNIT, taken[name], GOAL) for name in journals]
    many = taken["1,000,000 rows"]
    return [*rows, Row("pay_once, 1,000,000 rows", _UNIT, many, "an empty journal", taken["SQLite"], 1.05)]


def _pay(client: Client, journal: Journal) -> None:
    client.payouts.pay_once(journal=journal, amount=100, phone=PHONE, reference=f"r-{next(_references)}")


@contextmanager
def _in_a_file() -> Generator[Journal]:
    with tempfile.TemporaryDirectory() as folder, Journal(f"sqlite:///{folder}/payouts.db") as journal:
        yield journal


def _server(open_things: ExitStack) -> str | None:
    """Start PostgreSQL where it is installed; return the URL of a database."""
    try:
        return open_things.enter_context(running_postgresql()).new_database()
    except pytest.skip.Exception:
        if os.environ.get("CI_REQUIRE_ALL"):
            raise
        return None
