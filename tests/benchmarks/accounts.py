"""What accounts in one PostgreSQL wait for each other, at 20 ms a round trip: payments of one and of eight accounts.

"8 x 4" are eight accounts, spread over four processes. Where there are more processes than accounts, each process pays
from the one account.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from sqlalchemy import make_url

from benchmarks.measure import Scale, take_turns
from benchmarks.processes import PATIENCE
from postgresql import running_postgresql
from relay import relaying

ROUND_TRIP = 0.02  # seconds
SIDES = [(1, 1), (1, 4), (1, 8), (8, 1), (8, 4), (8, 8)]
_SECONDS = 5.0


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
        sides: dict[str, Callable[[], float]] = {
            f"{number} x {processes}": partial(_milliseconds, far, number, processes, seconds)
            for number, processes in SIDES
        }
        return take_turns(sides, scale)


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
            made, taken = shown.split()
            results.append((int(made), float(taken)))
    made = sum(each for each, _ in results)
    sys.stderr.write(f"  {number} x {processes}: {made / seconds:.1f} payments a second\n")
    return median(taken for _, taken in results)
