"""What faults do to the connection of a request, which is a socket or a call of the application in this process.

ASGI cannot express resets and hang-ups, so faults act below it.
"""

import asyncio
import math
import socket
import struct
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import anyio
import anyio.to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONNECTION = "momopay.connection"  # the key of the ASGI scope for the request's connection


@dataclass(frozen=True, slots=True)
class SocketConnection:
    """A connection of the sandbox's own server, as faults see it."""

    transport: asyncio.Transport
    # Those of the server that hang, drip or wait for the rest of a request; it aborts them when it ends.
    held: set[asyncio.Transport]

    def hold(self) -> None:
        """Have the connection aborted when the server ends; with nothing else done to it, it hangs."""
        self.held.add(self.transport)

    def release(self) -> None:
        self.held.discard(self.transport)

    def close(self) -> None:
        self.transport.close()

    def reset(self) -> None:
        """End the connection with a TCP RST."""
        if not self.transport.is_closing():
            raw: socket.socket = self.transport.get_extra_info("socket")
            # A linger time of zero makes the kernel drop what is unsent and send RST instead of FIN.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


class MemoryConnection:
    """The connection of a request without a socket. A fault that would break a socket raises at the caller."""

    def __init__(self, put: Callable[[Message | None], None]) -> None:
        self.put = put
        self.broken = False
        self.ended = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.put(message)

    async def wait_for_end(self) -> Message:
        """Return the message for a disconnected client once a fault has ended the request."""
        await self.ended.wait()
        return {"type": "http.disconnect"}

    def hold(self) -> None:
        """Do nothing. The caller waits until it gives up."""

    def release(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End the request without a response, or without the rest of it."""
        self.broken = True
        self.ended.set()

    reset = close


Connection = SocketConnection | MemoryConnection


class InProcess:
    """The outermost layer of the application. Requests from the sandbox's own server pass through unchanged.

    The engine lives on one event loop, on a thread of its own. A request from elsewhere (httpx's ASGITransport on
    asyncio or trio, a test client, another server) runs on that loop, and its response is passed back message by
    message. `loop_of` returns the loop, or raises RuntimeError if it has ended.
    """

    def __init__(self, app: ASGIApp, loop_of: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._app = app
        self._loop_of = loop_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or CONNECTION in scope:
            await self._app(scope, receive, send)
            return
        loop = self._loop_of()
        body = await read_body(receive)
        if body is None:
            return
        # None marks the end. The engine's thread fills the queue and the caller's empties it.
        messages: SimpleQueue[Message | None] = SimpleQueue()
        connection = MemoryConnection(messages.put)
        work = asyncio.run_coroutine_threadsafe(self._answer(dict(scope), body, connection), loop)
        # Any number of requests may hang at once, and a thread waits for each.
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

    async def _answer(self, scope: MutableMapping[str, Any], body: bytes, connection: MemoryConnection) -> None:
        scope[CONNECTION] = connection
        receive = replay(body, connection.wait_for_end)
        try:
            await self._app(scope, receive, connection.send)
        except asyncio.CancelledError:
            connection.broken = True
            raise
        finally:
            connection.put(None)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first returns a body that was read already."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return whole.pop() if whole else await receive()

    return receive_again


async def read_body(receive: Receive, limit: int | None = None) -> bytes | None:
    """Return the body, or its first `limit` bytes; None if the client disconnected before its end."""
    body: bytes = b""
    while (message := await receive())["type"] != "http.disconnect":
        if limit is None or len(body) < limit:
            body = (body + message.get("body", b""))[:limit]
        if not message.get("more_body", False):
            return body
    return None
