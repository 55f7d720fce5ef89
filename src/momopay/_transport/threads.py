"""Blocking work off the event loop, which a cancelled caller does not leave at once."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

# Seconds that a cancelled caller waits for the work. A commit takes milliseconds, and a caller that left one behind
# might close the journal under it. No cancelled task should wait for a database that is locked.
CANCELLED_WAIT: Final = 1.0

T = TypeVar("T")


async def in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter | None = None) -> T:
    """Do blocking work in a thread and return its result.

    A cancellation is raised when the work is done, or a second later. The work then ends by itself in its thread.
    `limiter` bounds the number of threads; the default is the limiter that all users of anyio share.
    """
    results = list[T]()
    errors = list[Exception]()
    ended = anyio.Event()
    shield = anyio.CancelScope(shield=True)  # or a scope that is cancelled already would not let the work begin

    async def run() -> None:
        try:
            with shield:
                results.append(await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter))
        except Exception as error:  # noqa: BLE001  the task group would wrap it in an ExceptionGroup
            errors.append(error)
        ended.set()

    # asyncio's own cancellation ignores anyio's shields, but a task group waits for its tasks under either.
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        try:
            await ended.wait()
        except BaseException:
            shield.deadline = anyio.current_time() + CANCELLED_WAIT
            raise
    if errors:
        raise errors[0]
    return results[0]


def in_event_loop(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await something in the event loop that `in_thread` was called in, from its thread; return the result."""
    return anyio.from_thread.run(start)


async def finish_in_thread(work: Callable[[], object]) -> None:
    """Do blocking work of a caller that was interrupted: wait a second for it, then leave it to its thread."""
    # asyncio cancels a task once. An `in_thread` after that would wait to the end of the work, as if nobody had.
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CANCELLED_WAIT):
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


@asynccontextmanager
async def entered_in_thread(context: AbstractContextManager[T]) -> AsyncGenerator[T]:
    """Enter and leave a blocking context in threads, also when the task is cancelled."""
    stack, lock = ExitStack(), threading.Lock()
    has_left = False

    def enter() -> T:
        with lock:
            if has_left:
                raise RuntimeError("cancelled before it began")  # nobody gets this: the task has gone
            return stack.enter_context(context)

    def leave(*error: Any) -> None:
        nonlocal has_left
        # A cancelled task does not wait long for its thread, which may still be entering. What it enters is left then.
        with lock:
            has_left = True
            stack.__exit__(*error)

    try:
        yield await in_thread(enter)
    except BaseException as error:  # a cancellation too, else the callback would stay held
        await finish_in_thread(partial(leave, type(error), error, error.__traceback__))
        raise
    await in_thread(partial(leave, None, None, None))
