"""Connections that are slow or bring too much: the time that was set holds, over ours or a transport of one's own."""

import time
from typing import Any

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

import momopay
import wire
from drivers import Drive, Driver
from hostile.endpoints import PAYOUT, Call, outcome
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


def test_the_ruler_can_tell() -> None:
    """httpx by itself bounds each read, and so outlives its timeout under the same drip."""
    with wire.serve(DRIPS["body"]) as server, httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
        began = time.monotonic()
        with client.stream("GET", f"{server.base_url}/wallets/service/balance") as response:
            for _ in response.iter_bytes():
                if time.monotonic() - began > TIMEOUT + GRACE:
                    break
        assert time.monotonic() - began > TIMEOUT + GRACE
