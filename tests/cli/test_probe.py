"""`momopay probe`: what it shows, what it writes, and how it ends."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cli.kit import PHONE, Shell
from momopay import Client
from momopay.sandbox import Account, Fault, Sandbox


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "service.toml"


def test_people_see_a_table(momopay: Shell, client: Client) -> None:
    client.stk.initiate(amount=1, phone=PHONE)
    done = momopay("probe")
    assert done.code == 0
    for line in ("naming camelCase", "transaction_not_found_status 404", "time_formats time, date"):
        assert line in done.words
    assert "Unknown (needs --write): created_status, delete_answer," in done.words
    assert "Unknown (cannot be found from outside): late_pin," in done.words


def test_a_profile_is_written_and_compared(
    momopay: Shell, client: Client, account: Account, profile: Path, key: str
) -> None:
    client.stk.initiate(amount=1, phone=PHONE)
    assert momopay("probe", "--out", str(profile)).code == 0
    text = profile.read_text()
    assert tomllib.loads(text)["switches"]["list_phone"] == "whole"
    assert key not in text
    assert "712345678" not in text
    same = momopay("probe", "--against", str(profile))
    assert (same.code, same.out) == (0, "Nothing has changed.\n")
    account.switches.list_phone = "masked"
    account.switches.transaction_not_found_status = 400
    changed = momopay("probe", "--against", str(profile))
    assert changed.code == 1
    assert "list_phone whole masked" in changed.words
    assert "transaction_not_found_status 404 400" in changed.words
    document = momopay("probe", "--against", str(profile), "--json")
    assert document.code == 1
    assert document.json["changes"][1] == {"name": "list_phone", "before": "whole", "now": "masked"}


def test_what_is_not_known_any_more_is_no_change(
    momopay: Shell, sandbox: Sandbox, profile: Path, client: Client
) -> None:
    client.stk.initiate(amount=1, phone=PHONE)
    momopay("probe", "--out", str(profile))
    sandbox.reset()
    done = momopay("probe", "--against", str(profile), "--json")
    assert (done.code, done.json["changes"]) == (0, [])
    assert {"naming", "list_phone", "time_formats"} <= set(done.json["not_compared"])
    assert "Not compared, because this run could not tell: naming," in momopay("probe", "--against", str(profile)).words


def test_json(momopay: Shell) -> None:
    found = momopay("probe", "--json").json
    assert found["switches"]["transaction_not_found_status"] == 404
    assert found["facts"]["read_statuses"] == ["200"]
    evidence = found["evidence"]["transaction_not_found_status"]
    assert "404 TRANSACTION_NOT_FOUND" in evidence["sentence"]
    assert len(evidence["request_ids"][0]) == 36


def test_a_wrong_setup_ends_with_its_exit_code(momopay: Shell, profile: Path, tmp_path: Path) -> None:
    assert momopay("probe", MOMOPAY_API_KEY="mistyped").code == 3
    assert momopay("probe", "--against", str(profile)).code == 3
    assert momopay("probe", "--out", str(tmp_path / "nowhere" / "service.toml")).code == 2
    assert momopay("probe", MOMOPAY_API_KEY="").code == 3


def test_a_comparison_with_nothing_is_no_success(
    momopay: Shell, sandbox: Sandbox, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(*_: object) -> None:
        pass

    monkeypatch.setattr("momopay._transport.sync_backend.SyncBackend.sleep", sleep)
    momopay("probe", "--out", str(profile))
    with Sandbox() as other:
        address = other.base_url
    gone = momopay("probe", "--against", str(profile), MOMOPAY_BASE_URL=address)
    assert gone.code == 6
    for path in ("/wallets/service/balance", "/transactions", "/transactions/{id}", "/payment-wallet/channels"):
        sandbox.fail_next("GET", path, Fault.html_502, times=100)
