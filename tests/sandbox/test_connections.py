"""The bytes of misbehaviour, on real sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from momopay.sandbox import _connections
from momopay.sandbox._connections import Connections, RawResponse, SocketConnection

RESPONSE = RawResponse(201, [(b"content-type", b"text/plain"), (b"content-length", b"6")], b"answer")
HEAD = b"HTTP/1.1 201 Sandbox\r\ncontent-type: text/plain\r\ncontent-length: 6\r\nconnection: close\r\n\r\n"
Act = Callable[[Connections, asyncio.Transport], Awaitable[None] | None]


def received(act: Act) -> list[bytes]:
    """Return what a client reads, piece by piece, of a connection that is acted on."""

    async def run() -> list[bytes]:
        here, there = socket.socketpair()
        with there:
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=here)
            there.setblocking(False)
            done = act(Connections(), transport)
            reading = asyncio.create_task(pieces_of(there))
            if done is not None:
                await done
            return await reading

    return asyncio.run(run())


async def pieces_of(client: socket.socket) -> list[bytes]:
    loop, pieces = asyncio.get_running_loop(), list[bytes]()
    while piece := await loop.sock_recv(client, 1000):
        pieces.append(piece)
    return pieces


def test_a_response_as_bytes() -> None:
    assert RESPONSE.encode() == HEAD + b"answer"
    assert RESPONSE.encode(content_length=False) == HEAD.replace(b"content-length: 6\r\n", b"") + b"answer"


def test_truncated_is_the_head_and_half_of_the_body() -> None:
    pieces = received(lambda connections, to: SocketConnection(to, connections).truncate(RESPONSE, content_length=True))
    assert b"".join(pieces) == HEAD + b"ans"


def test_a_slow_drip_comes_byte_by_byte_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connections, "DRIP_INTERVAL", 0.0002)
    pieces = received(lambda connections, to: SocketConnection(to, connections).drip(RESPONSE))
    assert b"".join(pieces) == HEAD + b"answer"
    assert len(pieces) > len(HEAD) / 2


def test_what_is_held_after_the_end_is_aborted_at_once() -> None:
    def act(connections: Connections, transport: asyncio.Transport) -> None:
        connections.abort_all()
        connections.hold(transport)
        assert connections.held == set()

    assert received(act) == []
