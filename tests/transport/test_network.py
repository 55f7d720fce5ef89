"""Our sockets: bytes that follow a response are noticed, and connecting keeps to the attempt's time."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wire
from momopay._transport import network
from momopay._transport.network import AsyncStream, AttemptDeadline, SyncNetwork, SyncStream, resolve

ORIGIN = httpcore.Origin(b"http", b"api.example", 80)
BODY = b'{"a": 1}'
CHUNKED = b"3\r\n" + BODY[:3] + b"\r\n5\r\n" + BODY[3:] + b"\r\n0\r\n"
RESPONSES = {
    "length": wire.head(200, {"Content-Length": "8"}) + BODY,
    "chunks": wire.head(200, {"Transfer-Encoding": "chunked"}) + CHUNKED + b"\r\n",
    "trailers": wire.head(200, {"Transfer-Encoding": "chunked"}) + CHUNKED + b"X-Sum: 1\r\n\r\n",
    "no body": wire.head(204),
    "interim first": b"HTTP/1.1 103 Early Hints\r\n\r\n" + wire.head(200, {"Content-Length": "8"}) + BODY,
}


class Reads(httpcore.MockStream):
    """A socket whose reads return these pieces, and that is idle afterwards."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__(list(pieces))

    def get_extra_info(self, info: str) -> Any:
        return None


def exchange(*pieces: bytes) -> tuple[bytes, bool]:
    """Return the body that httpcore reads over our stream, and whether the stream found more behind it."""
    deadline = AttemptDeadline()
    deadline.at = time.monotonic() + 60
    stream = SyncStream(Reads(*pieces), deadline)
    connection = httpcore.HTTP11Connection(ORIGIN, stream)
    response = connection.handle_request(httpcore.Request("GET", "http://api.example/", headers={"Host": "x"}))
    body = response.read()
    response.close()
    assert connection.is_idle()
    return body, stream.has_unread()


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_response_that_ends_where_the_data_ends_leaves_nothing(response: bytes, size: int) -> None:
    body, has_unread = exchange(*[response[at : at + size] for at in range(0, len(response), size)])
    assert body in {BODY, b""}
    assert not has_unread


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
@pytest.mark.parametrize("more", [b"\n", b"\r\n", RESPONSES["length"], b"x" * 3])
def test_every_byte_behind_a_response_is_noticed(response: bytes, more: bytes) -> None:
    assert exchange(response + more)[1]


@given(st.sampled_from(sorted(RESPONSES)), st.binary(max_size=20), st.lists(st.integers(1, 60), max_size=5))
def test_wherever_reads_end_only_the_bytes_of_the_last_one_can_follow(name: str, more: bytes, cuts: list[int]) -> None:
    data = RESPONSES[name] + more
    inside = sorted({cut for cut in cuts if cut < len(RESPONSES[name])})
    pieces = [data[start:end] for start, end in zip([0, *inside], [*inside, len(data)], strict=True)]
    assert exchange(*pieces)[1] is bool(more)


def test_the_end_of_the_stream_is_passed_on() -> None:
    stream = SyncStream(Reads(b"ab"), AttemptDeadline())
    stream._deadline.at = time.monotonic() + 60
    assert [stream.read(9), stream.read(9), stream.read(9)] == [b"a", b"b", b""]
    assert not stream.has_unread()


class Tls:
    """The TLS object of a session, with this to read."""

    def __init__(self, found: bytes | ssl.SSLError) -> None:
        self._found = found

    def read(self, _size: int) -> bytes:
        if isinstance(self._found, ssl.SSLError):
            raise self._found
        return self._found


@pytest.mark.parametrize(
    ("found", "has_unread"),
    [(ssl.SSLWantReadError(), False), (b"H", True), (b"", True), (ssl.SSLZeroReturnError(), True)],
)
def test_a_record_that_waits_in_the_tls_object_is_noticed(found: Any, has_unread: bool) -> None:
    class Encrypted(httpcore.AsyncMockStream):
        def get_extra_info(self, info: str) -> Any:
            return Tls(found) if info == "ssl_object" else None

    assert AsyncStream(Encrypted([])).has_unread() is has_unread


# The time of an attempt.


def in_time(seconds: float) -> AttemptDeadline:
    deadline = AttemptDeadline()
    deadline.at = seconds
    return deadline


def test_what_comes_after_the_deadline_does_not_touch_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    written = list[bytes]()

    class Written(Reads):
        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            written.append(buffer)

    stream = SyncStream(Written(b"data"), in_time(10.0))
    with pytest.raises(httpcore.WriteTimeout):
        stream.write(b"x")
    with pytest.raises(httpcore.ReadTimeout):
        stream.read(1)
    with pytest.raises(httpcore.ConnectTimeout):
        stream.start_tls(ssl.create_default_context())
    assert written == []


def test_each_read_gets_what_remains_of_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    given = list[float | None]()

    class Dripping(Reads):
        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            given.append(timeout)
            now[0] += 1.0
            return b"x"

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = SyncStream(Dripping(), in_time(3.0))
    with pytest.raises(httpcore.ReadTimeout):
        b"".join(iter(lambda: stream.read(1, timeout=3.0), b""))
    assert given == [3.0, 2.0, 1.0]


def resolving(*addresses: str) -> Callable[..., list[str]]:
    def resolve(*_asked: object) -> list[str]:
        return list(addresses)

    return resolve


def test_all_addresses_of_a_name_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    tried = list[tuple[str, float]]()

    def connect(_self: object, host: str, _port: int, timeout: float, *_rest: object) -> httpcore.NetworkStream:
        tried.append((host, timeout))
        now[0] += timeout / 2
        raise httpcore.ConnectTimeout

    monkeypatch.setattr(network, "resolve", resolving("::1", "127.0.0.1", "127.0.0.2"))
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    with pytest.raises(httpcore.ConnectTimeout):
        SyncNetwork(in_time(8.0)).connect_tcp("name.example", 443)
    assert tried == [("::1", 8.0), ("127.0.0.1", 4.0), ("127.0.0.2", 2.0)]


def test_a_name_without_an_address_is_a_failure_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "resolve", resolving())
    with pytest.raises(httpcore.ConnectError, match="no address"):
        SyncNetwork(in_time(1e9)).connect_tcp("name.example", 443)


def test_an_address_resolves_to_itself_once() -> None:
    assert resolve("127.0.0.1", 80, 60.0) == ["127.0.0.1"]


@pytest.mark.parametrize("error", [socket.gaierror(-2, "unknown"), UnicodeError("label too long")])
def test_a_name_that_cannot_be_resolved_is_a_failure_to_connect(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_asked: object, **_hints: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(httpcore.ConnectError) as caught:
        resolve("name.example", 443, 60.0)
    assert caught.value.__cause__ is error


def test_a_resolver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hang(*_asked: object, **_hints: object) -> list[Any]:
        released.wait(wire.PATIENCE)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with pytest.raises(httpcore.ConnectTimeout, match="not resolved"):
        resolve("slow.example", 443, 0.01)
    assert not released.is_set()
    (thread,) = [each for each in threading.enumerate() if each.name == "momopay resolves slow.example"]
    assert thread.daemon
    released.set()
    thread.join()


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_name_of_too_long_a_label_is_a_failure_to_connect_in_the_async_network_too(loop: str) -> None:
    async def main() -> None:
        with pytest.raises(httpcore.ConnectError):
            await network.AsyncNetwork().connect_tcp("x" * 64 + ".example", 443, 5.0)

    anyio.run(main, backend=loop)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_cancelled_tls_handshake_closes_the_socket(loop: str) -> None:
    async def under(scope: anyio.CancelScope, work: Callable[[], Awaitable[Any]]) -> None:
        with scope:
            await work()

    async def main(listener: socket.socket) -> None:
        stream = await network.AsyncNetwork().connect_tcp("127.0.0.1", listener.getsockname()[1], 5.0)
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            group.start_soon(under, scope, lambda: stream.start_tls(ssl.create_default_context(), "127.0.0.1"))
            accepted, _address = await anyio.to_thread.run_sync(listener.accept)
            with accepted:
                hello = await anyio.to_thread.run_sync(accepted.recv, 65_536)
                assert hello.startswith(b"\x16\x03")
                scope.cancel()
                accepted.settimeout(wire.PATIENCE)
                assert await anyio.to_thread.run_sync(accepted.recv, 1) == b""

    with wire.silent() as listener:
        anyio.run(main, listener, backend=loop)
