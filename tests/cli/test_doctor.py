"""The doctor: a line for each check, a remedy where one fails, and never the key."""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.kit import Shell, execute
from hostile.tls import own_certificate
from momopay import Journal
from momopay.sandbox import Account, Fault, Sandbox

EVERY = ["python", "packages", "key", "address", "tls", "reachable", "clock", "wallet", "channels"]
NO_KEY = "fix the key first"
NO_ADDRESS = "fix the address first"
NO_WAY = "fix the way to the service first"


@dataclass(frozen=True)
class Diagnosis:
    verdicts: dict[str, str]
    remedies: dict[str, str]

    @property
    def skipped(self) -> dict[str, str]:
        """What was not checked, and what to fix first."""
        return {name: self.remedies[name] for name, verdict in self.verdicts.items() if verdict == "skipped"}


def diagnose(momopay: Shell, code: int, **settings: str) -> Diagnosis:
    done = momopay("doctor", "--json", **settings)
    assert done.code == code, done.out
    assert done.json["ok"] == (code == 0)
    checks = done.json["checks"]
    assert [check["name"] for check in checks] == EVERY
    for check in checks:
        assert check["verdict"] == "ok" or check["remedy"]
    by_name = {check["name"]: check for check in checks}
    return Diagnosis(*({name: check[field] for name, check in by_name.items()} for field in ("verdict", "remedy")))


def test_everything_works(momopay: Shell, key: str, sandbox: Sandbox) -> None:
    done = momopay("doctor")
    assert done.code == 0
    for line in ("a test key, 40 characters", "KES 10,000.00 for fees", "the default is PAYBILL 600100"):
        assert line in done.out
    assert key not in done.out
    assert len(sandbox.requests) == 3
    assert set(diagnose(momopay, 0).verdicts.values()) == {"ok"}


@pytest.mark.parametrize("shape", ["", "pk_test_", "nonsense", " pk_test_x", "pk_test_with:colon"])
def test_a_key_of_another_shape(momopay: Shell, shape: str) -> None:
    found = diagnose(momopay, 3, MOMOPAY_API_KEY=shape)
    assert (found.verdicts["key"], found.verdicts["reachable"]) == ("fail", "ok")
    assert found.skipped == {"wallet": NO_KEY, "channels": NO_KEY}


def test_a_live_key_on_loopback(momopay: Shell) -> None:
    live = {"MOMOPAY_API_KEY": "pk_live_secret"}
    found = diagnose(momopay, 3, **live)
    assert (found.verdicts["key"], found.verdicts["wallet"]) == ("fail", "skipped")
    shown = momopay("doctor", **live)
    assert shown.words.count("a live key must not be sent to loopback") == 1
    assert "secret" not in shown.out


@pytest.mark.parametrize(
    "url", ["", "http://service.example/v1", "service.example", "https://user:secret@service.example/v1"]
)
def test_an_address_that_cannot_be(momopay: Shell, url: str) -> None:
    found = diagnose(momopay, 3, MOMOPAY_BASE_URL=url)
    assert (found.verdicts["key"], found.verdicts["address"]) == ("ok", "fail")
    assert found.skipped == dict.fromkeys(EVERY[EVERY.index("address") + 1 :], NO_ADDRESS)
    assert "secret" not in momopay("doctor", MOMOPAY_BASE_URL=url).out


def test_all_that_is_broken_is_to_be_fixed_first(momopay: Shell) -> None:
    found = diagnose(momopay, 3, MOMOPAY_API_KEY="", MOMOPAY_BASE_URL="").skipped
    assert (found["clock"], found["wallet"]) == (NO_ADDRESS, "fix the key and the address first")


def test_people_see_what_was_skipped(momopay: Shell) -> None:
    lines = momopay("doctor", MOMOPAY_API_KEY="").out.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.split() == ["skipped", "wallet", "not", "checked"])
    assert lines[place + 1].strip() == NO_KEY


def test_a_service_that_is_not_there(momopay: Shell) -> None:
    found = diagnose(momopay, 3, MOMOPAY_BASE_URL="http://127.0.0.1:1/v1")
    assert (found.verdicts["tls"], found.verdicts["reachable"]) == ("ok", "fail")
    assert found.skipped == dict.fromkeys(["clock", "wallet", "channels"], NO_WAY)
    secure = diagnose(momopay, 3, MOMOPAY_BASE_URL="https://127.0.0.1:1/v1")
    assert secure.skipped == dict.fromkeys(["tls", "clock", "wallet", "channels"], NO_WAY)


def test_an_address_that_leads_elsewhere_gets_no_key(momopay: Shell, sandbox: Sandbox) -> None:
    found = diagnose(momopay, 3, MOMOPAY_BASE_URL=sandbox.url + "/v2/v1").verdicts
    assert (found["address"], found["reachable"], found["wallet"]) == ("ok", "fail", "skipped")


def test_an_address_that_does_not_end_in_v1(momopay: Shell, sandbox: Sandbox) -> None:
    assert diagnose(momopay, 3, MOMOPAY_BASE_URL=sandbox.url + "/v2").verdicts["address"] == "fail"


def test_an_account_in_need(momopay: Shell, account: Account) -> None:
    account.service_balance, account.channels = Decimal(50), []
    found = diagnose(momopay, 0).verdicts
    assert (found["wallet"], found["channels"]) == ("warn", "warn")
    account.service_balance = Decimal(0)
    assert diagnose(momopay, 3).verdicts["wallet"] == "fail"


class Skewed(BaseHTTPRequestHandler):
    """A service whose clock, or whose refusal, differs."""

    seconds = 0.0
    code = "INVALID_API_KEY"
    seen: list[str | None]
    """The keys that came."""

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
def test_a_clock_that_differs(
    momopay: Shell, skewed: str, monkeypatch: pytest.MonkeyPatch, seconds: float, verdict: str
) -> None:

    def is_loopback(_url: str) -> bool:
        return False

    monkeypatch.setattr("momopay.cli.doctor.is_loopback", is_loopback)
    Skewed.seconds = seconds
    found = diagnose(momopay, 3, MOMOPAY_BASE_URL=skewed).verdicts
    assert (found["clock"], found["wallet"]) == (verdict, "fail")
    assert Skewed.seen[0] is None


def test_the_virtual_clock_of_a_sandbox_is_no_fault(momopay: Shell, sandbox: Sandbox) -> None:
    sandbox.advance(3600)
    assert diagnose(momopay, 0).verdicts["clock"] == "ok"


def test_another_refusal_than_the_services_gets_no_key(
    momopay: Shell, skewed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Skewed, "code", "LOGIN_FIRST")
    found = diagnose(momopay, 3, MOMOPAY_BASE_URL=skewed).verdicts
    assert (found["reachable"], found["wallet"]) == ("fail", "skipped")
    assert Skewed.seen == [None]


def test_a_certificate_that_is_not_trusted(momopay: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate(tmp_path, monkeypatch))
    with serving(context) as port:
        found = diagnose(momopay, 3, MOMOPAY_BASE_URL=f"https://localhost:{port}/v1")
    assert found.verdicts["tls"] == "fail"
    assert found.skipped == dict.fromkeys(["reachable", "clock", "wallet", "channels"], "fix TLS first")


def test_a_piped_key_is_checked(momopay: Shell, key: str) -> None:
    del momopay.settings["MOMOPAY_API_KEY"]
    done = momopay("doctor", "--json", piped=f"{key}\n")
    assert done.code == 0
    assert key not in done.out + done.err
    assert diagnose(momopay, 3).verdicts["key"] == "fail"


# The journal, where one is given.


def journal_check(momopay: Shell, journal: str, **settings: str) -> tuple[int, str, str]:
    done = momopay("doctor", "--journal", journal, "--json", **settings)
    *others, check = done.json["checks"]
    assert ([each["name"] for each in others], check["name"]) == (EVERY, "journal")
    return done.code, check["verdict"], check["found"]


def test_a_journal_that_works(momopay: Shell, tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    assert journal_check(momopay, path) == (0, "warn", f"there is no journal at {path}")
    assert momopay("collect", "INV-1", "--amount", "100", "--phone", "0712345678", "--journal", path).code == 0
    assert journal_check(momopay, path) == (0, "ok", "1 entry, nothing needs a person")


def test_a_journal_in_doubt(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    sandbox.fail_next("POST", "/payments/stk", Fault.error_before_commit)
    assert momopay("collect", "INV-1", "--amount", "100", "--phone", "0712345678", "--journal", path).code == 4
    assert journal_check(momopay, path) == (0, "warn", "1 entry, 1 in doubt, 0 paid twice")


def test_the_journal_of_another_address(momopay: Shell, tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    assert momopay("collect", "INV-1", "--amount", "100", "--phone", "0712345678", "--journal", path).code == 0
    elsewhere = {"MOMOPAY_BASE_URL": "https://127.0.0.2.invalid/v1"}
    code, verdict, found = journal_check(momopay, path, **elsewhere)
    assert (code, verdict) == (3, "fail")
    assert "belongs to the host 'loopback', not to '127.0.0.2.invalid'" in found


def test_a_key_that_cannot_be_one_is_not_compared(momopay: Shell, tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path}/shop.db") as journal:
        journal.get("A")
    for key in ("mistyped", "pk_test_\udcff"):
        code, verdict, found = journal_check(momopay, str(tmp_path / "shop.db"), MOMOPAY_API_KEY=key)
        assert (code, verdict, found) == (3, "ok", "0 entries, nothing needs a person")


def test_the_journal_of_another_version(momopay: Shell, tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path}/shop.db") as journal:
        journal.get("A")
    execute(tmp_path / "shop.db", "UPDATE momopay_journal SET version = 99")
    code, verdict, found = journal_check(momopay, str(tmp_path / "shop.db"))
    assert (code, verdict) == (3, "fail")
    assert "a journal of version 99" in found


def test_a_journal_without_its_extra(momopay: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.db").touch()
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    code, verdict, found = journal_check(momopay, str(tmp_path / "shop.db"))
    assert (code, verdict, found) == (3, "fail", "this command needs the extra 'journal'")


def test_what_is_no_journal(momopay: Shell, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, and long enough to be taken for one" * 20)
    code, verdict, found = journal_check(momopay, str(tmp_path / "notes.txt"))
    assert (code, verdict) == (3, "fail")
    assert "file is not a database" in found
