"""Waiting for what another thread, process or server brings about."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LONGEST = 30.0
"""Seconds; so long that only a defect reaches it, however busy the machine is."""


def until(holds: Callable[[], object], what: str = "it", longest: float = LONGEST) -> None:
    """Look until it holds."""
    give_up = time.monotonic() + longest
    while not holds():
        assert time.monotonic() < give_up, f"not within {longest} s: {what}"
        time.sleep(0.01)


def run_program(command: Sequence[str | Path], *, code: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends with this status, within two minutes; it says why if it ends with another."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=4 * LONGEST, **options)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@contextmanager
def beside(work: Callable[..., object], *arguments: Any) -> Generator[threading.Thread]:
    """Run this in a thread of its own, which has ended when the context does."""
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    yield thread
    thread.join()


@contextmanager
def untraced() -> Generator[None]:
    """Measure no coverage of this thread: its tracer holds a lock that a struck signal handler would leave held."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
