"""The socket of one connection, which both clients use in the same way: it never blocks, and something waits for it.

It does two things that neither httpcore nor anyio does:
- The fence: no byte is written after the deadline. The time is read immediately before each `send` of the system's
  socket, also for what is left after a partial write. anyio would write through the event loop's own buffer, and
  httpcore would wait in `send`; a process that was frozen or an event loop that was blocked there would send later.
- No late arrival: a connection whose request has an effect is aborted (RST) unless a whole response came. Otherwise the
  kernel would deliver what it still holds minutes later, when somebody has looked for the payment and found nothing.

A socket belongs to the one thread or task that uses its connection. Times are in seconds, on the clock of `clock.now`.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import httpcore

from momopay._transport import clock
from momopay._transport.attempt import Progress

# Whether to abort on close, and after how many seconds. Windows has another struct than everybody else.
_LINGER: Final = "hh" if sys.platform == "win32" else "ii"
_ABORT: Final = struct.pack(_LINGER, 1, 0)
_CLOSE: Final = struct.pack(_LINGER, 0, 0)
# The longest wait in one piece: poll takes its milliseconds as an int of 32 bits.
_LONGEST_WAIT: Final = 86_400.0

T = TypeVar("T")

Wait = Callable[[socket.socket, bool, float], Awaitable[None]]
"""Waits until a socket can be read (or, if the second argument is True, written), for so many seconds at most."""


class AttemptSocket:
    """The socket of a connection, and the deadline of the attempt that it carries."""

    def __init__(self, wait: Wait, progress: Progress | None = None) -> None:
        self._wait = wait
        self._progress = progress  # of a request that has an effect
        self._socket: socket.socket | None = None
        self.deadline: float = 0.0  # set anew for each attempt

    def remaining(self, error: type[httpcore.TimeoutException]) -> float:
        """Return the seconds that remain of the attempt, or raise the error if there are none."""
        seconds = self.deadline - clock.now()
        if seconds <= 0:
            raise error("no time is left within the timeout")
        return seconds

    @property
    def raw(self) -> socket.socket:
        """The open socket, under TLS or without."""
        if self._socket is None:
            raise httpcore.ConnectError("not connected")
        return self._socket

    def connected(self, sock: socket.socket) -> None:
        """Take over a socket that has just connected."""
        sock.setblocking(False)
        with suppress(OSError):  # it is refused by some systems if the server hung up meanwhile
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._progress is not None:
            # From the start, and not only when it is closed: the kernel also closes the sockets of a killed process.
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self._socket = sock

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """Encrypt what follows, or close the socket and raise `httpcore.ConnectError`."""
        try:
            tls = context.wrap_socket(self.raw, do_handshake_on_connect=False, server_hostname=server_hostname)
            self._socket = tls  # the other object has given its socket away
            await self._when_ready(tls.do_handshake, httpcore.ConnectTimeout, writes=False)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise httpcore.ConnectError(str(error)) from error
            raise

    async def receive(self, max_bytes: int) -> bytes:
        """Return what the server sent next, b"" at the end of the stream."""
        sock = self.raw
        # A response is never there at once, except for what TLS has decrypted already.
        if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            await self._wait(sock, False, self.remaining(httpcore.ReadTimeout))
        try:
            return await self._when_ready(partial(sock.recv, max_bytes), httpcore.ReadTimeout, writes=False)
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def send(self, data: bytes) -> None:
        """Send everything, each piece of it before the deadline."""
        left = memoryview(data)
        try:
            while left:
                sent = await self._when_ready(partial(self._send_some, left), httpcore.WriteTimeout, writes=True)
                left = left[sent:]
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def _send_some(self, data: memoryview) -> int:
        """Send what the kernel takes at once, and return how much that is."""
        send, progress = self.raw.send, self._progress
        if progress is None:
            return send(data)
        self._set_user_timeout(self.remaining(httpcore.WriteTimeout))
        sent_before, progress.sending_body = progress.sending_body, progress.in_body
        try:
            # Nothing may come between this line and the next: a process that is frozen there sends when it thaws.
            self.remaining(httpcore.WriteTimeout)
            return send(data)
        except httpcore.WriteTimeout:
            progress.sending_body = sent_before
            raise

    def _set_user_timeout(self, seconds: float) -> None:
        # The kernel gives up by itself what it cannot deliver in time, even if this process is frozen.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            milliseconds = max(1, int(1000 * min(seconds, _LONGEST_WAIT)))
            with suppress(OSError):
                self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    async def _when_ready(
        self, operation: Callable[[], T], error: type[httpcore.TimeoutException], *, writes: bool
    ) -> T:
        """Return what the operation returns once the socket lets it."""
        while True:
            remaining = self.remaining(error)
            try:
                return operation()
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as obstacle:
                # TLS may have to read in order to write, and the other way round.
                for_writing = isinstance(obstacle, ssl.SSLWantWriteError) or (
                    writes and isinstance(obstacle, BlockingIOError)
                )
            await self._wait(self.raw, for_writing, remaining)

    def is_readable(self) -> bool:
        """Return whether data has arrived, or the server has hung up."""
        return self._socket is None or self._socket.fileno() < 0 or poll(self._socket, writable=False, seconds=0.0)

    def response_ended(self) -> None:
        """Close the socket if its request had no effect."""
        # httpcore closes a connection as soon as its response has ended, and nobody knows yet whether it was whole.
        if self._progress is None:
            self.close()

    def answered(self) -> None:
        """Have `close` end the connection in the usual way: a whole response came."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE)

    def close(self) -> None:
        """Close the socket: aborted, with all that the kernel has not delivered, unless `answered` was called."""
        if self._socket is not None:
            self._socket.close()


def poll(sock: socket.socket, *, writable: bool, seconds: float) -> bool:
    """Wait for a socket and return whether it became readable, or writable."""
    if sys.platform == "win32":
        readers, writers = ([], [sock]) if writable else ([sock], [])
        return any(select.select(readers, writers, writers, seconds))
    poller = select.poll()  # select takes no descriptor above 1023
    poller.register(sock, select.POLLOUT if writable else select.POLLIN)
    return bool(poller.poll(1000 * min(seconds, _LONGEST_WAIT)))
