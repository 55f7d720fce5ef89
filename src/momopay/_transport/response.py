"""What an attempt returns: a whole response, or the reason why there is none.

Pure, apart from the buffer of the one response that a `ResponseReader` reads.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, NamedTuple

import httpcore
import httpx

MAX_BODY: Final = 8 * 1024 * 1024
# Objects and arrays in a body. Parsed, an empty one takes some hundred bytes. A full page of a list has 102.
MAX_PARTS: Final = 200_000
_MIN_SIZE_TO_COUNT: Final = 2 * MAX_PARTS

_HTTPX_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_HTTPCORE_NOT_SENT: Final = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.PoolTimeout,
    httpcore.UnsupportedProtocol,
)
# What the operating system raises when there is no connection.
_SYSTEM_NOT_SENT: Final = (ConnectionRefusedError, socket.gaierror)

# How a transport reports that an attempt failed. Anything else that it raises, such as the AssertionError of a mock, is
# a bug outside of this package and reaches the caller unchanged.
TRANSPORT_ERRORS: Final = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    httpcore.ConnectionNotAvailable,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    OSError,
)


class RawResponse(NamedTuple):
    """A whole response. The body is decompressed."""

    status: int
    headers: httpx.Headers
    body: bytes


class NoResponseError(Exception):
    """An attempt brought no whole response."""

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status  # the HTTP status, if the response began


class NotSentError(NoResponseError):
    """No byte of the request reached the service."""


class NoReplyError(NoResponseError):
    """The request was sent, or may have been."""

    def __init__(self, reason: str, *, status: int | None = None, partial: bytes = b"") -> None:
        super().__init__(reason, status=status)
        self.partial = partial  # the part of the response's body that arrived


class UnreadableResponseError(NoResponseError):
    """A response came, and its body is refused: too large, too many parts, or an encoding that was not asked for."""


class Progress:
    """How far a request with an effect has come. What is not known counts as sent."""

    connecting: bool = False  # whether it is certain that nothing has been written yet
    sending: bool = False  # whether httpcore has begun to write; it stays set, whatever the transport does afterwards
    before_body: Callable[[], Coroutine[Any, Any, object]] | None = None

    def trace(self, event: str, _info: dict[str, Any]) -> None:
        """Follow httpcore's "trace" extension."""
        if event == "connection.connect_tcp.started":
            # A transport may connect to something else after it has sent the request.
            self.connecting = not self.sending
        elif event.endswith("send_request_headers.started"):
            self.connecting = False
            self.sending = True

    async def trace_async(self, event: str, info: dict[str, Any]) -> None:
        """Follow the same extension of httpcore's asynchronous half, which awaits it."""
        self.trace(event, info)


class ResponseReader:
    """Reads the response to one attempt, chunk by chunk, or says how the attempt failed."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._status: int | None = None
        self._headers = httpx.Headers()
        # Not a list: it would hold an object for each chunk, and a chunk may be of a single byte.
        self._body = bytearray()

    def start(self, status: int, headers: httpx.Headers) -> None:
        """Take the response's head."""
        self._status = status
        self._headers = headers

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk of the body, or raise `UnreadableResponseError` if the body is too large."""
        self._body += chunk
        self._check_size(len(self._body))

    def failure(self, error: Exception) -> NoResponseError:
        """Return how an attempt ended that the transport gave up with an error."""
        reason = f"{type(error).__name__}: {error}"
        progress = self.progress
        # A transport may send the request, and then fail to connect to something else.
        if progress.connecting or (not progress.sending and _is_not_sent(error)):
            return NotSentError(reason)
        return self.incomplete(reason)

    def timed_out(self) -> NoResponseError:
        """Return how an attempt ended whose time was over."""
        if self.progress.connecting:
            return NotSentError("no connection within the timeout")
        return self.incomplete("no whole response within the timeout")

    def incomplete(self, reason: str) -> NoReplyError:
        """Return the error for a response of which no more will come."""
        return NoReplyError(reason, status=self._status, partial=bytes(self._body))

    def finish(self) -> RawResponse:
        """Return the whole response, or raise `UnreadableResponseError`."""
        body = self._decode(bytes(self._body), self._headers.get("content-encoding", "").strip().lower())
        if len(body) > _MIN_SIZE_TO_COUNT and body.count(b"{") + body.count(b"[") > MAX_PARTS:
            raise UnreadableResponseError("a body of too many parts", status=self._status)
        return RawResponse(self._status or 0, self._headers, body)

    def _check_size(self, size: int) -> None:
        if size > MAX_BODY:
            raise UnreadableResponseError("a body over 8 MiB", status=self._status)

    def _decode(self, body: bytes, encoding: str) -> bytes:
        if encoding in {"identity", ""}:
            return body
        if encoding not in {"gzip", "deflate"}:
            raise UnreadableResponseError("a content-encoding that was not asked for", status=self._status)
        # Neither was asked for. Both are decoded within the same limit of size.
        decompressor = zlib.decompressobj(wbits=47)  # either format, by its header
        try:
            # One byte over the limit is enough to know that a compressed bomb is over it.
            decoded = decompressor.decompress(body, MAX_BODY + 1)
        except zlib.error:
            decoded = b""
        self._check_size(len(decoded))
        if not decompressor.eof or decompressor.unused_data:
            raise UnreadableResponseError(f"a body that is not the {encoding} that it claims", status=self._status)
        return decoded


def _is_not_sent(error: Exception) -> bool:
    """Return whether an error proves that nothing was sent."""
    if isinstance(error, _HTTPCORE_NOT_SENT):
        return True
    if not isinstance(error, _HTTPX_NOT_SENT):
        return False
    # httpx's errors prove it only if httpcore, the operating system or the transport itself is where they come from. A
    # transport over another library may translate too much: httpx-aiohttp also raises ConnectTimeout for a server that
    # hung up after it had read the whole request.
    causes = list(_causes(error))
    return not causes or isinstance(causes[0], _HTTPCORE_NOT_SENT) or isinstance(causes[-1], _SYSTEM_NOT_SENT)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__
