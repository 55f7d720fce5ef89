"""The doctor: a line for each check, a remedy where one fails, and never the key."""

import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.kit import Shell
from hostile.tls import own_certificate
from in_turn import in_turn
from momopay import Client
from momopay._transport.connections import shared_tls_context
from momopay.sandbox import Account, Fault, Sandbox
from served import asgi_served
from wire import Step, answers, refuses, serve

EVERY = ["python", "key", "address", "tls", "reachable", "clock", "wallet", "channels", "list"]
NO_KEY = "fix the key first"
NO_WAY = "fix the way to the service first"


class Diagnosis(NamedTuple):
    verdicts: dict[str, str]
    remedies: dict[str, str]
    skipped: dict[str, str]
    """What was not checked, and what to fix first."""


def diagnose(momopay: Shell, code: int, **settings: str) -> Diagnosis:
    done = momopay("doctor", "--json", **settings)
    assert done.code == code, done.out
    assert done.json["ok"] == (code == 0)
    checks = done.json["checks"]
    assert [check["name"] for check in checks] == EVERY
    for check in checks:
        assert check["verdict"] == "ok" or check["remedy"]
    verdicts, remedies = ({check["name"]: check[field] for check in checks} for field in ("verdict", "remedy"))
    skipped = {name: remedies[name] for name, verdict in verdicts.items() if verdict == "skipped"}
    return Diagnosis(verdicts, remedies, skipped)


def test_everything_works(momopay: Shell, key: str, sandbox: Sandbox) -> None:
    done = momopay("doctor")
    assert done.prints(0, "a test key, 40 characters", "KES 10,000.00 for fees", "the default is PAYBILL 600100")
    assert key not in done.out
    assert (len(sandbox.requests), set(diagnose(momopay, 0).verdicts.values())) == (4, {"ok"})
    piped = momopay("doctor", piped=f"{key}\n", MOMOPAY_API_KEY="")
    assert (piped.code, key in piped.out + piped.err) == (0, False)


@in_turn("shape", ["", "pk_test_", "ab_test_", "nonsense"])
def test_a_key_of_another_shape(momopay: Shell, shape: str) -> None:
    found = diagnose(momopay, 3, MOMOPAY_API_KEY=shape)
    assert (found.verdicts["key"], found.verdicts["reachable"]) == ("fail", "ok")
    assert found.skipped == dict.fromkeys(["wallet", "channels", "list"], NO_KEY)
    lines = momopay("doctor", MOMOPAY_API_KEY=shape).out.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.split() == ["skipped", "wallet", "not", "checked"])
    assert lines[place + 1].strip() == NO_KEY


@in_turn("url", ["", "http://service.example/v1", "https://user:secret@service.example/v1"])
def test_an_address_that_cannot_be(momopay: Shell, url: str) -> None:
    found = diagnose(momopay, 3, MOMOPAY_BASE_URL=url)
    assert (found.verdicts["key"], found.verdicts["address"]) == ("ok", "fail")
    assert found.skipped == dict.fromkeys(EVERY[EVERY.index("address") + 1 :], "fix the address first")
    assert "secret" not in momopay("doctor", MOMOPAY_BASE_URL=url).out
    both = diagnose(momopay, 3, MOMOPAY_API_KEY="", MOMOPAY_BASE_URL=url).skipped
    assert both["wallet"] == "fix the key and the address first"


def test_a_service_that_is_not_there(momopay: Shell) -> None:
    found = diagnose(momopay, 3, MOMOPAY_BASE_URL="http://127.0.0.1:1/v1")
    assert (found.verdicts["tls"], found.verdicts["reachable"]) == ("ok", "fail")
    assert found.skipped == dict.fromkeys(["clock", "wallet", "channels", "list"], NO_WAY)
    secure = diagnose(momopay, 3, MOMOPAY_BASE_URL="https://127.0.0.1:1/v1")
    assert secure.skipped == dict.fromkeys(["tls", "clock", "wallet", "channels", "list"], NO_WAY)


def test_an_account_in_need(momopay: Shell, account: Account, sandbox: Sandbox) -> None:
    account.service_balance, account.channels = Decimal(50), []
    found = diagnose(momopay, 0).verdicts
    assert (found["wallet"], found["channels"]) == ("warn", "warn")
    account.service_balance = Decimal(0)
    assert diagnose(momopay, 3).verdicts["wallet"] == "fail"
    sandbox.fail_next("GET", "/payment-wallet/channels", Fault.error_before_commit)  # which a retry would hide
    assert diagnose(momopay, 3).verdicts["channels"] == "fail"
    account.switches.channel_reads = False
    assert diagnose(momopay, 3).verdicts["channels"] == "warn"


@pytest.mark.parametrize(("seconds", "verdict"), [(0, "ok"), (-20, "ok"), (60, "warn"), (-400, "fail")])
def test_a_clock_that_differs(momopay: Shell, monkeypatch: pytest.MonkeyPatch, seconds: float, verdict: str) -> None:
    def is_loopback(_url: str) -> bool:
        return False

    monkeypatch.setattr("momopay.cli.doctor.is_loopback", is_loopback)
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
    with serve(refuses(401, "INVALID_API_KEY", headers={"Date": date})) as server:
        found = diagnose(momopay, 3, MOMOPAY_BASE_URL=server.base_url).verdicts
    assert (found["clock"], found["wallet"]) == (verdict, "fail")
    assert "authorization" not in server.requests[0].headers


@in_turn(
    ("answer", "is_the_services"),
    [
        *((refuses(401, code), True) for code in ("INVALID_API_KEY", "AUTH_HEADER_INVALID", "HTTP_401")),
        (refuses(403, "INVALID_API_KEY"), False),
        (answers(401, b"<html>Log in</html>"), False),
        (answers(401, b'{"error": "INVALID_API_KEY"}'), False),
        (answers(401, b'{"success": true, "error": {"code": "INVALID_API_KEY"}}'), False),
    ],
)
def test_the_refusal_of_another_gets_no_key(momopay: Shell, answer: Step, is_the_services: bool) -> None:
    with serve(answer) as server:
        found = diagnose(momopay, 3, MOMOPAY_BASE_URL=server.base_url).verdicts
    assert (found["reachable"], found["wallet"]) == (("ok", "fail") if is_the_services else ("fail", "skipped"))
    first, *others = ("authorization" in request.headers for request in server.requests)
    assert (first, any(others)) == (False, is_the_services)


def test_the_list_and_a_payout(momopay: Shell, account: Account, client: Client, sandbox: Sandbox) -> None:
    account.switches.customer_in_reads = True
    made = [client.payouts.initiate(amount=10, phone="0712345678", reference="SAL-1") for _ in range(2)]
    shown = momopay("doctor").words
    assert "2 of the newest 2 transactions can be read; a read of a payout has callback_url" in shown
    sandbox.spoil(made[0].transaction_id, "phone", None)
    found = diagnose(momopay, 0)
    assert (found.verdicts["list"], "phone" in found.remedies["list"]) == ("warn", True)


def test_untrusted_tls_fails(momopay: Shell, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as trusting:
        certificate = own_certificate(tmp_path, trusting)
    with asgi_served(sandbox.app, ssl_certfile=certificate) as url:
        found = diagnose(momopay, 3, MOMOPAY_BASE_URL=f"https://localhost:{url.rpartition(':')[2]}/v1")
    assert found.verdicts["tls"] == "fail"
    assert found.skipped == dict.fromkeys(["reachable", "clock", "wallet", "channels", "list"], "fix TLS first")


def test_it_trusts_what_the_library_trusts(
    momopay: Shell, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as trusting:
        certificate = own_certificate(tmp_path, trusting)
    shared_tls_context.cache_clear()
    try:
        with asgi_served(sandbox.app, ssl_certfile=certificate) as url:
            address = f"https://localhost:{url.rpartition(':')[2]}/v1"
            found = diagnose(momopay, 0, MOMOPAY_BASE_URL=address, SSL_CERT_FILE=f"{tmp_path}/certificate")
            assert (found.verdicts["tls"], found.verdicts["wallet"], found.skipped) == ("ok", "ok", {})
            shared_tls_context.cache_clear()
            found = diagnose(momopay, 3, MOMOPAY_BASE_URL=address, SSL_CERT_FILE="/nowhere/ca.pem")
            assert (found.verdicts["tls"], "SSL_CERT_FILE" in found.remedies["tls"]) == ("fail", False)
    finally:
        shared_tls_context.cache_clear()


def journal_check(momopay: Shell, journal: str, **settings: str) -> tuple[int, str, str]:
    done = momopay("doctor", "--journal", journal, "--json", **settings)
    *others, check = done.json["checks"]
    assert ([each["name"] for each in others], check["name"]) == (EVERY, "journal")
    return done.code, check["verdict"], check["found"]


def test_a_journal_that_works_and_one_of_another_address(momopay: Shell, sandbox: Sandbox, tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    assert journal_check(momopay, path) == (0, "warn", f"there is no journal at {path}")
    collect = ("--amount", "100", "--phone", "0712345678", "--journal", path)
    assert momopay("collect", "INV-1", *collect).code == 0
    assert journal_check(momopay, path) == (0, "ok", "1 entry, nothing needs a person")
    elsewhere = {"MOMOPAY_BASE_URL": "https://127.0.0.2.invalid/v1"}
    code, verdict, found = journal_check(momopay, path, **elsewhere)
    assert (code, verdict) == (3, "fail")
    assert momopay("journal", "check", "--journal", path, **elsewhere).code == 3
    assert "belongs to the host 'loopback', not to '127.0.0.2.invalid'" in found
    sandbox.fail_next("POST", "/payments/stk", Fault.error_before_commit)
    assert momopay("collect", "INV-2", *collect).code == 4
    assert journal_check(momopay, path) == (0, "warn", "2 entries, 1 unresolved, 0 paid twice")


def test_a_journal_without_its_extra(momopay: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.db").touch()
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    code, verdict, found = journal_check(momopay, str(tmp_path / "shop.db"))
    assert (code, verdict, "sqlalchemy" in found) == (3, "fail", True)
    listed = momopay("journal", "list", "--journal", str(tmp_path))
    assert listed.says(3, 'pip install "momopay[cli,journal,postgresql,sandbox]"')
