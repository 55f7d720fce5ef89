"""Processes of one machine on one key: `python tests/campaign/budgets.py [--seconds S]`.

Four workers that a parent forked, blocking and asyncio in turn, a command that is started every few seconds, and a
worker in a crash loop share one budget in a file or in Redis, or, as the control, have one each. They run against the
sandbox, which limits as the service does: 60 requests in a window, here of 8 seconds. The budget allows 58 in 9
seconds. In an outage, the workers alone go on while Redis is killed for a fifth of the run and comes back empty.

The promise: with a shared budget, nothing is answered with 429, and no window of the service holds more than 58
requests. Around an outage there is at most one limit for each worker on average.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from momopay.sandbox import Sandbox, _state
from redis_server import RedisServer

WORKER = Path(__file__).with_name("budget_worker.py")
WINDOW = 8.0
MARGIN, OUTAGE_MARGIN = 1.0, 2.0
"""Seconds by which the budget's window is longer: around an outage, processes start over together."""
COMMAND_EVERY = 2.0
WORKERS = 4
REQUESTS = 58

Shared = Literal["file", "redis", "nothing"]
Limiting = Literal["fixed", "sliding"]
CASES: list[tuple[Shared, Limiting, bool]] = [
    ("file", "fixed", False),
    ("file", "sliding", False),
    ("redis", "fixed", False),
    ("redis", "sliding", False),
    ("redis", "sliding", True),
    ("nothing", "sliding", False),
]
"""What is shared, how the service limits, and whether there is an outage."""


@dataclass(frozen=True)
class Result:
    """What the service saw. `fullest` is the most that it let in within one window's length."""

    answers: Counter[int | None]
    payments: int
    fullest: int
    commands: int
    crashes: int
    outage: bool

    @property
    def keeps_the_promise(self) -> bool:
        if self.outage:
            return self.answers[429] <= WORKERS
        return self.answers[429] == 0 and self.fullest <= REQUESTS


def run(seconds: float, limiting: Limiting, shared: Shared, *, outage: bool = False) -> Result:
    key = f"pk_test_{shared}_{limiting}_{outage}"
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        stack.enter_context(_window_of(WINDOW))
        sandbox = stack.enter_context(Sandbox())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        redis = stack.enter_context(RedisServer()) if shared == "redis" else None
        stack.callback(_end, processes)
        account = sandbox.account(key)
        account.switches.rate_window = limiting
        account.switches.health_rule = False
        budget = {"file": f"{folder}/budget", "redis": redis.url if redis else "", "nothing": ""}[shared]
        window = WINDOW + (OUTAGE_MARGIN if outage else MARGIN)

        def start(mode: str) -> subprocess.Popen[bytes]:
            arguments = [mode, key, sandbox.base_url, str(seconds), str(window), budget]
            processes.append(subprocess.Popen([sys.executable, str(WORKER), *arguments]))
            return processes[-1]

        workers, begun, commands, crashes = start("prefork"), time.monotonic(), 0, 0
        if outage and redis is not None:
            time.sleep(0.4 * seconds)
            redis.kill()
            time.sleep(0.2 * seconds)
            redis.start()
        else:
            crashing = start("crash")
            while time.monotonic() < begun + seconds:
                if time.monotonic() >= begun + commands * COMMAND_EVERY:
                    commands += 1
                    start("command")
                if crashing.poll() is not None:
                    crashes, crashing = crashes + 1, start("crash")
                time.sleep(0.05)
        workers.wait(seconds + 60)
        requests = sandbox.requests
    admitted = [request for request in requests if request.status != 429]
    return Result(
        answers=Counter(request.status for request in requests),
        payments=sum(request.method == "POST" for request in admitted),
        fullest=_fullest([request.at for request in admitted], WINDOW),
        commands=commands,
        crashes=crashes,
        outage=outage,
    )


@contextmanager
def _window_of(seconds: float) -> Generator[None]:
    """Shorten the window of the sandbox, and not its clock: what it says of a reset must be true for the clients."""
    whole, _state.WINDOW = _state.WINDOW, timedelta(seconds=seconds)
    try:
        yield
    finally:
        _state.WINDOW = whole


def _fullest(times: Sequence[datetime], window: float) -> int:
    span = timedelta(seconds=window)
    return max((sum(start <= each < start + span for each in times) for start in times), default=0)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()


def main() -> int:
    """Make every run; return 1 if a shared budget broke the promise, or the control kept it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=32.0, help="of each run (default: %(default)s)")
    options = parser.parse_args()
    bad = 0
    for shared, limiting, outage in CASES:
        result = run(options.seconds, limiting, shared, outage=outage)
        bad += result.keeps_the_promise is (shared == "nothing")
        sys.stdout.write(f"{shared}, a {limiting} window: {result}\n")
        sys.stdout.flush()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
