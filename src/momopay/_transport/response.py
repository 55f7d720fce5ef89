"""What an attempt brings back: a whole answer, or the reason why there is none."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpcore
import httpx

from momopay.errors import ConfigurationError

MAX_BODY = 8 * 1024 * 1024
MAX_PARTS = 200_000
"""Objects and arrays in a body; JSON's readers take some hundred bytes for one that is empty. A full page has 102."""
_SMALL = 2 * MAX_PARTS

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_NOT_SENT_BY_HTTPCORE = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.PoolTimeout,
    httpcore.UnsupportedProtocol,
)
_NO_CONNECTION = (ConnectionRefusedError, socket.gaierror)
"""The operating system's own word that no connection came about."""


class RawResponse(NamedTuple):
    """A whole answer, as bytes."""

    status: int
    headers: httpx.Headers
    body: bytes


class NoResponseError(Exception):
    """An attempt that brought no whole answer; says so without the request, hence without key or phone.

    Attributes:
        status: The HTTP status, if the answer began.
    """

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class NotSentError(NoResponseError):
    """The request surely did not reach the service."""


class NoReplyError(NoResponseError):
    """The request was sent, or may have been; `partial` is what came back of the body."""

    def __init__(self, reason: str, *, status: int | None = None, partial: bytes = b"") -> None:
        super().__init__(reason, status=status)
        self.partial = partial


class UnreadableResponseError(NoResponseError):
    """An answer came, and its body is refused: too large, too many parts, or an encoding that was not asked for."""


class Progress:
    """How far a request that changes something came, by httpcore's word; without its word, it counts as sent."""

    connecting: bool = False
    sending: bool = False

    def watch(self, event: str, _info: dict[str, Any]) -> None:
        """Hear of the next step."""
        if event == "connection.connect_tcp.started":
            self.connecting = not self.sending  # a transport may connect elsewhere after it has sent
        elif event.endswith("send_request_headers.started"):
            self.connecting = False
            self.sending = True

    async def watch_async(self, event: str, info: dict[str, Any]) -> None:
        """Hear of the next step, from httpcore's other colour."""
        self.watch(event, info)


def check_open(closed: bool) -> None:
    """Refuse to send on a closed port."""
    if closed:
        raise ConfigurationError("this client is closed; make another. Nothing was sent")


def _is_surely_not_sent(error: Exception) -> bool:
    """Whether the error says so, and the operating system, httpcore or the transport itself is where it comes from.

    A transport over another library may translate more than it should: httpx-aiohttp's ConnectTimeout also
    stands for a server that hung up after it had read the whole request.
    """
    if not isinstance(error, _NOT_SENT):
        return False
    causes = list(_causes(error))
    return not causes or isinstance(causes[0], _NOT_SENT_BY_HTTPCORE) or isinstance(causes[-1], _NO_CONNECTION)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__


class ResponseReader:
    """An answer as it comes in, chunk by chunk, never more than `MAX_BODY`."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._response: httpx.Response | None = None
        self._body = bytearray()  # a list would hold an object for each chunk, and chunks may be of a byte each

    def begin(self, response: httpx.Response) -> None:
        """Take the answer's head."""
        self._response = response

    def add(self, chunk: bytes) -> None:
        """Take one more chunk, or refuse the body as too large."""
        self._body += chunk
        self._check(len(self._body))

    def failed(self, error: Exception) -> NoResponseError:
        """Say what became of an attempt that the transport gave up."""
        reason = f"{type(error).__name__}: {error}"
        # A transport may send, and fail to connect for something else after that.
        began = self._progress is not None and self._progress.sending
        return NotSentError(reason) if not began and _is_surely_not_sent(error) else self.cut(reason)

    def cut(self, reason: str) -> NoReplyError:
        """Say that no more of the answer will come."""
        return NoReplyError(reason, status=self._status, partial=bytes(self._body))

    def answer(self, response: httpx.Response) -> RawResponse:
        """Give the whole; gzip and deflate, which were not asked for, are undone within the same bound."""
        body = bytes(self._body)
        encoding = response.headers.get("content-encoding")
        if encoding is not None:
            body = self._decode(body, encoding.strip().lower())
        if len(body) > _SMALL and body.count(b"{") + body.count(b"[") > MAX_PARTS:
            raise UnreadableResponseError("a body of too many parts", status=self._status)
        return RawResponse(response.status_code, response.headers, body)

    @property
    def _status(self) -> int | None:
        return None if self._response is None else self._response.status_code

    def _check(self, size: int) -> None:
        if size > MAX_BODY:
            raise UnreadableResponseError("a body over 8 MiB", status=self._status)

    def _decode(self, body: bytes, encoding: str) -> bytes:
        if encoding in {"identity", ""}:
            return body
        if encoding not in {"gzip", "deflate"}:
            raise UnreadableResponseError("a content-encoding that was not asked for", status=self._status)
        inflating = zlib.decompressobj(wbits=47)
        try:
            inflated = inflating.decompress(body, MAX_BODY + 1)
        except zlib.error:
            inflated = b""
        self._check(len(inflated))
        if not inflating.eof or inflating.unused_data:
            raise UnreadableResponseError(f"a body that is not the {encoding} it says", status=self._status)
        return inflated
