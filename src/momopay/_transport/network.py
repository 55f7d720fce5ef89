"""How httpcore uses our sockets: connecting, also through a proxy, and streams that notice bytes behind a response.

httpcore keeps bytes that follow a response in its parser and would take them for the response to the next request: one
payment's success would be returned for another payment. `has_unread` finds them.

httpcore's own timeouts, which bound each read by itself, are ignored: a server that drips one byte at a time would
outlast any of them. The deadline of the `AttemptSocket` bounds the attempt as a whole.

A proxy's tunnel is opened below httpcore, as a part of connecting. So a proxy that refuses it is a connection that was
not made: nothing was sent, for every kind of request. The fence holds up to the proxy: what it has taken, it may pass
on later.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from queue import Empty, SimpleQueue
from typing import Any, Final

import anyio
import anyio.lowlevel
import httpcore

from momopay._transport.blocking import run_blocking
from momopay._transport.sockets import AttemptSocket, poll

# Seconds by which one address of a name is ahead of the next, as RFC 8305 recommends.
_HEAD_START: Final = 0.25
_MAX_HEAD: Final = 16 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")


@dataclass(frozen=True)
class Tunnel:
    """A connection to a proxy, and through it."""

    host: str
    port: int
    authorization: bytes | None = field(repr=False)
    forwards: bool  # the proxy reads each request, so there is nothing to open

    async def open(self, sock: AttemptSocket, host: str, port: int) -> None:
        """Have the proxy connect to the service, or raise httpcore's ConnectError or ConnectTimeout."""
        if self.forwards:
            return
        target = (f"[{host}]" if ":" in host else host).encode("ascii") + b":%d" % port
        lines = [b"CONNECT %b HTTP/1.1" % target, b"Host: " + target]
        if self.authorization is not None:
            lines.append(b"Proxy-Authorization: " + self.authorization)
        try:
            await sock.send(b"\r\n".join([*lines, b"", b""]))
            await self._read_answer(sock)
        except httpcore.TimeoutException as error:
            raise httpcore.ConnectTimeout("the proxy opened no tunnel within the timeout") from error
        except httpcore.NetworkError as error:
            raise httpcore.ConnectError(f"the proxy opened no tunnel: {error}") from error

    async def _read_answer(self, sock: AttemptSocket) -> None:
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


class _Stream:
    """What both streams have in common. The last byte of each read is kept back for the next one."""

    # httpcore reads only while its response is incomplete. So it asks for the kept byte if the response ends with it or
    # later, and leaves it if the response ended before. This holds for every framing, and parses none.

    def __init__(self, sock: AttemptSocket) -> None:
        self._socket = sock
        self._kept: bytes = b""

    def _take_kept(self) -> bytes:
        data, self._kept = self._kept, b""
        return data

    def _keep_last(self, data: bytes) -> bytes:
        if len(data) > 1:  # a single byte is passed on at once, because b"" means the end of the stream
            self._kept = data[-1:]
            return data[:-1]
        return data

    def has_unread(self) -> bool:
        """Return whether data followed the response."""
        return bool(self._kept)

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore's streams know: "is_readable", "socket", "ssl_object", "client_addr", "server_addr"."""
        if info == "is_readable":
            return self._socket.is_readable()
        sock = self._socket.raw
        if info == "ssl_object":
            return sock if isinstance(sock, ssl.SSLSocket) else None
        if info in {"client_addr", "server_addr"}:
            return sock.getsockname() if info == "client_addr" else sock.getpeername()
        return sock if info == "socket" else None


class SyncStream(_Stream, httpcore.NetworkStream):
    """A connected blocking socket, under TLS or without."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._take_kept() or self._keep_last(run_blocking(self._socket.receive(max_bytes)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        run_blocking(self._socket.send(buffer))

    def close(self) -> None:
        self._socket.response_ended()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        run_blocking(self._socket.start_tls(ssl_context, server_hostname))
        return self


class SyncNetwork(httpcore.SyncBackend):
    """Opens blocking sockets. One deadline covers all addresses of a name; the system's call gives each its own."""

    def __init__(self, sock: AttemptSocket, tunnel: Tunnel | None = None) -> None:
        self._socket = sock
        self._tunnel = tunnel

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        tunnel = self._tunnel
        if tunnel is None:
            self._connect(host, port)
        else:
            self._connect(tunnel.host, tunnel.port)
            run_blocking(tunnel.open(self._socket, host, port))
        return SyncStream(self._socket)

    def _connect(self, host: str, port: int) -> None:
        failure: OSError | None = None
        for address in resolve(host, port, self._socket.remaining(httpcore.ConnectTimeout)):
            remaining = self._socket.remaining(httpcore.ConnectTimeout)
            try:
                self._socket.connected(socket.create_connection((address, port), remaining))
            except OSError as error:
                failure = error
            else:
                return
        if isinstance(failure, TimeoutError):
            raise httpcore.ConnectTimeout(str(failure)) from failure
        raise httpcore.ConnectError(str(failure or f"{host} has no address")) from failure


def resolve(host: str, port: int, timeout: float) -> list[str]:
    """Return the addresses of a host, each once, in the resolver's order."""
    if _is_address(host):
        return [host]
    found: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            found.put(_addresses_in(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except Exception as error:  # noqa: BLE001  raised below, also what a test's ban on sockets raises
            found.put(error)

    # getaddrinfo knows no timeout, so it runs in a thread that is left behind if need be. A daemon thread, so that
    # the process can end meanwhile.
    threading.Thread(target=ask, name=f"momopay resolves {host}", daemon=True).start()
    try:
        answer = found.get(timeout=timeout)
    except Empty:
        raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
    if isinstance(answer, OSError | UnicodeError):  # UnicodeError: a label is empty or too long
        raise httpcore.ConnectError(str(answer)) from answer
    if isinstance(answer, Exception):
        raise answer
    return answer


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _addresses_in(answers: Iterable[tuple[Any, ...]]) -> list[str]:
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


async def wait_blocking(sock: socket.socket, writable: bool, seconds: float) -> None:
    """Wait for a socket as `AttemptSocket` does in the blocking client."""
    poll(sock, writable=writable, seconds=seconds)


async def wait_suspended(sock: socket.socket, writable: bool, _seconds: float) -> None:
    """Wait for a socket as `AttemptSocket` does on an event loop, where a cancel scope bounds the wait."""
    await (anyio.wait_writable(sock) if writable else anyio.wait_readable(sock))


class AsyncStream(_Stream, httpcore.AsyncNetworkStream):
    """A connected socket on an event loop, under TLS or without."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  httpcore's
        return self._take_kept() or self._keep_last(await self._socket.receive(max_bytes))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  httpcore's
        await anyio.lowlevel.checkpoint_if_cancelled()  # `send` need not suspend, and would write in spite of it
        await self._socket.send(buffer)

    async def aclose(self) -> None:
        self._socket.response_ended()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's
    ) -> httpcore.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                await self._socket.start_tls(ssl_context, server_hostname)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("no TLS session within the timeout") from error
        return self


class AsyncNetwork(httpcore.AsyncNetworkBackend):
    """Opens sockets on an event loop, on asyncio and on trio alike."""

    def __init__(self, sock: AttemptSocket, tunnel: Tunnel | None = None) -> None:
        self._socket = sock
        self._tunnel = tunnel

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                tunnel = self._tunnel
                if tunnel is None:
                    await self._connect(host, port)
                else:
                    await self._connect(tunnel.host, tunnel.port)
                    await tunnel.open(self._socket, host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("no connection within the timeout") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a label is empty or too long
            raise httpcore.ConnectError(str(error)) from error
        return AsyncStream(self._socket)

    async def _connect(self, host: str, port: int) -> None:
        self._socket.connected(await _connect_to_any(await _resolve_suspended(host, port), port))


async def _resolve_suspended(host: str, port: int) -> list[str]:
    if _is_address(host):  # which needs no thread
        return [host]
    return _addresses_in(await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM))


async def _connect_to_any(addresses: list[str], port: int) -> socket.socket:
    """Return a socket that is connected to the first address that answers, or raise OSError."""
    connected = list[socket.socket]()
    failures = list[Exception]()

    async def attempt(address: str, ended: anyio.Event) -> None:
        try:
            connected.append(await _connect(address, port))
        except Exception as error:  # noqa: BLE001  raised below; the task group would wrap it in an ExceptionGroup
            failures.append(error)
        else:
            group.cancel_scope.cancel()
        ended.set()

    try:
        async with anyio.create_task_group() as group:
            for address in addresses:
                ended = anyio.Event()
                group.start_soon(attempt, address, ended)
                with anyio.move_on_after(_HEAD_START):
                    await ended.wait()
        if not connected:
            raise failures[-1] if failures else OSError("the name has no address")
    except BaseException:
        for sock in connected:
            sock.close()
        raise
    for late in connected[1:]:
        late.close()
    return connected[0]


async def _connect(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        try:
            sock.connect((address, port))  # not `connect_ex`, which tools that ban sockets in tests do not see
        except BlockingIOError:
            await anyio.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code)) from None
    except BaseException:
        sock.close()
        raise
    return sock
