"""The doctor: a line for each check, a remedy where one fails, and never the key."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.kit import Shell
from hostile.tls import own_certificate
from momopay.sandbox import Account, Sandbox

EVERY = ["python", "packages", "key", "address", "tls", "reachable", "clock", "wallet", "channels"]
NO_KEY = "first mend the key"
NO_ADDRESS = "first mend the address"
NO_WAY = "first mend the way to the service"


def skipped(momopay: Shell, **settings: str) -> dict[str, str]:
    """What was not checked, and what to mend first."""
    checks = momopay("doctor", "--json", **settings).json["checks"]
    return {check["name"]: check["remedy"] for check in checks if check["verdict"] == "skipped"}


def verdicts(momopay: Shell, code: int, **settings: str) -> dict[str, str]:
    done = momopay("doctor", "--json", **settings)
    assert done.code == code, done.out
    assert done.json["ok"] == (code == 0)
    for check in done.json["checks"]:
        assert check["verdict"] == "ok" or check["remedy"]
    found = {check["name"]: check["verdict"] for check in done.json["checks"]}
    assert [name for name in found if name != "account"] == EVERY
    assert len(found) == len(done.json["checks"])
    return found


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
    assert (found["key"], found["reachable"]) == ("fail", "ok")
    assert skipped(momopay, MOMOPAY_API_KEY=shape) == {"wallet": NO_KEY, "channels": NO_KEY}


def test_a_live_key_on_loopback_is_told_once_beside_the_key(momopay: Shell) -> None:
    live = {"MOMOPAY_API_KEY": "pk_live_secret"}
    found = verdicts(momopay, 3, **live)
    assert (found["key"], "account" in found, found["wallet"]) == ("fail", False, "skipped")
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
    later = EVERY[EVERY.index("address") + 1 :]
    assert skipped(momopay, MOMOPAY_BASE_URL=url) == dict.fromkeys(later, NO_ADDRESS)


def test_all_that_is_broken_is_to_be_mended_first(momopay: Shell) -> None:
    found = skipped(momopay, MOMOPAY_API_KEY="", MOMOPAY_BASE_URL="")
    assert (found["clock"], found["wallet"]) == (NO_ADDRESS, "first mend the key and the address")


def test_people_see_what_was_skipped(momopay: Shell) -> None:
    lines = momopay("doctor", MOMOPAY_API_KEY="").out.splitlines()
    (told,) = (number for number, line in enumerate(lines) if line.split() == ["skipped", "wallet", "not", "checked"])
    assert lines[told + 1].strip() == NO_KEY


def test_a_service_that_is_not_there(momopay: Shell) -> None:
    nowhere = {"MOMOPAY_BASE_URL": "http://127.0.0.1:1/v1"}
    assert verdicts(momopay, 3, **nowhere)["reachable"] == "fail"
    assert skipped(momopay, **nowhere) == dict.fromkeys(["clock", "wallet", "channels"], NO_WAY)
    secure = skipped(momopay, MOMOPAY_BASE_URL="https://127.0.0.1:1/v1")
    assert secure == dict.fromkeys(["tls", "clock", "wallet", "channels"], NO_WAY)


def test_an_address_that_leads_elsewhere_gets_no_key(momopay: Shell, sandbox: Sandbox) -> None:
    found = verdicts(momopay, 3, MOMOPAY_BASE_URL=sandbox.url + "/v2")
    assert (found["address"], found["reachable"], found["wallet"]) == ("warn", "fail", "skipped")


def test_an_account_in_need(momopay: Shell, account: Account) -> None:
    account.service_balance, account.channels = Decimal(50), []
    found = verdicts(momopay, 0)
    assert (found["wallet"], found["channels"]) == ("warn", "warn")
    account.service_balance = Decimal(0)
    assert verdicts(momopay, 3)["wallet"] == "fail"


class Skewed(BaseHTTPRequestHandler):
    """A service whose clock differs."""

    seconds = 0.0
    code = "INVALID_API_KEY"
    seen: list[str | None]

    def do_GET(self) -> None:
        type(self).seen.append(self.headers["authorization"])
        error = f'{{"code":"{self.code}","message":"no","details":{{}}}}'
        body = f'{{"success":false,"error":{error},"requestId":"x"}}'.encode()
        self.send_response_only(401)
        self.send_header("date", format_datetime(datetime.now(UTC) + timedelta(seconds=self.seconds), usegmt=True))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        pass


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Generator[int]:
    server = HTTPServer(("127.0.0.1", 0), Skewed)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def skewed(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Skewed.seen = []
    monkeypatch.setattr(Skewed, "seconds", 0.0)
    with serving() as port:
        yield f"http://127.0.0.1:{port}/v1"


@pytest.mark.parametrize(("seconds", "verdict"), [(0, "ok"), (-20, "ok"), (60, "warn"), (-400, "fail")])
def test_a_clock_that_differs(momopay: Shell, skewed: str, seconds: float, verdict: str) -> None:
    Skewed.seconds = seconds
    found = verdicts(momopay, 3, MOMOPAY_BASE_URL=skewed)
    assert (found["clock"], found["wallet"]) == (verdict, "fail")
    assert Skewed.seen[0] is None


def test_another_refusal_than_the_services_gets_no_key(
    momopay: Shell, skewed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Skewed, "code", "LOGIN_FIRST")
    found = verdicts(momopay, 3, MOMOPAY_BASE_URL=skewed)
    assert (found["reachable"], found["wallet"]) == ("fail", "skipped")
    assert Skewed.seen == [None]


def test_a_certificate_that_nobody_vouches_for(momopay: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate(tmp_path, monkeypatch))
    with serving(context) as port:
        mine = {"MOMOPAY_BASE_URL": f"https://localhost:{port}/v1"}
        assert verdicts(momopay, 3, **mine)["tls"] == "fail"
        assert skipped(momopay, **mine) == dict.fromkeys(["reachable", "clock", "wallet", "channels"], "first mend TLS")


def test_a_piped_key_is_checked(momopay: Shell, key: str) -> None:
    del momopay.settings["MOMOPAY_API_KEY"]
    done = momopay("doctor", "--json", piped=f"{key}\n")
    assert done.code == 0
    assert key not in done.out + done.err
    assert verdicts(momopay, 3)["key"] == "fail"
