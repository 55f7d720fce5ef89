"""The suspending port, on asyncio and on trio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import anyio
import anyio.lowlevel
import httpx

from momopay._transport.connections import MAX_CONNECTIONS, AsyncConnection, IdleStack, tls_for
from momopay._transport.requests import build_request
from momopay._transport.response import NoResponseError, NotSentError, Progress, RawResponse, ResponseReader, check_open
from momopay._transport.threads import in_thread
from momopay.errors import ConfigurationError

_CONNECT_SHARE = 0.9
"""Connecting gets nine tenths of an attempt, so that "not sent" is told before the attempt's own timer fires."""
MAX_THREADS = 40

T = TypeVar("T")


class AsyncBackend:
    """The port of `AsyncClient`. Belongs to the event loop that uses it first."""

    is_async: ClassVar[bool] = True

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._given = transport
        self._closed = False
        self._idle: IdleStack[AsyncConnection] = IdleStack()
        self._home: object = None
        self._slots: anyio.Semaphore
        self._threads: anyio.CapacityLimiter

    def _come_home(self) -> None:
        here = _event_loop()
        if self._home is None:
            self._home = here
            self._slots = anyio.Semaphore(MAX_CONNECTIONS, fast_acquire=True)
            # Of its own: whoever calls this from one of anyio's shared threads may hold the last of those.
            self._threads = anyio.CapacityLimiter(MAX_THREADS)
        elif self._home != here:
            raise ConfigurationError(
                "this AsyncClient belongs to another event loop; make one for each loop. Nothing was sent"
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
        """Make one attempt; see `BlockingIO.send`."""
        check_open(self._closed)
        self._come_home()
        request = build_request(method, url, headers, body)
        request.extensions["timeout"] = dict.fromkeys(("connect", "pool"), timeout * _CONNECT_SHARE)
        own = progress is not None
        progress = progress or Progress()
        if own:
            request.extensions["trace"] = progress.watch_async
        received = ResponseReader(progress)
        deadline = time.monotonic() + timeout
        with anyio.move_on_after(timeout):
            try:
                if self._given is not None:
                    return await _exchange(self._given, request, received, deadline)
                return await self._on_a_connection(request, received, progress, deadline, own=own)
            except NoResponseError:
                raise
            except Exception as error:  # noqa: BLE001  whatever a transport raises, the request may have gone out
                failure = received.failed(error)
            raise failure  # out here, so that no chain leads to the request and its key
        if progress.connecting:
            raise NotSentError("no connection in time")
        raise received.cut("no whole answer in time")

    async def _on_a_connection(
        self, request: httpx.Request, received: ResponseReader, progress: Progress, deadline: float, *, own: bool
    ) -> RawResponse:
        progress.connecting = True
        async with self._slots:
            progress.connecting = False
            connection = None if own else self._idle.take()
            connection = connection or AsyncConnection(tls_for(request.url))
            try:
                answer = await _exchange(connection, request, received, deadline)
            except BaseException:
                await _close(connection)
                raise
            if own or self._closed or not connection.may_rest():
                await _close(connection)
            else:
                for expired in self._idle.put(connection):
                    await _close(expired)
            return answer

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        self._come_home()
        await anyio.sleep(seconds)

    def now(self) -> float:
        """Tell the monotonic time, one clock for all ports of the process."""
        return time.monotonic()

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do blocking work in a thread. Once begun it is not given up, and a cancellation waits for its end."""
        self._come_home()
        return await in_thread(partial(work, *arguments), self._threads)

    def signal(self) -> AsyncSignal:
        """Make a wake-up call."""
        self._come_home()
        return AsyncSignal()

    async def close(self) -> None:
        """Close every connection at rest, and the transport that was given.

        On another event loop than theirs nothing can be closed; what is at rest there is dropped.
        """
        self._closed = True
        is_home = self._home is None or self._home == _event_loop()
        for connection in self._idle.drain():
            if is_home:
                await connection.aclose()
        if self._given is not None and is_home:
            await self._given.aclose()


async def _close(connection: AsyncConnection) -> None:
    """Close, whatever happens meanwhile: an answer that came is not to be lost over it."""
    with anyio.CancelScope(shield=True), suppress(Exception):
        await connection.aclose()


def _event_loop() -> object:
    try:
        return asyncio.get_running_loop()  # a tenth of the price of the general way
    except RuntimeError:
        return anyio.lowlevel.current_token()


async def _exchange(
    transport: httpx.AsyncBaseTransport, request: httpx.Request, received: ResponseReader, deadline: float
) -> RawResponse:
    response = await transport.handle_async_request(request)
    received.begin(response)
    try:
        async for chunk in cast("httpx.AsyncByteStream", response.stream):
            received.add(chunk)
            if time.monotonic() > deadline:  # many chunks may come of one read, and no timer fires between them
                raise received.cut("no whole answer in time")
    finally:
        await response.aclose()
    return received.answer(response)


class AsyncSignal:
    """A wake-up call between tasks."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Call."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a call, no longer than that."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()
