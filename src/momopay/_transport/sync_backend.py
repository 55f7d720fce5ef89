"""The blocking backend. Its methods are coroutines that never suspend."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

import httpcore
import httpx

from momopay._transport.attempt import Progress, run_blocking
from momopay._transport.clock import done_within
from momopay._transport.connections import DIRECT, KEEP_ALIVE, BaseBackend, Connection, Network, Route, tls_context
from momopay._transport.sockets import AttemptSocket, Stream, addresses_in, wait_blocking

T = TypeVar("T")


class SyncBackend(BaseBackend):
    """The backend of `Client`. Any thread may call any method."""

    is_async: ClassVar[bool] = False

    def _time_limit(self, seconds: float) -> AbstractContextManager[object]:
        return nullcontext()  # the sockets keep the deadline

    def _connect(self, origin: httpcore.Origin, progress: Progress | None) -> Connection:
        return SyncConnection(origin, progress, self._route)

    async def _close(self, connection: Any) -> None:
        with suppress(Exception):
            connection.close()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  this backend blocks

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return work(*arguments)

    async def finish_in_thread(self, work: Callable[[], object]) -> None:
        work()

    def signal(self) -> SyncSignal:
        return SyncSignal()

    async def close(self) -> None:
        self.is_closed = True
        for connection in self._idle.drain():
            await self._close(connection)
        if self._transport is not None:
            self._transport.close()


class SyncSignal:
    """Wakes one thread from another."""

    # A lock, which `set` releases and the woken thread takes again. `threading.Event` is written in Python, so an
    # exception from a signal handler could leave its inner lock held, and `set` would never return.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that does."""
        with suppress(RuntimeError):  # it is set already
            self._lock.release()

    async def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=min(max(0.0, seconds), threading.TIMEOUT_MAX))


class SyncConnection(httpx.HTTPTransport, Connection):
    """A blocking connection."""

    # An httpx transport, so that tools which patch `httpx.HTTPTransport.handle_request` (pytest-httpx, vcrpy) see our
    # requests. httpx has no public way to replace what a transport sends through, so `_pool` is set here: the only
    # private attribute of another library that this package uses.

    def __init__(self, origin: httpcore.Origin, progress: Progress | None = None, route: Route = DIRECT) -> None:
        self.socket = AttemptSocket(wait_blocking, progress)
        tls = tls_context(origin, route)
        network = SyncNetwork(self.socket, route, tls=tls is not None)
        self.core = httpcore.HTTPConnection(origin, tls, KEEP_ALIVE, network_backend=network)
        self._pool = self.core  # type: ignore[assignment]

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.socket.close()


class SyncNetwork(Network, httpcore.SyncBackend):
    """Opens sockets for a blocking client."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        run_blocking(self._open(host, port))
        return SyncStream(self._socket)

    async def _resolve(self, host: str, port: int) -> list[str]:
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            return addresses_in(
                done_within(self._socket.remaining(httpcore.ConnectTimeout), ask, f"momopay resolves {host}")
            )
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a label is empty or too long
            raise httpcore.ConnectError(str(error)) from error

    async def _connect(self, address: str, port: int, seconds: float) -> socket.socket:
        return socket.create_connection((address, port), seconds)


class SyncStream(Stream, httpcore.NetworkStream):
    """A connected socket of a blocking client, with or without TLS."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._take_kept() or self._keep_last(run_blocking(self._socket.receive(max_bytes)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if buffer:  # h11 ends a body with nothing more to write
            run_blocking(self._socket.send(buffer))

    def close(self) -> None:
        self._socket.response_ended()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        run_blocking(self._socket.start_tls(ssl_context, server_hostname))
        return self
