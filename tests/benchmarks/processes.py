"""Processes beside this one: a server on a core of its own, and fresh interpreters."""

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

KEY: Final = "pk_test_benchmark"
AUTHORIZATION: Final = {"Authorization": "Basic " + b64encode(f"{KEY}:".encode()).decode()}
"""Built once, so that no side pays for it at each call."""
PATIENCE: Final = 30.0
"""Seconds after which a process that should have ended is ended."""

# An interpreter that may not keep its bytecode would compile everything anew each time.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def serving(script: str) -> Generator[str]:
    """Run a script of this folder on another core; yield the first line that it prints, and end it afterwards.

    Where cores cannot be chosen, or there is one only, the system places both as it likes.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[1:2])  # what is started now inherits it
    command = [sys.executable, str(Path(__file__).with_name(script))]
    try:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT)
        with server:
            assert server.stdin is not None
            assert server.stdout is not None
            if len(cores) > 1:
                os.sched_setaffinity(0, cores[:1])
            try:
                told = server.stdout.readline().strip()
                assert told, f"{script} did not start"
                yield told
            finally:
                server.stdin.close()  # which is how the script knows that its time is over
                try:
                    server.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    server.kill()
    finally:
        if len(cores) > 1:
            os.sched_setaffinity(0, cores)


def cpu_until_the_end(code: str) -> float:
    """Run code that notes when it has `begun` in a fresh interpreter; return the milliseconds of CPU since then."""
    code += "\nimport time; print((time.process_time() - begun) * 1e3)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PATIENCE, env=_ENVIRONMENT)
    return float(done.stdout)
