"""Connections that are slow or bring too much: the time that was set holds, and no record is the next response.

In TLS or not, over our connections or a transport of one's own.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

import momopay
import wire
from drivers import Drive, Driver
from hostile.endpoints import PAYOUT, TRANSACTION, Call, outcome
from hostile.tls import dripping, own_certificate
from momopay._transport.sockets import AttemptSocket
from patience import beside
from wire import Step

TIMEOUT = 0.2
GRACE = 1.0

DRIPS = {
    "headers": wire.drips_headers(),
    "body": wire.drips_body(),
    "chunks": wire.drips_body(chunked=True),
    "interim": wire.interim_for_ever(),
}


def timed(driver: Driver, call: Call = PAYOUT) -> tuple[Any, float]:
    began = time.monotonic()
    return outcome(driver, call), time.monotonic() - began


def assert_ends_in_time(driver: Driver, *, least: float = 0.0) -> None:
    error, took = timed(driver)
    assert type(error) is momopay.OutcomeUnknownError
    assert least <= took < TIMEOUT + GRACE


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_certificate(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("step", "encrypted"),
    [*((step, None) for step in DRIPS.values()), (wire.succeeds(), "records")],
    ids=[*DRIPS, "records"],
)
def test_the_timeout_holds_within_tls(drive: Drive, certificate: Path, step: Step, encrypted: Any) -> None:
    with dripping(certificate, step, encrypted=encrypted) as port:
        assert_ends_in_time(drive(base_url=f"https://localhost:{port}/v1", timeout=TIMEOUT), least=TIMEOUT)


def test_a_whole_answer_within_tls_is_read(drive: Drive, certificate: Path) -> None:
    """So that the drips within TLS fail for their slowness."""
    with dripping(certificate, wire.succeeds()) as port:
        driver = drive(base_url=f"https://localhost:{port}/v1", timeout=5.0)
        assert outcome(driver, PAYOUT).transaction_id == wire.TRANSACTION_ID


def test_a_handshake_that_drips_means_not_sent(drive: Drive, certificate: Path) -> None:
    with dripping(certificate, wire.succeeds(), encrypted="handshake") as port:
        error, took = timed(drive(base_url=f"https://localhost:{port}/v1", timeout=TIMEOUT, max_attempts=1))
        assert type(error) is momopay.APIConnectionError
        assert not error.may_have_executed
        assert took < TIMEOUT + GRACE


def flood(unit: bytes, *, behind: bytes) -> Step:
    """As fast as the socket takes it, for ever."""
    block = unit * (65536 // len(unit))

    def play(exchange: wire.Exchange) -> bool:
        exchange.sock.sendall(behind)
        while not exchange.stopping.is_set():
            exchange.sock.sendall(block)
        return False

    return Step(play)


FLOODS = {
    "endless_interim": flood(b"HTTP/1.1 103 Early Hints\r\n\r\n", behind=b""),
    "chunks_of_one_byte": flood(b"1\r\n \r\n", behind=wire.head(200, {"Transfer-Encoding": "chunked"})),
    "endless_headers": flood(b"X: y\r\n", behind=b"HTTP/1.1 200 OK\r\n"),
}


@pytest.mark.parametrize(
    ("client_kind", "transport", "step"),
    [
        *((client_kind, None, flood) for client_kind in ("blocking", "async") for flood in FLOODS),
        *(("async", transport, drip) for transport in (httpx.AsyncHTTPTransport, AiohttpTransport) for drip in DRIPS),
        # Of a blocking transport, the time of the body is bounded, as the client's docstring says.
        *(("blocking", httpx.HTTPTransport, drip) for drip in ("body", "chunks")),
    ],
)
def test_the_timeout_holds_under_a_flood_and_over_other_transports(reach: Drive, transport: Any, step: str) -> None:
    with wire.serve({**DRIPS, **FLOODS}[step]) as server:
        assert_ends_in_time(reach(server, timeout=TIMEOUT, transport=transport and transport()))
        assert len(server.requests) == 1


def test_the_timeout_holds_where_the_request_is_not_taken(drive: Drive) -> None:
    long = Call("long", lambda client: client.request("PUT", "/long", json="x" * (4 * wire.MEBIBYTE)), {})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        driver = drive(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=TIMEOUT, max_attempts=1)
        error, took = timed(driver, long)
        assert type(error) is momopay.OutcomeUnknownError
        assert error.may_have_executed
        assert took < TIMEOUT + GRACE


def test_the_ruler_can_tell() -> None:
    """httpx by itself bounds each read, and so outlives its timeout under the same drip."""
    with wire.serve(DRIPS["body"]) as server, httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
        began = time.monotonic()
        with client.stream("GET", f"{server.base_url}/wallets/service/balance") as response:
            for _ in response.iter_bytes():
                if time.monotonic() - began > TIMEOUT + GRACE:
                    break
        assert time.monotonic() - began > TIMEOUT + GRACE


def record(identity: str, status: str = "PENDING") -> bytes:
    return wire.whole(200, wire.envelope({**TRANSACTION, "transactionId": identity, "status": status}))


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A TLS server that sends two responses to the first request, each in its own record, and all in one write.

    A test asks for it before its client: the client is closed first, and the server waits for that.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate(tmp_path, monkeypatch))
    answers = [[record("first"), record("stale", "SUCCESS")], [record("second")]]
    with socket.create_server(("127.0.0.1", 0)) as listener, beside(serve, listener, context, answers):
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket, context: ssl.SSLContext, answers: list[list[bytes]]) -> None:
    """Answer requests, each by several records, on as many connections as the client opens."""
    with suppress(OSError):  # the test is over
        while answers:
            plain = listener.accept()[0]
            plain.settimeout(wire.PATIENCE)
            with suppress(OSError), context.wrap_socket(plain, server_side=True) as sock:
                while answers and sock.recv(65_536):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                    for answer in answers.pop(0):
                        sock.sendall(answer)  # one record each
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
                sock.recv(1)  # until the client closes it


def read_two(driver: Driver) -> list[tuple[str, str]]:
    first = driver(lambda client: client.transactions.get("first"))
    second = driver(lambda client: client.transactions.get("second"))
    return [(each.transaction_id, each.status) for each in (first, second)]


def test_a_record_that_follows_a_response_is_not_the_next_response(port: int, drive: Drive) -> None:
    driver = drive(base_url=f"https://localhost:{port}/v1", max_attempts=1)
    assert read_two(driver) == [("first", "PENDING"), ("second", "PENDING")]


def test_without_the_check_a_stale_success_is_read(port: int, drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second record is still in the socket, where a poll finds it before the connection is used again."""

    def nothing(_self: object) -> bool:
        return False

    monkeypatch.setattr(AttemptSocket, "is_readable", nothing)
    driver = drive(base_url=f"https://localhost:{port}/v1", max_attempts=1)
    assert read_two(driver) == [("first", "PENDING"), ("stale", "SUCCESS")]
