"""What is particular to the endpoint of FastAPI and Starlette."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from starlette.requests import Request
from starlette.responses import Response

from durable.receiving import BODY, QUERY, SIGNER, Handler, client_of, unreachable
from momopay import Journal
from momopay._transport import threads
from momopay.integrations import fastapi

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/momo", "query_string": b"", "headers": []}


async def deliver(endpoint: Callable[[Request], Awaitable[Response]], query: bytes = QUERY.encode()) -> Response:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    return await endpoint(Request({**SCOPE, "query_string": query}, receive))


def test_a_query_that_is_not_ascii_is_forged() -> None:
    endpoint = fastapi.callback_endpoint(unreachable, client=client_of(), signer=SIGNER)
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
    endpoint = fastapi.callback_endpoint(getattr(handler, kind), client=client_of(journal), signer=SIGNER)
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


def test_at_most_64_kib_of_a_body_are_read() -> None:
    chunks = 0

    async def receive() -> dict[str, Any]:
        nonlocal chunks
        chunks += 1
        return {"type": "http.request", "body": b" " * 16_384, "more_body": True}

    async def run() -> Response:
        return await fastapi.callback_endpoint(unreachable, client=client_of())(Request(SCOPE, receive))

    assert asyncio.run(run()).status_code == 400
    assert chunks == 5


def test_the_endpoint_is_named_after_its_handler() -> None:
    assert getattr(fastapi.callback_endpoint(unreachable, client=client_of()), "__name__", "") == "unreachable"
