"""`payouts.pay_once`, CPU a call: what the journal costs, on disk, in memory, on a server.

And `initiate` with an `on_event` that does nothing, against none.

Writes to a disk are synced, and the kernel's work for that counts. `/dev/shm` has no disk: there, only the SDK works.
PostgreSQL's own processes are not counted.
"""

import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from benchmarks.measure import Row, Scale, cpu, take_turns
from benchmarks.mocked import PHONE, Accepts, mocked_client
from journal.kit import fill
from momopay import Client, Journal
from postgresql import running_postgresql

CALLS: Final = 200
MANY: Final = 1_000_000
INITIATED: Final = 1_000
GOAL: Final = 1_200.0  # in the unit of the rows
_MEMORY: Final = Path("/dev/shm")
_UNIT: Final = "us CPU a call"
_references = count()


def measure(scale: Scale) -> list[Row]:
    """Time all in the same rounds; those whose database is not installed here are left out."""
    calls = scale.of(CALLS)
    with ExitStack() as open_things:
        client = open_things.enter_context(mocked_client(Accepts()))
        journals = {"SQLite": open_things.enter_context(_in_a_file(None))}
        if _MEMORY.is_dir():
            journals["SQLite without a disk"] = open_things.enter_context(_in_a_file(_MEMORY))
        url = _server(open_things)
        if url is not None:
            journals["PostgreSQL"] = open_things.enter_context(Journal(url))
        journals["SQLite, 1,000,000 rows"] = open_things.enter_context(_in_a_file(None))
        fill(journals["SQLite, 1,000,000 rows"], scale.of(MANY))
        sides: dict[str, Callable[[], float]] = {
            name: partial(cpu, partial(_pay, client, journal), calls) for name, journal in journals.items()
        }
        for side in sides.values():
            side()
        taken = take_turns(sides, scale)
    rows = [
        Row(f"pay_once, {name}", _UNIT, taken[name], "the goal", [GOAL] * scale.rounds, 1.0)
        for name in journals
        if "rows" not in name
    ]
    many = taken["SQLite, 1,000,000 rows"]
    return [*rows, Row("pay_once, 1,000,000 rows", _UNIT, many, "an empty journal", taken["SQLite"], 1.05)]


def measure_events(scale: Scale) -> list[Row]:
    calls = scale.of(INITIATED)
    with mocked_client(Accepts(), on_event=_observe) as observed, mocked_client(Accepts()) as plain:
        sides = {"with": partial(cpu, partial(_initiate, observed), calls)}
        sides["without"] = partial(cpu, partial(_initiate, plain), calls)
        taken = take_turns(sides, scale)
    return [Row("initiate, an on_event", "us CPU a call", taken["with"], "none", taken["without"])]


def _observe(_event: object) -> None:
    """Do nothing."""


def _initiate(client: Client) -> None:
    client.payouts.initiate(amount=100, phone=PHONE, reference=f"r-{next(_references)}")


def _pay(client: Client, journal: Journal) -> None:
    client.payouts.pay_once(journal=journal, amount=100, phone=PHONE, reference=f"r-{next(_references)}")


@contextmanager
def _in_a_file(folder: Path | None) -> Generator[Journal]:
    with tempfile.TemporaryDirectory(dir=folder) as own, Journal(f"sqlite:///{own}/payouts.db") as journal:
        yield journal


def _server(open_things: ExitStack) -> str | None:
    """Start PostgreSQL where it is installed; return the URL of a database."""
    try:
        return open_things.enter_context(running_postgresql()).new_database()
    except pytest.skip.Exception:
        if os.environ.get("CI_REQUIRE_ALL"):
            raise
        return None
