"""Where requests go, and where they never go: elsewhere by a redirect, through a proxy, out of /v1, with a cookie."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport
from hypothesis import given
from hypothesis import strategies as st

import momopay
import wire
from drivers import KEY, Driver
from hostile.endpoints import BALANCE, PAGE, PAYOUT, READ, TRANSACTION, Call, outcome, success
from momopay.urls import check_base_url

Reach = Callable[..., Driver]

# Redirects.


@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
@pytest.mark.parametrize("call", [READ, PAYOUT], ids=str)
def test_no_redirect_is_followed_however_it_is_put(reach: Reach, call: Call, status: int) -> None:
    with wire.serve(wire.succeeds()) as elsewhere, wire.serve(wire.succeeds()) as server:
        for location in (f"{elsewhere.base_url}/b2c/payouts", f"//127.0.0.1:{elsewhere.port}/v1", "/v1/elsewhere"):
            told = {"Location": location, "Refresh": f"0; url={location}", "Content-Location": location}
            server.script = (wire.answers(status, success(call.data), headers=told),)
            server.requests.clear()
            error = outcome(reach(server, max_attempts=4), call)
            assert isinstance(error, momopay.MomoPayError)
            assert error.may_have_executed is (call.method != "GET")
            assert len(server.requests) == 1
        assert elsewhere.connections == 0


@pytest.mark.parametrize("transport", [httpx.AsyncHTTPTransport, AiohttpTransport])
def test_no_redirect_is_followed_over_a_transport_of_ones_own(transport: type[Any]) -> None:
    async def main(base_url: str) -> None:
        async with momopay.AsyncClient(KEY, base_url=base_url, budget=None, transport=transport()) as client:
            with pytest.raises(momopay.ProtocolError, match="HTTP 302"):
                await client.wallet.balance()
            with pytest.raises(momopay.OutcomeUnknownError):
                await PAYOUT.use(client)

    with wire.serve(wire.succeeds()) as elsewhere, wire.serve(wire.succeeds()) as server:
        server.script = (wire.answers(302, headers={"Location": elsewhere.base_url}),)
        asyncio.run(main(server.base_url))
        assert (len(server.requests), elsewhere.connections) == (2, 0)


# What the environment, or an earlier answer, would have a careless client do.


def test_neither_proxies_nor_netrc_nor_cookies_come_into_play(
    reach: Reach, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("default login someone password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with wire.serve(wire.succeeds()) as proxy, wire.serve(wire.succeeds()) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "")
        answer = success(BALANCE.data)
        server.script = (wire.answers(200, answer, headers={"Set-Cookie": "session=1; Path=/"}),)
        driver = reach(server, base_url=server.base_url.replace("127.0.0.1", "localhost"), api_key=KEY)
        for _ in range(2):
            assert outcome(driver, BALANCE).wallet_id
        assert proxy.connections == 0
        for request in server.requests:
            assert request.headers["authorization"] == "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
            assert "cookie" not in request.headers

        with httpx.Client() as careless:  # the same environment, and a client that minds it
            careless.get("http://service.example/v1/wallets/service/balance")
        assert proxy.connections == 1


# Ids and cursors stay what they are, also through a transport that parses the URL once more.

TRICKS = [
    "../../b2c/payouts",
    "..%2f..%2fb2c%2fpayouts",
    "%2e%2e",
    "%2E%2E%2F",
    ".%2e",
    "..\\..\\",
    "..;/x",
    "...",
    "/",
    "//evil.example/v1",
    "http://evil.example/",
    "?status=SUCCESS",
    "x#y",
    "x&limit=1",
    "x@evil.example",
    "x:80",
    "a b",
    "a+b",
    "%",
    "%00",
    "\x00",
    "\r\nX-Injected: 1",
    " HTTP/1.1\r\nHost: evil.example\r\n\r\nGET /x",
    "\u2025/\u2025",
    "\uff0e\uff0e\uff0fx",
    "\u202egro",
    "e\u0301",
    "\U0001f4b8",
]
BY_ID: dict[str, tuple[str, str, Callable[[Any, str], Any]]] = {
    "transaction": ("GET", "/v1/transactions/", lambda client, identity: client.transactions.get(identity)),
    "channel": ("GET", "/v1/payment-wallet/channels/", lambda client, identity: client.channels.get(identity)),
    "update": (
        "PATCH",
        "/v1/payment-wallet/channels/",
        lambda client, identity: client.channels.update(identity, name="x"),
    ),
    "delete": ("DELETE", "/v1/payment-wallet/channels/", lambda client, identity: client.channels.delete(identity)),
}


def on(call: Callable[[Any, str], Any], trick: str) -> Callable[[Any], Any]:
    return lambda client: call(client, trick)


@pytest.mark.parametrize("kind", BY_ID)
@pytest.mark.parametrize(
    ("client_kind", "transport"),
    [("blocking", None), ("async", None), ("async", AiohttpTransport)],
    ids=["blocking", "async", "aiohttp"],
)
def test_no_id_leads_out_of_its_folder(client_kind: str, kind: str, transport: type[Any] | None) -> None:
    method, folder, call = BY_ID[kind]

    async def over_aiohttp(base_url: str) -> None:
        async with momopay.AsyncClient(
            KEY, base_url=base_url, budget=None, max_attempts=1, transport=AiohttpTransport()
        ) as client:
            for trick in TRICKS:
                with pytest.raises(momopay.APIError):
                    await call(client, trick)

    with wire.serve(wire.refuses(404, "NO_SUCH_THING")) as server:
        if transport is None:
            driver = Driver(client_kind, base_url=server.base_url, max_attempts=1)
            for trick in TRICKS:
                with pytest.raises(momopay.APIError):
                    driver(on(call, trick))
            driver.close()
        else:
            asyncio.run(over_aiohttp(server.base_url))
        assert server.garbled == 0
        for request, trick in zip(server.requests, TRICKS, strict=True):
            assert request.method == method
            assert request.path.startswith(folder)
            segment = request.path.removeprefix(folder)
            assert not set("/?#\\ ") & set(segment)
            assert segment not in {".", ".."}
            assert unquote(segment) == trick
            assert "x-injected" not in request.headers


def test_a_cursor_of_the_service_stays_one_parameter() -> None:
    for trick in TRICKS:
        first, last = ({**PAGE, "nextCursor": cursor} for cursor in (trick, None))
        with (
            wire.serve(wire.answers(200, success(first)), wire.answers(200, success(last))) as server,
            momopay.Client(KEY, base_url=server.base_url, budget=None) as client,
        ):
            list(client.transactions.iter(status="SUCCESS"))
            parts = urlsplit(server.requests[1].path)
            assert parts.path == "/v1/transactions"
            assert parse_qs(parts.query) == {"limit": ["100"], "status": ["SUCCESS"], "cursor": [trick]}
            assert set(server.requests[1].headers) == set(server.requests[0].headers)


def test_an_id_that_the_service_gave_is_as_harmless() -> None:
    for trick in TRICKS:
        with (
            wire.serve(wire.answers(200, success({**TRANSACTION, "transactionId": trick}))) as server,
            momopay.Client(KEY, base_url=server.base_url, budget=None) as client,
        ):
            found = client.transactions.get("t")
            assert found.transaction_id == trick
            client.transactions.get(found)
            assert unquote(server.requests[1].path) == "/v1/transactions/" + trick
            assert server.requests[1].path.count("/") == 3


# Without TLS, to this machine only.

PLAIN = [
    "HTTP://api.example/v1",
    "hTTp://api.example/v1",
    "http://localhost.evil.example/v1",
    "http://evil.localhost/v1",
    "http://127.0.0.1.evil.example/v1",
    "http://127.0.0.1@evil.example/v1",
    "http://127.0.0.1:80@evil.example/v1",
    "http://evil.example\\@127.0.0.1/v1",
    "http://evil.example#@127.0.0.1/v1",
    "http://evil.example?@127.0.0.1/v1",
    "http://127.0.0.1%2eevil.example/v1",
    "http://localhost%00.evil.example/v1",
    "http://localhost\u3002evil.example/v1",
    "http://\uff11\uff12\uff17.0.0.1/v1",
    "http://\u2460\u2461\u2466.0.0.1/v1",
    "http://0x7f.1/v1",
    "http://0x7f000001/v1",
    "http://2130706433/v1",
    "http://0177.0.0.1/v1",
    "http://127.1/v1",
    "http://128.0.0.1/v1",
    "http://[::2]/v1",
    "http://[::ffff:10.0.0.1]/v1",
    "http://[::1].evil.example/v1",
    "http://[::1]evil.example/v1",
    "http://evil.example[::1]/v1",
    "http://[::1%25lo]@evil.example/v1",
    "http:evil.example/v1",
    "http:///evil.example/v1",
    "http:/\\evil.example/v1",
    "http://localhost,evil.example/v1",
    "\thttp://127.0.0.1/v1",
    "http://127.0.0.1/v1\n",
    "ws://127.0.0.1/v1",
    "httpx://127.0.0.1/v1",
]


@pytest.mark.parametrize("url", PLAIN)
def test_no_trick_takes_the_key_over_plain_http(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        check_base_url(url)


def test_a_client_refuses_a_tricky_address_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (momopay.Client, momopay.AsyncClient):
        with pytest.raises(momopay.ConfigurationError):
            kind(KEY, base_url=PLAIN[0])
    monkeypatch.setenv("MOMOPAY_BASE_URL", PLAIN[0])
    with pytest.raises(momopay.ConfigurationError):
        momopay.Client(KEY)


@given(
    st.text(alphabet="127.0:@[]/\\#?%localhostevil-x\u3002\uff11", max_size=24)
    | st.sampled_from(PLAIN).map(lambda url: url.partition("://")[2])
)
def test_what_is_taken_over_plain_http_is_this_machine_to_httpx_too(rest: str) -> None:
    """Two parsers of one address must not see two hosts in it."""
    try:
        url = check_base_url(f"http://{rest}")
    except ValueError:
        return
    try:
        host = httpx.URL(url).host
    except httpx.InvalidURL:
        return
    assert host.rstrip(".") == "localhost" or host.startswith("127.") or host in {"::1", "[::1]"}
