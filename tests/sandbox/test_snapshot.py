"""The state as the page shows it."""

from decimal import Decimal
from typing import Any

import httpx

from momopay.sandbox import Outcome, Sandbox, phone_for
from momopay.sandbox._bodies import PayoutBody
from momopay.sandbox._payments import initiate_payout
from sandbox.kit import KEY, Receiver, Service, client, data, refusal, transaction_id


def pay_out(sandbox: Sandbox, number: int) -> None:
    """Make payouts without HTTP, which takes longer than the rest of a test."""
    engine = sandbox._running

    def act() -> None:
        now = engine.catch_up()
        account = engine.state.account_of(KEY, now)
        for _ in range(number):
            body = PayoutBody(amount=Decimal(10), phone="0712345678", reference="ONE")
            initiate_payout(engine.state, account, body, now)

    sandbox._started.on_loop(act)


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


def test_an_open_prompt_is_shown_after_any_number_of_payouts(
    service: Service, control: httpx.Client, sandbox: Sandbox
) -> None:
    old, cancelled = (transaction_id(service.stk(phone=phone_for(Outcome.by_hand))) for _ in range(2))
    data(control.post("/sandbox/cancel", json={"id": cancelled}))
    pay_out(sandbox, 160)
    shown = state(control)["transactions"]
    assert len(shown) == 101
    assert (shown[-1]["id"], shown[-1]["prompt"]) == (old, True)


def test_each_account_has_its_newest_100(service: Service, control: httpx.Client, sandbox: Sandbox) -> None:
    with client(sandbox.base_url, "pk_test_quiet") as api:
        quiet = transaction_id(Service(api).stk(callbackUrl="https://shop.example/momo"))
        sandbox.advance(35)
    for _ in range(101):
        service.stk(callbackUrl="https://shop.example/momo")
    sandbox.advance(35)
    shown = state(control)
    # The quiet account's callback was retried once.
    assert [len(shown[name]) for name in ("transactions", "callbacks", "requests")] == [101, 102, 101]
    assert shown["transactions"][-1]["id"] == shown["callbacks"][-1]["transaction_id"] == quiet
    tenant = sandbox.account("pk_test_quiet").tenant_id
    assert [one["phones"] for one in shown["accounts"] if one["tenant_id"] == tenant] == [["254712345678"]]


def test_the_log_of_requests_masks_the_key_and_cuts_bodies(service: Service, control: httpx.Client) -> None:
    service.payout(reference="R" * 5000)
    service.api.get("/transactions", auth=("pk_live_secret", ""))
    shown = state(control)
    newest, before = shown["requests"]
    assert (newest["number"], newest["key"], newest["status"]) == (2, "pk_live_…", 401)
    assert (before["number"], before["key"], before["status"]) == (1, "pk_test_…uite", 200)
    assert len(before["body"]) == 2000
    assert "secret" not in str(shown)
    assert KEY not in str(shown)


def test_a_search_goes_through_everything(service: Service, control: httpx.Client, sandbox: Sandbox) -> None:
    first = transaction_id(service.payout(reference="FIRST", phone="0798765432"))
    pay_out(sandbox, 110)
    sandbox.advance(35)
    receipt = data(control.get(f"/sandbox/transactions/{first}"))["receipt"]
    for query in ({"q": "first"}, {"q": first[:8]}, {"q": "0798765"}, {"q": receipt}, {"phone": "254798765432"}):
        assert [one["id"] for one in data(control.get("/sandbox/transactions", params=query))] == [first]
    assert len(data(control.get("/sandbox/transactions"))) == 100
    assert data(control.get("/sandbox/transactions", params={"q": "first", "tenant_id": "other"})) == []


def test_a_transaction_in_detail(service: Service, control: httpx.Client, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 500
    sent = transaction_id(service.payout(callbackUrl=receiver.url))
    sandbox.advance(50)
    detail = data(control.get(f"/sandbox/transactions/{sent}"))
    assert [(one["attempt"], one["status"]) for one in detail["callbacks"]] == [(1, 500), (0, 500)]
    assert detail["callback_due_at"] > detail["updated_at"]
    assert [one["kind"] for one in detail["ledger"]] == ["payout", "fee"]
    assert detail["callback_url"] == receiver.url
    assert refusal(control.get("/sandbox/transactions/x")) == (404, "TRANSACTION_NOT_FOUND")


def test_an_account_is_shown_with_numbers_and_without_its_key(control: httpx.Client, sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    (shown,) = [one for one in state(control)["accounts"] if one["tenant_id"] == account.tenant_id]
    assert (shown["b2c_balance"], shown["service_balance"], shown["fee"]) == (1_000_000, 10_000, 1)
    assert KEY not in str(shown)
