"""TLS with the service inside of TLS with a proxy, which the standard library's sockets cannot do."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import httpcore

from momopay._transport.sockets import AttemptSocket

_CHUNK: Final = 64 * 1024

T = TypeVar("T")


class NestedTlsSocket(AttemptSocket):
    """The socket of a connection to a proxy under TLS. The first TLS session is the proxy's, the second the service's.

    The inner session encrypts into memory, and what it encrypted is sent as any other data, so the fence holds.
    """

    _inner: ssl.SSLObject | None = None

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str | None) -> None:
        """Encrypt what follows, or close the socket and raise `httpcore.ConnectError`."""
        if not isinstance(self.raw, ssl.SSLSocket):
            await super().start_tls(context, server_hostname)
            return
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        inner = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        try:
            await self._pump(inner.do_handshake)
        except BaseException as error:
            self.close()
            if isinstance(error, httpcore.TimeoutException):
                raise httpcore.ConnectTimeout(str(error)) from error
            if isinstance(error, OSError | httpcore.NetworkError):
                raise httpcore.ConnectError(str(error)) from error
            raise
        self._inner = inner

    async def receive(self, max_bytes: int) -> bytes:
        """Return what the server sent next, b"" at the end of the stream."""
        if self._inner is None:
            return await super().receive(max_bytes)
        try:
            return await self._pump(partial(self._inner.read, max_bytes))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def send(self, data: bytes) -> None:
        """Send everything, each piece of it before the deadline."""
        if self._inner is None:
            await super().send(data)
            return
        left = memoryview(data)
        try:
            while left:
                left = left[await self._pump(partial(self._inner.write, left)) :]
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def _pump(self, operation: Callable[[], T]) -> T:
        """Return what the operation of the inner session returns, and exchange what it needs and makes."""
        while True:
            try:
                result = operation()
            except ssl.SSLWantReadError:
                await self._flush()
            else:
                await self._flush()
                return result
            if data := await super().receive(_CHUNK):
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await super().send(data)
