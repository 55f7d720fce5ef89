"""Threads and processes take no slot twice, whatever keeps the budget, and a fork leaves neither of the two stuck."""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from momopay import FileRateBudget, RateBudget, RedisRateBudget
from momopay._ratelimit.slot_log import SlotLog
from ratelimit.kit import Caller

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")]
SIZE: Any = {"requests": 40, "window": 60.0}


@pytest.fixture(params=["process", "file", "redis"])
def make_budget(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    if request.param == "process":
        return lambda: RateBudget(**SIZE)
    if request.param == "file":
        return lambda: FileRateBudget(tmp_path / "budget", **SIZE)
    url = request.getfixturevalue("server").url
    return lambda: RedisRateBudget(url, **SIZE)


def taken(caller: Caller, calls: int) -> int:
    """Ask for so many slots from eight threads; return how many there were."""

    def take(_number: int) -> bool:
        while (delay := caller.reserve()) and delay < 1.0:  # another process has the lock
            time.sleep(delay)
        return delay == 0

    with ThreadPoolExecutor(8) as threads:
        return sum(threads.map(take, range(calls)))


def in_child(work: Callable[[], int]) -> BaseProcess:
    """Begin to work in a forked child, whose exit status says what came of it."""
    child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(work()))
    child.start()
    return child


def result(child: BaseProcess) -> int:
    child.join(30)
    assert child.exitcode is not None, "the child is stuck"
    return child.exitcode


def test_threads_of_processes_take_no_slot_twice(make_budget: Callable[[], Any], account_hash: str) -> None:
    shares = not isinstance(make_budget(), RateBudget)
    children = [in_child(lambda: taken(Caller(make_budget(), account_hash), 40)) for _ in range(2 * shares)]
    mine = taken(Caller(make_budget(), account_hash), 50)
    assert mine + sum(map(result, children)) == 40


def test_the_child_of_a_fork_waits_for_no_thread_of_its_parent(
    make_budget: Callable[[], Any], account_hash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child shares what the processes of a budget share, and remembers what its parent sent."""
    caller, reserve, holds = Caller(make_budget(), account_hash), SlotLog.reserve, threading.Event()
    assert taken(caller, 10) == 10
    delays = list[float]()

    def slow(*arguments: Any) -> float:
        if threading.current_thread() is thread:  # which holds every lock of the budget at the fork
            holds.set()
            time.sleep(0.2)
        return reserve(*arguments)

    monkeypatch.setattr(SlotLog, "reserve", slow)
    thread = threading.Thread(target=lambda: delays.append(caller.reserve()))
    thread.start()
    assert holds.wait(30)
    child = in_child(lambda: taken(caller, 30))
    mine = taken(caller, 10)
    thread.join()
    of_child = result(child)
    total = 10 + delays.count(0.0) + mine + of_child + taken(caller, 40)
    if isinstance(caller.budget, RateBudget):
        assert (total, of_child) == (40 + 30, 30)
    else:
        assert total == 40
    caller.close()
