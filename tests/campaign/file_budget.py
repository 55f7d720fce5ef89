"""Processes of one machine on one key: `python tests/campaign/file_budget.py [--seconds S] [--window W]`.

Four workers that a parent forked, a command that is started every few seconds, and a worker in a crash loop share one
budget in a file, or, as the control, have one each. They run against the sandbox, which limits as the service does: 60
requests in a window, here of 15 seconds. The budget allows 58 in 16 seconds.

The promise: with the file, nothing is answered with 429, and no window of the service holds more than 58 requests.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign.redis_budget import _fullest, _window_of
from momopay.sandbox import Sandbox

WORKER = Path(__file__).with_name("file_worker.py")
WINDOW = 15.0
COMMAND_EVERY = 3.0
REQUESTS = 58


@dataclass(frozen=True)
class Result:
    """What the service saw."""

    answers: Counter[int | None]
    payments: int
    fullest: int
    commands: int
    crashes: int

    @property
    def keeps_the_promise(self) -> bool:
        return self.answers[429] == 0 and self.fullest <= REQUESTS


def run(seconds: float, limiting: Literal["fixed", "sliding"], *, shared: bool = True) -> Result:
    """Run all processes for so long."""
    key = f"pk_test_file_{limiting}_{shared}"
    with _window_of(WINDOW), Sandbox() as sandbox, tempfile.TemporaryDirectory() as folder:
        account = sandbox.account(key)
        account.switches.rate_window = limiting
        account.switches.health_rule = False
        path = [str(Path(folder) / "budget")] if shared else []

        def command(mode: str) -> list[str]:
            return [sys.executable, str(WORKER), mode, key, sandbox.base_url, str(seconds), *path]

        commands = crashes = 0
        end = time.monotonic() + seconds
        with _started(command("prefork")) as workers, _Repeated() as others:
            crashing, next_command = others.start(command("crash")), time.monotonic()
            while time.monotonic() < end:
                if time.monotonic() >= next_command:
                    commands, next_command = commands + 1, next_command + COMMAND_EVERY
                    others.start(command("command"))
                if crashing.poll() is not None:
                    crashes, crashing = crashes + 1, others.start(command("crash"))
                time.sleep(0.05)
            workers.wait(60)
        requests = sandbox.requests
    admitted = [request for request in requests if request.status != 429]
    return Result(
        answers=Counter(request.status for request in requests),
        payments=sum(request.method == "POST" for request in admitted),
        fullest=_fullest([request.at for request in admitted], WINDOW),
        commands=commands,
        crashes=crashes,
    )


@contextmanager
def _started(command: list[str]) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class _Repeated:
    """Processes that are started again and again; those that are left are killed."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        self._processes.append(subprocess.Popen(command))
        return self._processes[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def main() -> int:
    """Make every run and write a table; return 1 if the file broke the promise, or the control kept it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run (default: %(default)s)")
    options = parser.parse_args()
    bad = 0
    sys.stdout.write(f"{'budget':<14}{'window':<9}{'admitted':>9}{'payments':>9}{'fullest':>8}{'429s':>6}")
    sys.stdout.write(f"{'commands':>9}{'crashes':>8}\n")
    plans: list[tuple[bool, Literal["fixed", "sliding"]]] = [(True, "fixed"), (True, "sliding"), (False, "sliding")]
    for shared, limiting in plans:
        result = run(options.seconds, limiting, shared=shared)
        bad += result.keeps_the_promise != shared
        admitted = result.answers.total() - result.answers[429]
        sys.stdout.write(
            f"{'one file' if shared else 'each its own':<14}{limiting:<9}{admitted:>9}{result.payments:>9}"
        )
        sys.stdout.write(f"{result.fullest:>8}{result.answers[429]:>6}{result.commands:>9}{result.crashes:>8}\n")
        sys.stdout.flush()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
