"""Run a coroutine of this package in the blocking client."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result.

    Raises:
        RuntimeError: The coroutine suspended, which a blocking client cannot wait for.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking call tried to suspend")
