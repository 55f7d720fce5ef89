"""Connections: transports of one connection each, and the stack on which they rest between requests.

httpcore's own pool costs more with every idle connection that it holds; a stack does not. Whatever changes
something at the service takes none from it: a server that hangs up on an idle connection just as a payment
goes out on it would leave that payment unknown, while a failure to connect is surely not sent.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Generic, TypeVar

import anyio
import httpcore
import httpx

MAX_CONNECTIONS = 100
KEEP_ALIVE = 4.0
"""Shorter than the five seconds after which the commonest servers hang up on an idle connection."""

T = TypeVar("T")


def tls_for(url: httpx.URL) -> ssl.SSLContext | None:
    """Give the process's one TLS context, built on first need; none where the URL needs none."""
    return _tls() if url.scheme == "https" else None


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class IdleStack(Generic[T]):
    """Connections at rest, the last used on top; bookkeeping alone. A fork's child starts with none."""

    def __init__(self) -> None:
        self._resting: deque[tuple[float, T]] = deque()
        self._process = os.getpid()

    def take(self) -> T | None:
        """Give the last used connection, unless it rested for too long."""
        if self._process != os.getpid():
            self._resting.clear()
            self._process = os.getpid()
        try:
            since, connection = self._resting.pop()
        except IndexError:
            return None
        if time.monotonic() - since <= KEEP_ALIVE:
            return connection
        self._resting.append((since, connection))
        return None

    def put(self, connection: T) -> list[T]:
        """Lay a connection to rest. Gives back those whose time is over, to be closed."""
        now = time.monotonic()
        expired: list[T] = []
        while self._resting:
            try:
                since, oldest = self._resting.popleft()
            except IndexError:
                break
            if now - since <= KEEP_ALIVE:
                self._resting.appendleft((since, oldest))
                break
            expired.append(oldest)
        self._resting.append((now, connection))
        return expired

    def drain(self) -> Iterator[T]:
        """Take every connection off the stack."""
        while self._resting:
            yield self._resting.pop()[1]


class _Clock:
    """When the attempt that a connection carries must be over."""

    deadline = 0.0

    def left(self, late: type[httpcore.TimeoutException]) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise late("the attempt's time is over")
        return left


class _TimedStream(httpcore.NetworkStream):
    """A socket that never outlives the attempt, however slowly the other end drips.

    httpcore's own timeouts bound one read each, so they are passed over for what is left of the attempt.
    """

    def __init__(self, stream: httpcore.NetworkStream, clock: _Clock) -> None:
        self._stream = stream
        self._clock = clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._clock.left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._clock.left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._clock.left(httpcore.ConnectTimeout)
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, left), self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _TimedBackend(httpcore.SyncBackend):
    def __init__(self, clock: _Clock) -> None:
        self._clock = clock

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in _addresses(host, port, self._clock):
            left = self._clock.left(httpcore.ConnectTimeout)  # one clock for all addresses of a name
            try:
                stream = super().connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _TimedStream(stream, self._clock)
        raise failure or httpcore.ConnectError(f"{host} has no address")


def _addresses(host: str, port: int, clock: _Clock) -> list[str]:
    """Resolve a name in the time that is left; a resolver knows no time limit, so it may be left behind."""
    resolving = _Resolving(host, port)
    resolving.start()
    resolving.join(clock.left(httpcore.ConnectTimeout))
    if resolving.failure is not None:
        raise httpcore.ConnectError(str(resolving.failure))
    if resolving.found is None:
        raise httpcore.ConnectTimeout(f"{host} was not resolved in time")
    return resolving.found


class _Resolving(threading.Thread):
    def __init__(self, host: str, port: int) -> None:
        super().__init__(name=f"momopay resolves {host}", daemon=True)
        self._asked = host, port
        self.found: list[str] | None = None
        self.failure: OSError | None = None

    def run(self) -> None:
        try:
            found = socket.getaddrinfo(*self._asked, type=socket.SOCK_STREAM)
        except OSError as error:
            self.failure = error
        else:
            self.found = list(dict.fromkeys(str(address[0]) for *_, address in found))


def _nothing_left(pool: httpcore.ConnectionPool | httpcore.AsyncConnectionPool) -> bool:
    """Whether all that came was the answer: what came after it would be taken for the answer to the next request.

    httpcore looks at the socket alone, and what its parser has read from it is not there any more. Where it cannot
    be seen, there is something left.
    """
    for connection in pool.connections:
        parser = getattr(getattr(connection, "_connection", None), "_h11_state", None)
        if parser is None or parser.trailing_data[0]:
            return False
    return True


class SyncConnection(httpx.HTTPTransport):
    """One connection, for one thread at a time."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.clock = _Clock()
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=1,
            keepalive_expiry=KEEP_ALIVE,
            network_backend=_TimedBackend(self.clock),
        )

    def may_rest(self) -> bool:
        """Whether another request may go out on it."""
        return _nothing_left(self._pool)


class _Greeting(httpcore.AsyncNetworkStream):
    """A socket on which TLS is about to begin. One whose handshake is cancelled is closed; httpcore would forget it."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()
            raise


class _TLSBackend(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._backend: Any = httpcore.AnyIOBackend()  # a class or a stand-in, by what is installed

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Greeting(await self._backend.connect_tcp(host, port, timeout, local_address, socket_options))


class AsyncConnection(httpx.AsyncHTTPTransport):
    """One connection, for one task at a time; the attempt's own timer bounds it."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=1,
            keepalive_expiry=KEEP_ALIVE,
            network_backend=_TLSBackend() if tls else None,
        )

    def may_rest(self) -> bool:
        """Whether another request may go out on it."""
        return _nothing_left(self._pool)
