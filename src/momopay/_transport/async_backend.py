"""The asynchronous backend, on asyncio and on trio."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from momopay._transport.attempt import run_blocking
from momopay._transport.connections import BaseBackend, Connection
from momopay._transport.library import core, http
from momopay._transport.sockets import AttemptSocket, addresses_in, wait_blocking
from momopay._transport.threads import finish_in_thread, in_thread
from momopay.errors import ConfigurationError

# A client imports this module in a thread. anyio would load this part of it later, and hold up the event loop.
with suppress(ImportError):
    import_module("anyio._backends._asyncio")

MAX_CONNECTIONS: Final = 100  # connections of one client
MAX_THREADS: Final = 40  # threads of one client

_MARGIN: Final = 1.0  # seconds by which a wait in a thread outlasts the cancel scope around it

T = TypeVar("T")


async def _wait_suspended(sock: socket.socket, writable: bool, seconds: float) -> None:
    # A cancel scope, and not `seconds`, bounds the wait.
    if _can_wait_for_sockets():
        await (anyio.wait_writable(sock) if writable else anyio.wait_readable(sock))
        return
    # On Windows' usual loop, anyio waits for all sockets of the process in one thread. That thread dies if a socket is
    # closed under it, as a timeout and a cancellation close one: then no call of the process ends any more. So each
    # wait has a thread. It ends when its socket is closed, and takes no other wait along.
    wait = partial(_wait_in_thread, sock, writable, seconds + _MARGIN)
    await anyio.to_thread.run_sync(wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


def _wait_in_thread(sock: socket.socket, writable: bool, seconds: float) -> None:
    try:
        run_blocking(wait_blocking(sock, writable, seconds))
    except ValueError:  # another task closed it
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None


def _can_wait_for_sockets() -> bool:
    """Return whether the event loop itself can wait for a socket. Windows' `asyncio.ProactorEventLoop` cannot."""
    with suppress(RuntimeError):  # trio
        loop = type(asyncio.get_running_loop())
        return loop.add_reader is not asyncio.AbstractEventLoop.add_reader
    return True


class AsyncSocket(AttemptSocket, core.AsyncNetworkBackend, core.AsyncNetworkStream):
    """The socket of an async client, on asyncio and on trio."""

    _wait = staticmethod(_wait_suspended)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[core.SOCKET_OPTION] | None = None,
    ) -> core.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                await self._open(host, port)
        except TimeoutError as error:
            raise core.ConnectTimeout("no connection within the timeout") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a label is empty or too long
            raise core.ConnectError(str(error)) from error
        return self

    async def _resolve(self, host: str, port: int) -> list[str]:
        return addresses_in(await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM))

    async def _connect(self, address: str, port: int, seconds: float) -> socket.socket:
        with anyio.fail_after(seconds):
            return await self.connect_and_wait(address, port, seconds)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()  # `send` may not suspend, and would miss a cancellation
        if buffer:  # h11 ends a body with nothing more to write
            await self._write(buffer)

    async def aclose(self) -> None:
        self.end_response()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> core.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                await self._start_tls(ssl_context, server_hostname)
        except TimeoutError as error:
            raise core.ConnectTimeout("no TLS session within the timeout") from error
        return self


class AsyncConnection(Connection, http.AsyncHTTPTransport):
    """An async connection."""

    _socket_class = AsyncSocket
    _core_class = core.AsyncHTTPConnection

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            self.socket.end()


class AsyncBackend(BaseBackend):
    """The backend of `AsyncClient`. It belongs to the event loop that uses it first."""

    is_async: ClassVar[bool] = True
    _connection_class = AsyncConnection
    _loop: object = None
    _threads: anyio.CapacityLimiter  # made by `bind_to_loop`, because it belongs to the loop, as `_slots` does

    def bind_to_loop(self) -> None:
        """Bind the client to the running event loop. Raise if none is running, or the client is bound to another."""
        loop = _running_loop()
        if self._loop is None:
            self._loop = loop
            self._slots = anyio.Semaphore(MAX_CONNECTIONS, fast_acquire=True)
            # Not anyio's shared limiter: callers that wait for this client may hold all of its threads.
            self._threads = anyio.CapacityLimiter(MAX_THREADS)
        elif self._loop != loop:
            raise ConfigurationError(
                "this AsyncClient belongs to another event loop; make one for each loop. Nothing was sent."
                " asyncio.run, and Django and asgiref under WSGI, start a loop for each call: use a Client there, or"
                " make the AsyncClient within the call, with `async with`"
            )

    def _time_limit(self, seconds: float) -> AbstractContextManager[object]:
        self.bind_to_loop()
        return anyio.move_on_after(seconds)

    async def _close(self, connection: Any) -> None:
        with anyio.CancelScope(shield=True), suppress(Exception):  # also in a cancelled task
            await connection.aclose()

    async def sleep(self, seconds: float) -> None:
        self.bind_to_loop()
        await anyio.sleep(seconds)

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        self.bind_to_loop()
        return await in_thread(partial(work, *arguments), self._threads)

    async def finish_in_thread(self, work: Callable[[], object]) -> None:
        await finish_in_thread(work)

    def signal(self) -> AsyncSignal:
        self.bind_to_loop()
        return AsyncSignal()

    async def close(self) -> None:
        self.is_closed = True
        for connection in self._idle.drain():
            await self._close(connection)
        # A transport's sockets can be closed only on their own event loop. On another one they are dropped.
        on_own_loop = self._loop is None or self._loop == _running_loop()
        if self._transport is not None and on_own_loop:
            await self._transport.aclose()


def _running_loop() -> object:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()  # ten times as fast as anyio's token
    with suppress(RuntimeError):
        return anyio.lowlevel.current_token()
    raise TypeError(
        "a call of an AsyncClient must be awaited in a running event loop, such as asyncio.run(...) starts; a program"
        " without one uses a Client. Nothing was sent"
    )


class AsyncSignal:
    """Wakes a task from another task or another thread; see `SyncSignal`."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._loop: Any = _running_loop()
        self._thread = threading.get_ident()

    def set(self) -> None:
        """Wake the task that waits, or the next one that does."""
        with suppress(RuntimeError):  # the loop has ended, and the task with it
            if threading.get_ident() == self._thread:
                self._event.set()
            elif isinstance(self._loop, asyncio.AbstractEventLoop):
                self._loop.call_soon_threadsafe(self._set)
            else:  # anyio's token of a trio loop
                self._loop.native_token.run_sync_soon(self._set)

    def _set(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()
