"""Exceptions out of a signal handler at random instructions, as Ctrl-C and Celery's soft time limit raise them."""

import gc
import random
import signal
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Self

import pytest

from patience import untraced

MARKS = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no interval timer"),
    # A strike may come between the call of a coroutine function and the start of its coroutine, or in a finalizer.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning"),
]


class StruckError(Exception):
    """Raised by the signal handler."""


class Striker:
    """Lets one signal strike each piece of work, after a random time. A context puts the old handler back."""

    def __init__(self, seed: int, longest: float) -> None:
        self._random = random.Random(seed)
        self._longest = longest
        self._is_armed = False
        self._context = ExitStack()
        self.strikes = 0
        before = signal.signal(signal.SIGALRM, self._strike)
        self._context.callback(signal.signal, signal.SIGALRM, before)

    def __enter__(self) -> Self:
        self._context.enter_context(untraced())
        return self

    def __exit__(self, *_error: object) -> None:
        gc.collect()  # what a strike left open is lost now, where its warning is ignored
        self._context.close()

    def _strike(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_armed:
            self._is_armed = False
            self.strikes += 1
            raise StruckError

    def strike(self, work: Callable[[], object]) -> None:
        """Repeat the work until a signal has struck."""
        before = self.strikes
        try:
            self._repeat(work, before)
        except StruckError:
            pass
        finally:
            self._is_armed = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _repeat(self, work: Callable[[], object], before: int) -> None:
        # A function of its own: a `try` of Python 3.13 does not reach the jump of a loop right within it.
        self._is_armed = True
        signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-6, self._longest))
        while self.strikes == before:
            work()
