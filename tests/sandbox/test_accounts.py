"""Accounts: keys, settings, switches and profiles."""

import json
from base64 import b64encode
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from in_turn import in_turn
from momopay.sandbox import Account, Refusal, Sandbox, Switches
from momopay.sandbox._accounts import MET, key_of, mask_key
from sandbox.kit import KEY, Routes, client, data, error_of


def test_reset_restores_accounts_in_place(sandbox: Sandbox, account: Account, service: Routes) -> None:
    for target, name, value in ((account, "fee", -1), (account, "typo", 1), (account.switches, "naming", "kebab")):
        with pytest.raises(ValueError, match=name):
            setattr(target, name, value)
    account.kyc_approved, account.channels, account.fee = False, [], account.fee + 1
    account.switches.naming = "snake_case"
    sandbox.fail_next("POST", "/payments/stk", "html_502")
    sandbox.end_next("cancelled")
    sandbox.block_stk(KEY)
    sandbox.reset()
    assert sandbox.account(KEY) is account
    assert account.kyc_approved
    assert (account.switches, account.rate_limit) == (Switches(), 60)
    assert account.fee == 1
    sent = service.stk()
    assert len(sandbox.requests) == 1
    sandbox.advance(40)
    assert service.read(sent)["status"] == "SUCCESS"


def test_an_account_is_read_and_changed(control: httpx.Client, sandbox: Sandbox) -> None:
    account = data(control.post("/sandbox/account", json={"key": "pk_test_new"}))
    assert (account["label"], account["b2c_balance"], account["kyc_approved"]) == ("pk_test_new", 1_000_000, True)
    change = {
        "kyc_approved": False,
        "b2c_balance": 12.5,
        "service_balance": 0,
        "fee": 0,
        "rate_limit": None,
        "switches": {"created_status": 201},
        "channels": [{"type": "TILL_NUMBER", "shortcode": "1", "name": "Till"}],
    }
    mine = sandbox.account("pk_test_new")
    mine.switches.naming = "snake_case"
    changed = data(control.post("/sandbox/account", json={"tenant_id": account["tenant_id"], "change": change}))
    assert (mine.kyc_approved, mine.b2c_balance, mine.rate_limit) == (False, Decimal("12.5"), None)
    assert (changed["switches"]["created_status"], changed["switches"]["naming"]) == (201, "snake_case")
    assert [channel.name for channel in mine.channels] == ["Till"]


def test_a_wrong_change_changes_nothing(control: httpx.Client, sandbox: Sandbox) -> None:
    before = sandbox.account(KEY).model_dump()
    changes: list[Any] = [[], {"tenant_id": "x"}, {"kyc_approved": False, "fee": -1}, {"b2c_balance": 1.001}]
    switches: list[Any] = [{"naming": "kebab"}, {"nope": 1}, {"\ud800": 1}, 1]
    changes += [{"kyc_approved": False, "switches": each} for each in switches]
    bodies: list[Any] = [[], {}, {"key": 5}, {"tenant_id": "nope"}, *({"key": KEY, "change": each} for each in changes)]
    for body in bodies:
        assert error_of(control.post("/sandbox/account", content=json.dumps(body))) == (400, "VALIDATION_ERROR")
        assert sandbox.account(KEY).model_dump() == before
    assert error_of(control.post("/sandbox/account", json={"key": "pk_live_a"})) == (401, "INVALID_API_KEY")
    with pytest.raises(ValueError, match="pk_test_"):
        sandbox.account("pk_live_a")


SWITCHES = 'naming = "snake_case"\ncreated_status = 201\nlate_pin = true\nrate_window = "unknown"\n'
PROFILE = f"[probe]\nformat = 1\n[switches]\n{SWITCHES}[facts]\nrate_limit = 60\n"


def test_every_account_has_the_switches_those_of_a_state_file_too(tmp_path: Path) -> None:
    path, state = tmp_path / "service.toml", tmp_path / "state.db"
    path.write_text(PROFILE)
    with Sandbox(state=state) as sandbox:
        sandbox.account("pk_test_first").fee = Decimal(5)
    expected = Switches(naming="snake_case", created_status=201, late_pin=True)
    with Sandbox(state=state, profile=path) as sandbox:
        first = sandbox.account("pk_test_first")
        assert (first.switches, first.fee) == (expected, Decimal(5))
        first.switches.naming = "camelCase"
        assert sandbox.account("pk_test_second").switches == expected
        sandbox.reset()
        assert first.switches == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "not a profile") for text in ("nonsense", "[facts]\n", "switches = 1\n")),
        ("[switches]\nnamimg = 'snake_case'\n", "namimg"),
        ("[switches]\nnaming = 'kebab-case'\n", "naming"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "service.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason):
        Sandbox(profile=path)


def test_a_key_is_the_user_name_and_shown_by_its_last_four_characters_at_most() -> None:
    def basic(text: str) -> str:
        return f"Basic {b64encode(text.encode()).decode()}"

    plain = Switches()
    assert key_of(basic("pk_test_a:"), plain) == ("pk_test_a", False)
    assert key_of(basic("k:some:password").replace("Basic", "bASIC"), plain) == ("k", False)
    assert key_of("Basic  ab_live_a ", plain) == ("ab_live_a", True)
    for authorization in (None, "", "Basic", "Basic ???", "Bearer pk_test_a", basic("pk_test_a"), "Basic /w=="):
        for switches, code in ((plain, "INVALID_API_KEY"), (MET, "AUTH_HEADER_INVALID")):
            with pytest.raises(Refusal, match=code):
                key_of(authorization, switches)
    shown = [mask_key(key) for key in ("pk_test_abcdefgh", "pk_test_abcd", "pk_live_abcdefgh", "hunter2-hunter2")]
    assert shown == ["pk_test_…efgh", "pk_test_abcd", "pk_live_…", "…"]


@in_turn("key", [None, "", "pk_test_", "pk_live_a", "sk_test_a"])
def test_any_other_key_than_a_test_key_is_refused(sandbox: Sandbox, key: str | None) -> None:
    auth = None if key is None else (key, "")
    response = httpx.post(f"{sandbox.base_url}/payments/stk", auth=auth, trust_env=False, verify=False)
    assert (error_of(response), "www-authenticate" in response.headers) == ((401, "INVALID_API_KEY"), key is None)


def test_each_key_is_an_account_with_a_rate_limit_of_its_own(sandbox: Sandbox, api: httpx.Client) -> None:
    sandbox.account(KEY).rate_limit = 60
    mine = data(api.get("/wallets/service/balance"))
    for _ in range(59):
        data(api.get("/transactions"))
    sandbox.advance(20)
    response = api.get("/wallets/service/balance")
    assert error_of(response) == (429, "RATE_LIMIT_EXCEEDED")
    assert response.json()["error"]["details"] == {"limit": 60, "remaining": 0, "resetInSeconds": 40}
    assert response.headers["retry-after"] == "40"
    with client(sandbox.base_url, "pk_test_other") as other:
        assert data(other.get("/wallets/service/balance"))["tenantId"] != mine["tenantId"]
        sandbox.advance(40)
    data(api.get("/transactions"))
