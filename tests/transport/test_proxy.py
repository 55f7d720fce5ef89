"""The options `proxy` and `verify`: what passes, who sees what, and that a refused tunnel is a request not sent."""

import base64
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

import momopay
import wire
from core.kit import initiate_payout as payout
from core.kit import read_balance as balance
from drivers import KEY, Drive, session_of
from hostile.tls import own_certificate
from in_turn import in_turn
from momopay import AsyncClient, Client
from patience import until
from transport.proxy import OPENED, Proxy, proxying
from transport.test_sockets import Server, assert_not_sent_when_late, serving, stands_still

__all__ = ["stands_still"]  # a fixture

BASE = "https://api.example/v1"
WAYS = ["forwarded", "tunnel"]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that nobody trusts unless it is told to."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return own_certificate(tmp_path, monkeypatch)


@pytest.fixture
def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.parent / "certificate"))


@pytest.fixture
def proxy() -> Generator[Proxy]:
    with proxying() as proxy:
        yield proxy


@pytest.fixture
def server(way: str, certificate: Path) -> Generator[Server]:
    with serving(None if way == "forwarded" else certificate) as server:
        yield server


@pytest.mark.parametrize("way", WAYS)
def test_payments_pass_a_proxy(drive: Drive, way: str, proxy: Proxy, server: Server, trusting: ssl.SSLContext) -> None:
    """Each payment has a connection of its own, so each opens a tunnel; the proxy's password is for the proxy alone."""
    driver = drive(base_url=server.base_url, proxy=proxy.url.replace("://", "://clerk:p%40ss@"), verify=trusting)
    for _ in range(2):
        assert driver(payout).transaction_id == wire.TRANSACTION_ID
    assert len(server.received) == 2
    for request in server.received:
        assert b"INV-42" in request
        assert b"POST /v1/b2c/payouts HTTP/1.1" in request
        assert b"roxy-" not in request
    until(lambda: len(proxy.ends) == 2, "the connections end")
    assert proxy.ends == ["closed", "closed"]
    port = httpx.URL(server.base_url).port or 0
    password = b"Proxy-Authorization: Basic " + base64.b64encode(b"clerk:p@ss")
    if way == "forwarded":
        for head in proxy.heads:
            assert head.startswith(b"POST http://127.0.0.1:%d/v1/b2c/payouts " % port)
            assert password in head.split(b"\r\n")
    else:
        opening = b"CONNECT localhost:%d HTTP/1.1\r\nHost: localhost:%d\r\n%b" % (port, port, password)
        assert (proxy.heads, b"INV-42" in proxy.tunnelled) == ([opening, opening], False)


REFUSALS = {
    "407": b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno",
    "502": b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
    "300": b"HTTP/1.1 300 Multiple Choices\r\n\r\n",
    "more than an answer": OPENED + b"x",
    "two answers": OPENED + OPENED,
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "another version": b"HTTP/2 200 OK\r\n\r\n",
    "no end": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 20_000,
}


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS)
def test_a_refused_tunnel_is_retried_as_not_sent(drive: Drive, answer: bytes, no_backoff: None) -> None:
    with proxying(answer=answer) as proxy:
        driver = drive(base_url="https://[2001:db8::1]/v1", proxy=proxy.url, max_attempts=3)
        with pytest.raises(momopay.APIConnectionError, match="the proxy opened no tunnel") as caught:
            driver(payout)
    assert not caught.value.may_have_executed
    assert [head.partition(b"\r\n")[0] for head in proxy.heads] == [b"CONNECT [2001:db8::1]:443 HTTP/1.1"] * 3


@pytest.mark.parametrize(("call", "answer"), [(payout, None), (balance, b"HTTP/1.1 200")])
def test_a_proxy_that_does_not_answer_is_waited_for_until_the_timeout(drive: Drive, call: Any, answer: Any) -> None:
    with proxying(answer=answer) as proxy:
        driver = drive(base_url=BASE, proxy=proxy.url, max_attempts=1, timeout=0.2)
        with pytest.raises(momopay.APIConnectionError, match=r"timeout|no connection") as caught:
            driver(call)
        assert not caught.value.may_have_executed
        until(lambda: proxy.ends, "the connection ends")


def test_a_proxy_that_is_not_there(drive: Drive) -> None:
    with pytest.raises(momopay.APIConnectionError, match="not sent"):
        drive(base_url=BASE, proxy="http://127.0.0.1:1", max_attempts=1)(payout)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [1, 2])
def test_a_payment_whose_time_passed_before_a_write_is_not_sent_to_a_proxy_either(
    drive: Drive,
    way: str,
    proxy: Proxy,
    server: Server,
    trusting: ssl.SSLContext,
    stands_still: Any,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    driver = drive(base_url=server.base_url, proxy=proxy.url, verify=trusting, deadline=8.0, max_attempts=1)
    assert_not_sent_when_late(driver, monkeypatch, stands_still, number)
    until(lambda: proxy.ends, "the connection ends")
    assert b"INV-42" not in b"".join(server.received)


@pytest.mark.parametrize("way", WAYS)
def test_no_answer_is_unknown(drive: Drive, way: str, proxy: Proxy, server: Server, trusting: ssl.SSLContext) -> None:
    server.answers = False
    with pytest.raises(momopay.OutcomeUnknownError):
        drive(base_url=server.base_url, proxy=proxy.url, verify=trusting, timeout=0.2)(payout)
    until(lambda: proxy.ends, "the connection ends")
    assert (proxy.ends, sum(b"INV-42" in request for request in server.received)) == (["reset"], 1)


@pytest.mark.parametrize("way", ["direct", "tunnel"])
def test_whom_verify_trusts(drive: Drive, way: str, proxy: Proxy, server: Server, trusting: ssl.SSLContext) -> None:
    options: dict[str, Any] = {"base_url": server.base_url, "max_attempts": 1}
    options |= {"proxy": proxy.url} if way == "tunnel" else {}
    for verify in ({}, {"verify": ssl.create_default_context()}):
        with pytest.raises(momopay.APIConnectionError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            drive(**options, **verify)(payout)
        assert not caught.value.may_have_executed
    assert server.received == []
    assert drive(**options, verify=trusting)(payout).transaction_id == wire.TRANSACTION_ID


def test_a_password_is_in_no_message_and_no_repr() -> None:
    with pytest.raises(momopay.ConfigurationError) as caught:
        Client(KEY, base_url=BASE, proxy="http://clerk:hidden@proxy.example/path")
    assert "hidden" not in f"{caught.value!r}"
    client = Client(KEY, base_url=BASE, proxy="http://clerk:hidden@proxy.example")
    backend = session_of(client).backend
    assert "hidden" not in f"{client!r}{backend._route!r}"
    assert base64.b64encode(b"clerk:hidden").decode() not in f"{backend._route!r}"


PROXIES = [
    *("", "proxy.example:3128", "ftp://proxy.example", "socks5://proxy.example:1080"),
    *("https://proxy.example:3128", "http://", "http://proxy.example/path", "http://proxy.example?x=1"),
    *("http://proxy.example:99999", "http://us er@proxy.example", 3128, b"http://proxy.example"),
    httpx.Proxy("http://proxy.example"),
]
TRANSPORT = httpx.MockTransport(lambda _request: httpx.Response(500))


@in_turn(
    ("options", "message"),
    [
        *(({"proxy": url}, r"^proxy must") for url in PROXIES),
        *(({"verify": verify}, r"ssl\.SSLContext") for verify in (True, False, "ca.pem", ssl.SSLContext)),
        ({"proxy": "http://proxy.example", "transport": TRANSPORT}, "configure the transport"),
        ({"verify": ssl.create_default_context(), "transport": TRANSPORT}, "configure the transport"),
    ],
)
@in_turn("kind", [Client, AsyncClient])
def test_options_without_sense_are_refused(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(momopay.ConfigurationError, match=message):
        kind(KEY, base_url=BASE, **options)
