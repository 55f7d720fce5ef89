"""Blocking work in a thread is completed, and a cancelled task waits for it, but not for long."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from in_turn import in_turn
from momopay._transport import threads
from momopay._transport.threads import entered_in_thread, finish_in_thread, in_event_loop, in_thread


@in_turn("loop", ["asyncio", "trio"])
def test_a_result_and_an_error_come_back_as_they_are(loop: str) -> None:
    def fail() -> None:
        raise LookupError("plain, and not in a group")

    async def identity() -> int:
        return threading.get_ident()

    async def main() -> None:
        assert await in_thread(threading.get_ident) != threading.get_ident()
        with pytest.raises(LookupError):
            await in_thread(fail)
        assert await in_thread(lambda: in_event_loop(identity)) == threading.get_ident()

    anyio.run(main, backend=loop)


@in_turn("loop", ["asyncio", "trio"])
def test_a_context_in_threads_sees_how_its_block_ends(loop: str) -> None:
    ends = list[BaseException | None]()

    @contextmanager
    def context() -> Generator[int]:
        try:
            yield threading.get_ident()
        finally:
            ends.append(sys.exception())

    async def main() -> None:
        async with entered_in_thread(context()) as thread:
            assert thread != threading.get_ident()
        for error in (LookupError("plain"), KeyboardInterrupt()):
            with pytest.raises(type(error)):
                async with entered_in_thread(context()):
                    raise error
            assert ends == [None, error]
            ends.pop()

    anyio.run(main, backend=loop)


class Locked:
    """Work that does not end before it is released."""

    def __init__(self) -> None:
        self.started, self.released, self.done = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.started.set()
        self.released.wait(30)
        self.done.set()

    async def has_started(self) -> None:
        while not self.started.is_set():  # noqa: ASYNC110  a thread sets it
            await anyio.sleep(0.001)


async def cancel_scope(work: Locked, act: Callable[[], None]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(in_thread, work)
        await work.has_started()
        group.cancel_scope.cancel()
        act()


async def cancel_task(work: Locked, act: Callable[[], None]) -> None:
    task = asyncio.ensure_future(in_thread(work))
    await work.has_started()
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    act()
    with pytest.raises(asyncio.CancelledError):
        await task


WAYS = pytest.mark.parametrize(
    ("cancel", "loop"), [(cancel_scope, "asyncio"), (cancel_scope, "trio"), (cancel_task, "asyncio")]
)
Cancel = Callable[[Locked, Callable[[], None]], Coroutine[Any, Any, None]]


@WAYS
def test_a_cancelled_task_waits_for_its_work(cancel: Cancel, loop: str) -> None:
    work = Locked()
    anyio.run(cancel, work, work.released.set, backend=loop)
    assert work.done.is_set()


@WAYS
def test_a_cancelled_task_leaves_work_that_hangs(monkeypatch: pytest.MonkeyPatch, cancel: Cancel, loop: str) -> None:
    monkeypatch.setattr(threads, "CANCELLED_WAIT", 0.1)
    work, begun = Locked(), list[float]()

    async def main() -> float:
        await cancel(work, lambda: begun.append(time.monotonic()))
        elapsed = time.monotonic() - begun[0]
        assert not work.done.is_set()
        work.released.set()
        while not work.done.is_set():  # noqa: ASYNC110  it ends by itself
            await anyio.sleep(0.001)
        return elapsed

    assert 0.05 <= anyio.run(main, backend=loop) < 10


@in_turn("loop", ["asyncio", "trio"])
def test_work_is_done_in_a_scope_that_is_cancelled_already(loop: str) -> None:
    """As the journal does when it records what a cancelled payment has come to."""
    done = list[str]()

    async def main() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await in_thread(lambda: done.append("written"))

    anyio.run(main, backend=loop)
    assert done == ["written"]


@in_turn("loop", ["asyncio", "trio"])
def test_an_interrupted_caller_needs_no_thread_of_anyios_shared_ones(loop: str) -> None:
    released, done = threading.Event(), list[str]()

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, lambda: released.wait(30))
            await anyio.wait_all_tasks_blocked()
            await finish_in_thread(lambda: done.append("written"))
            released.set()

    anyio.run(main, backend=loop)
    assert done == ["written"]


def test_an_error_of_work_that_was_left_behind_troubles_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CANCELLED_WAIT", 0.0)
    work, errors = Locked(), list[Any]()

    def fail() -> None:
        work()
        raise LookupError

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
        task = asyncio.ensure_future(in_thread(fail))
        await work.has_started()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        work.released.set()
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert errors == []
