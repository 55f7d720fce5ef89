"""Blocking work in a thread is completed, whatever happens to the task that waits for it."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest

from momopay._transport.threads import in_thread


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_result_and_an_error_come_back_as_they_are(loop: str) -> None:
    def fail() -> None:
        raise LookupError("plain, and not in a group")

    async def main() -> None:
        assert await in_thread(threading.get_ident) != threading.get_ident()
        with pytest.raises(LookupError):
            await in_thread(fail)

    anyio.run(main, backend=loop)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_cancelled_scope_waits_for_the_work(loop: str) -> None:
    started, released, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        started.set()
        released.wait(30)
        done.append("written")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(in_thread, work)
            while not started.is_set():  # noqa: ASYNC110  a thread sets it
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
            released.set()
        assert done == ["written"]

    anyio.run(main, backend=loop)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_work_is_done_in_a_scope_that_is_cancelled_already(loop: str) -> None:
    """As the journal does when it records what a cancelled payment has come to."""
    done = list[str]()

    async def main() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await in_thread(lambda: done.append("written"))

    anyio.run(main, backend=loop)
    assert done == ["written"]


def test_a_cancelled_asyncio_task_waits_for_the_work() -> None:
    started, released, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        started.set()
        released.wait(30)
        done.append("written")

    async def main() -> None:
        task = asyncio.ensure_future(in_thread(work))
        while not started.is_set():  # noqa: ASYNC110  as above
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["written"]

    asyncio.run(main())


def test_so_many_threads_and_no_more() -> None:
    running, most = [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.01)
        with lock:
            running[0] -= 1

    async def main() -> None:
        limiter = anyio.CapacityLimiter(2)
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(in_thread, work, limiter)

    anyio.run(main)
    assert most[0] == 2
