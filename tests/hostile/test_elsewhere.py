"""Where requests go, and where they never go: elsewhere by a redirect, through a proxy, with a cookie."""

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

import momopay
import wire
from bodies import encoded, envelope
from drivers import KEY, Drive
from hostile.endpoints import BALANCE, PAYOUT, READ, Call, outcome


@pytest.mark.parametrize(
    ("client_kind", "transport"),
    [("blocking", None), ("async", None), ("async", httpx.AsyncHTTPTransport), ("async", AiohttpTransport)],
)
@pytest.mark.parametrize("call", [READ, PAYOUT], ids=str)
def test_no_redirect_is_followed_however_it_is_put(reach: Drive, call: Call, transport: Any) -> None:
    with wire.serve(wire.succeeds()) as elsewhere, wire.serve(wire.succeeds()) as server:
        driver = reach(server, max_attempts=4, transport=transport and transport())
        for status in (300, 301, 302, 303, 305, 307, 308):
            for location in (f"{elsewhere.base_url}/b2c/payouts", f"//127.0.0.1:{elsewhere.port}/v1", "/v1/elsewhere"):
                headers = {"Location": location, "Refresh": f"0; url={location}", "Content-Location": location}
                server.script = (wire.answers(status, encoded(envelope(call.data)), headers=headers),)
                server.requests.clear()
                error = outcome(driver, call)
                assert type(error) is (momopay.ProtocolError if call is READ else momopay.OutcomeUnknownError)
                assert len(server.requests) == 1
        assert elsewhere.connections == 0


def test_proxies_netrc_and_cookies_are_ignored(reach: Drive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("default login someone password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with wire.serve(wire.succeeds()) as proxy, wire.serve(wire.succeeds()) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "")
        server.script = (
            wire.answers(200, encoded(envelope(BALANCE.data)), headers={"Set-Cookie": "session=1; Path=/"}),
        )
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
