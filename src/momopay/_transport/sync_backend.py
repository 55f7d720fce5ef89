"""The blocking backend: coroutines in form, none of which ever suspends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar, cast

import httpx

from momopay._fork import renew_in_child
from momopay._transport import clock
from momopay._transport.attempt import (
    TRANSPORT_ERRORS,
    NotSentError,
    Progress,
    RawResponse,
    ResponseReader,
    build_request,
)
from momopay._transport.connections import (
    DIRECT,
    MAX_CONNECTIONS,
    IdleStack,
    Route,
    SyncConnection,
    is_reusable,
    origin_of,
)
from momopay.errors import ConfigurationError

T = TypeVar("T")

# Seconds between two looks for a free connection, when all are busy.
_BUSY_PAUSE: Final = 0.02


class SyncBackend:
    """The backend of `Client`. Any thread may call any method."""

    is_async: ClassVar[bool] = False

    def __init__(self, transport: httpx.BaseTransport | None = None, route: Route = DIRECT) -> None:
        self._transport = transport
        self._route = route
        self.is_closed: bool = False
        # All that requests share. Each is safe to use from several threads.
        self._idle: IdleStack[SyncConnection] = IdleStack()
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        # Not a semaphore of `threading`: it is written in Python, and an exception out of a signal handler (Ctrl-C, a
        # soft time limit) within it leaves its lock held for ever. `with` on a lock, and a set, are safe at every
        # instruction.
        self._lock = threading.Lock()
        self._under_way = set[ResponseReader]()

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
        """Make one attempt, or raise `NoResponseError` if it brings no whole response.

        `timeout` is in seconds from here to the last byte of the response. A transport of the user's own keeps it for
        each of its network operations, and for the body as a whole. `progress` is given for a request that has an
        effect. It is kept up to date, and the request gets a connection of its own, which the server cannot have hung
        up.
        """
        if self.is_closed:
            raise ConfigurationError("this client is closed; make another. Nothing was sent")
        deadline = clock.now() + timeout
        extensions: dict[str, Any] = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout)}
        if progress is not None:
            extensions["trace"] = progress.trace
            deadline = progress.until = min(progress.until, deadline)
        reader = ResponseReader(progress or Progress())
        try:
            request = build_request(method, url, headers, body, extensions)
            if self._transport is not None:
                return _exchange(self._transport, request, reader, deadline)[0]
            return self._send_on_connection(request, reader, deadline, progress)
        except TRANSPORT_ERRORS as error:
            if error is reader.progress.refusal:
                raise
            raise reader.failure(error) from error

    def _send_on_connection(
        self, request: httpx.Request, reader: ResponseReader, deadline: float, progress: Progress | None
    ) -> RawResponse:
        self._route.prepare(request)
        reader.progress.connecting = True
        try:
            while not self._may_connect(reader):
                if clock.now() >= deadline:
                    raise NotSentError(f"all {MAX_CONNECTIONS} connections stayed busy")
                time.sleep(_BUSY_PAUSE)
            connection = self._idle.pop() if progress is None else None
            if connection is not None and connection.has_expired():
                connection.close()
                connection = None
            connection = connection or SyncConnection(origin_of(request), progress, self._route)
            connection.socket.deadline = deadline
            reader.progress.knows_body = bool(request.content)
            # The trace decides from here on. Without one (a test tool answers for the connection) it may be sent.
            reader.progress.connecting = False
            try:
                answer, response = _exchange(connection, request, reader, deadline)
            except BaseException:
                connection.close()
                raise
            if progress is not None:
                connection.socket.answered()
            keep = progress is None and not self.is_closed and is_reusable(connection, response)
            for unused in self._idle.push(connection) if keep else [connection]:
                with suppress(Exception):  # the response is there, and an error in closing must not replace it
                    unused.close()
            return answer
        finally:
            self._under_way.discard(reader)

    def _may_connect(self, reader: ResponseReader) -> bool:
        """Count a request as under way, unless as many are as there may be connections."""
        with self._lock:
            if len(self._under_way) >= MAX_CONNECTIONS:
                return False
            self._under_way.add(reader)
            return True

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  this backend blocks

    def now(self) -> float:
        """Return the time of the clock that all backends of the process share; see `clock.now`."""
        return clock.now()

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    async def finish_in_thread(self, work: Callable[[], object]) -> None:
        work()

    def signal(self) -> SyncSignal:
        return SyncSignal()

    async def close(self) -> None:
        """Close the idle connections, and the user's transport if there is one."""
        self.is_closed = True
        for connection in self._idle.drain():
            connection.close()
        if self._transport is not None:
            self._transport.close()


def _exchange(
    transport: httpx.BaseTransport, request: httpx.Request, reader: ResponseReader, deadline: float
) -> tuple[RawResponse, httpx.Response]:
    response = transport.handle_request(request)
    reader.start(response.status_code, response.headers)
    try:
        if not reader.has_content_of(response):
            for chunk in cast("httpx.SyncByteStream", response.stream):
                reader.feed(chunk)
                # One network read may bring many chunks, and the socket's timeout is not asked between them.
                if clock.now() > deadline:
                    raise reader.timed_out()
    finally:
        response.close()
    return reader.finish(), response


class SyncSignal:
    """Wakes one thread from another."""

    # A lock that is released to wake, and taken again by whoever wakes up. `threading.Event` is written in Python: an
    # exception out of a signal handler within it could leave its own lock held, and `set` would never return.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that does."""
        with suppress(RuntimeError):  # it is set already
            self._lock.release()

    async def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=min(max(0.0, seconds), threading.TIMEOUT_MAX))
