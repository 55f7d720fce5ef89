"""Misbehaviour at the socket itself: resets, hang-ups, answers cut short or sent byte by byte.

ASGI has no words for these, so they act on the transport below the server. Event loop only.
"""

import asyncio
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

DRIP_INTERVAL = 0.05  # real seconds per byte
# The key of the ASGI scope under which a request without a socket has its connection.
CONNECTION = "momopay.connection"

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class RawResponse:
    """A whole response, kept back from the socket."""

    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    body: bytes = b""

    def encode(self, *, content_length: bool = True) -> bytes:
        """Return the bytes of HTTP/1.1; without Content-Length the end of the connection ends the body."""
        lines = [f"HTTP/1.1 {self.status} Sandbox".encode()]
        lines += [name + b": " + value for name, value in self.headers if content_length or name != b"content-length"]
        lines += [b"connection: close", b"", b""]
        return b"\r\n".join(lines) + self.body


class Connection(Protocol):
    """What a fault does to the connection of one request."""

    def hold(self) -> None:
        """Hold the connection until it ends or everything is aborted; with nothing else done to it, it hangs."""

    def release(self) -> None:
        """Hold it no longer."""

    def close(self) -> None:
        """Hang up."""

    def reset(self) -> None:
        """End the connection with a TCP RST."""

    async def truncate(self, response: RawResponse, *, content_length: bool) -> None:
        """Send the head and half of the body, then hang up."""

    async def drip(self, response: RawResponse) -> None:
        """Send the whole response byte by byte."""


@dataclass(slots=True)
class Connections:
    """The connections that faults hold on to, so that none outlives the server."""

    held: set[asyncio.Transport] = field(default_factory=set[asyncio.Transport])
    closing: bool = False

    def hold(self, transport: asyncio.Transport) -> None:
        """Hold a connection until it ends or everything is aborted."""
        self.held.add(transport)
        # A request may come in after `abort_all`, while the server still shuts down.
        if self.closing:
            self.abort_all()

    def abort_all(self) -> None:
        """Abort every connection that hangs, drips or waits for the rest of a request, now and from now on."""
        self.closing = True
        for transport in self.held:
            transport.abort()
        self.held.clear()


@dataclass(frozen=True, slots=True)
class SocketConnection:
    """A connection of the sandbox's own server."""

    transport: asyncio.Transport
    connections: Connections

    def hold(self) -> None:
        """Hold the connection until it ends or everything is aborted."""
        self.connections.hold(self.transport)

    def release(self) -> None:
        """Hold it no longer."""
        self.connections.held.discard(self.transport)

    def close(self) -> None:
        """Hang up."""
        self.transport.close()

    def reset(self) -> None:
        """End the connection with a TCP RST."""
        raw: socket.socket = self.transport.get_extra_info("socket")
        # A linger time of zero makes the kernel drop what is unsent and send RST instead of FIN.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    async def truncate(self, response: RawResponse, *, content_length: bool) -> None:
        """Send the head and half of the body, then hang up."""
        raw = response.encode(content_length=content_length)
        self.transport.write(raw[: len(raw) - (len(response.body) + 1) // 2])
        self.transport.close()

    async def drip(self, response: RawResponse) -> None:
        """Send the whole response byte by byte."""
        self.hold()
        for byte in response.encode():
            if self.transport.is_closing():
                return
            self.transport.write(bytes((byte,)))
            await asyncio.sleep(DRIP_INTERVAL)
        self.transport.close()
