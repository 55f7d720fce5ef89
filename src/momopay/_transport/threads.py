"""Blocking work off the event loop, always completed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


async def in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter | None = None) -> T:
    """Do blocking work in a thread and return its result. A cancellation is raised only when the work is done.

    `limiter` bounds the number of threads; the default is the limiter that all users of anyio share.
    """
    # The work is often a write to the journal. A task that left it behind would close the journal under it.
    results = list[T]()
    errors = list[Exception]()

    async def run() -> None:
        try:
            with anyio.CancelScope(shield=True):  # or a scope that is cancelled already would not let it begin
                results.append(await anyio.to_thread.run_sync(work, limiter=limiter))
        except Exception as error:  # noqa: BLE001  the task group would wrap it in an ExceptionGroup
            errors.append(error)

    # asyncio's own cancellation ignores anyio's shields, but a task group waits for its tasks under either.
    async with anyio.create_task_group() as group:
        group.start_soon(run)
    if errors:
        raise errors[0]
    return results[0]
