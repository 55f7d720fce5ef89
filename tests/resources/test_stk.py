"""STK collections, from the call to the request and back to the record."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import momopay
from drivers import LOOPBACK, Driver
from models.kit import CHANNEL, ID, PAYBILL, PHONE, STK, parse
from momopay.sandbox import Outcome, Sandbox, phone_for
from resources.kit import Recorder, assert_came_with_its_response, assert_sent, refused
from resources.sandbox_kit import AT_ONCE, paid, pay, prompt, pushed

HOOK = "https://shop.example/momo?order=42"


def test_a_prompt_is_sent_as_the_service_states(drive: Callable[..., Driver]) -> None:
    service = Recorder(STK.camel)
    prompt = drive(transport=service.transport)(
        lambda client: client.stk.initiate(
            amount=Decimal("100.50"),
            phone="0712 345 678",
            account_reference="INV-42",
            transaction_desc="Order 42",
            callback_url=HOOK,
            channel_id=parse(PAYBILL.kind, PAYBILL.camel),
            credential_id=UUID(ID),
        )
    )
    (request,) = service.requests
    body = {
        "amount": Decimal("100.5"),
        "phone": PHONE,
        "accountReference": "INV-42",
        "transactionDesc": "Order 42",
        "callbackUrl": HOOK,
        "channelId": CHANNEL,
        "credential_id": ID,
    }
    assert_sent(request, "POST", "/v1/payments/stk", body)
    assert type(prompt) is STK.kind
    assert_came_with_its_response(prompt)


def test_what_is_not_given_is_not_sent(drive: Callable[..., Driver]) -> None:
    service = Recorder(STK.camel)
    drive(transport=service.transport)(lambda client: client.stk.initiate(amount=1, phone=PHONE))
    assert_sent(service.requests[0], "POST", "/v1/payments/stk", {"amount": 1, "phone": PHONE})


def test_wrong_arguments_are_refused_together_and_nothing_is_sent(drive: Callable[..., Driver]) -> None:
    service = Recorder(STK.camel)
    wrong: dict[str, Any] = {"amount": 0.5, "phone": PHONE + "9", "callback_url": "http://localhost/momo"}
    driver = drive(transport=service.transport)
    assert refused(driver, lambda client: client.stk.initiate(**wrong)) == set(wrong)
    assert service.requests == []


@pytest.mark.parametrize("base_url", [LOOPBACK, "http://localhost:8787/v1", "http://[::1]:8787/v1"])
def test_the_sandbox_may_call_back_to_loopback(drive: Callable[..., Driver], base_url: str) -> None:
    service = Recorder(STK.camel)
    driver = drive(transport=service.transport, base_url=base_url)
    driver(lambda client: client.stk.initiate(amount=1, phone=PHONE, callback_url="http://localhost:8000/momo"))
    assert b"http://localhost:8000/momo" in service.requests[0].content


# Against the sandbox, whose ledger is the only witness of what was paid.


def test_a_collection_from_prompt_to_success(sdk: Driver, sandbox: Sandbox) -> None:
    accepted = sdk(prompt)
    assert (accepted.status, accepted.amount, accepted.phone) == ("PENDING", 100, "254712345678")
    assert accepted.transaction_fee == 1
    sandbox.advance(60)
    ended = sdk(lambda client: client.transactions.wait(accepted, schedule=AT_ONCE))
    assert (ended.status, ended.result_code) == ("SUCCESS", "0")
    assert paid(sandbox, "stk") == 1
    assert sdk(lambda client: client.wallet.balance()).available_balance == 9999


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (Outcome.insufficient_funds, "FAILED", "1"),
        (Outcome.risk_limit, "FAILED", "17"),
        (Outcome.too_many_requests, "FAILED", "20"),
        (Outcome.cancelled, "CANCELLED", "1032"),
        (Outcome.timeout, "FAILED", "1037"),
        (Outcome.expired, "EXPIRED", "1037"),
    ],
)
def test_every_end_of_a_prompt(sdk: Driver, sandbox: Sandbox, outcome: Outcome, status: str, code: str) -> None:
    accepted = sdk(lambda client: prompt(client, phone=phone_for(outcome)))
    sandbox.advance(120)
    ended = sdk(lambda client: client.transactions.wait(accepted, schedule=AT_ONCE))
    assert (ended.status, ended.result_code) == (status, code)
    assert paid(sandbox, "stk") == 0


@pytest.mark.parametrize("kind", ["temp_banned", "health"])
def test_a_pause_of_prompts_holds_prompts_alone(sdk: Driver, sandbox: Sandbox, key: str, kind: str) -> None:
    (sandbox.ban_stk if kind == "temp_banned" else sandbox.block_stk)(key)
    expected = momopay.StkTempBannedError if kind == "temp_banned" else momopay.TransactionHealthBlockedError
    for _ in range(3):
        with pytest.raises(expected):
            sdk(prompt)
    assert pushed(sandbox, "/payments/stk") == 1
    assert sdk(pay).status == "PENDING"
