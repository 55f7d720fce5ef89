"""Requests without a socket: the application called on another event loop than the engine's.

The engine lives on one event loop, on a thread of its own. A request that comes in elsewhere (httpx's ASGITransport on
asyncio or trio, a test client, another server) is run there, and its answer is passed back message by message.
"""

import asyncio
import math
from collections.abc import Callable, MutableMapping
from queue import SimpleQueue
from typing import Any

import anyio
import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from momopay.sandbox._connections import CONNECTION, DRIP_INTERVAL, RawResponse

LoopOf = Callable[[], asyncio.AbstractEventLoop]


class InProcess:
    """The outermost layer of the application. What comes from the engine's own server passes untouched."""

    def __init__(self, app: ASGIApp, loop_of: LoopOf) -> None:
        """`loop_of` returns the engine's event loop, or raises RuntimeError if it has ended."""
        self._app = app
        self._loop_of = loop_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        loop = self._loop_of()
        if _is_running(loop):
            await self._app(scope, receive, send)
            return
        body = await _read_body(receive)
        if body is None:
            return
        # None is the end. The queue is filled on the engine's thread and emptied on the caller's.
        messages: SimpleQueue[Message | None] = SimpleQueue()
        connection = MemoryConnection(messages.put)
        work = asyncio.run_coroutine_threadsafe(self._answer(dict(scope), body, connection), loop)
        # Any number of requests may hang at once, each with a thread that waits for it.
        threads = anyio.CapacityLimiter(math.inf)
        try:
            while (
                message := await anyio.to_thread.run_sync(messages.get, abandon_on_cancel=True, limiter=threads)
            ) is not None:
                await send(message)
        finally:
            work.cancel()
        if connection.broken:
            raise ConnectionResetError("the sandbox ended the connection (a fault on demand, or it was closed)")

    async def _answer(self, scope: MutableMapping[str, Any], body: bytes, connection: "MemoryConnection") -> None:
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if whole:
                return whole.pop()
            await connection.ended.wait()
            return {"type": "http.disconnect"}

        scope[CONNECTION] = connection
        try:
            await self._app(scope, receive, connection.send)
        except asyncio.CancelledError:
            connection.broken = True
            raise
        finally:
            connection.put(None)


class MemoryConnection:
    """The caller's end of a request without a socket. A fault that would break a socket raises at the caller."""

    def __init__(self, put: Callable[[Message | None], None]) -> None:
        self.put = put
        self.broken = False
        self.ended = asyncio.Event()

    async def send(self, message: Message) -> None:
        """Pass a message on to the caller."""
        self.put(message)

    def hold(self) -> None:
        """Do nothing: the caller waits until it gives up."""

    def release(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End the request without an answer, or with no more of it."""
        self.broken = True
        self.ended.set()

    reset = close

    async def truncate(self, response: RawResponse, *, content_length: bool) -> None:
        """Send the head and half of the body. Without Content-Length, the end of the body is where it was cut."""
        half = response.body[: len(response.body) // 2]
        headers = [(name, value) for name, value in response.headers if content_length or name != b"content-length"]
        self.put({"type": "http.response.start", "status": response.status, "headers": headers})
        self.put({"type": "http.response.body", "body": half, "more_body": content_length})
        self.broken = content_length
        self.ended.set()

    async def drip(self, response: RawResponse) -> None:
        """Send the whole response byte by byte."""
        self.put({"type": "http.response.start", "status": response.status, "headers": response.headers})
        for byte in response.body:
            self.put({"type": "http.response.body", "body": bytes((byte,)), "more_body": True})
            await asyncio.sleep(DRIP_INTERVAL)
        self.put({"type": "http.response.body"})
        self.ended.set()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:  # the caller's is trio's
        return False


async def _read_body(receive: Receive) -> bytes | None:
    body: bytes = b""
    while (message := await receive())["type"] != "http.disconnect":
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body
    return None
