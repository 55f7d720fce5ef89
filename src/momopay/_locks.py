"""A lock for `with` that stays free when a signal handler raises, on each Python."""

from __future__ import annotations

import _thread
from contextlib import suppress


class SafeLock(_thread.RLock):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """A lock that no exception out of a signal handler leaves held; use it only as ``with lock:``.

    From 3.14 on, Python may run a handler once an `__enter__` of C code has returned and before the block has begun: a
    plain lock would then stay held for ever. After an `__enter__` in Python it does not. `__exit__` is C code, before
    which no handler runs. A lock that can be held twice knows its owner, and so is released only if it was taken.
    """

    def __enter__(self, blocking: bool = True, timeout: float = -1) -> bool:
        try:
            return self.acquire(blocking, timeout)
        except BaseException:
            with suppress(RuntimeError):  # it was not taken
                self.release()
            raise
