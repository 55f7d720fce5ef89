"""Requests of the blocking client over real sockets and transports of the user's: what is sent, and what is known."""

import gzip
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import pytest
import respx

import momopay
import wire
from bodies import encoded, envelope, refusal, wallet
from core.kit import initiate_payout, initiate_stk, read_balance, top_up
from drivers import KEY, Drive, learn_key, session_of
from durable.kit import pay
from journal.kit import state_of
from momopay import Client, Journal, JournalState
from momopay._transport import clock, sync_backend
from momopay._transport.attempt import NoReplyError, NotSentError, now, run_blocking
from momopay._transport.sync_backend import SyncSignal
from patience import until
from test_redaction import chain, failing

SERVICE = "https://api.example/v1"
in_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def test_a_signal_wakes_one_wait() -> None:
    signal = SyncSignal()
    for is_set, seconds in ((False, 0.02), (True, wire.PATIENCE), (False, 0.02)):
        for _ in range(2 * is_set):
            signal.set()
        begun = now()
        run_blocking(signal.wait(seconds))
        assert (now() - begun < seconds / 2) is is_set


def read_after(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


def test_waits_in_turns_end_as_one_wait_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, Ctrl-C is noticed only between two turns; tests/windows/ctrl_c.py shows that."""
    for module in (sync_backend, clock):
        monkeypatch.setattr(module, "LONGEST_TURN", 0.005)
    test_a_signal_wakes_one_wait()
    assert clock.done_within(wire.PATIENCE, partial(read_after, 0.02), "slow") == "done"
    with pytest.raises(ZeroDivisionError):
        clock.done_within(wire.PATIENCE, lambda: 1 // 0, "wrong")
    begun = now()
    with pytest.raises(TimeoutError):
        clock.done_within(0.02, partial(read_after, 0.1), "too slow")
    assert now() - begun < 0.1
    once: dict[str, Any] = {"budget": None, "max_attempts": 1}
    with wire.full_backlog() as port:
        client = Client(KEY, base_url=f"http://127.0.0.1:{port}/v1", timeout=0.1, **once)
        with client, pytest.raises(momopay.APIConnectionError, match="ConnectTimeout: timed out"):
            client.wallet.balance()
    with wire.serve(wire.succeeds()) as server, Client(KEY, base_url=server.base_url, **once) as client:
        client.wallet.balance()
    client = Client(KEY, base_url=server.base_url, **once)
    with client, pytest.raises(momopay.APIConnectionError, match="refused"):
        client.wallet.balance()


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
        initiate_stk(client)
    assert not released.is_set()
    (thread,) = [each for each in threading.enumerate() if each.name == "momopay resolves localhost"]
    assert thread.daemon
    released.set()
    thread.join()
    assert not caught.value.may_have_executed


def test_closing_twice_is_closing_once(drive: Drive) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url)
        driver(read_balance)
        for _ in range(2):
            driver(lambda client: client.aclose() if driver.client_kind == "async" else client.close())
        with pytest.raises(momopay.ConfigurationError, match="closed") as caught:
            driver(initiate_payout)
        assert not caught.value.may_have_executed
        assert len(server.requests) == 1


def test_a_connection_in_use_is_not_kept_by_a_client_that_was_closed_meanwhile() -> None:
    with ExitStack() as stack, wire.serve(wire.first(stack.close, wire.succeeds())) as server:
        client = stack.enter_context(Client(KEY, base_url=server.base_url, budget=None))
        read_balance(client)
        assert session_of(client).backend._idle.drain() == []


def test_the_users_transport_has_the_timeout_and_is_closed_with_the_client_as_the_budget_is(drive: Drive) -> None:
    closed = list[int]()

    class Budget(momopay.RateBudget):
        def close(self) -> None:
            closed.append(2)

    class Closing(httpx.MockTransport):
        def close(self) -> None:
            closed.append(1)

        async def aclose(self) -> None:
            closed.append(1)

    def answer(request: httpx.Request) -> httpx.Response:
        times.append(request.extensions["timeout"])
        return httpx.Response(200)

    times = list[dict[str, float]]()
    driver = drive(transport=Closing(answer), budget=Budget(), timeout=10.0)
    with pytest.raises(momopay.ProtocolError):
        driver(read_balance)
    of_each = {} if driver.client_kind == "async" else {"read": 10.0, "write": 10.0}
    assert times == [{"connect": 9.0, "pool": 9.0, **of_each}]
    driver(lambda client: client.aclose() if driver.client_kind == "async" else client.close())
    assert sorted(closed) == [1, 2]


def interrupt() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def test_an_interrupt_in_flight_propagates_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with wire.serve(wire.first(interrupt, wire.hangs()), wire.succeeds()) as server:
        with Client(KEY, base_url=server.base_url, budget=None, timeout=5.0) as client:
            with pytest.raises(KeyboardInterrupt):
                initiate_payout(client)
            assert (len(server.requests), server.payments) == (1, 1)
            assert client.wallet.balance().currency == "KES"
        assert [request.method for request in server.requests] == ["POST", "GET"]
    assert "outcome is unknown, reference 'INV-42'" in caplog.text
    assert "712345678" not in caplog.text


@pytest.mark.parametrize("kind", [NotSentError, NoReplyError])
def test_an_error_is_chained_to_what_the_transport_raised(drive: Drive, kind: type[Exception]) -> None:
    raised = httpx.ConnectError("refused") if kind is NotSentError else httpx.ReadTimeout("late")
    driver = drive(transport=httpx.MockTransport(failing(raised)), max_attempts=1)
    with pytest.raises(momopay.MomoPayError) as caught:
        driver(initiate_stk)
    *_, reported, cause = chain(caught.value)
    assert (type(reported), cause) == (kind, raised)


@pytest.mark.parametrize("call", [initiate_payout, read_balance])
def test_a_bug_in_a_transport_passes_through_unchanged(drive: Drive, call: Callable[[Any], Any]) -> None:
    error, methods = AssertionError("this call was not expected"), list[str]()

    def handler(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        raise error

    driver = drive(transport=httpx.MockTransport(handler))
    with pytest.raises(AssertionError) as caught:
        driver(call)
    assert (caught.value, caught.value.__cause__, len(methods)) == (error, None, 1)
    assert "request" in caught.traceback[-1].frame.f_locals


def test_a_bug_in_a_retry_passes_through(drive: Drive, no_backoff: None, caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Callable[[httpx.Request], httpx.Response]] = [
        lambda _request: httpx.Response(503),
        failing(AssertionError("only one request was expected")),
    ]

    def handler(request: httpx.Request) -> httpx.Response:
        return answers.pop(0)(request)

    driver = drive(transport=httpx.MockTransport(handler))
    with pytest.raises(AssertionError, match="only one"):
        driver(top_up)
    assert "outcome is unknown, reference 'INV-42'" in caplog.text


@in_sqlite
@pytest.mark.parametrize(
    ("event", "state"),
    [
        *(("nothing that is known", JournalState.UNKNOWN), ("connection.connect_tcp.started", JournalState.NOT_SENT)),
        ("http11.send_request_headers.started", JournalState.UNKNOWN),
    ],
)
def test_progress_decides_what_a_bug_leaves(drive: Drive, journal: Journal, event: str, state: JournalState) -> None:
    class Traced(httpx.BaseTransport, httpx.AsyncBaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            request.extensions["trace"](event, {})
            raise RuntimeError("a bug")

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await request.extensions["trace"](event, {})
            raise RuntimeError("a bug")

    learn_key(journal, SERVICE)
    with pytest.raises(RuntimeError, match="a bug"):
        drive(base_url=SERVICE, transport=Traced())(pay(journal))
    assert state_of(journal) is state


@in_sqlite
@pytest.mark.parametrize(
    ("place", "state", "requests"), [("_connect", JournalState.NOT_SENT, 0), ("read", JournalState.UNKNOWN, 1)]
)
def test_over_our_own_connections_a_payment_is_unknown_only_once_it_was_written(
    drive: Drive, journal: Journal, monkeypatch: pytest.MonkeyPatch, place: str, state: JournalState, requests: int
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("a bug")

    with wire.serve(wire.succeeds()) as server:
        learn_key(journal, server.base_url)
        monkeypatch.setattr(f"momopay._transport.sync_backend.SyncSocket.{place}", fail)
        monkeypatch.setattr(f"momopay._transport.async_backend.AsyncSocket.{place}", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            drive(base_url=server.base_url)(pay(journal))
        until(lambda: len(server.requests) == requests)
    assert state_of(journal) is state


@pytest.mark.usefixtures("no_backoff")
@respx.mock
def test_respx_answers(drive: Drive) -> None:
    route = respx.get(f"{SERVICE}/wallets/service/balance")
    route.side_effect = [httpx.ReadTimeout, httpx.Response(200, json=envelope(wallet()))]
    assert (drive()(read_balance).currency, route.call_count) == ("KES", 2)


@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.WriteError, httpx.ConnectError])
@respx.mock
def test_a_payment_that_respx_loses_may_have_executed(drive: Drive, error: type[Exception]) -> None:
    # Also ConnectError: only httpcore and the operating system are believed that nothing was sent.
    route = respx.post(f"{SERVICE}/b2c/payouts").mock(side_effect=error)
    with pytest.raises(momopay.OutcomeUnknownError):
        drive()(initiate_payout)
    assert route.call_count == 1


@pytest.mark.parametrize("error", [httpx.ReadTimeout("slow"), None])
def test_a_patched_transport_is_used(drive: Drive, monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    """pytest-httpx and vcrpy replace these two methods."""
    requests = list[httpx.Request]()

    def answer(_transport: object, request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if error is not None:
            raise error
        return httpx.Response(400, content=encoded(refusal("INVALID_PHONE")))

    async def answer_async(transport: object, request: httpx.Request) -> httpx.Response:
        return answer(transport, request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", answer)
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", answer_async)
    with pytest.raises(momopay.OutcomeUnknownError if error else momopay.InvalidPhoneError):
        drive()(initiate_payout)
    assert [str(request.url) for request in requests] == [f"{SERVICE}/b2c/payouts"]


class Wrapping(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Does something with each response of httpx's own transport, and returns that or another."""

    def __init__(self, way: str, client_kind: str) -> None:
        self.way = way
        kind = httpx.HTTPTransport if client_kind == "blocking" else httpx.AsyncHTTPTransport
        self.inner: Any = kind(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = self.inner.handle_request(request)
        if self.way == "swallow":
            list(response.iter_raw())
        elif self.way == "close":
            response.close()
        else:
            response.read()
        return copied(response) if self.way == "copy" else response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response: httpx.Response = await self.inner.handle_async_request(request)
        if self.way == "swallow":
            [_chunk async for _chunk in response.aiter_raw()]
        elif self.way == "close":
            await response.aclose()
        else:
            await response.aread()
        return copied(response) if self.way == "copy" else response

    def close(self) -> None:
        self.inner.close()

    async def aclose(self) -> None:
        await self.inner.aclose()


def copied(response: httpx.Response) -> httpx.Response:
    return httpx.Response(response.status_code, content=response.content)


def compressed() -> wire.Step:
    def play(exchange: wire.Exchange) -> bool:
        body = gzip.compress(encoded(envelope(wire.record_for(exchange.request))))
        exchange.sock.sendall(wire.whole(200, body, {"Content-Encoding": "gzip"}))
        return True

    return wire.Step(play, commits=True)


@pytest.mark.parametrize("way", ["log", "copy"])
def test_a_response_that_was_read_is_accepted(drive: Drive, client_kind: str, way: str) -> None:
    with wire.serve(wire.succeeds(), compressed()) as server:
        driver = drive(base_url=server.base_url, transport=Wrapping(way, client_kind), timeout=2.0)
        begun = time.process_time()
        assert (driver(read_balance).currency, driver(initiate_payout).transaction_id) == ("KES", wire.TRANSACTION_ID)
        assert time.process_time() - begun < 1.0  # httpcore's stream, read again at its end, would never return
        assert (len(server.requests), server.payments) == (2, 1)


@pytest.mark.parametrize("way", ["swallow", "close"])
def test_a_response_whose_body_is_gone_is_no_answer(drive: Drive, client_kind: str, way: str) -> None:
    with wire.serve(wire.succeeds()) as server:
        driver = drive(base_url=server.base_url, transport=Wrapping(way, client_kind), timeout=2.0, max_attempts=1)
        with pytest.raises(momopay.OutcomeUnknownError):
            driver(initiate_payout)
        with pytest.raises(momopay.APIConnectionError):
            driver(read_balance)
        assert server.payments == 1


def test_a_mocks_response_may_be_returned_twice(drive: Drive) -> None:
    answer = httpx.Response(200, json=envelope(wallet()))
    driver = drive(transport=httpx.MockTransport(lambda _request: answer))
    assert [driver(read_balance).currency for _ in range(2)] == ["KES", "KES"]
