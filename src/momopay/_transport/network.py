"""The sockets under our own connections, wrapped for three things that httpcore does not do.

- `SyncStream` and `SyncNetwork` bound an attempt as a whole. httpcore's timeouts bound each read by itself, so a
  server that drips one byte at a time would outlast any of them.
- Both streams notice bytes that follow a response (`has_unread`). httpcore keeps such bytes in its parser and would
  take them for the response to the next request: one payment's success would be returned for another payment.
- `AsyncStream` closes a socket whose TLS handshake is cancelled. httpcore would leave it open.

A stream belongs to the one thread or task that uses its connection. Times are in seconds, on the monotonic clock.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import anyio
import httpcore


class AttemptDeadline:
    """When the attempt that a blocking connection carries must end. Set anew for each attempt."""

    at: float = 0.0

    def remaining(self, error: type[httpcore.TimeoutException]) -> float:
        """Return the seconds that remain, or raise the error if there are none."""
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise error("the attempt's time is over")
        return seconds


class _LastByteKept:
    """Passes on what was read without its last byte, which the next read returns."""

    # httpcore reads only while its response is incomplete. So it asks for the kept byte if the response ends with it or
    # later, and leaves it if the response ended before. This holds for every framing, and parses none.
    _kept: bytes = b""

    def _take_kept(self) -> bytes:
        data, self._kept = self._kept, b""
        return data

    def _keep_last(self, data: bytes) -> bytes:
        if len(data) > 1:  # a single byte is passed on at once, because b"" means the end of the stream
            self._kept = data[-1:]
            return data[:-1]
        return data

    def has_unread(self) -> bool:
        """Return whether data followed the response."""
        return bool(self._kept)


class SyncStream(_LastByteKept, httpcore.NetworkStream):
    """A blocking socket that does not outlast its attempt: httpcore's timeouts are ignored."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: AttemptDeadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        remaining = self._deadline.remaining(httpcore.ReadTimeout)
        return self._take_kept() or self._keep_last(self._stream.read(max_bytes, remaining))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.remaining(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        remaining = self._deadline.remaining(httpcore.ConnectTimeout)
        return SyncStream(self._stream.start_tls(ssl_context, server_hostname, remaining), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class SyncNetwork(httpcore.SyncBackend):
    """Opens blocking sockets. One deadline covers all addresses of a name; the system's call gives each its own."""

    def __init__(self, deadline: AttemptDeadline) -> None:
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in resolve(host, port, self._deadline.remaining(httpcore.ConnectTimeout)):
            remaining = self._deadline.remaining(httpcore.ConnectTimeout)
            try:
                stream = super().connect_tcp(address, port, remaining, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return SyncStream(stream, self._deadline)
        raise failure or httpcore.ConnectError(f"{host} has no address")


def resolve(host: str, port: int, timeout: float) -> list[str]:
    """Return the addresses of a host, each once, in the resolver's order."""
    found: Future[list[str]] = Future()

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.set_result(list(dict.fromkeys(str(address[0]) for *_, address in answers)))
        except (OSError, UnicodeError) as error:  # UnicodeError: a label is empty or too long
            found.set_exception(error)

    # getaddrinfo knows no timeout, so it runs in a thread that is left behind if need be. A daemon thread, so that
    # the process can end meanwhile.
    threading.Thread(target=ask, name=f"momopay resolves {host}", daemon=True).start()
    try:
        return found.result(timeout)
    except TimeoutError as error:
        raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from error
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(str(error)) from error


class AsyncStream(_LastByteKept, httpcore.AsyncNetworkStream):
    """An asynchronous socket. The attempt's cancel scope bounds it."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  httpcore's
        return self._take_kept() or self._keep_last(await self._stream.read(max_bytes, timeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  httpcore's
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's
    ) -> httpcore.AsyncNetworkStream:
        try:
            return AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def has_unread(self) -> bool:
        # anyio passes to its TLS object all that the socket has, so a record that follows the response can wait there
        # unseen. (A blocking TLS socket takes one record at a time, and leaves the rest where a poll finds it.)
        tls = self.get_extra_info("ssl_object")
        if tls is None or self._kept:
            return bool(self._kept)
        try:
            tls.read(1)  # never blocks: anyio's TLS object reads from memory
        except ssl.SSLError as error:  # any other than SSLWantReadError: the server ended the TLS session
            return not isinstance(error, ssl.SSLWantReadError)
        return True


class AsyncNetwork(httpcore.AsyncNetworkBackend):
    """Opens asynchronous sockets through anyio, on asyncio and on trio alike."""

    def __init__(self) -> None:
        self._backend: Any = httpcore.AnyIOBackend()  # httpcore leaves its type open

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            return AsyncStream(await self._backend.connect_tcp(host, port, timeout, local_address, socket_options))
        except UnicodeError as error:  # a label is empty or too long
            raise httpcore.ConnectError(str(error)) from error
