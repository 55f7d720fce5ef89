"""The asynchronous backend, on asyncio and on trio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, TypeVar, cast

import anyio
import anyio.lowlevel
import httpx

from momopay._transport import clock
from momopay._transport.attempt import TRANSPORT_ERRORS, Progress, RawResponse, ResponseReader, build_request
from momopay._transport.connections import (
    DIRECT,
    MAX_CONNECTIONS,
    AsyncConnection,
    IdleStack,
    Route,
    is_reusable,
    origin_of,
)
from momopay._transport.threads import finish_in_thread, in_thread
from momopay.errors import ConfigurationError

# How much of the timeout connecting may take. Less than all of it, so that httpcore reports a connection that was not
# made before the attempt's own timer ends it.
_CONNECT_FRACTION: Final = 0.9
MAX_THREADS: Final = 40

T = TypeVar("T")


class AsyncBackend:
    """The backend of `AsyncClient`. It belongs to the event loop that uses it first, and to that loop's thread."""

    is_async: ClassVar[bool] = True

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None, route: Route = DIRECT) -> None:
        self._transport = transport
        self._route = route
        self.is_closed: bool = False
        self._idle: IdleStack[AsyncConnection] = IdleStack()
        self._loop: object = None
        # Both belong to the loop, so `bind_to_loop` makes them.
        self._slots: anyio.Semaphore
        self._threads: anyio.CapacityLimiter

    def bind_to_loop(self) -> None:
        """Belong to the running event loop from now on.

        Raises:
            TypeError: None is running.
            ConfigurationError: The client belongs to another one.
        """
        loop = _running_loop()
        if self._loop is None:
            self._loop = loop
            self._slots = anyio.Semaphore(MAX_CONNECTIONS, fast_acquire=True)
            # Not anyio's shared limiter: a caller in one of those threads may hold the last of them.
            self._threads = anyio.CapacityLimiter(MAX_THREADS)
        elif self._loop != loop:
            raise ConfigurationError(
                "this AsyncClient belongs to another event loop; make one for each loop. Nothing was sent."
                " asyncio.run, and Django and asgiref under WSGI, start a loop for each call: use a Client there, or"
                " make the AsyncClient within the call, with `async with`"
            )

    async def send(
        self,
        method: str,
        url: str,
        headers: httpx.Headers,
        body: bytes | None,
        *,
        timeout: float,  # noqa: ASYNC109  a bound on the attempt, kept by a cancel scope
        progress: Progress | None,
    ) -> RawResponse:
        """Make one attempt, over any transport within `timeout` seconds as a whole; see `SyncBackend.send`."""
        if self.is_closed:
            raise ConfigurationError("this client is closed; make another. Nothing was sent")
        self.bind_to_loop()
        deadline = clock.now() + timeout
        # Only connecting needs a timeout of its own. The cancel scope bounds reads and writes.
        extensions: dict[str, Any] = {"timeout": dict.fromkeys(("connect", "pool"), timeout * _CONNECT_FRACTION)}
        if progress is not None:
            extensions["trace"] = progress.trace_async
            deadline = progress.until = min(progress.until, deadline)
        reader = ResponseReader(progress or Progress())
        with anyio.move_on_after(timeout):
            try:
                request = build_request(method, url, headers, body, extensions)
                if self._transport is not None:
                    return (await _exchange(self._transport, request, reader, deadline))[0]
                return await self._send_on_connection(request, reader, deadline, progress)
            except TRANSPORT_ERRORS as error:
                if error is reader.progress.refusal:
                    raise
                raise reader.failure(error) from error
        raise reader.timed_out()

    async def _send_on_connection(
        self, request: httpx.Request, reader: ResponseReader, deadline: float, progress: Progress | None
    ) -> RawResponse:
        self._route.prepare(request)
        reader.progress.connecting = True
        async with self._slots:
            connection = self._idle.pop() if progress is None else None
            if connection is not None and connection.has_expired():
                await _close(connection)
                connection = None
            connection = connection or AsyncConnection(origin_of(request), progress, self._route)
            connection.socket.deadline = deadline
            reader.progress.knows_body = bool(request.content)
            # The trace decides from here on. Without one (a test tool answers for the connection) it may be sent.
            reader.progress.connecting = False
            try:
                answer, response = await _exchange(connection, request, reader, deadline)
            except BaseException:
                await _close(connection)
                raise
            if progress is not None:
                connection.socket.answered()
            keep = progress is None and not self.is_closed and is_reusable(connection, response)
            for unused in self._idle.push(connection) if keep else [connection]:
                await _close(unused)
            return answer

    async def sleep(self, seconds: float) -> None:
        self.bind_to_loop()
        await anyio.sleep(seconds)

    def now(self) -> float:
        return clock.now()

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        self.bind_to_loop()
        return await in_thread(partial(work, *arguments), self._threads)

    async def finish_in_thread(self, work: Callable[[], object]) -> None:
        await finish_in_thread(work)

    def signal(self) -> AsyncSignal:
        self.bind_to_loop()
        return AsyncSignal()

    async def close(self) -> None:
        """Close the idle connections, and the user's transport if there is one."""
        self.is_closed = True
        for connection in self._idle.drain():
            await connection.aclose()
        # A transport's sockets can be closed only on their own event loop. On another one they are dropped.
        on_own_loop = self._loop is None or self._loop == _running_loop()
        if self._transport is not None and on_own_loop:
            await self._transport.aclose()


async def _close(connection: AsyncConnection) -> None:
    # Even in a cancelled task. An error in closing must not replace a response.
    with anyio.CancelScope(shield=True), suppress(Exception):
        await connection.aclose()


def _running_loop() -> object:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()  # takes a tenth of the time of anyio's way
    with suppress(RuntimeError):
        return anyio.lowlevel.current_token()
    raise TypeError(
        "a call of an AsyncClient must be awaited in a running event loop, such as asyncio.run(...) starts; a program"
        " without one uses a Client. Nothing was sent"
    )


def _call_soon(loop: Any, action: Callable[[], None]) -> None:
    """Have an event loop call this, from whatever thread."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        loop.call_soon_threadsafe(action)
    else:  # anyio's token of a loop of trio
        loop.native_token.run_sync_soon(action)


async def _exchange(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, reader: ResponseReader, deadline: float
) -> tuple[RawResponse, httpx.Response]:
    response = await transport.handle_async_request(request)
    reader.start(response.status_code, response.headers)
    try:
        if not reader.has_content_of(response):
            async for chunk in cast("httpx.AsyncByteStream", response.stream):
                reader.feed(chunk)
                # One network read may bring many chunks, and no timer fires between them.
                if clock.now() > deadline:
                    raise reader.timed_out()
    finally:
        await response.aclose()
    return reader.finish(), response


class AsyncSignal:
    """Wakes a task from another task or another thread; see `SyncSignal`."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._loop = _running_loop()
        self._thread = threading.get_ident()

    def set(self) -> None:
        """Wake the task that waits, or the next one that does."""
        if threading.get_ident() == self._thread:
            self._event.set()
            return
        with suppress(RuntimeError):  # the loop has ended, and the task with it
            _call_soon(self._loop, self._set)

    def _set(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()
