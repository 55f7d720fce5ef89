"""The non-blocking socket of one connection. Both clients use it, and each has its own way to wait for it.

It does three things that neither httpcore nor anyio does:
- The fence: no byte is written after the deadline. The clock is read immediately before each `send` of the system's
  socket, also for the rest after a partial write. anyio would write through the event loop's buffer, and httpcore would
  wait in `send`; a frozen process or a blocked event loop would then send later.
- No late arrival: the connection of a request with an effect is aborted (RST) unless a complete response came.
  Otherwise the kernel could deliver its buffer minutes later, when a search for the payment has found nothing.
- Nothing is taken for the response to the next request: the last byte of each read is held back for the next read.
  httpcore reads only while its response is incomplete, so a byte that follows the response stays here. httpcore would
  keep it in its parser, and one payment's success would be returned for another payment.

httpcore's timeouts are ignored. They bound each read by itself, so a server that drips single bytes would outlast them.
The deadline of the `AttemptSocket` bounds the attempt as a whole.

A socket belongs to the one thread or task that uses its connection. Times are in seconds, on `attempt.now`.
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from momopay._transport import attempt
from momopay._transport.attempt import Progress, run_blocking
from momopay._transport.clock import wait_in_turns
from momopay._transport.library import core

# SO_LINGER: whether to abort on close, and after how many seconds. Windows has its own struct.
_LINGER: Final = "hh" if sys.platform == "win32" else "ii"
_ABORT: Final = struct.pack(_LINGER, 1, 0)
_CLOSE: Final = struct.pack(_LINGER, 0, 0)
_END_OF_HEAD: Final = b"\r\n\r\n"
_MAX_HEAD: Final = 16 * 1024  # bytes of a proxy's answer
_NO_TIME: Final = "no time is left within the timeout"
_UNANSWERED: Final = 3.0  # seconds after which the next address of a name is tried
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
# What a non-blocking socket raises if the caller must wait for it.
_NOT_READY: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True)
class Route:
    """How the service is reached: the options `verify` and `proxy`."""

    tls: ssl.SSLContext | None = None
    proxy: tuple[str, int] | None = None  # host and port
    authorization: bytes | None = field(default=None, repr=False)  # for the proxy


DIRECT: Final = Route()


class AttemptSocket(ABC):
    """The socket of a connection, and the deadline of the attempt that it carries.

    It is what httpcore connects by and the stream that it gets. A request with an effect has a `progress`.
    """

    raw: socket.socket
    """The open socket, with or without TLS, once `connected` was called."""
    _wait: Callable[[socket.socket, bool, float], Awaitable[object]]
    """Waits until a socket is readable (writable, if the second argument is True), for so many seconds at most."""

    def __init__(self, progress: Progress | None = None, route: Route = DIRECT, *, tls: bool = False) -> None:
        self._progress = progress
        self._route = route
        self._tls = tls
        self._is_connected = False
        self._kept: bytes = b""  # the byte that is held back
        self.deadline: float = 0.0  # set anew for each attempt

    @abstractmethod
    async def _resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name, each once, in the resolver's order."""

    @abstractmethod
    async def _connect(self, address: str, port: int, seconds: float) -> socket.socket:
        """Return a connected socket, or raise OSError."""

    async def connect_and_wait(self, address: str, port: int, seconds: float) -> socket.socket:
        """Return a connected socket, or raise OSError. The wait is that of all sockets of this client."""
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            try:
                sock.connect((address, port))  # not `connect_ex`, which tools that ban sockets in tests do not see
            except BlockingIOError:
                if await self._wait(sock, True, seconds) is False:
                    raise TimeoutError("timed out") from None
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, _explained(code)) from None
        except BaseException:
            sock.close()
            raise
        return sock

    def remaining(self, error: type[core.TimeoutException]) -> float:
        """Return the seconds that remain for the attempt, or raise the error if there are none."""
        seconds = self.deadline - attempt.now()
        if seconds <= 0:
            raise error(_NO_TIME)
        return seconds

    def connected(self, sock: socket.socket) -> None:
        """Take over a socket that has just connected."""
        sock.setblocking(False)
        with suppress(OSError):  # some systems refuse it if the server has hung up already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._progress is not None:
            # Set now and not on close, because the kernel closes the sockets of a killed process, too.
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.raw, self._is_connected = sock, True

    async def _open(self, host: str, port: int) -> None:
        """Connect to the service, or raise httpcore's ConnectError or ConnectTimeout."""
        if self._progress is not None:
            self._progress.connecting = True
        next_host, next_port = self._route.proxy or (host, port)
        addresses = [next_host] if is_address(next_host) else await self._resolve(next_host, next_port)
        failure: OSError | None = None
        for tried, address in enumerate(addresses):
            seconds, left = self.remaining(core.ConnectTimeout), len(addresses) - tried
            if left > 1:  # one that does not answer, as an IPv6 that swallows packets, must leave time for the others
                seconds = min(seconds / left, _UNANSWERED)
            try:
                self.connected(await self._connect(address, next_port, seconds))
                break
            except OSError as error:
                failure = error
        else:
            kind = core.ConnectTimeout if isinstance(failure, TimeoutError) else core.ConnectError
            raise kind(str(failure or "the name has no address")) from failure
        if self._tls and self._route.proxy is not None:
            await open_tunnel(self, host, port, self._route.authorization)

    async def _start_tls(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """Start TLS, or close the socket and raise `httpcore.ConnectError`."""
        try:
            tls = context.wrap_socket(self.raw, do_handshake_on_connect=False, server_hostname=server_hostname)
            self.raw = tls  # the plain object no longer owns the socket
            while True:
                seconds = self.remaining(core.ConnectTimeout)
                try:
                    tls.do_handshake()
                    break
                except _NOT_READY as obstacle:
                    await self._wait(tls, isinstance(obstacle, ssl.SSLWantWriteError), seconds)
        except BaseException as error:
            self.end()
            if isinstance(error, OSError):
                raise core.ConnectError(str(error)) from error
            raise

    async def receive(self, max_bytes: int) -> bytes:
        """Return the next bytes from the server, b"" at the end of the stream."""
        sock = self.raw
        try:
            # Wait before the first read: a response is never there at once, except for what TLS has decrypted already.
            # On an event loop, the wait also lets other tasks run while a server sends without a pause.
            if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
                await self._wait(sock, False, self.remaining(core.ReadTimeout))
            while True:
                try:
                    return sock.recv(max_bytes)
                except _NOT_READY as obstacle:
                    # TLS may have to write in order to read.
                    seconds = self.remaining(core.ReadTimeout)
                    await self._wait(sock, isinstance(obstacle, ssl.SSLWantWriteError), seconds)
        except OSError as error:
            raise core.ReadError(str(error)) from error

    async def _read(self, max_bytes: int) -> bytes:
        data, self._kept = self._kept, b""
        if not data:
            data = await self.receive(max_bytes)
            if len(data) > 1:  # a single byte is returned at once, because b"" means the end of the stream
                data, self._kept = data[:-1], data[-1:]
        return data

    def has_unread(self) -> bool:
        """Return whether a byte followed the response."""
        return bool(self._kept)

    async def _write(self, data: bytes) -> None:
        """Send what httpcore writes: first the head, by itself, then the body."""
        progress = self._progress
        if progress is None:
            await self.send(data)
            return
        # Whatever does not end as a head does may have a part of the body in it.
        is_head = not progress.sending and data.endswith(_END_OF_HEAD)
        progress.connecting, progress.sending = False, True
        if not is_head and not progress.in_body:
            await progress.begin_body()
        await self.send(data)
        # Now, because an error within httpcore's loop over the body would leave a generator open.
        if is_head and progress.knows_body:
            await progress.begin_body()

    async def send(self, data: bytes) -> None:
        """Send all the data, none of it after the deadline."""
        sock, left = self.raw, memoryview(data)
        try:
            while left:
                seconds = self.deadline - attempt.now()
                if self._progress is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
                    # The kernel then drops what it cannot deliver in time, even if this process is frozen.
                    with suppress(OSError):
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(1000 * seconds)))
                try:
                    # A process that is frozen between this check and the system call would send when it thaws. So only
                    # the note that some of the body may have been written comes between the two.
                    if attempt.now() >= self.deadline:
                        raise core.WriteTimeout(_NO_TIME)
                    if self._progress is not None:
                        self._progress.sending_body = self._progress.in_body
                    left = left[sock.send(left) :]
                except _NOT_READY as obstacle:
                    # TLS may have to read in order to write.
                    await self._wait(sock, not isinstance(obstacle, ssl.SSLWantReadError), seconds)
        except OSError as error:
            raise core.WriteError(str(error)) from error

    def is_readable(self) -> bool:
        """Return whether data has arrived, or the server has hung up."""
        return not self._is_connected or self.raw.fileno() < 0 or run_blocking(wait_blocking(self.raw, False, 0.0))

    def answered(self) -> None:
        """Let `end` close the connection normally, because a complete response came."""
        if self._is_connected:
            with suppress(OSError):
                self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE)

    def end(self) -> None:
        """Close the socket. The connection of a request with an effect is aborted, unless `answered` was called."""
        if self._is_connected:
            self.raw.close()

    def end_response(self) -> None:
        """Close the socket, unless its request has an effect."""
        # httpcore calls this when a response ends, before it is known whether the response was complete.
        if self._progress is None:
            self.end()

    def get_extra_info(self, info: str) -> Any:
        """Return "is_readable", and None for the rest: with an "ssl_object", httpcore would try HTTP/2."""
        return self.is_readable() if info == "is_readable" else None


def _explained(code: int) -> str:
    if sys.platform == "win32":  # whose `strerror` knows no code of a socket
        return socket.errorTab.get(code, os.strerror(code)).removesuffix(".")
    return os.strerror(code)


async def wait_blocking(sock: socket.socket, writable: bool, seconds: float) -> bool:
    """Block until a socket is readable, or writable, and return whether it is."""
    if sys.platform == "win32":
        readers, writers = ([], [sock]) if writable else ([sock], [])
        return wait_in_turns(seconds, lambda turn: any(select.select(readers, writers, writers, turn)))
    poller = select.poll()  # select takes no descriptor above 1023
    poller.register(sock, select.POLLOUT if writable else select.POLLIN)
    return bool(poller.poll(1000 * seconds))


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
    except core.TimeoutException as error:
        raise core.ConnectTimeout("the proxy opened no tunnel within the timeout") from error
    except core.NetworkError as error:
        raise core.ConnectError(f"the proxy opened no tunnel: {error}") from error


async def _read_answer(sock: AttemptSocket) -> None:
    head = bytearray()
    while b"\r\n\r\n" not in head:
        data = await sock.receive(_MAX_HEAD)
        head += data
        if not data or len(head) > _MAX_HEAD:
            raise core.ConnectError("it gave no answer of HTTP/1.1")
    status = _STATUS.match(head)
    if status is None or not status[1].startswith(b"2"):
        raise core.ConnectError(f"it answered with status {status[1].decode() if status else 'unknown'}")
    if not head.endswith(b"\r\n\r\n") or head.count(b"\r\n\r\n") > 1:
        # In TLS the client speaks first, so these bytes are not the service's.
        raise core.ConnectError("it sent more than its answer")


@lru_cache(maxsize=16)
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
