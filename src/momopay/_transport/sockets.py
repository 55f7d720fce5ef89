"""The socket of one connection, which both clients use in the same way: it never blocks, and something waits for it.

It does two things that neither httpcore nor anyio does:
- The fence: no byte is written after the deadline. The time is read immediately before each `send` of the system's
  socket, also for what is left after a partial write. anyio would write through the event loop's own buffer, and
  httpcore would wait in `send`; a process that was frozen or an event loop that was blocked there would send later.
- No late arrival: a connection whose request has an effect is aborted (RST) unless a whole response came. Otherwise the
  kernel would deliver what it still holds minutes later, when somebody has looked for the payment and found nothing.

httpcore's own timeouts, which bound each read by itself, are ignored: a server that drips one byte at a time would
outlast any of them. The deadline of the `AttemptSocket` bounds the attempt as a whole.

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
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

import httpcore

from momopay._transport import attempt
from momopay._transport.attempt import Progress, run_blocking

# Whether to abort on close, and after how many seconds. Windows has another struct than everybody else.
_LINGER: Final = "hh" if sys.platform == "win32" else "ii"
_ABORT: Final = struct.pack(_LINGER, 1, 0)
_CLOSE: Final = struct.pack(_LINGER, 0, 0)
_MAX_HEAD: Final = 16 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
# What a socket that never blocks raises if it must be waited for.
_NOT_READY: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Wait = Callable[[socket.socket, bool, float], Awaitable[object]]
"""Waits until a socket can be read (or, if the second argument is True, written), for so many seconds at most."""


class AttemptSocket:
    """The socket of a connection, and the deadline of the attempt that it carries."""

    raw: socket.socket
    """The open socket, under TLS or without, once `connected` was called."""

    def __init__(self, wait: Wait, progress: Progress | None = None) -> None:
        self._wait = wait
        self._progress = progress or Progress()
        self._has_effect = progress is not None  # only a request with an effect has its progress followed
        self._is_connected = False
        self.deadline: float = 0.0  # set anew for each attempt

    def remaining(self, error: type[httpcore.TimeoutException]) -> float:
        """Return the seconds that remain of the attempt, or raise the error if there are none."""
        seconds = self.deadline - attempt.now()
        if seconds <= 0:
            raise error("no time is left within the timeout")
        return seconds

    def connected(self, sock: socket.socket) -> None:
        """Take over a socket that has just connected."""
        sock.setblocking(False)
        with suppress(OSError):  # it is refused by some systems if the server hung up meanwhile
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._has_effect:
            # From the start, and not only when it is closed: the kernel also closes the sockets of a killed process.
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.raw, self._is_connected = sock, True

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """Encrypt what follows, or close the socket and raise `httpcore.ConnectError`."""
        try:
            tls = context.wrap_socket(self.raw, do_handshake_on_connect=False, server_hostname=server_hostname)
            self.raw = tls  # the other object has given its socket away
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
        """Return what the server sent next, b"" at the end of the stream."""
        sock = self.raw
        try:
            # A response is never there at once, except for what TLS has decrypted already. On an event loop, the wait
            # also lets other tasks run while a server sends without a pause.
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
        """Send everything, each piece of it before the deadline."""
        sock, left = self.raw, memoryview(data)
        try:
            while left:
                seconds = self.remaining(httpcore.WriteTimeout)
                if self._has_effect:
                    self._set_user_timeout(seconds)
                try:
                    # A process that is frozen between the check and the system's call sends when it thaws. So nothing
                    # more may come between them than the note that some of the body may have been written.
                    self.remaining(httpcore.WriteTimeout)
                    self._progress.sending_body = self._progress.in_body
                    left = left[sock.send(left) :]
                except _NOT_READY as obstacle:
                    # TLS may have to read in order to write.
                    await self._wait(sock, not isinstance(obstacle, ssl.SSLWantReadError), seconds)
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def _set_user_timeout(self, seconds: float) -> None:
        # The kernel gives up by itself what it cannot deliver in time, even if this process is frozen.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            milliseconds = max(1, int(1000 * seconds))
            with suppress(OSError):
                self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def is_readable(self) -> bool:
        """Return whether data has arrived, or the server has hung up."""
        return not self._is_connected or self.raw.fileno() < 0 or run_blocking(wait_blocking(self.raw, False, 0.0))

    def response_ended(self) -> None:
        """Close the socket if its request had no effect."""
        # httpcore closes a connection as soon as its response has ended, and nobody knows yet whether it was whole.
        if not self._has_effect:
            self.close()

    def answered(self) -> None:
        """Have `close` end the connection in the usual way: a whole response came."""
        if self._is_connected:
            with suppress(OSError):
                self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE)

    def close(self) -> None:
        """Close the socket: aborted, with all that the kernel has not delivered, unless `answered` was called."""
        if self._is_connected:
            self.raw.close()


async def wait_blocking(sock: socket.socket, writable: bool, seconds: float) -> bool:
    """Wait for a socket, without suspending, and return whether it can be read, or written."""
    if sys.platform == "win32":
        readers, writers = ([], [sock]) if writable else ([sock], [])
        return any(select.select(readers, writers, writers, seconds))
    poller = select.poll()  # select takes no descriptor above 1023
    poller.register(sock, select.POLLOUT if writable else select.POLLIN)
    return bool(poller.poll(1000 * seconds))


class Stream:
    """What httpcore's streams over our sockets have in common; it notices bytes behind a response.

    httpcore keeps bytes that follow a response in its parser and would take them for the response to the next request:
    one payment's success would be returned for another payment. So the last byte of each read is kept back for the next
    one. httpcore reads only while its response is incomplete: it asks for the kept byte if the response ends with it or
    later, and leaves it if the response ended before. This holds for every framing, and parses none.
    """

    def __init__(self, sock: AttemptSocket) -> None:
        self._socket = sock
        self._kept: bytes = b""

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

    def get_extra_info(self, info: str) -> Any:
        """Return "is_readable". httpcore also asks for "ssl_object", which would lead it to HTTP/2: there is none."""
        return self._socket.is_readable() if info == "is_readable" else None


@dataclass(frozen=True)
class Tunnel:
    """A connection to a proxy, and through it.

    It is opened below httpcore, as a part of connecting. So a proxy that refuses it is a connection that was not made:
    nothing was sent, for every kind of request. The fence holds up to the proxy: what it has taken, it may pass on
    later.
    """

    host: str
    port: int
    authorization: bytes | None = field(repr=False)
    forwards: bool  # the proxy reads each request, so there is nothing to open

    async def open(self, sock: AttemptSocket, host: str, port: int) -> None:
        """Have the proxy connect to the service, or raise httpcore's ConnectError or ConnectTimeout."""
        if self.forwards:
            return
        target = (f"[{host}]" if ":" in host else host).encode("ascii") + b":%d" % port
        lines = [b"CONNECT %b HTTP/1.1" % target, b"Host: " + target]
        if self.authorization is not None:
            lines.append(b"Proxy-Authorization: " + self.authorization)
        try:
            await sock.send(b"\r\n".join([*lines, b"", b""]))
            await self._read_answer(sock)
        except httpcore.TimeoutException as error:
            raise httpcore.ConnectTimeout("the proxy opened no tunnel within the timeout") from error
        except httpcore.NetworkError as error:
            raise httpcore.ConnectError(f"the proxy opened no tunnel: {error}") from error

    async def _read_answer(self, sock: AttemptSocket) -> None:
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
            # In TLS the service speaks second. What came with the answer would be taken for its first bytes.
            raise httpcore.ConnectError("it sent more than its answer")


def is_address(host: str) -> bool:
    """Return whether a host is an address, which needs no resolver."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def addresses_in(answers: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the addresses that `getaddrinfo` answered, each once, in the resolver's order."""
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))
