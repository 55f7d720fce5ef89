"""Blocking work in threads of an event loop. A cancelled caller waits a moment for its work."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

# Seconds that a cancelled caller waits for its work. A commit takes milliseconds, and a caller that left at once might
# close the journal during it. But no cancelled task should wait for a locked database.
CANCELLED_WAIT: Final = 1.0

T = TypeVar("T")


async def in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter | None = None) -> T:
    """Do blocking work in a thread and return its result.

    A cancellation is raised when the work is done, or after `CANCELLED_WAIT`; the thread then finishes the work alone.
    `limiter` bounds the number of threads; the default is anyio's shared limiter.
    """
    results = list[T]()
    errors = list[Exception]()
    ended = anyio.Event()
    shield = anyio.CancelScope(shield=True)  # lets the work begin even if the caller is cancelled already

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
    """Await a coroutine on the caller's event loop, from a thread of `in_thread`, and return its result."""
    return anyio.from_thread.run(start)


async def finish_in_thread(work: Callable[[], object]) -> None:
    """Do blocking work for an interrupted caller: wait up to `CANCELLED_WAIT`, then leave it to its thread."""
    # asyncio cancels a task only once, so `in_thread` would now wait to the end of the work. A limiter of its own,
    # because the work must begin even if all of anyio's shared threads are busy.
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CANCELLED_WAIT):
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


@asynccontextmanager
async def entered_in_thread(context: AbstractContextManager[T]) -> AsyncGenerator[T]:
    """Enter and leave a blocking context in threads, also when the task is cancelled."""
    stack, lock = ExitStack(), threading.Lock()
    has_left = False

    def enter() -> T:
        with lock:
            if has_left:
                raise RuntimeError("cancelled before it began")  # nobody gets this: the task has left
            return stack.enter_context(context)

    def leave(*error: Any) -> None:
        nonlocal has_left
        # A cancelled task does not wait long for its thread, which may still be entering the context.
        with lock:
            has_left = True
            stack.__exit__(*error)

    try:
        yield await in_thread(enter)
    except BaseException as error:  # also a cancellation, after which the context would stay entered
        await finish_in_thread(partial(leave, type(error), error, error.__traceback__))
        raise
    await in_thread(partial(leave, None, None, None))
