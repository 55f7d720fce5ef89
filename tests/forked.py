"""Work in another process: a forked child, or one that shares nothing with this one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

if sys.platform == "win32":
    from multiprocessing.context import SpawnProcess as FreshProcess

    _KILL = KILLED = int(signal.SIGTERM)  # which ends a process at once there
else:
    from multiprocessing.context import ForkServerProcess as FreshProcess

    _KILL, KILLED = signal.SIGKILL, -signal.SIGKILL


def kill_this_process() -> None:
    """End with the status `KILLED`."""
    os.kill(os.getpid(), _KILL)


def in_a_fork(work: Callable[[], object], seconds: float = 30.0) -> int | None:
    """Do something in a forked child; return its exit status, None if it did not end in time."""
    if sys.platform == "win32":
        pytest.skip("Windows has no fork")
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(seconds)
    code = child.exitcode
    child.kill()
    child.join()
    return code


def succeeds_in_child(work: Callable[[], object]) -> bool:
    return in_a_fork(work, 10.0) == 0


def in_a_fresh_process(work: Callable[..., object], *arguments: Any) -> FreshProcess:
    """Start a function in a process that shares nothing with this one, and does not import all that it needs anew.

    It is forked by a server that has imported the module of the first such function. On Windows, it imports all.
    """
    if sys.platform == "win32":
        process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
        process.start()
        return process
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    process = context.Process(target=work, args=arguments)
    # Before Python 3.12.4, the server of forks does not know this process's sys.path.
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with patch.dict("os.environ", {"PYTHONPATH": path}):
        process.start()
    return process
