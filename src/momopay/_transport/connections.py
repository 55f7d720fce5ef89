"""Our own connections to the service, and the stack on which they wait between requests.

Each is an httpx transport over one `httpcore.HTTPConnection`, without a pool: the cost of httpcore's pool grows with
every idle connection that it holds, and a stack's does not.

Invariants:
- A connection carries one request at a time, for one thread or task.
- A connection goes back to the stack only after a whole response that no byte followed (`is_reusable`).
- A request with an effect never takes a connection from the stack. If a server hung up an idle connection just as a
  payment is written to it, that payment's outcome would be unknown. A failure to connect is certainly not sent.
- The connection of a request with an effect is aborted (RST), also by the kernel if the process dies, until `answered`
  says that a whole response came. So none of its bytes arrives later.
"""

from __future__ import annotations

import errno
import os
import ssl
from base64 import b64encode
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, Generic, TypeVar

import httpcore
import httpx

from momopay._fork import renew_in_child
from momopay._transport.attempt import Progress
from momopay._transport.network import (
    AsyncNetwork,
    AsyncStream,
    SyncNetwork,
    SyncStream,
    Tunnel,
    wait_blocking,
    wait_suspended,
)
from momopay._transport.sockets import AttemptSocket
from momopay.errors import ConfigurationError
from momopay.urls import check_proxy_url

MAX_CONNECTIONS: Final = 100
# Seconds. Common servers hang up on an idle connection after five.
KEEP_ALIVE: Final = 4.0


@dataclass(frozen=True)
class Route:
    """The options `verify` and `proxy`: whom TLS trusts, and through which proxy the service is reached."""

    tls: ssl.SSLContext | None = None
    proxy: tuple[str, int] | None = None  # host and port
    authorization: bytes | None = field(default=None, repr=False)  # for the proxy

    def tunnel_to(self, origin: httpcore.Origin) -> Tunnel | None:
        """Return what connects to the proxy, or None if there is none."""
        if self.proxy is None:
            return None
        return Tunnel(*self.proxy, self.authorization, forwards=origin.scheme == b"http")

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


class SyncConnection(httpx.HTTPTransport):
    """A blocking connection."""

    # It is httpx's transport so that what replaces `httpx.HTTPTransport.handle_request` (pytest-httpx, vcrpy) also sees
    # our requests. httpx has no public way to give its transport a network of our own, so `_pool`, through which it
    # sends, is set here. It is the one private attribute of another library that this package touches.

    def __init__(self, origin: httpcore.Origin, progress: Progress | None = None, route: Route = DIRECT) -> None:
        self.socket = AttemptSocket(wait_blocking, progress)
        network = SyncNetwork(self.socket, route.tunnel_to(origin))
        tls = tls_context(origin, route)
        self.core = httpcore.HTTPConnection(origin, tls, KEEP_ALIVE, network_backend=network)
        self._pool = self.core  # type: ignore[assignment]

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.socket.close()

    def has_expired(self) -> bool:
        """Return whether it was idle for too long, or the server hung up."""
        return self.core.has_expired()


class AsyncConnection(httpx.AsyncHTTPTransport):
    """An asynchronous connection; see `SyncConnection`."""

    def __init__(self, origin: httpcore.Origin, progress: Progress | None = None, route: Route = DIRECT) -> None:
        self.socket = AttemptSocket(wait_suspended, progress)
        network = AsyncNetwork(self.socket, route.tunnel_to(origin))
        tls = tls_context(origin, route)
        self.core = httpcore.AsyncHTTPConnection(origin, tls, KEEP_ALIVE, network_backend=network)
        self._pool = self.core  # type: ignore[assignment]

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            self.socket.close()

    def has_expired(self) -> bool:
        return self.core.has_expired()


def origin_of(request: httpx.Request) -> httpcore.Origin:
    """Return where the request goes."""
    url = request.url
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/").origin


def is_reusable(connection: SyncConnection | AsyncConnection, response: httpx.Response) -> bool:
    """Return whether the response has ended where the data did, and the server keeps the connection open."""
    stream = response.extensions.get("network_stream")
    if not isinstance(stream, SyncStream | AsyncStream):
        return False  # a test tool answered in place of the connection
    return connection.core.is_idle() and not stream.has_unread()


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


ConnectionT = TypeVar("ConnectionT", SyncConnection, AsyncConnection)


class IdleStack(Generic[ConnectionT]):
    """Idle connections, the last used on top.

    Any thread may call any method. The deque's operations are atomic, and whoever removed a connection from it owns
    that connection, so that `has_expired` is only asked of a connection that no other thread can use. The caller closes
    those that are returned as expired. In the child of a fork it is empty: the parent goes on using its sockets.
    """

    def __init__(self) -> None:
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        self._idle: deque[ConnectionT] = deque()

    def pop(self) -> ConnectionT | None:
        """Return the last used connection, or None if there is none. It may have expired meanwhile."""
        try:
            return self._idle.pop()
        except IndexError:  # empty, or another thread was faster
            return None

    def push(self, connection: ConnectionT) -> list[ConnectionT]:
        """Add a connection and return the oldest ones that have expired."""
        expired: list[ConnectionT] = []
        for oldest in iter(self._remove_oldest, None):
            if not oldest.has_expired():
                self._idle.appendleft(oldest)
                break
            expired.append(oldest)
        self._idle.append(connection)
        return expired

    def drain(self) -> list[ConnectionT]:
        """Remove and return every connection."""
        return list(iter(self._remove_oldest, None))

    def _remove_oldest(self) -> ConnectionT | None:
        try:
            return self._idle.popleft()
        except IndexError:  # empty, or another thread was faster
            return None
