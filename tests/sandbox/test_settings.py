"""Changing an account by its control route."""

import json
from decimal import Decimal
from typing import Any

import httpx
import pytest

from momopay.sandbox import Sandbox
from sandbox.kit import KEY, data, refusal


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


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"key": 5},
        {"tenant_id": "nope"},
        {"key": KEY, "change": []},
        {"key": KEY, "change": {"tenant_id": "x"}},
        {"key": KEY, "change": {"kyc_approved": False, "fee": -1}},
        {"key": KEY, "change": {"kyc_approved": False, "switches": {"naming": "kebab"}}},
        {"key": KEY, "change": {"kyc_approved": False, "switches": {"nope": 1}}},
        {"key": KEY, "change": {"kyc_approved": False, "switches": {"\ud800": 1}}},
        {"key": KEY, "change": {"kyc_approved": False, "switches": 1}},
        {"key": KEY, "change": {"b2c_balance": 1.001}},
    ],
)
def test_a_wrong_change_changes_nothing(control: httpx.Client, sandbox: Sandbox, body: Any) -> None:
    before = sandbox.account(KEY).model_dump()
    assert refusal(control.post("/sandbox/account", content=json.dumps(body))) == (400, "VALIDATION_ERROR")
    assert sandbox.account(KEY).model_dump() == before


def test_a_live_key_has_no_account(control: httpx.Client) -> None:
    assert refusal(control.post("/sandbox/account", json={"key": "pk_live_a"})) == (401, "INVALID_API_KEY")
