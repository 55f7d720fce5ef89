"""What accounts in one PostgreSQL wait for each other, at 20 ms a round trip: payments of one and of eight accounts.

"8 x 4" are eight accounts, spread over four processes. Where there are more processes than accounts, each process pays
from the one account.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from benchmarks.measure import Scale, take_turns
from benchmarks.processes import PATIENCE
from patience import beside
from postgresql import running_postgresql
from relay import relaying

ROUND_TRIP = 0.02  # seconds
SIDES = [(1, 1), (1, 4), (1, 8), (8, 1), (8, 4), (8, 8)]
_SECONDS = 5.0
_AT_WORK = """
    SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock') FROM pg_stat_activity
    WHERE application_name LIKE 'momopay-%' AND state <> 'idle'"""


def accounts(scale: Scale) -> dict[str, list[float]]:
    """Return the milliseconds of a payment for each side. Leave all out where PostgreSQL is not installed."""
    with ExitStack() as stack:
        try:
            url = make_url(stack.enter_context(running_postgresql()).new_database())
        except pytest.skip.Exception:
            if os.environ.get("CI_REQUIRE_ALL"):
                raise
            return {}
        relay = stack.enter_context(relaying(url.port or 0, ROUND_TRIP))
        far = url.set(port=relay.port).render_as_string()
        seconds = max(0.5, _SECONDS * scale.share)
        most = 8 if scale.share == 1.0 else 2  # a taste is no measurement, and processes take long to start
        sides: dict[str, Callable[[], float]] = {
            f"{number} x {processes}": partial(_milliseconds, far, number, min(processes, most), seconds)
            for number, processes in SIDES
        }
        waits = {name: list[float]() for name in sides}
        with psycopg.connect(url.set(drivername="postgresql").render_as_string(), autocommit=True) as watcher:

            def watched(name: str, side: Callable[[], float]) -> float:
                with _watching(watcher, waits[name]):
                    return side()

            taken = take_turns({name: partial(watched, name, side) for name, side in sides.items()}, scale)
        return taken | {f"{name} waits": each[-scale.rounds :] for name, each in waits.items()}


@contextmanager
def _watching(watcher: psycopg.Connection[Any], waits: list[float]) -> Generator[None]:
    """Add how many percent of the time that backends were at work they waited for a lock."""
    is_over, busy, waiting = threading.Event(), 0, 0

    def watch() -> None:
        nonlocal busy, waiting
        while not is_over.wait(0.005):
            found = watcher.execute(_AT_WORK).fetchone()
            assert found is not None
            busy, waiting = busy + found[0], waiting + found[1]

    with beside(watch):
        try:
            yield
        finally:
            is_over.set()
    waits.append(100 * waiting / max(1, busy))


def _milliseconds(url: str, number: int, processes: int, seconds: float) -> float:
    """Return how long a payment took, by the median of each process."""
    names = [f"shop {each}" for each in range(number)]
    shares = [names[each::processes] or names[:1] for each in range(processes)]
    command = [sys.executable, str(Path(__file__).with_name("payer.py")), url, str(seconds)]
    with ExitStack() as stack:
        payers = list[subprocess.Popen[str]]()
        for share in shares:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            payers.append(stack.enter_context(subprocess.Popen([*command, *share], **pipes)))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
        for payer in payers:
            assert payer.stdout is not None
            assert payer.stdout.readline() == "ready\n", "a payer did not start"
        results = list[tuple[int, float]]()
        for payer in payers:
            assert payer.stdin is not None
            payer.stdin.write("\n")
            payer.stdin.flush()
        for payer in payers:
            shown, _ = payer.communicate(timeout=PATIENCE)
            payments, taken = shown.split()
            results.append((int(payments), float(taken)))
    made = sum(each for each, _ in results)
    sys.stderr.write(f"  {number} x {processes}: {made / seconds:.1f} payments a second\n")
    return median(taken for _, taken in results)
