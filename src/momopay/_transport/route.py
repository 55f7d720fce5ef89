"""How our own connections reach the service: through which proxy, and whom TLS trusts.

A tunnel is opened below httpcore, as a part of connecting. So a proxy that refuses it is a connection that was not
made: nothing was sent, for every kind of request. The fence holds up to the proxy: what it has taken, it may pass on
later.
"""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final

import httpcore
import httpx

from momopay._transport.sockets import AttemptSocket
from momopay.errors import ConfigurationError
from momopay.urls import ProxyAddress, check_proxy_url

_MAX_HEAD: Final = 16 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")


@dataclass(frozen=True)
class Route:
    """The options `verify` and `proxy`."""

    tls: ssl.SSLContext | None = None
    proxy: ProxyAddress | None = None
    authorization: bytes | None = field(default=None, repr=False)  # for the proxy

    def tunnel_to(self, origin: httpcore.Origin, proxy_tls: ssl.SSLContext | None) -> Tunnel | None:
        """Return what connects to the proxy, or None if there is none. `proxy_tls` is for a proxy under TLS."""
        if self.proxy is None:
            return None
        return Tunnel(self.proxy, proxy_tls, self.authorization, forwards=origin.scheme == b"http")

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
        address = check_proxy_url(proxy)
    except ValueError as error:
        raise ConfigurationError(f"proxy {error}") from error
    credentials = address.credentials
    authorization = None if credentials is None else b"Basic " + b64encode(credentials.encode())
    return Route(verify, address, authorization)


@dataclass(frozen=True)
class Tunnel:
    """A connection to a proxy, and through it."""

    proxy: ProxyAddress
    tls: ssl.SSLContext | None
    authorization: bytes | None = field(repr=False)
    forwards: bool  # the proxy reads each request, so there is nothing to open

    async def open(self, sock: AttemptSocket, host: str, port: int) -> None:
        """Have the proxy connect to the service, or raise httpcore's ConnectError or ConnectTimeout."""
        try:
            if self.tls is not None:
                await sock.start_tls(self.tls, self.proxy.host)
            if not self.forwards:
                await sock.send(self._connect_request(host, port))
                await _read_answer(sock)
        except httpcore.TimeoutException as error:
            raise httpcore.ConnectTimeout("the proxy opened no tunnel within the timeout") from error
        except httpcore.NetworkError as error:
            raise httpcore.ConnectError(f"the proxy opened no tunnel: {error}") from error

    def _connect_request(self, host: str, port: int) -> bytes:
        target = (f"[{host}]" if ":" in host else host).encode("ascii") + b":%d" % port
        lines = [b"CONNECT %b HTTP/1.1" % target, b"Host: " + target]
        if self.authorization is not None:
            lines.append(b"Proxy-Authorization: " + self.authorization)
        return b"\r\n".join([*lines, b"", b""])


async def _read_answer(sock: AttemptSocket) -> None:
    """Read the proxy's answer, or raise `httpcore.ConnectError` if it is no success."""
    head = bytearray()
    while b"\r\n\r\n" not in head:
        data = await sock.receive(_MAX_HEAD)
        head += data
        if not data or len(head) > _MAX_HEAD:
            raise httpcore.ConnectError("it gave no answer of HTTP/1.1")
    status = _STATUS.match(head)
    if status is None or not status[1].startswith(b"2"):
        raise httpcore.ConnectError(f"it answered with status {status[1].decode() if status else 'unknown'}")
    if not head.endswith(b"\r\n\r\n") or head.count(b"\r\n\r\n") > 1:
        # In TLS the service speaks second. What came with the answer would be taken for its first bytes.
        raise httpcore.ConnectError("it sent more than its answer")
