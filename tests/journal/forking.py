"""Forked children. Apart from the kit, so that the processes that tests start do not load pytest."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

import pytest

forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_a_fork(work: Callable[[], object]) -> int | None:
    """Do something in a forked child; return its exit status."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(30)
    return child.exitcode
