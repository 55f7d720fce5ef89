"""The options `proxy` and `verify`: what passes, who sees what, and that a refused tunnel is a request not sent."""

import base64
import ssl
from typing import Any

import httpx
import pytest

import momopay
import wire
from core.kit import initiate_payout, read_balance
from drivers import KEY, Drive, session_of
from in_turn import in_turn
from momopay import AsyncClient, Client
from patience import until
from transport.conftest import Way
from transport.proxy import OPENED, Proxy, proxying

BASE = "https://api.example/v1"
past_a_proxy = pytest.mark.parametrize("way", ["forwarded", "tunnel"], indirect=True)


@past_a_proxy
def test_payments_pass_a_proxy(drive: Drive, way: Way, proxy: Proxy) -> None:
    """Each payment has a connection of its own, so each opens a tunnel; the proxy's password is for the proxy alone."""
    driver = drive(**way.options | {"proxy": proxy.url.replace("://", "://clerk:p%40ss@")})
    for _ in range(2):
        assert driver(initiate_payout).transaction_id == wire.TRANSACTION_ID
    assert way.server.payments == len(way.server.requests) == 2
    for request in way.server.requests:
        assert (request.method, request.path) == ("POST", "/v1/b2c/payouts")
        assert not any(name.startswith("proxy-") for name in request.headers)
    until(lambda: len(proxy.ends) == 2, "the connections end")
    assert proxy.ends == ["closed", "closed"]
    port = way.server.port
    password = b"Proxy-Authorization: Basic " + base64.b64encode(b"clerk:p@ss")
    if way.server.certificate is None:
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
            driver(initiate_payout)
    assert not caught.value.may_have_executed
    assert [head.partition(b"\r\n")[0] for head in proxy.heads] == [b"CONNECT [2001:db8::1]:443 HTTP/1.1"] * 3


@pytest.mark.parametrize(("call", "answer"), [(initiate_payout, None), (read_balance, b"HTTP/1.1 200")])
def test_a_proxy_that_does_not_answer_is_waited_for_until_the_timeout(drive: Drive, call: Any, answer: Any) -> None:
    with proxying(answer=answer) as proxy:
        url = proxy.url.replace("localhost", "127.0.0.1")  # to resolve a name may take a busy machine longer
        driver = drive(base_url=BASE, proxy=url, max_attempts=1, timeout=0.2)
        with pytest.raises(momopay.APIConnectionError, match=r"timeout|no connection") as caught:
            driver(call)
        assert not caught.value.may_have_executed
        until(lambda: proxy.ends, "the connection ends")


def test_a_proxy_that_is_not_there(drive: Drive) -> None:
    with pytest.raises(momopay.APIConnectionError, match="not sent"):
        drive(base_url=BASE, proxy="http://127.0.0.1:1", max_attempts=1)(initiate_payout)


@pytest.mark.parametrize("way", ["tls", "tunnel"], indirect=True)
def test_whom_verify_trusts(drive: Drive, way: Way) -> None:
    for verify in ({}, {"verify": ssl.create_default_context()}):
        options = {name: value for name, value in way.options.items() if name != "verify"} | verify
        with pytest.raises(momopay.APIConnectionError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            drive(**options, max_attempts=1)(initiate_payout)
        assert not caught.value.may_have_executed
    assert way.server.requests == []
    assert drive(**way.options)(initiate_payout).transaction_id == wire.TRANSACTION_ID


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
