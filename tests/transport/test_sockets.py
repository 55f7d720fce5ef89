"""The fence before each write, and how a payment's connection ends."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpcore
import pytest

import momopay
import wire
from drivers import KEY, Driver
from hostile.tls import own_certificate
from momopay import AsyncClient
from momopay._transport import Progress, clock
from momopay._transport.network import AsyncStream, SyncStream, wait_blocking
from momopay._transport.sockets import AttemptSocket
from patience import until

Drive = Callable[..., Driver]
ABORTS = struct.pack("ii", 1, 0)


def payout(client: Any) -> Any:
    return client.payouts.initiate(amount=100, phone="0712345678", reference="INV-42")


class Slow:
    """A socket that takes so many bytes at a time, none the first time, and a second for each."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = b""
        self.now = 0.0
        self.waited = list[tuple[bool, float]]()

    def send(self, data: memoryview) -> int:
        self.now += 1.0
        self.sent += bytes(data[: self.size])
        return min(self.size, len(data))

    def recv(self, _max_bytes: int) -> bytes:
        self.now += 1.0
        return b"x"

    def setsockopt(self, *_option: object) -> None:
        pass

    setblocking = close = setsockopt

    async def wait(self, _sock: object, writable: bool, seconds: float) -> None:
        self.waited.append((writable, seconds))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    sock = Slow(3)
    monkeypatch.setattr(clock, "now", lambda: sock.now)
    return sock


def stream_over(sock: Any, *, has_effect: bool, seconds: float) -> SyncStream:
    attempt = AttemptSocket(sock.wait, Progress() if has_effect else None)
    attempt.connected(sock)
    attempt.deadline = seconds
    return SyncStream(attempt)


@pytest.mark.parametrize("has_effect", [False, True])
def test_what_comes_after_the_deadline_does_not_touch_the_socket(slow: Slow, has_effect: bool) -> None:
    stream = stream_over(slow, has_effect=has_effect, seconds=0.0)
    with pytest.raises(httpcore.WriteTimeout):
        stream.write(b"x")
    with pytest.raises(httpcore.ReadTimeout):
        stream.read(1)
    assert (slow.sent, slow.waited) == (b"", [])


def test_each_piece_of_a_partial_write_is_checked(slow: Slow) -> None:
    with pytest.raises(httpcore.WriteTimeout):
        stream_over(slow, has_effect=True, seconds=2.0).write(b"payment")
    assert slow.sent == b"paymen"


def test_the_time_is_read_after_a_wait_for_the_kernel(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_data: memoryview) -> int:
        slow.now += 9.0
        monkeypatch.undo()
        monkeypatch.setattr(clock, "now", lambda: slow.now)
        raise BlockingIOError

    monkeypatch.setattr(slow, "send", full)
    with pytest.raises(httpcore.WriteTimeout):
        stream_over(slow, has_effect=True, seconds=5.0).write(b"payment")
    assert (slow.sent, slow.waited) == (b"", [(True, 5.0)])


def test_time_that_passes_within_the_check_counts(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the process is frozen: only the last reading of the clock is next to the system's call."""
    readings = iter([0.0, 0.0])
    monkeypatch.setattr(clock, "now", lambda: next(readings, 9.0))
    with pytest.raises(httpcore.WriteTimeout):
        stream_over(slow, has_effect=True, seconds=5.0).write(b"payment")
    assert slow.sent == b""


def test_each_read_waits_for_what_remains_of_the_attempt(slow: Slow) -> None:
    stream = stream_over(slow, has_effect=False, seconds=3.0)
    with pytest.raises(httpcore.ReadTimeout):
        b"".join(iter(lambda: stream.read(1, timeout=3.0), b""))
    assert slow.waited == [(False, 3.0), (False, 2.0), (False, 1.0)]


def test_a_write_waits_until_the_kernel_has_room() -> None:
    ours, theirs = socket.socketpair()
    received = bytearray()

    def read() -> None:
        while len(received) < wire.MEBIBYTE:
            received.extend(theirs.recv(65_536))

    attempt = AttemptSocket(wait_blocking)
    attempt.connected(ours)
    attempt.deadline = clock.now() + wire.PATIENCE
    thread = threading.Thread(target=read)
    thread.start()
    SyncStream(attempt).write(b"x" * wire.MEBIBYTE)
    thread.join()
    attempt.close()
    theirs.close()
    assert len(received) == wire.MEBIBYTE


# A payment whose process stood still before a write, over both clients. The clock has the time that passed, which no
# timer of the event loop has noticed yet.


@pytest.fixture(params=["tcp", "tls"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Server]:
    certificate = own_certificate(tmp_path, monkeypatch) if request.param == "tls" else None
    with serving(certificate) as server:
        yield server


class Server:
    """Takes connections one by one, answers each request unless told otherwise, and notes how each connection ends."""

    def __init__(self, certificate: Path | None) -> None:
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate)
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        self.base_url = f"https://localhost:{port}/v1" if certificate else f"http://127.0.0.1:{port}/v1"
        self.answers = True
        self.headers: dict[str, str] = {}
        self.received = list[bytes]()
        self.ends = list[str]()

    def run(self) -> None:
        while True:
            try:
                sock, _address = self.listener.accept()
            except OSError:
                return
            sock.settimeout(wire.PATIENCE)
            with sock:
                self.converse(sock)

    def converse(self, sock: socket.socket) -> None:
        # The peek sees a reset. TLS would report it as the end of the stream.
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            data = b""
            while socket.socket.recv(sock, 1, socket.MSG_PEEK) and (chunk := sock.recv(65_536)):
                if not data:
                    self.received.append(b"")
                data += chunk
                self.received[-1] = data
                if self.answers and data.endswith(b"}"):
                    record = wire.record_for(wire.Request("POST", "/payouts", {}, b"", 0.0))
                    sock.sendall(wire.whole(200, wire.envelope(record), self.headers))
            self.ends.append("closed")
        except ConnectionResetError:
            self.ends.append("reset")
        except OSError as error:
            self.ends.append(repr(error))
        finally:
            sock.close()


@contextmanager
def serving(certificate: Path | None) -> Generator[Server]:
    server = Server(certificate)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        with suppress(OSError):
            server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join(wire.PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def stands_still(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Do something before the n-th write of each connection."""

    def before(number: int, act: Callable[[], None]) -> None:
        counts = dict[object, int]()
        write, write_async = SyncStream.write, AsyncStream.write

        def count(stream: object, data: bytes) -> None:
            if data:
                counts[stream] = counts.get(stream, 0) + 1
                if counts[stream] == number:
                    act()

        def counted(self: SyncStream, buffer: bytes, timeout: float | None = None) -> None:
            count(self, buffer)
            write(self, buffer, timeout)

        async def counted_async(self: AsyncStream, buffer: bytes, timeout: float | None = None) -> None:
            count(self, buffer)
            await write_async(self, buffer, timeout)

        monkeypatch.setattr(SyncStream, "write", counted)
        monkeypatch.setattr(AsyncStream, "write", counted_async)

    return before


@pytest.mark.parametrize(("number", "arrives"), [(1, b""), (2, b"POST")])
def test_a_payment_whose_time_passed_before_a_write_is_not_sent(
    drive: Drive,
    server: Server,
    stands_still: Any,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    arrives: bytes,
) -> None:
    ahead, real = [0.0], clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + ahead[0])
    stands_still(number, lambda: ahead.append(ahead.pop() + 3.0))
    with pytest.raises(momopay.APIConnectionError, match="not sent") as caught:
        drive(base_url=server.base_url, deadline=2.0, max_attempts=1)(payout)
    assert not caught.value.may_have_executed
    until(lambda: server.ends, "the connection ends")
    received = b"".join(server.received)
    assert received.startswith(arrives)
    assert b"INV-42" not in received


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # httpx's, of the body that trio does not finish
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_an_event_loop_that_was_blocked_past_the_deadline_sends_nothing(
    server: Server, stands_still: Any, loop: str, number: int
) -> None:
    async def main() -> None:
        async with AsyncClient(KEY, base_url=server.base_url, budget=None, deadline=0.2) as client:
            with pytest.raises(momopay.APIConnectionError) as caught:
                await payout(client)
            assert not caught.value.may_have_executed

    stands_still(number, lambda: time.sleep(0.22))
    anyio.run(main, backend=loop)
    until(lambda: server.ends, "the connection ends")
    assert b"INV-42" not in b"".join(server.received)


def test_a_request_without_a_body_that_was_written_may_have_executed(drive: Drive, stands_still: Any) -> None:
    with serving(None) as server:
        server.answers = False
        driver = drive(base_url=server.base_url, timeout=0.3, max_attempts=1)
        with pytest.raises(momopay.APIConnectionError) as caught:
            driver(lambda client: client.channels.delete("c"))
        assert caught.value.may_have_executed


# How connections end.


def test_a_payment_without_an_answer_is_reset(drive: Drive, server: Server) -> None:
    server.answers = False
    with pytest.raises(momopay.OutcomeUnknownError):
        drive(base_url=server.base_url, timeout=0.4)(payout)
    until(lambda: server.ends, "the connection ends")
    assert server.ends == ["reset"]


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["kept", "closed"])
def test_a_payment_with_a_whole_answer_is_closed(drive: Drive, server: Server, headers: dict[str, str]) -> None:
    server.headers = headers
    assert drive(base_url=server.base_url)(payout).transaction_id == wire.TRANSACTION_ID
    until(lambda: server.ends, "the connection ends")
    assert server.ends == ["closed"]


def test_half_an_answer_is_not_a_whole_one(drive: Drive) -> None:
    ended = list[str]()

    def end(exchange: wire.Exchange) -> bool:
        try:
            exchange.sock.recv(1)
            ended.append("closed")
        except ConnectionResetError:
            ended.append("reset")
        return False

    with wire.serve(wire.truncated(end=end)) as server, pytest.raises(momopay.OutcomeUnknownError):
        drive(base_url=server.base_url, timeout=0.4)(payout)
    assert ended == ["reset"]


def test_a_read_keeps_its_connection_and_closes_it(drive: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url)
        driver(lambda client: client.wallet.balance())
        (connection,) = driver.client._session.backend._idle._idle
        option = connection.socket.raw.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
    assert option == struct.pack("ii", 0, 0)


def test_a_payments_socket_aborts_from_the_connect_on(drive: Drive, stands_still: Any) -> None:
    """So that it also does when the process is killed."""
    seen = list[tuple[bytes, int]]()
    connected = AttemptSocket.connected

    def note(self: AttemptSocket, sock: socket.socket) -> None:
        connected(self, sock)
        stands_still(2, lambda: seen.append(options(sock)))
        seen.append(options(sock))

    def options(sock: socket.socket) -> tuple[bytes, int]:
        user_timeout = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8), user_timeout

    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("this system has no TCP_USER_TIMEOUT")
    with pytest.MonkeyPatch.context() as patch, wire.serve(wire.succeeds()) as server:
        patch.setattr(AttemptSocket, "connected", note)
        drive(base_url=server.base_url, timeout=5.0)(payout)
    (at_first, before_the_body) = seen
    assert at_first[0] == before_the_body[0] == ABORTS
    assert 4000 < before_the_body[1] <= 5000  # what is left of the timeout: no less, or a slow network is a failure
