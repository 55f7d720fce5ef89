"""One request of either client, over a connection of our own or over the user's transport.

Each connection is an httpx transport over one `httpcore.HTTPConnection`. Idle ones are kept on a stack and not in
httpcore's pool, whose cost for each request grows with its idle connections.

Invariants:
- A connection carries one request at a time, for one thread or task.
- A connection goes back to the stack only after a complete response that no byte followed.
- A request with an effect never uses an idle connection. If the server closed it just as a payment was written to it,
  the payment's outcome would be unknown. A failure to connect is certainly not sent.
- The connection of a request with an effect is aborted (RST), also by the kernel if the process dies, unless `answered`
  was called after a complete response. So none of its bytes arrives later.
"""

from __future__ import annotations

import errno
import os
import ssl
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from momopay._fork import renew_in_child
from momopay._transport import attempt
from momopay._transport.attempt import Progress, RawResponse, ResponseReader, build_request
from momopay._transport.library import attempt_errors, core, http, library_of
from momopay._transport.sockets import DIRECT, AttemptSocket, Route
from momopay.errors import ConfigurationError
from momopay.urls import check_proxy_url

# The fraction of the timeout for connecting. Below 1, so that its failure is reported before the attempt times out.
_CONNECT_FRACTION: Final = 0.9
KEEP_ALIVE: Final = 4.0  # seconds; common servers close an idle connection after five


def route_of(proxy: object, verify: object, transport: object) -> Route:
    """Return the route that these options describe. A transport makes its own connections, so it excludes them."""
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


@cache  # loading takes some 15 ms. An exception is not cached: a corrected file needs no new process
def shared_tls_context() -> ssl.SSLContext:
    """Return a context with the CA certificates that httpx uses, or raise `ConfigurationError`."""
    name = next((each for each in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(each)), None)
    path = os.environ[name] if name else ""
    try:
        # OpenSSL would accept a folder that does not exist, and then trust no server.
        if name == "SSL_CERT_DIR" and not any(map(_is_readable_folder, path.split(os.pathsep))):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder that can be read")
        return http.create_ssl_context()
    except OSError as error:
        source = f"{name} names {path!r}, which" if name else "the file of certifi"
        problem = f"{source} cannot be read as CA certificates"
        if error.filename and error.filename == os.environ.get("SSLKEYLOGFILE"):  # Python opens it for every context
            problem = f"SSLKEYLOGFILE names {error.filename!r}, which cannot be written"
        raise ConfigurationError(f"{problem}: {error}. Nothing was sent") from error


def _is_readable_folder(path: str) -> bool:
    return Path(path).is_dir() and os.access(path, os.R_OK | os.X_OK)


class Connection:
    """The base class of both clients' connections.

    They are httpx transports, so that tools which patch `httpx.HTTPTransport.handle_request` (pytest-httpx, vcrpy) see
    our requests. httpx has no public way to replace what a transport sends through, so `_pool` is set here: the only
    private attribute of another library that this package uses.
    """

    _socket_class: ClassVar[Any]
    _core_class: ClassVar[Any]

    def __init__(self, origin: core.Origin, progress: Progress | None = None, route: Route = DIRECT) -> None:
        tls = None if origin.scheme == b"http" else route.tls or shared_tls_context()
        self.socket: AttemptSocket = self._socket_class(progress, route, tls=tls is not None)
        self.core: Any = self._core_class(origin, tls, KEEP_ALIVE, network_backend=self.socket)
        self._pool: Any = self.core

    def has_expired(self) -> bool:
        """Return whether the connection was idle for too long or the server closed it."""
        expired: bool = self.core.has_expired()
        return expired

    def can_be_kept(self, response: http.Response) -> bool:
        """Return whether the connection may carry another request: this response is complete and no byte followed."""
        # The response is not from our socket if a test tool answered.
        is_own = response.extensions.get("network_stream") is self.socket
        return is_own and self.core.is_idle() and not self.socket.has_unread()


class IdleStack:
    """Idle connections, the last used on top.

    Any thread may call any method. The deque's operations are atomic, and the thread that removes a connection owns it,
    so `has_expired` is only called on a connection that no other thread can use. A forked child begins with an empty
    stack, because its parent goes on using the sockets.
    """

    def __init__(self) -> None:
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        self._idle: deque[Connection] = deque()

    def pop(self) -> Connection | None:
        """Return the last used connection, which may have expired, or None if there is none."""
        try:
            return self._idle.pop()
        except IndexError:  # empty, or another thread was faster
            return None

    def push(self, connection: Connection) -> list[Connection]:
        """Add a connection. Return the oldest ones that have expired, for the caller to close."""
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
    _connection_class: ClassVar[type[Connection]]
    # Bounds the number of connections. Those of a blocking client are bounded by the user's threads.
    _slots: AbstractAsyncContextManager[object] = nullcontext()

    def __init__(self, transport: Any = None, route: Route = DIRECT) -> None:
        self._transport = transport
        self._library = library_of(transport)
        self._route = route
        self._idle = IdleStack()  # all that requests share
        self.is_closed: bool = False

    now: Callable[[], float] = staticmethod(attempt.now)

    @abstractmethod
    def _time_limit(self, seconds: float) -> AbstractContextManager[object]:
        """Return a context that ends an attempt after so many seconds, unless its socket does that."""

    @abstractmethod
    async def _close(self, connection: Any) -> None:
        """Close a connection and ignore errors, which must not replace a response."""

    async def send(
        self,
        method: str,
        url: str,
        headers: http.Headers,
        body: bytes | None,
        *,
        timeout: float,
        progress: Progress | None,
    ) -> RawResponse:
        """Make one attempt, or raise `NoResponseError` if it brings no complete response.

        `timeout` is in seconds from here to the last byte of the response. A user's blocking transport applies it to
        each of its network operations, and to the body as a whole. A request with an effect has a `progress`, which is
        kept up to date, and gets a new connection, which the server cannot have closed.
        """
        if self.is_closed:
            raise ConfigurationError("this client is closed; make another. Nothing was sent")
        with self._time_limit(timeout):
            deadline = attempt.now() + timeout
            times = dict.fromkeys(("connect", "pool"), timeout * _CONNECT_FRACTION)
            if not self.is_async:  # on an event loop, the time limit is cheaper than a timer for each read and write
                times |= dict.fromkeys(("read", "write"), timeout)
            extensions: dict[str, Any] = {"timeout": times}
            if progress is not None:
                deadline = progress.until = min(progress.until, deadline)
                if self._transport is not None:
                    extensions["trace"] = progress.trace_async if self.is_async else progress.trace
            reader = ResponseReader(progress or Progress(), deadline)
            try:
                request = build_request(method, url, headers, body, extensions, self._library)
                if self._transport is not None:
                    await self._exchange(self._transport, request, reader)
                    return reader.finish()
                reader.progress.connecting = True
                async with self._slots:
                    connection = await self._connection_for(request, progress)
                    try:
                        connection.socket.deadline = deadline
                        reader.progress.knows_body = bool(request.content)
                        # From here on the socket decides. Without it, as with some test tools, it may be sent.
                        reader.progress.connecting = False
                        response = await self._exchange(connection, request, reader)
                        answer = reader.finish()
                    except BaseException:
                        await self._close(connection)
                        raise
                    await self._keep_or_close(connection, response, progress)
                    return answer
            except attempt_errors() as error:
                if error is reader.progress.refusal:
                    raise
                raise reader.failure(error, url) from error
        raise reader.timed_out()

    async def _connection_for(self, request: http.Request, progress: Progress | None) -> Connection:
        url, route = request.url, self._route
        if route.proxy is not None and url.scheme == "http":  # a request with TLS goes through the tunnel as it is
            request.extensions["target"] = str(url).encode("ascii")
            if route.authorization is not None:
                request.headers["Proxy-Authorization"] = route.authorization.decode("ascii")
        connection = self._idle.pop() if progress is None else None
        if connection is not None:
            if not connection.has_expired():
                return connection
            await self._close(connection)
        origin = core.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/").origin
        return self._connection_class(origin, progress, route)

    async def _exchange(self, transport: Any, request: http.Request, reader: ResponseReader) -> http.Response:
        if not self.is_async:
            response: http.Response = transport.handle_request(request)
            try:
                if not reader.start(response):
                    for chunk in cast("http.SyncByteStream", response.stream):
                        reader.feed(chunk)
            finally:
                response.close()
            return response
        response = await transport.handle_async_request(request)
        try:
            if not reader.start(response):
                async for chunk in cast("http.AsyncByteStream", response.stream):
                    reader.feed(chunk)
        finally:
            await response.aclose()
        return response

    async def _keep_or_close(self, connection: Connection, response: http.Response, progress: Progress | None) -> None:
        unused = [connection]
        if progress is not None:
            connection.socket.answered()
        elif connection.can_be_kept(response) and not self.is_closed:
            unused = self._idle.push(connection)
        for each in unused:
            await self._close(each)
