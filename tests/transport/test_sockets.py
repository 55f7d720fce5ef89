"""The fence before each write, and how a payment's connection ends."""

import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any
from unittest.mock import create_autospec

import anyio
import httpcore
import httpx
import pytest

import momopay
import wire
from core.kit import delete_channel, initiate_payout, read_balance
from drivers import Drive, session_of
from in_turn import in_turn
from momopay._core import call
from momopay._transport import attempt as attempts
from momopay._transport.async_backend import AsyncBackend
from momopay._transport.attempt import NotSentError, Progress, common_headers
from momopay._transport.sockets import AttemptSocket
from momopay._transport.sync_backend import SyncBackend, SyncSocket
from patience import beside, until
from transport.conftest import Way

LINGER = "hh" if sys.platform == "win32" else "ii"
ABORTS = struct.pack(LINGER, 1, 0)
Check = Callable[[], Coroutine[Any, Any, object]]


class Slow:
    """A socket that takes so many bytes at a time, none the first time, and a second for each."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = b""
        self.has_data = False
        self.now = 0.0
        self.waited = list[tuple[bool, float]]()

    def send(self, data: memoryview) -> int:
        self.now += 1.0
        self.sent += bytes(data[: self.size])
        return min(self.size, len(data))

    def recv(self, _max_bytes: int) -> bytes:
        if not self.has_data:
            raise BlockingIOError
        self.has_data = False
        self.now += 1.0
        return b"x"

    def setsockopt(self, *_option: object) -> None:
        pass

    setblocking = close = setsockopt

    async def wait(self, _sock: object, writable: bool, seconds: float) -> None:
        self.waited.append((writable, seconds))
        self.has_data = True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    sock = Slow(3)
    monkeypatch.setattr(attempts, "now", lambda: sock.now)
    return sock


def stream_over(sock: Any, *, has_effect: bool, seconds: float) -> SyncSocket:
    stream = SyncSocket(Progress() if has_effect else None)
    vars(stream)["_wait"] = sock.wait
    stream.connected(sock)
    stream.deadline = seconds
    return stream


def test_what_comes_after_the_deadline_does_not_touch_the_socket(slow: Slow) -> None:
    stream = stream_over(slow, has_effect=True, seconds=0.0)
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
        monkeypatch.setattr(attempts, "now", lambda: slow.now)
        raise BlockingIOError

    monkeypatch.setattr(slow, "send", full)
    with pytest.raises(httpcore.WriteTimeout):
        stream_over(slow, has_effect=True, seconds=5.0).write(b"payment")
    assert (slow.sent, slow.waited) == (b"", [(True, 5.0)])


@in_turn("first", [b"POST /x HTTP/1.1\r\n\r\n{}", b"POST /x HTTP/1.1\r\n", b"{}"])
def test_a_write_that_is_not_a_head_by_itself_counts_as_the_body(slow: Slow, first: bytes) -> None:
    """Should httpcore write otherwise one day: the check comes first, and the request may have executed."""
    written = list[bytes]()

    async def check() -> None:
        written.append(slow.sent)

    slow.size, slow.sent, progress = 100, b"", Progress()
    progress.before_body, progress.knows_body = check, True
    stream = stream_over(slow, has_effect=True, seconds=50.0)
    vars(stream)["_progress"] = progress
    stream.write(first)
    assert (written, progress.is_unsent) == ([b""], False)


def test_time_that_passes_within_the_check_counts(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the process is frozen: only the last reading of the clock is next to the system's call."""
    readings = iter([0.0])
    monkeypatch.setattr(attempts, "now", lambda: next(readings, 9.0))
    with pytest.raises(httpcore.WriteTimeout):
        stream_over(slow, has_effect=True, seconds=5.0).write(b"head\r\n\r\n")
    assert slow.sent == b""


def test_each_read_waits_for_what_remains_of_the_attempt(slow: Slow) -> None:
    stream = stream_over(slow, has_effect=False, seconds=3.0)
    with pytest.raises(httpcore.ReadTimeout):
        b"".join(iter(lambda: stream.read(1, timeout=3.0), b""))
    assert slow.waited == [(False, 3.0), (False, 2.0), (False, 1.0)]


def test_a_handshake_and_a_record_that_drip_end_with_the_attempt(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS may want more bytes after each wait."""

    def want_more(*_arguments: object) -> int:
        slow.now += 1.0
        raise ssl.SSLWantReadError

    monkeypatch.setattr(slow, "recv", want_more)
    monkeypatch.setattr(slow, "do_handshake", want_more, raising=False)
    context = create_autospec(ssl.SSLContext, instance=True)
    context.wrap_socket.return_value = slow
    with pytest.raises(httpcore.ConnectTimeout):
        stream_over(slow, has_effect=False, seconds=3.0).start_tls(context, "localhost")
    with pytest.raises(httpcore.ReadTimeout):
        stream_over(slow, has_effect=False, seconds=6.0).read(1)
    assert [seconds for _, seconds in slow.waited] == [3.0, 2.0, 1.0, 3.0, 2.0, 1.0]


def test_a_write_waits_until_the_kernel_has_room() -> None:
    ours, theirs = socket.socketpair()
    received = bytearray()

    def read() -> None:
        while len(received) < wire.MEBIBYTE:
            received.extend(theirs.recv(65_536))

    attempt = SyncSocket()
    attempt.connected(ours)
    assert not ours.getblocking()  # or a write could outlast the deadline
    attempt.deadline = attempts.now() + wire.PATIENCE
    with beside(read):
        attempt.write(b"x" * wire.MEBIBYTE)
    attempt.end()
    theirs.close()
    assert len(received) == wire.MEBIBYTE


@pytest.mark.parametrize(("number", "arrives"), [(1, b""), (2, b"POST")])
def test_a_payment_whose_time_passed_before_a_write_is_not_sent(
    drive: Drive, way: Way, stands_still: Any, monkeypatch: pytest.MonkeyPatch, number: int, arrives: bytes
) -> None:
    """A deadline of 8 seconds, of which 9 pass before the n-th write, unnoticed by any timer."""
    ahead, real = [0.0], attempts.now
    monkeypatch.setattr(attempts, "now", lambda: real() + ahead[0])
    stands_still(number, lambda: ahead.append(ahead.pop() + 9.0))
    with pytest.raises(momopay.APIConnectionError, match="not sent") as caught:
        drive(**way.options, deadline=8.0, max_attempts=1)(initiate_payout)
    assert not caught.value.may_have_executed
    until(lambda: way.ends, "the connection ends")
    assert way.server.received.startswith(arrives if "proxy" not in way.options else b"")
    assert b"INV-42" not in way.server.received


def test_a_request_without_a_body_that_was_written_may_have_executed(drive: Drive, transport: Any) -> None:
    with wire.serve(wire.ignores()) as server:
        driver = drive(base_url=server.base_url, timeout=0.3, max_attempts=1, transport=transport)
        with pytest.raises(momopay.APIConnectionError, match=r"(?i)timeout") as caught:
            driver(delete_channel)
        assert caught.value.may_have_executed


@pytest.mark.parametrize("step", [wire.ignores(), wire.truncated(end=lambda _: True)], ids=["none", "half of one"])
def test_a_payment_without_a_whole_answer_is_reset(drive: Drive, way: Way, step: wire.Step) -> None:
    way.server.script = (step,)
    with pytest.raises(momopay.OutcomeUnknownError):
        drive(**way.options, timeout=0.2)(initiate_payout)
    until(lambda: way.ends, "the connection ends")
    assert (way.ends, way.server.payments) == (["reset"], 1)


@pytest.mark.parametrize(
    ("status", "headers"),
    [(200, {}), (200, {"Connection": "close"}), (402, {})],
    ids=["kept", "closed", "no success"],
)
def test_a_payment_with_a_whole_answer_is_closed(drive: Drive, way: Way, status: int, headers: dict[str, str]) -> None:
    way.server.script = (wire.sends(lambda exchange: wire.whole(status, wire.normal(exchange), headers)),)
    with nullcontext() if status == 200 else pytest.raises(momopay.OutcomeUnknownError):
        assert drive(**way.options)(initiate_payout).transaction_id == wire.TRANSACTION_ID
    until(lambda: way.ends, "the connection ends")
    assert way.ends == ["closed"]


def test_a_read_keeps_its_connection_and_closes_it(drive: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url)
        driver(read_balance)
        (connection,) = session_of(driver.client).backend._idle._idle
        option = connection.socket.raw.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
    assert option[: struct.calcsize(LINGER)] == struct.pack(LINGER, 0, 0)


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
        pytest.skip("Windows and macOS have no TCP_USER_TIMEOUT")
    with pytest.MonkeyPatch.context() as patch, wire.serve(wire.succeeds()) as server:
        patch.setattr(AttemptSocket, "connected", note)
        drive(base_url=server.base_url, timeout=5.0)(initiate_payout)
    (at_first, before_the_body) = seen
    assert at_first[0] == before_the_body[0] == ABORTS
    assert 4000 < before_the_body[1] <= 5000  # what is left of the timeout: no less, or a slow network is a failure


@pytest.fixture
def before_body(monkeypatch: pytest.MonkeyPatch) -> Callable[[Check], list[Progress]]:
    """Make every payment await a check between its head and its body; return the list of their progress."""

    def install(check: Check) -> list[Progress]:
        made = list[Progress]()

        class Checked(Progress):
            def __init__(self) -> None:
                made.append(self)

            def __setattr__(self, name: str, value: Any) -> None:
                super().__setattr__(name, check if name == "before_body" else value)

        monkeypatch.setattr(call, "Progress", Checked)
        return made

    return install


@pytest.fixture(params=["own", "httpx"])
def transport(request: pytest.FixtureRequest, client_kind: str) -> Any:
    """None for our own connections, or a transport of httpx."""
    if request.param == "own":
        return None
    return httpx.HTTPTransport(verify=False) if client_kind == "blocking" else httpx.AsyncHTTPTransport(verify=False)


def test_a_check_runs_once_the_head_is_written(drive: Drive, before_body: Any, transport: Any) -> None:
    seen = list[tuple[bool, bool]]()

    async def check() -> None:
        seen.append((made[-1].sending, made[-1].is_unsent))

    made: list[Progress] = before_body(check)
    with wire.serve(wire.succeeds()) as server:
        paid = drive(base_url=server.base_url, transport=transport)(initiate_payout)
        assert paid.transaction_id == wire.TRANSACTION_ID
        assert server.payments == 1
    assert seen == [(True, transport is None)]  # of another transport, what was written is not known for certain
    assert not made[-1].is_unsent


@pytest.mark.parametrize("error", [momopay.JournalError("the database is away"), TimeoutError("late")])
def test_if_a_check_raises_no_body_is_written(drive: Drive, before_body: Any, transport: Any, error: Exception) -> None:
    async def check() -> None:
        raise error

    made: list[Progress] = before_body(check)
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url, transport=transport)
        with pytest.raises(type(error)) as caught:
            driver(initiate_payout)
        assert caught.value is error
        until(lambda: server.connections == 1, "the connection is made")
    assert (server.requests, server.payments) == ([], 0)
    assert made[-1].is_unsent is (transport is None)


@pytest.mark.parametrize("bound", ["deadline", "timeout"])
def test_the_time_that_a_check_takes_counts(
    drive: Drive, before_body: Any, monkeypatch: pytest.MonkeyPatch, transport: Any, bound: str
) -> None:
    """Also over another transport that passes httpcore's trace on, where this is the only fence."""
    ahead, real = [0.0], attempts.now
    monkeypatch.setattr(attempts, "now", lambda: real() + ahead[0])

    async def check() -> None:
        ahead[0] = 9.0

    before_body(check)
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url, **{bound: 5.0}, max_attempts=1, transport=transport)
        with pytest.raises(momopay.MomoPayError) as caught:
            driver(initiate_payout)
        assert caught.value.may_have_executed is (transport is not None)
    assert (server.requests, server.payments) == ([], 0)


@in_turn("kind", [SyncBackend, AsyncBackend])
def test_an_attempt_has_no_more_time_than_its_call(kind: type[SyncBackend | AsyncBackend]) -> None:
    """Its process may have been frozen after the call reckoned how much time is left."""
    progress = Progress()
    progress.until = attempts.now() - 1.0

    async def main(server: wire.Server) -> None:
        headers = common_headers(server.base_url, {})
        with pytest.raises(NotSentError):
            await kind().send("POST", server.base_url, headers, b"{}", timeout=5.0, progress=progress)

    with wire.serve(wire.succeeds()) as server:
        anyio.run(main, server)
        assert server.requests == []


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_payment_cancelled_during_its_check_was_not_sent(loop: str, before_body: Any) -> None:
    made: list[Progress] = before_body(anyio.sleep_forever)

    async def main(server: wire.Server) -> None:
        async with momopay.AsyncClient("pk_test_x", base_url=server.base_url, budget=None) as client:
            with anyio.move_on_after(0.1):
                await initiate_payout(client)

    with wire.serve(wire.succeeds()) as server:
        anyio.run(main, server, backend=loop)
    assert made[-1].is_unsent
    assert (server.requests, server.payments) == ([], 0)


@pytest.mark.skipif(sys.platform != "linux", reason="Windows and macOS do not stop their monotonic clock")
def test_the_clock_of_deadlines_runs_while_the_machine_sleeps() -> None:
    now: Any = attempts.now
    backends: tuple[Any, ...] = (SyncBackend, AsyncBackend)
    assert (now.func, now.args) == (time.clock_gettime, (time.CLOCK_BOOTTIME,))
    assert all(backend.now is now for backend in backends)
