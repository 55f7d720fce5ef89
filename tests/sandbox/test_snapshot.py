"""The state as the page shows it."""

from typing import Any

import httpx

from momopay.sandbox import Outcome, Sandbox, phone_for
from sandbox.kit import KEY, Service, data, transaction_id


def state(control: httpx.Client) -> Any:
    return data(control.get("/sandbox/state"))


def test_only_an_open_prompt_is_a_prompt(service: Service, control: httpx.Client, sandbox: Sandbox) -> None:
    sent = [service.stk(phone=phone_for(Outcome.by_hand)), service.stk(), service.payout(), service.top_up()]
    newest_first = [transaction_id(one) for one in sent][::-1]
    assert [(one["id"], one["prompt"]) for one in state(control)["transactions"]] == list(
        zip(newest_first, (True, False, True, True), strict=True)
    )
    sandbox.advance(5)
    assert [one["prompt"] for one in state(control)["transactions"]] == [False, False, False, True]


def test_the_newest_100_are_shown(service: Service, control: httpx.Client, sandbox: Sandbox) -> None:
    newest = [transaction_id(service.stk(callbackUrl="https://shop.example/momo")) for _ in range(101)][-1]
    sandbox.advance(35)
    shown = state(control)
    assert len(shown["transactions"]) == len(shown["callbacks"]) == 100
    assert shown["transactions"][0]["id"] == shown["callbacks"][0]["transaction_id"] == newest
    assert shown["callbacks_total"] == 101


def test_an_account_is_shown_with_numbers_and_without_its_key(control: httpx.Client, sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    (shown,) = [one for one in state(control)["accounts"] if one["tenant_id"] == account.tenant_id]
    assert (shown["b2c_balance"], shown["service_balance"], shown["fee"]) == (1_000_000, 10_000, 1)
    assert KEY not in str(shown)
