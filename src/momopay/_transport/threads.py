"""Blocking work off the event loop, always done to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


async def in_thread(work: Callable[[], T], limiter: anyio.CapacityLimiter | None = None) -> T:
    """Do blocking work in a thread; a cancellation, anyio's or asyncio's own, is told when the work is done.

    Args:
        work: What to do.
        limiter: How many threads there may be; by default those that all of anyio's users share.
    """
    done = list[T]()
    failed = list[Exception]()

    async def run() -> None:
        try:
            with anyio.CancelScope(shield=True):
                done.append(await anyio.to_thread.run_sync(work, limiter=limiter))
        except Exception as error:  # noqa: BLE001  carried out of the group, which would wrap it
            failed.append(error)

    async with anyio.create_task_group() as group:  # asyncio's own cancellation heeds no shield, but a group waits
        group.start_soon(run)
    if failed:
        raise failed[0]
    return done[0]
