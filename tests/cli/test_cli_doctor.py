"""The doctor: a line for each check, a remedy where one fails, and never the key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from cli.kit import Shell
from momopay.sandbox import Account, Sandbox


def verdicts(momopay: Shell, code: int, **settings: str) -> dict[str, str]:
    done = momopay("doctor", "--json", **settings)
    assert done.code == code, done.out
    assert done.json["ok"] == (code == 0)
    for check in done.json["checks"]:
        assert check["verdict"] == "ok" or check["remedy"]
    return {check["name"]: check["verdict"] for check in done.json["checks"]}


def test_all_is_well(momopay: Shell, key: str, sandbox: Sandbox) -> None:
    done = momopay("doctor")
    assert done.code == 0
    for line in ("a test key, 40 characters", "KES 10,000.00 for fees", "the default is PAYBILL 600100"):
        assert line in done.out
    assert key not in done.out
    assert len(sandbox.requests) == 3
    assert set(verdicts(momopay, 0).values()) == {"ok"}


@pytest.mark.parametrize("shape", ["", "pk_test_", "nonsense", " pk_test_x", "pk_test_with:colon"])
def test_a_key_of_another_shape(momopay: Shell, shape: str) -> None:
    found = verdicts(momopay, 3, MOMOPAY_API_KEY=shape)
    assert (found["key"], found["reachable"], "wallet" in found) == ("fail", "ok", False)


def test_a_live_key_on_loopback_is_told_once_beside_the_key(momopay: Shell) -> None:
    live = {"MOMOPAY_API_KEY": "pk_live_secret"}
    found = verdicts(momopay, 3, **live)
    assert (found["key"], "account" in found, "wallet" in found) == ("fail", False, False)
    shown = momopay("doctor", **live).out
    assert shown.count("does not go to loopback") == 1
    assert shown.count("use a pk_test_ key") == 1


@pytest.mark.parametrize(
    "url", ["", "http://service.example/v1", "service.example", "https://user:secret@service.example/v1"]
)
def test_an_address_that_cannot_be(momopay: Shell, url: str) -> None:
    done = momopay("doctor", "--json", MOMOPAY_BASE_URL=url)
    assert done.code == 3
    assert "secret" not in done.out
    assert verdicts(momopay, 3, MOMOPAY_BASE_URL=url)["address"] == "fail"


def test_a_service_that_is_not_there(momopay: Shell) -> None:
    assert verdicts(momopay, 3, MOMOPAY_BASE_URL="http://127.0.0.1:1/v1")["reachable"] == "fail"


def test_an_address_that_leads_elsewhere_gets_no_key(momopay: Shell, sandbox: Sandbox) -> None:
    found = verdicts(momopay, 3, MOMOPAY_BASE_URL=sandbox.url + "/v2")
    assert (found["address"], found["reachable"], "wallet" in found) == ("warn", "fail", False)


def test_an_account_in_need(momopay: Shell, account: Account) -> None:
    account.service_balance, account.channels = Decimal(50), []
    found = verdicts(momopay, 0)
    assert (found["wallet"], found["channels"]) == ("warn", "warn")
    account.service_balance = Decimal(0)
    assert verdicts(momopay, 3)["wallet"] == "fail"


class Skewed(BaseHTTPRequestHandler):
    """A service whose clock differs."""

    seconds = 0.0
    seen: list[str | None]

    def do_GET(self) -> None:
        type(self).seen.append(self.headers["authorization"])
        body = b'{"success":false,"error":{"code":"INVALID_API_KEY","message":"no","details":{}},"requestId":"x"}'
        self.send_response_only(401)
        self.send_header("date", format_datetime(datetime.now(UTC) + timedelta(seconds=self.seconds), usegmt=True))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        pass


@pytest.fixture
def skewed() -> Iterator[str]:
    Skewed.seen = []
    server = HTTPServer(("127.0.0.1", 0), Skewed)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(("seconds", "verdict"), [(0, "ok"), (-20, "ok"), (60, "warn"), (-400, "fail")])
def test_a_clock_that_differs(momopay: Shell, skewed: str, seconds: float, verdict: str) -> None:
    Skewed.seconds = seconds
    found = verdicts(momopay, 3, MOMOPAY_BASE_URL=skewed)
    assert (found["clock"], found["wallet"]) == (verdict, "fail")
    assert Skewed.seen[0] is None
