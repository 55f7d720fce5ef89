"""What is particular to the endpoint of FastAPI and Starlette."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest
from starlette.requests import Request
from starlette.responses import Response

from integrations.kit import BODY, QUERY, SIGNER, Handler, unreachable
from momopay import Journal
from momopay._transport import threads
from momopay.integrations import fastapi

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/momo", "query_string": b"", "headers": []}


async def deliver(endpoint: Callable[[Request], Awaitable[Response]], query: bytes = QUERY.encode()) -> Response:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    return await endpoint(Request({**SCOPE, "query_string": query}, receive))


def test_a_query_that_is_not_ascii_is_forged() -> None:
    endpoint = fastapi.callback_endpoint(unreachable, signer=SIGNER)
    assert asyncio.run(deliver(endpoint, b"momo_token=\xff")).status_code == 403


each_loop = pytest.mark.parametrize("loop", ["asyncio", "trio"])


def assert_comes_again(handler: Handler, endpoint: Callable[[Request], Awaitable[Response]]) -> None:
    """The callback was neither handled nor held."""
    assert handler.calls == []
    assert [asyncio.run(deliver(endpoint)).status_code for _ in range(2)] == [200, 200]
    assert len(handler.calls) == 1


@each_loop
@pytest.mark.parametrize("kind", ["handle", "handle_async"])
def test_cancelled_before_its_thread(journal: Journal, monkeypatch: pytest.MonkeyPatch, loop: str, kind: str) -> None:
    monkeypatch.setattr(threads, "CANCELLED_WAIT", 0.05)  # seconds that a cancelled task waits for its thread
    handler = Handler()
    endpoint = fastapi.callback_endpoint(getattr(handler, kind), signer=SIGNER, journal=journal)
    busy, go = threading.Event(), threading.Event()

    def occupy() -> None:
        busy.set()
        go.wait(30)

    async def main() -> None:
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = 1
        async with anyio.create_task_group() as others:
            others.start_soon(anyio.to_thread.run_sync, occupy)
            while not busy.is_set():  # noqa: ASYNC110  a thread sets it
                await anyio.sleep(0.001)
            async with anyio.create_task_group() as request:
                request.start_soon(deliver, endpoint)
                while not limiter.statistics().tasks_waiting:  # noqa: ASYNC110  the limiter has no event
                    await anyio.sleep(0.001)
                request.cancel_scope.cancel()
            go.set()

    anyio.run(main, backend=loop)
    assert_comes_again(handler, endpoint)


@each_loop
def test_a_thread_that_begins_late_holds_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    """The operating system was late to run it: by then nobody is left who would release the callback."""
    monkeypatch.setattr(threads, "CANCELLED_WAIT", 0.05)
    handler = Handler()
    endpoint = fastapi.callback_endpoint(handler.handle_async, signer=SIGNER, journal=journal)
    begun, go, done = threading.Event(), threading.Event(), threading.Event()
    run_in_time, late = anyio.to_thread.run_sync, [True]

    def begin_late(work: Callable[[], object]) -> object:
        begun.set()
        go.wait(30)
        try:
            return work()
        finally:
            done.set()

    async def run_sync(work: Callable[[], object], **options: Any) -> object:
        return await run_in_time(partial(begin_late, work) if late and late.pop() else work, **options)

    async def main() -> None:
        async with anyio.create_task_group() as request:
            request.start_soon(deliver, endpoint)
            while not begun.is_set():  # noqa: ASYNC110  a thread sets it
                await anyio.sleep(0.001)
            request.cancel_scope.cancel()
        go.set()
        await run_in_time(done.wait, 30)

    monkeypatch.setattr(anyio.to_thread, "run_sync", run_sync)
    anyio.run(main, backend=loop)
    assert_comes_again(handler, endpoint)


def test_at_most_64_kib_of_a_body_are_read() -> None:
    chunks = 0

    async def receive() -> dict[str, Any]:
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b" " * 16_384, "more_body": True}

    async def run() -> Response:
        return await fastapi.callback_endpoint(unreachable)(Request(SCOPE, receive))

    assert asyncio.run(run()).status_code == 400
    assert chunks == 5


def test_the_endpoint_is_named_after_its_handler() -> None:
    assert getattr(fastapi.callback_endpoint(unreachable), "__name__", "") == "unreachable"
