"""The blocking port: async in shape, never suspends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, TypeVar, cast

import httpx

from momopay._transport.connections import MAX_CONNECTIONS, IdleStack, SyncConnection, tls_for
from momopay._transport.requests import build_request
from momopay._transport.response import NoResponseError, NotSentError, Progress, RawResponse, ResponseReader, check_open

T = TypeVar("T")


class SyncBackend:
    """The port of `Client`. Safe to use from many threads."""

    is_async: ClassVar[bool] = False

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._given = transport
        self._closed = False
        self._idle: IdleStack[SyncConnection] = IdleStack()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)

    async def send(
        self,
        method: str,
        url: str,
        headers: httpx.Headers,
        body: bytes | None,
        *,
        timeout: float,  # noqa: ASYNC109  a bound on the attempt, not on this coroutine
        progress: Progress | None,
    ) -> RawResponse:
        """Make one attempt, over within `timeout` seconds as a whole.

        Args:
            method: The HTTP method.
            url: The whole URL.
            headers: The headers.
            body: The body, None for none.
            timeout: Seconds, from the first thought of connecting to the last byte of the body.
            progress: For a request that changes something; it then gets a connection of its own, which no hang-up
                crosses, and is watched.

        Raises:
            NoResponseError: No whole answer came.
        """
        check_open(self._closed)
        deadline = time.monotonic() + timeout
        request = build_request(method, url, headers, body)
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), timeout)
        if progress is not None:
            request.extensions["trace"] = progress.watch
        received = ResponseReader(progress)
        try:
            if self._given is not None:
                return _exchange(self._given, request, received, deadline)
            return self._on_a_connection(request, received, deadline, own=progress is not None)
        except NoResponseError:
            raise
        except Exception as error:  # noqa: BLE001  whatever a transport raises, the request may have gone out
            failure = received.failed(error)
        raise failure  # out here, so that no chain leads to the request and its key

    def _on_a_connection(
        self, request: httpx.Request, received: ResponseReader, deadline: float, *, own: bool
    ) -> RawResponse:
        if not self._slots.acquire(timeout=deadline - time.monotonic()):
            raise NotSentError(f"all {MAX_CONNECTIONS} connections stayed busy")
        try:
            connection = None if own else self._idle.take()
            connection = connection or SyncConnection(tls_for(request.url))
            connection.clock.deadline = deadline
            try:
                answer = _exchange(connection, request, received, deadline)
            except BaseException:
                connection.close()
                raise
            if own or self._closed or not connection.may_rest():
                connection.close()
            else:
                self._rest(connection)
            return answer
        finally:
            self._slots.release()

    def _rest(self, connection: SyncConnection) -> None:
        for expired in self._idle.put(connection):
            with suppress(Exception):  # another request has its answer; this must not take it away
                expired.close()

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)  # noqa: ASYNC251  this port never suspends

    def now(self) -> float:
        """Tell the monotonic time, one clock for all ports of the process."""
        return time.monotonic()

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do blocking work, here and now."""
        return work(*arguments)

    def signal(self) -> SyncSignal:
        """Make a wake-up call."""
        return SyncSignal()

    async def close(self) -> None:
        """Close every connection at rest, and the transport that was given."""
        self._closed = True
        for connection in self._idle.drain():
            connection.close()
        if self._given is not None:
            self._given.close()


def _exchange(
    transport: httpx.BaseTransport, request: httpx.Request, received: ResponseReader, deadline: float
) -> RawResponse:
    response = transport.handle_request(request)
    received.begin(response)
    try:
        for chunk in cast("httpx.SyncByteStream", response.stream):
            received.add(chunk)
            if time.monotonic() > deadline:
                raise received.cut("no whole answer in time")
    finally:
        response.close()
    return received.answer(response)


class SyncSignal:
    """A wake-up call between threads."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Call."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a call, no longer than that."""
        self._event.wait(seconds)
        self._event.clear()
