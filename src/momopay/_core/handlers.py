"""Checks of the user's handlers, and of what they return and raise."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeGuard

from momopay._redaction import redact


def is_async(handler: object) -> TypeGuard[Callable[..., Coroutine[Any, Any, object]]]:
    """Return whether a handler must be awaited."""
    return any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__)))


def raise_if_awaitable(result: object) -> None:
    """Raise TypeError if a handler that is not async returned something to await."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # else Python warns that it was never awaited
        raise TypeError("the handler returned something to await; make it an async def")


def trace_of(error: BaseException) -> str:
    """Return the traceback of a handler's exception, redacted."""
    # As text, because a log handler that gets the exception itself may show the locals of its frames.
    return redact("".join(traceback.format_exception(error)))
