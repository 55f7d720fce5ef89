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

from momopay._transport.attempt import run_blocking
from momopay._transport.clock import LONGEST_TURN, done_within, wait_in_turns
from momopay._transport.connections import BaseBackend, Connection
from momopay._transport.library import core, http
from momopay._transport.sockets import AttemptSocket, addresses_in, wait_blocking

T = TypeVar("T")


class SyncSocket(AttemptSocket, core.NetworkBackend, core.NetworkStream):
    """The socket of a blocking client."""

    _wait = staticmethod(wait_blocking)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[core.SOCKET_OPTION] | None = None,
    ) -> core.NetworkStream:
        run_blocking(self._open(host, port))
        return self

    async def _resolve(self, host: str, port: int) -> list[str]:
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            return addresses_in(done_within(self.remaining(core.ConnectTimeout), ask, f"momopay resolves {host}"))
        except TimeoutError:
            raise core.ConnectTimeout(f"{host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a label is empty or too long
            raise core.ConnectError(str(error)) from error

    async def _connect(self, address: str, port: int, seconds: float) -> socket.socket:
        if seconds > LONGEST_TURN:  # it would wait in one call of the system
            return await self.connect_and_wait(address, port, seconds)
        return socket.create_connection((address, port), seconds)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return run_blocking(self._read(max_bytes))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if buffer:  # h11 ends a body with nothing more to write
            run_blocking(self._write(buffer))

    def close(self) -> None:
        self.end_response()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> core.NetworkStream:
        run_blocking(self._start_tls(ssl_context, server_hostname))
        return self


class SyncConnection(Connection, http.HTTPTransport):
    """A blocking connection."""

    _socket_class = SyncSocket
    _core_class = core.HTTPConnection

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.socket.end()


class SyncBackend(BaseBackend):
    """The backend of `Client`. Any thread may call any method."""

    is_async: ClassVar[bool] = False
    _connection_class = SyncConnection

    def _time_limit(self, seconds: float) -> AbstractContextManager[object]:
        return nullcontext()  # the sockets keep the deadline

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
        wait_in_turns(min(seconds, threading.TIMEOUT_MAX), lambda turn: self._lock.acquire(timeout=turn))
