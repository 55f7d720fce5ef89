"""A server that drips, in TLS or not, over our connections or a transport of one's own: the time that was set holds."""

import socket
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

import momopay
import wire
from drivers import Driver
from hostile.endpoints import PAYOUT, Call, outcome
from hostile.tls import dripping, own_certificate
from wire import Step

Reach = Callable[..., Driver]
TIMEOUT = 0.2
GRACE = 0.25

DRIPS = {
    "headers": wire.drips_headers(),
    "body": wire.drips_body(),
    "chunks": wire.drips_body(chunked=True),
    "interim": wire.interim_for_ever(),
}


def timed(act: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    return act(), time.monotonic() - began


@pytest.mark.parametrize(
    ("step", "encrypted"),
    [*((step, None) for step in DRIPS.values()), (wire.succeeds(), "records")],
    ids=[*DRIPS, "records"],
)
def test_the_timeout_holds_within_tls(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, tmp_path: Any, step: Step, encrypted: Any
) -> None:
    certificate = own_certificate(tmp_path, monkeypatch)
    with dripping(certificate, step, encrypted=encrypted) as port:
        driver = drive(base_url=f"https://localhost:{port}/v1", timeout=TIMEOUT)
        error, took = timed(lambda: outcome(driver, PAYOUT))
        assert type(error) is momopay.OutcomeUnknownError
        assert TIMEOUT <= took < TIMEOUT + GRACE


def test_a_whole_answer_within_tls_is_read(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """So that the drips within TLS fail for their slowness."""
    with dripping(own_certificate(tmp_path, monkeypatch), wire.succeeds()) as port:
        driver = drive(base_url=f"https://localhost:{port}/v1", timeout=5.0)
        assert outcome(driver, PAYOUT).transaction_id == wire.TRANSACTION_ID


def test_a_handshake_that_drips_means_not_sent(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    with dripping(own_certificate(tmp_path, monkeypatch), wire.succeeds(), encrypted="handshake") as port:
        driver = drive(base_url=f"https://localhost:{port}/v1", timeout=TIMEOUT, max_attempts=1)
        error, took = timed(lambda: outcome(driver, PAYOUT))
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
    "interim": flood(b"HTTP/1.1 103 Early Hints\r\n\r\n", behind=b""),
    "chunks_of_one_byte": flood(b"1\r\n \r\n", behind=wire.head(200, {"Transfer-Encoding": "chunked"})),
    "headers": flood(b"X: y\r\n", behind=b"HTTP/1.1 200 OK\r\n"),
}


@pytest.mark.parametrize("step", FLOODS.values(), ids=FLOODS)
def test_the_timeout_holds_under_a_flood(reach: Reach, step: Step) -> None:
    with wire.serve(step) as server:
        driver = reach(server, timeout=TIMEOUT)
        error, took = timed(lambda: outcome(driver, PAYOUT))
        assert type(error) is momopay.OutcomeUnknownError
        assert took < TIMEOUT + GRACE
        assert len(server.requests) == 1


def test_the_timeout_holds_where_the_request_is_not_taken(drive: Callable[..., Driver]) -> None:
    long = "x" * (4 * wire.MEBIBYTE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        driver = drive(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=TIMEOUT, max_attempts=1)
        error, took = timed(
            lambda: outcome(driver, Call("long", lambda client: client.channels.update("c", name=long), {}))
        )
        assert type(error) is momopay.APIConnectionError
        assert error.may_have_executed
        assert took < TIMEOUT + GRACE


@pytest.mark.parametrize(
    ("client_kind", "transport", "drip"),
    [
        *(("async", transport, drip) for transport in (httpx.AsyncHTTPTransport, AiohttpTransport) for drip in DRIPS),
        # Of a blocking transport, the time of the body is bounded, as the client's docstring says.
        *(("blocking", httpx.HTTPTransport, drip) for drip in ("body", "chunks")),
    ],
)
def test_the_timeout_holds_over_a_transport_of_ones_own(reach: Reach, transport: type[Any], drip: str) -> None:
    with wire.serve(DRIPS[drip]) as server:
        driver = reach(server, timeout=TIMEOUT, transport=transport())
        error, took = timed(lambda: outcome(driver, PAYOUT))
        assert type(error) is momopay.OutcomeUnknownError
        assert took < TIMEOUT + GRACE
        assert len(server.requests) == 1


def test_the_ruler_can_tell() -> None:
    """httpx by itself bounds each read, and so outlives its timeout under the same drip."""
    with wire.serve(DRIPS["body"]) as server, httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
        began = time.monotonic()
        with client.stream("GET", f"{server.base_url}/wallets/service/balance") as response:
            for _ in response.iter_bytes():
                if time.monotonic() - began > TIMEOUT + GRACE:
                    break
        assert time.monotonic() - began > TIMEOUT + GRACE
