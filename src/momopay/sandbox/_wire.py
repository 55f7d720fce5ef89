"""Misbehaviour at the socket itself: resets, hang-ups, answers cut short or sent byte by byte."""

import asyncio
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

DRIP_INTERVAL = 0.05  # real seconds per byte

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(slots=True)
class Answer:
    """A whole answer, kept back from the socket."""

    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    body: bytes = b""

    def raw(self, *, content_length: bool = True) -> bytes:
        """The answer as bytes of HTTP/1.1; without Content-Length the end of the connection ends the body."""
        lines = [f"HTTP/1.1 {self.status} Sandbox".encode()]
        lines += [name + b": " + value for name, value in self.headers if content_length or name != b"content-length"]
        lines += [b"connection: close", b"", b""]
        return b"\r\n".join(lines) + self.body


@dataclass(slots=True)
class Wires:
    """The connections that faults have taken hold of, so that none outlives the server."""

    taken: set[asyncio.Transport] = field(default_factory=set[asyncio.Transport])
    over: bool = False

    def reset(self, transport: asyncio.Transport) -> None:
        """End the connection with a TCP RST."""
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def take(self, transport: asyncio.Transport) -> None:
        """Hold a connection until it ends or is let go; with nothing else done to it, it hangs."""
        self.taken.add(transport)
        if self.over:
            self.let_go()

    def truncate(self, transport: asyncio.Transport, answer: Answer, *, content_length: bool) -> None:
        """Send the head and half of the body, then hang up."""
        raw = answer.raw(content_length=content_length)
        transport.write(raw[: len(raw) - (len(answer.body) + 1) // 2])
        transport.close()

    async def drip(self, transport: asyncio.Transport, answer: Answer) -> None:
        """Send the whole answer byte by byte."""
        self.take(transport)
        for byte in answer.raw():
            if transport.is_closing():
                return
            transport.write(bytes((byte,)))
            await asyncio.sleep(DRIP_INTERVAL)
        transport.close()

    def let_go(self) -> None:
        """Drop whatever still hangs, drips or waits for the rest of a request, now and from now on."""
        self.over = True
        for transport in self.taken:
            transport.abort()
        self.taken.clear()
