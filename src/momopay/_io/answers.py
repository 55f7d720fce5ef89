"""What an attempt brings back: a whole answer, or the reason why there is none."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import httpx

from momopay.errors import ConfigurationError

MAX_BODY = 8 * 1024 * 1024

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class Answer(NamedTuple):
    """A whole answer, as bytes."""

    status: int
    headers: httpx.Headers
    body: bytes


class NoAnswerError(Exception):
    """An attempt that brought no whole answer; says so without the request, hence without key or phone."""


class NotSentError(NoAnswerError):
    """The request surely did not reach the service."""


class NoReplyError(NoAnswerError):
    """The request was sent, or may have been; `partial` is what came back of the body."""

    def __init__(self, reason: str, partial: bytes = b"") -> None:
        super().__init__(reason)
        self.partial = partial


class UnreadableError(NoAnswerError):
    """An answer came, and its body is refused: too large, or in an encoding that was not asked for."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


def check_open(closed: bool) -> None:
    """Refuse to send on a closed port."""
    if closed:
        raise ConfigurationError("this client is closed; make another. Nothing was sent")


class Body:
    """An answer's body as it comes in, chunk by chunk, never more than `MAX_BODY`."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes, response: httpx.Response) -> None:
        """Take one more chunk, or refuse the body as too large."""
        self.chunks.append(chunk)
        self._size += len(chunk)
        _check_size(self._size, response)

    def failed(self, error: Exception) -> NoAnswerError:
        """Say what became of an attempt that the transport gave up."""
        reason = f"{type(error).__name__}: {error}"
        return NotSentError(reason) if isinstance(error, _NOT_SENT) else self.cut(reason)

    def cut(self, reason: str) -> NoReplyError:
        """Say that no more of the body will come."""
        return NoReplyError(reason, b"".join(self.chunks))

    def answer(self, response: httpx.Response) -> Answer:
        """Join the body; undo gzip and deflate, which were not asked for, within the same bound."""
        body = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
        encoding = response.headers.get("content-encoding")
        if encoding is not None:
            body = _decode(body, encoding.strip().lower(), response)
        return Answer(response.status_code, response.headers, body)


def _decode(body: bytes, encoding: str, response: httpx.Response) -> bytes:
    if encoding in {"identity", ""}:
        return body
    if encoding not in {"gzip", "deflate"}:
        raise UnreadableError("a content-encoding that was not asked for", response.status_code)
    try:
        body = zlib.decompressobj(wbits=47).decompress(body, MAX_BODY + 1)
    except zlib.error:
        raise UnreadableError(f"a body that is not the {encoding} it says", response.status_code) from None
    _check_size(len(body), response)
    return body


def _check_size(size: int, response: httpx.Response) -> None:
    if size > MAX_BODY:
        raise UnreadableError("a body over 8 MiB", response.status_code)
