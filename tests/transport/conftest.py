"""A server of a test, and the ways to it: over TCP or TLS, and past a proxy that forwards or opens a tunnel."""

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wire
from hostile.tls import own_certificate
from momopay._transport.async_backend import AsyncSocket
from momopay._transport.sync_backend import SyncSocket
from transport.proxy import Proxy, proxying


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that nobody trusts unless it is told to."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return own_certificate(tmp_path, monkeypatch)


@pytest.fixture
def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.parent / "certificate"))


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with proxying() as proxy:
        yield proxy


@dataclass
class Way:
    """A server, and the options of a client that reaches it."""

    server: wire.Server
    options: dict[str, Any]
    ends: list[str]
    """How each connection of the client ended."""


@pytest.fixture(params=["tcp", "tls", "forwarded", "tunnel"])
def way(request: pytest.FixtureRequest, proxy: Proxy, certificate: Path, trusting: ssl.SSLContext) -> Iterator[Way]:
    is_direct, is_tls = request.param in {"tcp", "tls"}, request.param in {"tls", "tunnel"}
    with wire.serve(wire.succeeds(), certificate=certificate if is_tls else None) as server:
        options: dict[str, Any] = {"base_url": server.base_url, "verify": trusting}
        options |= {} if is_direct else {"proxy": proxy.url}
        yield Way(server, options, server.ends if is_direct else proxy.ends)


@pytest.fixture
def stands_still(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Do something before the n-th write of each connection."""

    def before(number: int, act: Callable[[], None]) -> None:
        counts = dict[object, int]()
        write, write_async = SyncSocket.write, AsyncSocket.write

        def count(stream: object, data: bytes) -> None:
            if data:
                counts[stream] = counts.get(stream, 0) + 1
                if counts[stream] == number:
                    act()

        def counted(self: SyncSocket, buffer: bytes, timeout: float | None = None) -> None:
            count(self, buffer)
            write(self, buffer, timeout)

        async def counted_async(self: AsyncSocket, buffer: bytes, timeout: float | None = None) -> None:
            count(self, buffer)
            await write_async(self, buffer, timeout)

        monkeypatch.setattr(SyncSocket, "write", counted)
        monkeypatch.setattr(AsyncSocket, "write", counted_async)

    return before
