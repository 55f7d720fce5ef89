"""One attempt: its clock, request and progress, and the complete response or the reason why there is none."""

from __future__ import annotations

import socket
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from momopay._transport import clock
from momopay._transport.library import core, http, not_sent_by_core, not_sent_by_http

T = TypeVar("T")
Headers = http.Headers

_TOO_LATE: Final = "the timeout was over before the request was written"
MAX_BODY: Final = 8 * 1024 * 1024  # bytes
# Objects and arrays in a body, each of which takes some hundred bytes once parsed. A full page of a list has 102.
MAX_PARTS: Final = 200_000
_MIN_SIZE_TO_COUNT: Final = 2 * MAX_PARTS  # bytes

# What the operating system raises when there is no connection.
_SYSTEM_NOT_SENT: Final = (ConnectionRefusedError, socket.gaierror)

# The events of httpcore's trace that show how far a request has come.
_FOLLOWED: Final = ("connect_tcp.started", "send_request_headers.started", "send_request_body.started")

now: Final = clock.now


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of a blocking client, which never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking call tried to suspend")


class RawResponse(NamedTuple):
    """A complete response. The body is decompressed."""

    status: int
    headers: http.Headers
    body: bytes


class NoResponseError(Exception):
    """An attempt brought no complete response."""

    def __init__(self, reason: str, *, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status  # the HTTP status, if the response began


class NotSentError(NoResponseError):
    """The request cannot execute: none of it was written, or none of its body."""


class NoReplyError(NoResponseError):
    """The request was sent, or may have been."""

    def __init__(self, reason: str, *, status: int | None = None, partial: bytes = b"") -> None:
        super().__init__(reason, status=status)
        self.partial = partial  # the part of the response's body that arrived


class UnreadableResponseError(NoResponseError):
    """The body of a response is refused: too large, too many parts, or an encoding that was not asked for."""


def common_headers(base_url: str, headers: Mapping[str, str]) -> http.Headers:
    """Return the headers of all requests to one service."""
    return http.Headers({"Host": http.URL(base_url).netloc.decode("ascii"), **headers})


def build_request(
    method: str,
    url: str,
    headers: http.Headers,
    body: bytes | None,
    extensions: dict[str, Any],
    library: Any = http,
) -> http.Request:
    """Return a request of a library, or raise `NotSentError` if the URL is longer than it accepts."""
    # From prepared headers and a cached URL, which httpx would parse and sort for each request.
    raw = headers.raw
    if body is not None:
        raw = [*raw, (b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
    stream = library.ByteStream(body or b"")
    request: http.Request = library.Request(
        method, _parsed_url(url, library), headers=raw, stream=stream, extensions=extensions
    )
    request.read()  # transports of httpx, and mocks, expect that the content is loaded
    return request


@lru_cache(maxsize=256)
def _parsed_url(url: str, library: Any) -> http.URL:
    try:
        parsed: http.URL = library.URL(url)
    except library.InvalidURL as error:
        raise NotSentError(str(error)) from error
    return parsed


class Progress:
    """How far a request with an effect has come. What is not known counts as sent.

    Our own sockets set it. Over a user's transport it follows httpcore's "trace" extension, if the transport passes it
    on. No byte of the body may be written at or after `until`, a time of the backend's clock.
    """

    connecting: bool = False  # whether it is certain that nothing has been written yet
    sending: bool = False  # whether httpcore has begun to write; never reset
    knows_body: bool = False  # whether there is a body, on a connection of our own: only there is every write known
    in_body: bool = False  # whether the head was written
    sending_body: bool = False  # whether a byte of the body may have been written
    # Awaited between the head and the body. An exception from it ends the attempt, and is kept in `refusal`.
    before_body: Callable[[], Coroutine[Any, Any, object]] | None = None
    refusal: BaseException | None = None
    until: float = inf

    @property
    def is_unsent(self) -> bool:
        """Whether it is certain that the request cannot execute: none of it, or none of its body, was written."""
        # The head announces the body's length. A server without the body knows neither amount nor phone.
        return self.connecting or (self.knows_body and self.sending and not self.sending_body)

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Receive the events of a sync transport."""
        if event.endswith(_FOLLOWED):
            run_blocking(self._follow(event, info))

    async def trace_async(self, event: str, info: dict[str, Any]) -> None:
        """Receive the events of an async transport."""
        if event.endswith(_FOLLOWED):
            await self._follow(event, info)

    async def _follow(self, event: str, info: dict[str, Any]) -> None:
        if getattr(info.get("request"), "method", None) == b"CONNECT":
            return  # opening a proxy's tunnel is a part of connecting
        if event == "connection.connect_tcp.started":
            # A transport may open another connection after it has sent the request.
            self.connecting = not self.sending
        elif event.endswith("send_request_headers.started"):
            self.connecting = False
            self.sending = True
        elif event.endswith("send_request_body.started"):
            await self.begin_body()

    async def begin_body(self) -> None:
        """Allow the body to be written, or raise."""
        try:
            if self.before_body is not None:
                await self.before_body()
        except BaseException as error:
            self.refusal = error
            raise
        if now() >= self.until:
            raise core.WriteTimeout(_TOO_LATE)
        self.in_body = True


class ResponseReader:
    """Reads the response to one attempt chunk by chunk, or returns how the attempt failed."""

    def __init__(self, progress: Progress, deadline: float = inf) -> None:
        self.progress = progress
        self._deadline = deadline
        self._status: int | None = None
        self._headers = http.Headers()
        # Not a list, which would hold an object for each chunk, even for chunks of one byte.
        self._body = bytearray()
        self._is_decoded = False

    def start(self, response: http.Response) -> bool:
        """Take the response's head, and its body if the transport has read it already; return whether it has.

        Raises `StreamError` if the transport has consumed the body without keeping it, or closed the response.
        """
        self._status = response.status_code
        self._headers = response.headers
        # The stream of a consumed response is at its end, and httpcore's would block for ever.
        if response.is_stream_consumed:
            self._is_decoded = True  # by httpx
            self._body += response.content
            return True
        if response.is_closed:
            raise http.StreamClosed
        return False

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk of the body. Raise `NoResponseError` if the body is too large or too late."""
        self._body += chunk
        if len(self._body) > MAX_BODY:
            raise self._too_large()
        # One network read may bring many chunks, between which no timer fires.
        if now() > self._deadline:
            raise self.timed_out()

    def failure(self, error: Exception, url: str) -> NoResponseError:
        """Return the failure of an attempt at this URL in which the transport raised this error."""
        reason = f"{type(error).__name__}: {error}"
        progress = self.progress
        # A transport may send the request and then fail to open another connection.
        if progress.is_unsent or (not progress.sending and _is_not_sent(error, url)):
            return NotSentError(reason)
        return self.incomplete(reason)

    def timed_out(self) -> NoResponseError:
        """Return the failure of an attempt that took too long."""
        if self.progress.is_unsent:
            return NotSentError("no connection within the timeout" if self.progress.connecting else _TOO_LATE)
        return self.incomplete("no whole response within the timeout")

    def incomplete(self, reason: str) -> NoReplyError:
        """Return the failure of an attempt whose response broke off."""
        return NoReplyError(reason, status=self._status, partial=bytes(self._body))

    def finish(self) -> RawResponse:
        """Return the complete response, or raise `UnreadableResponseError`."""
        body = bytes(self._body)
        encoding = "" if self._is_decoded else self._headers.get("content-encoding", "").strip().lower()
        if encoding not in {"", "identity"}:
            body = self._decode(body, encoding)
        if len(body) > MAX_BODY:  # a transport may have read it whole
            raise self._too_large()
        body = body.removeprefix(BOM_UTF8)
        if len(body) > _MIN_SIZE_TO_COUNT and body.count(b"{") + body.count(b"[") > MAX_PARTS:
            raise UnreadableResponseError("a body of too many parts", status=self._status)
        return RawResponse(self._status or 0, self._headers, body)

    def _too_large(self) -> UnreadableResponseError:
        return UnreadableResponseError("a body over 8 MiB", status=self._status)

    def _decode(self, body: bytes, encoding: str) -> bytes:
        if encoding not in {"gzip", "deflate"}:
            raise UnreadableResponseError("a content-encoding that was not asked for", status=self._status)
        decompressor = zlib.decompressobj(wbits=47)  # either format, by its header
        try:
            # One byte over the limit is enough to know that a compressed bomb is over it.
            decoded = decompressor.decompress(body, MAX_BODY + 1)
        except zlib.error:
            decoded = b""
        if len(decoded) > MAX_BODY:
            raise self._too_large()
        if not decompressor.eof or decompressor.unused_data:
            raise UnreadableResponseError(f"a body that is not the {encoding} that it claims", status=self._status)
        return decoded


def _is_not_sent(error: Any, url: str) -> bool:
    """Return whether an error proves that nothing was sent."""
    if isinstance(error, not_sent_by_core()):
        return True
    if not isinstance(error, not_sent_by_http()):
        return False
    with suppress(RuntimeError):  # the error knows no request
        if error.request.url != url:
            return False  # a transport may make other requests after it has sent this one
    # httpx's errors prove it only if httpcore, the operating system or the transport itself raised them. httpx-aiohttp
    # raises ConnectTimeout even for a server that hung up after it had read the whole request.
    causes = list(_causes(error))
    return not causes or isinstance(causes[0], not_sent_by_core()) or isinstance(causes[-1], _SYSTEM_NOT_SENT)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__
