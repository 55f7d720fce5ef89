"""Requests of the blocking client over real sockets and transports of the user's: what is sent, and what is known."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import httpx
import pytest

import momopay
import wire
from drivers import KEY, Driver, learn_key
from momopay import Client, Journal, JournalState
from momopay._transport import NoReplyError, NotSentError, clock, sync_backend
from momopay._transport.blocking import run_blocking
from momopay._transport.sync_backend import SyncBackend
from patience import until, untraced

Drive = Callable[..., Driver]
SERVICE = "https://api.example/v1"


def prompt(client: Any) -> Any:
    return client.stk.initiate(amount=1, phone="0712345678")


def payout(client: Any) -> Any:
    return client.payouts.initiate(amount=10, phone="0712345678", reference="P-1")


def balance(client: Any) -> Any:
    return client.wallet.balance()


def chain(error: BaseException | None) -> list[BaseException]:
    found = list[BaseException]()
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found


# What the socket does.


def test_when_all_connections_stay_busy_a_payment_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_backend, "MAX_CONNECTIONS", 1)
    answer = threading.Event()
    with (
        wire.serve(wire.first(lambda: answer.wait(wire.PATIENCE), wire.succeeds())) as server,
        Client(KEY, base_url=server.base_url, budget=None, max_attempts=1) as client,
    ):
        thread = threading.Thread(target=client.wallet.balance)
        thread.start()
        until(lambda: server.requests, "the first request arrives")
        with pytest.raises(momopay.APIConnectionError, match="busy") as caught:
            prompt(client.with_options(timeout=0.05))
        answer.set()
        thread.join()
        assert not caught.value.may_have_executed
        assert prompt(client).transaction_id == wire.TRANSACTION_ID  # the slot is free again
        assert [request.method for request in server.requests] == ["GET", "POST"]


def test_a_resolver_that_hangs_does_not_outlast_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def resolve(*_asked: object, **_hints: object) -> list[Any]:
        released.wait(wire.PATIENCE)
        raise socket.gaierror

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    with (
        Client(KEY, base_url="http://localhost:1/v1", budget=None, timeout=0.05, max_attempts=1) as client,
        pytest.raises(momopay.APIConnectionError, match="not resolved") as caught,
    ):
        prompt(client)
    assert not released.is_set()
    released.set()
    assert not caught.value.may_have_executed


def test_closing_twice_is_closing_once(drive: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url)
        driver(lambda client: client.wallet.balance())
        for _ in range(2):
            driver(lambda client: client.aclose() if driver.client_kind == "async" else client.close())
        with pytest.raises(momopay.ConfigurationError, match="closed") as caught:
            driver(payout)
        assert not caught.value.may_have_executed
        assert len(server.requests) == 1


def test_the_users_transport_is_closed_with_the_client(drive: Drive) -> None:
    closed = list[int]()

    class Closing(httpx.MockTransport):
        def close(self) -> None:
            closed.append(1)

        async def aclose(self) -> None:
            closed.append(1)

    driver = drive(transport=Closing(lambda _request: httpx.Response(500)))
    driver(lambda client: client.aclose() if driver.client_kind == "async" else client.close())
    assert closed == [1]


def interrupt() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def test_an_interrupt_in_flight_propagates_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with wire.serve(wire.first(interrupt, wire.hangs()), wire.succeeds()) as server:
        with Client(KEY, base_url=server.base_url, budget=None, timeout=5.0) as client:
            with pytest.raises(KeyboardInterrupt):
                client.payouts.initiate(amount=10, phone="0712345678", reference="INV-42")
            assert (len(server.requests), server.payments) == (1, 1)
            assert client.wallet.balance().currency == "KES"
        assert [request.method for request in server.requests] == ["POST", "GET"]
    assert "outcome is unknown, reference 'INV-42'" in caplog.text
    assert "712345678" not in caplog.text


# What a failure is chained to, and what a foreign exception leaves behind.


def failing(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def handler(request: httpx.Request) -> httpx.Response:
        caller_local = f"seen {request.method}"
        assert caller_local
        raise error

    return handler


@pytest.mark.parametrize("kind", [NotSentError, NoReplyError])
def test_an_error_is_chained_to_what_the_transport_raised(drive: Drive, kind: type[Exception]) -> None:
    raised = httpx.ConnectError("refused") if kind is NotSentError else httpx.ReadTimeout("late")
    driver = drive(transport=httpx.MockTransport(failing(raised)), max_attempts=1)
    with pytest.raises(momopay.MomoPayError) as caught:
        driver(prompt)
    causes = chain(caught.value)
    assert causes[-1] is raised
    assert isinstance(causes[-2], kind)


def test_an_error_of_our_own_connection_is_chained_to_the_systems(drive: Drive) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(momopay.APIConnectionError) as caught:
        drive(base_url=f"http://127.0.0.1:{port}/v1", max_attempts=1)(prompt)
    assert any(isinstance(each, OSError) for each in chain(caught.value))


FOREIGN = [AssertionError("this call was not expected"), RuntimeError("a bug"), LookupError("unknown")]


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", [payout, balance])
def test_a_bug_in_a_transport_passes_through_unchanged(
    drive: Drive, call: Callable[[Any], Any], error: Exception
) -> None:
    calls = list[str]()

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(request.method)
        return failing(error)(request)

    driver = drive(transport=httpx.MockTransport(handler))
    with pytest.raises(type(error)) as caught:
        driver(call)
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert len(calls) == 1
    frame = caught.traceback[-1].frame
    assert frame.f_locals["caller_local"].startswith("seen")


def test_a_bug_in_a_transport_passes_through_from_a_retry_too(
    drive: Drive, no_backoff: None, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Callable[[httpx.Request], httpx.Response]] = [
        lambda _request: httpx.Response(503),
        failing(AssertionError("only one request was expected")),
    ]

    def handler(request: httpx.Request) -> httpx.Response:
        return answers.pop(0)(request)

    driver = drive(transport=httpx.MockTransport(handler))
    with pytest.raises(AssertionError, match="only one"):
        driver(lambda client: client.wallet.top_up(amount=1, phone="0712345678", account_reference="INV-42"))
    assert "outcome is unknown, reference 'INV-42'" in caplog.text


def pay_once(journal: Journal) -> Callable[[Any], Any]:
    return lambda client: client.payouts.pay_once(journal=journal, reference="P-1", amount=10, phone="0712345678")


def state_of(journal: Journal) -> JournalState | None:
    entry = journal.get("P-1")
    return entry.state if entry else None


@pytest.fixture
def journal(tmp_path: Any) -> Any:
    with Journal(f"sqlite:///{tmp_path / 'payouts.db'}") as journal:
        yield journal


def test_a_bug_in_a_transport_leaves_a_payment_unknown_because_it_may_have_been_sent(
    drive: Drive, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    learn_key(journal, SERVICE)
    driver = drive(base_url=SERVICE, transport=httpx.MockTransport(failing(RuntimeError("a bug"))))
    with pytest.raises(RuntimeError, match="a bug"):
        driver(pay_once(journal))
    assert state_of(journal) is JournalState.UNKNOWN
    assert "outcome is unknown" in caplog.text


@pytest.mark.parametrize(
    ("event", "state"),
    [
        ("connection.connect_tcp.started", JournalState.NOT_SENT),
        ("http11.send_request_headers.started", JournalState.UNKNOWN),
    ],
)
def test_a_transport_that_reports_its_progress_decides_what_a_bug_leaves(
    drive: Drive, journal: Journal, event: str, state: JournalState
) -> None:
    class Traced(httpx.BaseTransport, httpx.AsyncBaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            request.extensions["trace"](event, {})
            raise RuntimeError("a bug")

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await request.extensions["trace"](event, {})
            raise RuntimeError("a bug")

    learn_key(journal, SERVICE)
    with pytest.raises(RuntimeError, match="a bug"):
        drive(base_url=SERVICE, transport=Traced())(pay_once(journal))
    assert state_of(journal) is state


@pytest.mark.parametrize(
    ("place", "state", "requests"),
    [("connect_tcp", JournalState.NOT_SENT, 0), ("read", JournalState.UNKNOWN, 1)],
)
def test_over_our_own_connections_a_payment_is_unknown_only_once_it_was_written(
    drive: Drive, journal: Journal, monkeypatch: pytest.MonkeyPatch, place: str, state: JournalState, requests: int
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("a bug")

    with wire.serve(wire.succeeds()) as server:
        learn_key(journal, server.base_url)
        for kind in ("SyncNetwork", "AsyncNetwork") if place == "connect_tcp" else ("SyncStream", "AsyncStream"):
            monkeypatch.setattr(f"momopay._transport.network.{kind}.{place}", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            drive(base_url=server.base_url)(pay_once(journal))
        until(lambda: len(server.requests) == requests)
    assert state_of(journal) is state


def test_a_bug_before_a_connection_is_made_leaves_a_payment_not_sent(
    drive: Drive, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    learn_key(journal, SERVICE)
    monkeypatch.setattr("momopay._transport.connections._shared_tls_context", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        drive(base_url=SERVICE)(pay_once(journal))
    assert state_of(journal) is JournalState.NOT_SENT


# Transports of the user's, and what is believed of them.


class Dripping(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers byte by byte, a second of virtual time for each, and never blocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
        self.now = 1000.0
        self.body = body
        self.passed = 0
        monkeypatch.setattr(clock, "now", lambda: self.now)

    def _drip(self) -> Iterator[bytes]:
        for each in self.body:
            self.now += 1.0
            self.passed += 1
            yield bytes([each])

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=self._drip())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        async def drip() -> AsyncIterator[bytes]:
            for each in self._drip():
                yield each

        return httpx.Response(200, content=drip())


def test_the_timeout_holds_over_a_transport_that_drips(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    body = wire.envelope(wire.record_for(wire.Request("POST", "/payments/stk", {}, b"", 0.0)))
    dripping = Dripping(monkeypatch, body)
    with pytest.raises(momopay.OutcomeUnknownError) as caught:
        drive(transport=dripping, timeout=20.0)(prompt)
    assert dripping.passed == 21
    assert "within the timeout" in str(caught.value)


def test_a_transport_that_drips_in_time_is_read_to_its_end(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    body = wire.envelope(wire.record_for(wire.Request("POST", "/payments/stk", {}, b"", 0.0)))
    dripping = Dripping(monkeypatch, body)
    seconds = float(len(body) + 1)
    assert drive(transport=dripping, timeout=seconds, deadline=seconds)(prompt).transaction_id == wire.TRANSACTION_ID


def test_a_transport_that_fails_after_it_has_sent_has_sent() -> None:
    class Auditing(httpx.HTTPTransport):
        """Sends, and then cannot reach its audit log."""

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            super().handle_request(request).close()
            raise httpx.ConnectError("the audit log is away")

    with (
        wire.serve(wire.succeeds(), wire.succeeds()) as server,
        Client(KEY, base_url=server.base_url, budget=None, transport=Auditing()) as client,
    ):
        with pytest.raises(momopay.OutcomeUnknownError):
            prompt(client)
        assert len(server.requests) == 1


def drive_to_end(coroutine: Any) -> Any:
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    return stop.value.value


def test_no_method_of_the_backend_suspends() -> None:
    backend = SyncBackend()
    assert drive_to_end(backend.in_thread(threading.get_ident)) == threading.get_ident()
    assert drive_to_end(backend.sleep(0)) is None
    signal = backend.signal()
    signal.set()
    drive_to_end(signal.wait(wire.PATIENCE))
    drive_to_end(signal.wait(0))  # a signal wakes once
    drive_to_end(backend.close())


# Exceptions out of signal handlers, such as Ctrl-C or Celery's soft time limit. Python runs a handler between any two
# calls, so what is written in Python may be left half done.


left_behind = pytest.mark.filterwarnings(  # what was struck before it could begin, or end
    "ignore::RuntimeWarning", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


class StruckError(Exception):
    """What the signal handler raises."""


@contextmanager
def striking() -> Generator[Callable[[float], None]]:
    """Yield what has an exception raised in this thread so many seconds later."""

    def strike(_number: int, _frame: object) -> None:
        raise StruckError

    earlier = signal.signal(signal.SIGALRM, strike)
    try:
        # Again a little later: an exception in a destructor is only printed.
        with untraced():
            yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds, 0.1) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def use_and_strike(use: Callable[[], object], times: int, *, most: float) -> None:
    """Use something so often, each time struck at a random moment within it."""
    random = Random(7)
    with striking() as strike_after:
        for _ in range(times):
            with suppress(StruckError):
                strike_after(random.uniform(1e-6, most))
                while True:
                    use()


def ends_in_time(work: Callable[[], object], seconds: float = 5.0) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


@left_behind
def test_a_signal_that_was_interrupted_can_be_set_and_waited_for() -> None:
    waking = SyncBackend().signal()

    def use() -> None:
        waking.set()
        run_blocking(waking.wait(0.001))

    use_and_strike(use, 1000, most=1e-4)
    assert ends_in_time(waking.set)
    assert ends_in_time(lambda: run_blocking(waking.wait(wire.PATIENCE)))


@left_behind
def test_an_event_of_pythons_own_does_not_survive_that() -> None:
    """The negative control: its condition's lock stays held, and whoever sets it next waits for ever."""
    event = threading.Event()

    def use() -> None:
        event.set()
        event.wait(0.001)
        event.clear()

    for _ in range(20):
        with suppress(RuntimeError):  # it notices by itself that a lock is not held
            use_and_strike(use, 500, most=1e-4)
        if not ends_in_time(event.set, 1.0):
            return
    pytest.fail("the strikes are too weak to find a lock that stays held")


@left_behind
def test_interrupted_requests_lose_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_backend, "MAX_CONNECTIONS", 1)
    with (
        wire.serve(wire.succeeds()) as server,
        Client(KEY, base_url=server.base_url, budget=None, max_attempts=1, timeout=5.0) as client,
    ):
        client.wallet.balance()
        began = time.monotonic()
        client.wallet.balance()
        use_and_strike(client.wallet.balance, 300, most=3 * (time.monotonic() - began))
        assert client.wallet.balance().currency == "KES"
        assert prompt(client).transaction_id == wire.TRANSACTION_ID
