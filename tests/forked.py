"""Work in a forked child. Apart from the kits, so that the processes that tests start do not load pytest."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

import pytest

forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_a_fork(work: Callable[[], object], seconds: float = 30.0) -> int | None:
    """Do something in a forked child; return its exit status, None if it did not end in time."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(seconds)
    code = child.exitcode
    child.kill()
    child.join()
    return code


def succeeds_in_child(work: Callable[[], object]) -> bool:
    """Return whether the work ends well in a forked child, within ten seconds."""
    return in_a_fork(work, 10.0) == 0
