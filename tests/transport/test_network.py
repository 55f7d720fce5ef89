"""Our sockets: bytes that follow a response are noticed, and connecting keeps to the attempt's time."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
import wire
from drivers import Drive
from in_turn import in_turn
from momopay._transport import attempt as attempts
from momopay._transport.async_backend import AsyncSocket
from momopay._transport.sync_backend import SyncSocket
from test_redaction import chain

BODY = b'{"a": 1}'
CHUNKED = b"3\r\n" + BODY[:3] + b"\r\n5\r\n" + BODY[3:] + b"\r\n0\r\n"
RESPONSES = {
    "length": wire.head(200, {"Content-Length": "8"}) + BODY,
    "chunks": wire.head(200, {"Transfer-Encoding": "chunked"}) + CHUNKED + b"\r\n",
    "trailers": wire.head(200, {"Transfer-Encoding": "chunked"}) + CHUNKED + b"X-Sum: 1\r\n\r\n",
    "no body": wire.head(204),
    "interim first": b"HTTP/1.1 103 Early Hints\r\n\r\n" + wire.head(200, {"Content-Length": "8"}) + BODY,
}


class Reads:
    """A socket whose reads return these pieces, and that takes whatever is written."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def recv(self, _max_bytes: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def send(self, data: memoryview) -> int:
        return len(data)

    def setsockopt(self, *_option: object) -> None:
        pass

    setblocking = setsockopt


async def no_wait(_sock: object, _writable: bool, _seconds: float) -> None:
    pass


def stream_over(sock: Any) -> SyncSocket:
    stream = SyncSocket()
    vars(stream)["_wait"] = no_wait
    stream.deadline = attempts.now() + 60.0
    stream.connected(sock)
    return stream


def exchange(*pieces: bytes) -> tuple[bytes, bool]:
    """Return the body that httpcore reads over our stream, and whether the stream found more behind it."""
    stream = stream_over(Reads(*pieces))
    connection = httpcore.HTTP11Connection(httpcore.Origin(b"http", b"api.example", 80), stream)
    response = connection.handle_request(httpcore.Request("GET", "http://api.example/", headers={"Host": "x"}))
    body = response.read()
    response.close()
    assert connection.is_idle()
    return body, stream.has_unread()


@given(st.sampled_from(sorted(RESPONSES)), st.binary(max_size=20), st.lists(st.integers(1, 120)))
def test_wherever_reads_end_only_the_bytes_of_the_last_one_can_follow(name: str, more: bytes, cuts: list[int]) -> None:
    data = RESPONSES[name] + more
    inside = sorted({cut for cut in cuts if cut < len(RESPONSES[name])})
    pieces = [data[start:end] for start, end in zip([0, *inside], [*inside, len(data)], strict=True)]
    body, has_unread = exchange(*pieces)
    assert body in {BODY, b""}
    assert has_unread is bool(more)


def test_the_end_of_the_stream_is_passed_on() -> None:
    stream = stream_over(Reads(b"ab"))
    assert [stream.read(9), stream.read(9), stream.read(9)] == [b"a", b"b", b""]
    assert not stream.has_unread()


@pytest.mark.parametrize(("deadline", "shares"), [(6.0, (2.0, 2.0, 2.0)), (30.0, (3.0, 3.0, 24.0))])
def test_all_addresses_of_a_name_share_one_deadline(
    monkeypatch: pytest.MonkeyPatch, deadline: float, shares: tuple[float, ...]
) -> None:
    now = [0.0]
    tried = list[tuple[str, float]]()

    async def resolve(*_asked: object) -> list[str]:
        return ["::1", "127.0.0.1", "127.0.0.2"]

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        tried.append((address[0], timeout))
        now[0] += timeout
        raise TimeoutError

    monkeypatch.setattr(SyncSocket, "_resolve", resolve)
    monkeypatch.setattr(attempts, "now", lambda: now[0])
    monkeypatch.setattr(socket, "create_connection", connect)
    attempt = SyncSocket()
    attempt.deadline = deadline
    with pytest.raises(httpcore.ConnectTimeout):
        attempt.connect_tcp("name.example", 443)
    assert tried == list(zip(("::1", "127.0.0.1", "127.0.0.2"), shares, strict=True))


@pytest.mark.parametrize("error", [None, socket.gaierror(-2, "unknown"), UnicodeError("label too long")])
def test_a_name_without_an_address(drive: Drive, monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    def getaddrinfo(*_asked: object, **_hints: object) -> list[Any]:
        if error is None:
            return []
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(momopay.APIConnectionError, match="no address" if error is None else "not sent") as caught:
        drive(max_attempts=1)(lambda client: client.wallet.balance())
    assert error is None or error in chain(caught.value)


class BannedError(RuntimeError):
    """What pytest-socket and its like raise in the place of a socket."""


def ban(*_arguments: object, **_options: object) -> None:
    raise BannedError


def test_a_ban_on_connecting_comes_out_unchanged(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    def ban_and_close(sock: socket.socket, _address: object) -> None:
        sock.close()  # `socket.create_connection` does so only after an OSError
        ban()

    monkeypatch.setattr(socket.socket, "connect", ban_and_close)
    with wire.silent() as listener:
        driver = drive(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        with pytest.raises(BannedError):
            driver(lambda client: client.wallet.balance())


def waiting() -> AsyncSocket:
    attempt = AsyncSocket()
    attempt.deadline = attempts.now() + wire.PATIENCE
    return attempt


@in_turn("loop", ["asyncio", "trio"])
def test_a_cancelled_tls_handshake_closes_the_socket(loop: str) -> None:
    async def under(scope: anyio.CancelScope, work: Callable[[], Awaitable[Any]]) -> None:
        with scope:
            await work()

    async def main(listener: socket.socket) -> None:
        stream = await waiting().connect_tcp("127.0.0.1", listener.getsockname()[1], 5.0)
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            group.start_soon(under, scope, lambda: stream.start_tls(ssl.create_default_context(), "127.0.0.1"))
            accepted, _address = await anyio.to_thread.run_sync(listener.accept)
            with accepted:
                assert (await anyio.to_thread.run_sync(accepted.recv, 65_536)).startswith(b"\x16\x03")
                scope.cancel()
                accepted.settimeout(wire.PATIENCE)
                assert await anyio.to_thread.run_sync(accepted.recv, 1) == b""
        unanswered = await waiting().connect_tcp("127.0.0.1", listener.getsockname()[1], 5.0)
        with pytest.raises(httpcore.ConnectTimeout, match="no TLS session"), anyio.fail_after(wire.PATIENCE):
            await unanswered.start_tls(ssl.create_default_context(), "127.0.0.1", 0.01)
        await unanswered.aclose()

    with wire.silent() as listener:
        anyio.run(main, listener, backend=loop)


@in_turn("loop", ["asyncio", "trio"])
def test_a_cancelled_task_writes_nothing(loop: str) -> None:
    async def main(listener: socket.socket) -> None:
        stream = await waiting().connect_tcp("127.0.0.1", listener.getsockname()[1], 5.0)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.write(b"payment")
        await stream.aclose()
        accepted, _address = await anyio.to_thread.run_sync(listener.accept)
        with accepted:
            assert await anyio.to_thread.run_sync(accepted.recv, 1) == b""

    with wire.silent() as listener:
        anyio.run(main, listener, backend=loop)


@in_turn("loop", ["asyncio", "trio"])
def test_a_server_that_sends_without_a_pause_lets_other_tasks_run(loop: str) -> None:
    ours, theirs = socket.socketpair()
    ran = list[int]()

    async def other() -> None:
        ran.append(1)

    async def main() -> None:
        attempt = waiting()
        attempt.connected(ours)
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            for _ in range(10):
                await attempt.read(2)
            assert ran

    theirs.sendall(b"x" * 100)
    anyio.run(main, backend=loop)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_silent_address_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    wait, waited = anyio.wait_writable, list[Any]()

    async def getaddrinfo(*_asked: object, **_hints: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]

    async def wait_writable(sock: socket.socket) -> None:
        waited.append(sock)
        await (anyio.sleep_forever() if len(waited) == 1 else wait(sock))

    async def main(listener: socket.socket) -> None:
        attempt = waiting()
        attempt.deadline = attempts.now() + 1.0
        stream = await attempt.connect_tcp("name.example", listener.getsockname()[1], wire.PATIENCE)
        assert attempt.raw.getpeername() == listener.getsockname()
        await stream.aclose()
        assert [sock.fileno() for sock in waited] == [-1] * 2

    monkeypatch.setattr(anyio, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(anyio, "wait_writable", wait_writable)
    with wire.silent() as listener:
        anyio.run(main, listener, backend=loop)
