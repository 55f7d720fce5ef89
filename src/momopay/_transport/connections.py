"""One request over either client: through a connection of our own, or through a transport of the user's.

Each connection is an httpx transport over one `httpcore.HTTPConnection`, without a pool: the cost of httpcore's pool
grows with every idle connection that it holds, and a stack's does not.

Invariants:
- A connection carries one request at a time, for one thread or task.
- A connection goes back to the stack only after a whole response that no byte followed (`ends_cleanly`).
- A request with an effect never takes a connection from the stack. If a server hung up an idle connection just as a
  payment is written to it, that payment's outcome would be unknown. A failure to connect is certainly not sent.
- The connection of a request with an effect is aborted (RST), also by the kernel if the process dies, until `answered`
  says that a whole response came. So none of its bytes arrives later.
"""

from __future__ import annotations

import errno
import os
import ssl
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import deque
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import httpcore
import httpx

from momopay._fork import renew_in_child
from momopay._transport import attempt
from momopay._transport.attempt import TRANSPORT_ERRORS, Progress, RawResponse, ResponseReader, build_request
from momopay._transport.sockets import AttemptSocket, Stream, Tunnel
from momopay.errors import ConfigurationError
from momopay.urls import check_proxy_url

# How much of the timeout connecting may take. Less than all of it, so that a connection that was not made is reported
# as such before the attempt's own timer ends it.
_CONNECT_FRACTION: Final = 0.9
# Seconds. Common servers hang up on an idle connection after five.
KEEP_ALIVE: Final = 4.0


@dataclass(frozen=True)
class Route:
    """The options `verify` and `proxy`: whom TLS trusts, and through which proxy the service is reached."""

    tls: ssl.SSLContext | None = None
    proxy: tuple[str, int] | None = None  # host and port
    authorization: bytes | None = field(default=None, repr=False)  # for the proxy

    def tunnel(self, *, tls: bool) -> Tunnel | None:
        """Return what connects to the proxy, or None if there is none."""
        return None if self.proxy is None else Tunnel(*self.proxy, self.authorization, forwards=not tls)

    def prepare(self, request: httpx.Request) -> None:
        """Make a request without TLS one that a proxy passes on. With TLS, the tunnel needs no change."""
        if self.proxy is not None and request.url.scheme == "http":
            request.extensions["target"] = str(request.url).encode("ascii")
            if self.authorization is not None:
                request.headers["Proxy-Authorization"] = self.authorization.decode("ascii")


DIRECT: Final = Route()


def route_of(proxy: object, verify: object, transport: object) -> Route:
    """Return the route that these options describe.

    Raises:
        ConfigurationError: One of them is of another kind, or there is a transport, which connects by itself.
    """
    if transport is not None:
        raise ConfigurationError("proxy and verify are for the SDK's own connections; configure the transport instead")
    if verify is not None and not isinstance(verify, ssl.SSLContext):
        raise ConfigurationError("verify must be an ssl.SSLContext, such as ssl.create_default_context(cafile=...)")
    if proxy is None:
        return Route(verify)
    try:
        host, port, credentials = check_proxy_url(proxy)
    except ValueError as error:
        raise ConfigurationError(f"proxy {error}") from error
    authorization = None if credentials is None else b"Basic " + b64encode(credentials.encode())
    return Route(verify, (host, port), authorization)


def origin_of(request: httpx.Request) -> httpcore.Origin:
    """Return where the request goes."""
    url = request.url
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/").origin


def ends_cleanly(response: httpx.Response) -> bool:
    """Return whether a response came over a socket of ours, and no byte followed it."""
    stream = response.extensions.get("network_stream")  # none of ours, if a test tool answered in its place
    return isinstance(stream, Stream) and not stream.has_unread()


def tls_context(origin: httpcore.Origin, route: Route = DIRECT) -> ssl.SSLContext | None:
    """Return the TLS context that all connections of the process share, or the user's; None where none is needed."""
    if origin.scheme != b"https":
        return None
    return _shared_tls_context() if route.tls is None else route.tls


@cache  # it takes some 15 ms. A failure is not kept: once the file is corrected, the process need not start again
def _shared_tls_context() -> ssl.SSLContext:
    """Return a context with the CA certificates that httpx takes, or raise `ConfigurationError`."""
    name = next((each for each in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(each)), None)
    path = os.environ[name] if name else ""
    try:
        # OpenSSL would only look for each certificate in a folder that is not there, and trust no server.
        if name == "SSL_CERT_DIR" and not any(map(_is_readable_folder, path.split(os.pathsep))):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder that can be read")
        return httpx.create_ssl_context()
    except OSError as error:
        source = f"{name} names {path!r}, which" if name else "the file of certifi"
        reason = f"{source} cannot be read as CA certificates: {error}. Nothing was sent"
        raise ConfigurationError(reason) from error


def _is_readable_folder(path: str) -> bool:
    return Path(path).is_dir() and os.access(path, os.R_OK | os.X_OK)


class Connection:
    """What the connections of both clients have in common."""

    socket: AttemptSocket
    core: httpcore.HTTPConnection | httpcore.AsyncHTTPConnection

    def has_expired(self) -> bool:
        """Return whether it was idle for too long, or the server hung up."""
        return self.core.has_expired()


class IdleStack:
    """Idle connections, the last used on top.

    Any thread may call any method. The deque's operations are atomic, and whoever removed a connection from it owns
    that connection, so that `has_expired` is only asked of a connection that no other thread can use. The caller closes
    those that are returned as expired. In the child of a fork it is empty: the parent goes on using its sockets.
    """

    def __init__(self) -> None:
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        self._idle: deque[Connection] = deque()

    def pop(self) -> Connection | None:
        """Return the last used connection, or None if there is none. It may have expired meanwhile."""
        try:
            return self._idle.pop()
        except IndexError:  # empty, or another thread was faster
            return None

    def push(self, connection: Connection) -> list[Connection]:
        """Add a connection and return the oldest ones that have expired."""
        expired: list[Connection] = []
        for oldest in iter(self._remove_oldest, None):
            if not oldest.has_expired():
                self._idle.appendleft(oldest)
                break
            expired.append(oldest)
        self._idle.append(connection)
        return expired

    def drain(self) -> list[Connection]:
        return list(iter(self._remove_oldest, None))

    def _remove_oldest(self) -> Connection | None:
        try:
            return self._idle.popleft()
        except IndexError:  # empty, or another thread was faster
            return None


class BaseBackend(ABC):
    """What both backends do with a request. The blocking one never suspends."""

    is_async: ClassVar[bool]
    # Bounds the number of connections. In the blocking client, each of the user's threads has at most one.
    _slots: AbstractAsyncContextManager[object] = nullcontext()

    def __init__(self, transport: Any = None, route: Route = DIRECT) -> None:
        self._transport = transport
        self._route = route
        self._idle = IdleStack()  # all that requests share
        self.is_closed: bool = False

    @abstractmethod
    def _time_limit(self, seconds: float) -> AbstractContextManager[object]:
        """Return what ends an attempt whose time is over, as far as its socket does not."""

    @abstractmethod
    def _connect(self, origin: httpcore.Origin, progress: Progress | None) -> Connection:
        """Return a new connection, which opens its socket when it is used."""

    @abstractmethod
    async def _close(self, connection: Any) -> None:
        """Close a connection; an error in that must not replace a response."""

    async def send(
        self,
        method: str,
        url: str,
        headers: httpx.Headers,
        body: bytes | None,
        *,
        timeout: float,  # a bound on the attempt, not on this coroutine
        progress: Progress | None,
    ) -> RawResponse:
        """Make one attempt, or raise `NoResponseError` if it brings no whole response.

        `timeout` is in seconds from here to the last byte of the response. A blocking transport of the user's own keeps
        it for each of its network operations, and for the body as a whole. `progress` is given for a request that has
        an effect. It is kept up to date, and the request gets a connection of its own, which the server cannot have
        hung up.
        """
        if self.is_closed:
            raise ConfigurationError("this client is closed; make another. Nothing was sent")
        with self._time_limit(timeout):
            deadline = attempt.now() + timeout
            times = dict.fromkeys(("connect", "pool"), timeout * _CONNECT_FRACTION)
            if not self.is_async:  # whose time limit bounds reads and writes, for less than a timer of each
                times |= dict.fromkeys(("read", "write"), timeout)
            extensions: dict[str, Any] = {"timeout": times}
            if progress is not None:
                extensions["trace"] = progress.trace_async if self.is_async else progress.trace
                deadline = progress.until = min(progress.until, deadline)
            reader = ResponseReader(progress or Progress(), deadline)
            try:
                request = build_request(method, url, headers, body, extensions)
                if self._transport is not None:
                    await self._exchange(self._transport, request, reader)
                    return reader.finish()
                reader.progress.connecting = True
                async with self._slots:
                    connection = await self._connection_for(request, progress)
                    try:
                        connection.socket.deadline = deadline
                        reader.progress.knows_body = bool(request.content)
                        # The trace decides from here on. Without one (a test tool answers in place of the connection)
                        # it may be sent.
                        reader.progress.connecting = False
                        response = await self._exchange(connection, request, reader)
                        answer = reader.finish()
                    except BaseException:
                        await self._close(connection)
                        raise
                    await self._keep_or_close(connection, response, progress)
                    return answer
            except TRANSPORT_ERRORS as error:
                if error is reader.progress.refusal:
                    raise
                raise reader.failure(error) from error
        raise reader.timed_out()

    async def _connection_for(self, request: httpx.Request, progress: Progress | None) -> Connection:
        self._route.prepare(request)
        connection = self._idle.pop() if progress is None else None
        if connection is not None and connection.has_expired():
            await self._close(connection)
            connection = None
        return connection or self._connect(origin_of(request), progress)

    async def _exchange(self, transport: Any, request: httpx.Request, reader: ResponseReader) -> httpx.Response:
        """Send a request, and read its response to the end."""
        if not self.is_async:
            response: httpx.Response = transport.handle_request(request)
            try:
                if not reader.start(response):
                    for chunk in cast("httpx.SyncByteStream", response.stream):
                        reader.feed(chunk)
            finally:
                response.close()
            return response
        response = await transport.handle_async_request(request)
        try:
            if not reader.start(response):
                async for chunk in cast("httpx.AsyncByteStream", response.stream):
                    reader.feed(chunk)
        finally:
            await response.aclose()
        return response

    async def _keep_or_close(self, connection: Connection, response: httpx.Response, progress: Progress | None) -> None:
        unused = [connection]
        if progress is not None:
            connection.socket.answered()
        elif connection.core.is_idle() and ends_cleanly(response) and not self.is_closed:
            unused = self._idle.push(connection)
        for each in unused:
            await self._close(each)
