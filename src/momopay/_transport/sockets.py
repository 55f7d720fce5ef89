"""The non-blocking socket of one connection. Both clients use it, and each has its own way to wait for it.

It does two things that neither httpcore nor anyio does:
- The fence: no byte is written after the deadline. The clock is read immediately before each `send` of the system's
  socket, also for the rest after a partial write. anyio would write through the event loop's buffer, and httpcore would
  wait in `send`; a frozen process or a blocked event loop would then send later.
- No late arrival: the connection of a request with an effect is aborted (RST) unless a complete response came.
  Otherwise the kernel could deliver its buffer minutes later, when a search for the payment has found nothing.

httpcore's timeouts are ignored. They bound each read by itself, so a server that drips single bytes would outlast them.
The deadline of the `AttemptSocket` bounds the attempt as a whole.

A socket belongs to the one thread or task that uses its connection. Times are in seconds, on `attempt.now`.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

import httpcore

from momopay._transport import attempt
from momopay._transport.attempt import Progress, run_blocking

# SO_LINGER: whether to abort on close, and after how many seconds. Windows has its own struct.
_LINGER: Final = "hh" if sys.platform == "win32" else "ii"
_ABORT: Final = struct.pack(_LINGER, 1, 0)
_CLOSE: Final = struct.pack(_LINGER, 0, 0)
_MAX_HEAD: Final = 16 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
# What a non-blocking socket raises if the caller must wait for it.
_NOT_READY: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Wait = Callable[[socket.socket, bool, float], Awaitable[object]]
"""Waits until a socket is readable (writable, if the second argument is True), for so many seconds at most."""


class AttemptSocket:
    """The socket of a connection, and the deadline of the attempt that it carries."""

    raw: socket.socket
    """The open socket, with or without TLS, once `connected` was called."""

    def __init__(self, wait: Wait, progress: Progress | None = None) -> None:
        self._wait = wait
        self._progress = progress or Progress()
        self._has_effect = progress is not None  # of the request
        self._is_connected = False
        self.deadline: float = 0.0  # set anew for each attempt

    def remaining(self, error: type[httpcore.TimeoutException]) -> float:
        """Return the seconds that remain for the attempt, or raise the error if there are none."""
        seconds = self.deadline - attempt.now()
        if seconds <= 0:
            raise error("no time is left within the timeout")
        return seconds

    def connected(self, sock: socket.socket) -> None:
        """Take over a socket that has just connected."""
        sock.setblocking(False)
        with suppress(OSError):  # some systems refuse it if the server has hung up already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._has_effect:
            # Set now and not on close, because the kernel closes the sockets of a killed process, too.
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.raw, self._is_connected = sock, True

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """Start TLS, or close the socket and raise `httpcore.ConnectError`."""
        try:
            tls = context.wrap_socket(self.raw, do_handshake_on_connect=False, server_hostname=server_hostname)
            self.raw = tls  # the plain object no longer owns the socket
            while True:
                seconds = self.remaining(httpcore.ConnectTimeout)
                try:
                    tls.do_handshake()
                    break
                except _NOT_READY as obstacle:
                    await self._wait(tls, isinstance(obstacle, ssl.SSLWantWriteError), seconds)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise httpcore.ConnectError(str(error)) from error
            raise

    async def receive(self, max_bytes: int) -> bytes:
        """Return the next bytes from the server, b"" at the end of the stream."""
        sock = self.raw
        try:
            # Wait before the first read: a response is never there at once, except for what TLS has decrypted already.
            # On an event loop, the wait also lets other tasks run while a server sends without a pause.
            if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                await self._wait(sock, False, self.remaining(httpcore.ReadTimeout))
            while True:
                seconds = self.remaining(httpcore.ReadTimeout)
                try:
                    return sock.recv(max_bytes)
                except _NOT_READY as obstacle:
                    # TLS may have to write in order to read.
                    await self._wait(sock, isinstance(obstacle, ssl.SSLWantWriteError), seconds)
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def send(self, data: bytes) -> None:
        """Send all the data, none of it after the deadline."""
        sock, left = self.raw, memoryview(data)
        try:
            while left:
                seconds = self.remaining(httpcore.WriteTimeout)
                if self._has_effect and hasattr(socket, "TCP_USER_TIMEOUT"):
                    # The kernel then drops what it cannot deliver in time, even if this process is frozen.
                    with suppress(OSError):
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(1000 * seconds)))
                try:
                    # A process that is frozen between this check and the system call would send when it thaws. So only
                    # the note that some of the body may have been written comes between the two.
                    self.remaining(httpcore.WriteTimeout)
                    self._progress.sending_body = self._progress.in_body
                    left = left[sock.send(left) :]
                except _NOT_READY as obstacle:
                    # TLS may have to read in order to write.
                    await self._wait(sock, not isinstance(obstacle, ssl.SSLWantReadError), seconds)
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def is_readable(self) -> bool:
        """Return whether data has arrived, or the server has hung up."""
        return not self._is_connected or self.raw.fileno() < 0 or run_blocking(wait_blocking(self.raw, False, 0.0))

    def response_ended(self) -> None:
        """Close the socket, unless its request has an effect."""
        # httpcore calls this when a response ends, before it is known whether the response was complete.
        if not self._has_effect:
            self.close()

    def answered(self) -> None:
        """Let `close` end the connection normally, because a complete response came."""
        if self._is_connected:
            with suppress(OSError):
                self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE)

    def close(self) -> None:
        """Close the socket. The connection of a request with an effect is aborted, unless `answered` was called."""
        if self._is_connected:
            self.raw.close()


async def wait_blocking(sock: socket.socket, writable: bool, seconds: float) -> bool:
    """Block until a socket is readable, or writable, and return whether it is."""
    if sys.platform == "win32":
        readers, writers = ([], [sock]) if writable else ([sock], [])
        return any(select.select(readers, writers, writers, seconds))
    poller = select.poll()  # select takes no descriptor above 1023
    poller.register(sock, select.POLLOUT if writable else select.POLLIN)
    return bool(poller.poll(1000 * seconds))


class Stream:
    """The base class of both clients' streams. It detects bytes that follow a response.

    httpcore keeps such bytes in its parser and would take them for the response to the next request: one payment's
    success would be returned for another payment. So the last byte of each read is held back for the next read.
    httpcore reads only while its response is incomplete, so a byte that follows the response stays here. This works for
    every framing without parsing any.
    """

    def __init__(self, sock: AttemptSocket) -> None:
        self._socket = sock
        self._kept: bytes = b""

    def _take_kept(self) -> bytes:
        data, self._kept = self._kept, b""
        return data

    def _keep_last(self, data: bytes) -> bytes:
        if len(data) > 1:  # a single byte is returned at once, because b"" means the end of the stream
            self._kept = data[-1:]
            return data[:-1]
        return data

    def has_unread(self) -> bool:
        return bool(self._kept)

    def get_extra_info(self, info: str) -> Any:
        """Return "is_readable", and None for the rest: with an "ssl_object", httpcore would try HTTP/2."""
        return self._socket.is_readable() if info == "is_readable" else None


async def open_tunnel(sock: AttemptSocket, host: str, port: int, authorization: bytes | None) -> None:
    """Let the proxy connect to the service, or raise httpcore's ConnectError or ConnectTimeout.

    This is done below httpcore, as a part of connecting. So if the proxy refuses, no request was sent. The fence ends
    at the proxy, which may pass on later what it has received.
    """
    target = (f"[{host}]" if ":" in host else host).encode("ascii") + b":%d" % port
    lines = [b"CONNECT %b HTTP/1.1" % target, b"Host: " + target]
    if authorization is not None:
        lines.append(b"Proxy-Authorization: " + authorization)
    try:
        await sock.send(b"\r\n".join([*lines, b"", b""]))
        await _read_answer(sock)
    except httpcore.TimeoutException as error:
        raise httpcore.ConnectTimeout("the proxy opened no tunnel within the timeout") from error
    except httpcore.NetworkError as error:
        raise httpcore.ConnectError(f"the proxy opened no tunnel: {error}") from error


async def _read_answer(sock: AttemptSocket) -> None:
    head = bytearray()
    while b"\r\n\r\n" not in head:
        data = await sock.receive(_MAX_HEAD)
        head += data
        if not data or len(head) > _MAX_HEAD:
            raise httpcore.ConnectError("it gave no answer of HTTP/1.1")
    status = _STATUS.match(head)
    if status is None or not status[1].startswith(b"2"):
        raise httpcore.ConnectError(f"it answered with status {status[1].decode() if status else 'unknown'}")
    if not head.endswith(b"\r\n\r\n") or head.count(b"\r\n\r\n") > 1:
        # In TLS the client speaks first, so these bytes are not the service's.
        raise httpcore.ConnectError("it sent more than its answer")


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, which needs no resolver."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def addresses_in(answers: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the addresses that `getaddrinfo` answered, each once, in the resolver's order."""
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))
