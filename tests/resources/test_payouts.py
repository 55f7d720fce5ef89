"""B2C payouts, from the call to the request and back to the record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import momopay
from drivers import LOOPBACK, Driver, hasty
from models.kit import CHANNEL, PAYOUT, PHONE
from momopay import settled
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from resources.kit import Recorder, assert_came_with_its_response, assert_sent, refused
from resources.sandbox_kit import AMBIGUOUS, AT_ONCE, paid, pay, prompt, pushed


def test_a_payout_is_sent_as_the_service_states(drive: Callable[..., Driver]) -> None:
    service = Recorder(PAYOUT.camel)
    payout = drive(transport=service.transport)(
        lambda client: client.payouts.initiate(
            amount=Decimal(10),
            phone="(0712)-345-678",
            reference="PAY-7",
            description="Refund",
            currency="KES",
            channel_id=CHANNEL,
            callback_url="https://shop.example/momo",
        )
    )
    (request,) = service.requests
    body = {
        "amount": 10,
        "phone": PHONE,
        "reference": "PAY-7",
        "description": "Refund",
        "currency": "KES",
        "channelId": CHANNEL,
        "callbackUrl": "https://shop.example/momo",
    }
    assert_sent(request, "POST", "/v1/b2c/payouts", body)
    assert type(payout) is PAYOUT.kind
    assert_came_with_its_response(payout)


def test_the_currency_is_sent_and_nothing_else_that_was_not_given(drive: Callable[..., Driver]) -> None:
    service = Recorder(PAYOUT.camel)
    drive(transport=service.transport)(lambda c: c.payouts.initiate(amount=10, phone=PHONE, reference="PAY-7"))
    body = {"amount": 10, "phone": PHONE, "reference": "PAY-7", "currency": "KES"}
    assert_sent(service.requests[0], "POST", "/v1/b2c/payouts", body)


def test_wrong_arguments_are_refused_together_and_nothing_is_sent(drive: Callable[..., Driver]) -> None:
    service = Recorder(PAYOUT.camel)
    wrong: dict[str, Any] = {"amount": 9, "phone": PHONE + "9", "reference": " ", "callback_url": "https://127.1/"}
    driver = drive(transport=service.transport)
    assert refused(driver, lambda client: client.payouts.initiate(**wrong)) == set(wrong)
    assert service.requests == []


def test_the_sandbox_may_call_back_to_loopback(drive: Callable[..., Driver]) -> None:
    service = Recorder(PAYOUT.camel)
    arguments = {"amount": 10, "phone": PHONE, "reference": "PAY-7", "callback_url": "http://127.0.0.1:8000/momo"}
    drive(transport=service.transport, base_url=LOOPBACK)(lambda client: client.payouts.initiate(**arguments))
    assert b"http://127.0.0.1:8000/momo" in service.requests[0].content


# Against the sandbox, whose ledger is the only witness of what was paid.


def test_a_failed_payout_is_reversed(sdk: Driver, sandbox: Sandbox, account: Account) -> None:
    accepted = sdk(lambda client: pay(client, phone=phone_for(Outcome.insufficient_funds)))
    assert account.b2c_balance == Decimal("999749.50")
    sandbox.advance(120)
    ended = sdk(lambda client: client.transactions.wait(accepted, until=settled, schedule=AT_ONCE))
    assert ended.status == "REVERSED"
    assert account.b2c_balance == 1_000_000


@pytest.mark.parametrize(
    ("change", "call", "error"),
    [
        ({"kyc_approved": False}, pay, momopay.KycNotVerifiedError),
        ({"b2c_balance": Decimal(10)}, pay, momopay.InsufficientFundsError),
        ({"service_balance": Decimal(0)}, pay, momopay.InsufficientServiceBalanceError),
        ({"service_balance": Decimal(0)}, prompt, momopay.InsufficientServiceBalanceError),
        ({"channels": []}, prompt, momopay.NoPaymentChannelsError),
    ],
)
def test_every_refusal_is_typed_and_moves_nothing(
    sdk: Driver, sandbox: Sandbox, account: Account, change: dict[str, Any], call: Any, error: type[Exception]
) -> None:
    for name, value in change.items():
        setattr(account, name, value)
    with pytest.raises(error) as caught:
        sdk(call)
    assert isinstance(caught.value, momopay.APIError)
    assert not caught.value.may_have_executed
    assert sandbox.ledger == []


@pytest.mark.parametrize(
    ("call", "path", "kind", "fault", "payments"),
    [(pay, "/b2c/payouts", "payout", *each) for each in (*AMBIGUOUS, (Fault.slow_drip, 1))]
    + [(prompt, "/payments/stk", "fee", Fault.reset_after_commit, 1)],
)
def test_a_payment_with_an_ambiguous_end_is_sent_once_and_can_be_found(
    sdk: Driver, sandbox: Sandbox, call: Any, path: str, kind: str, fault: Fault, payments: int
) -> None:
    begun = datetime.now(UTC)
    sandbox.fail_next("POST", path, fault)
    with pytest.raises(momopay.OutcomeUnknownError) as caught:
        sdk(hasty(call))
    error = caught.value
    assert error.may_have_executed
    assert paid(sandbox, kind) == payments
    assert pushed(sandbox, path) <= 1
    assert error.phone == "254712345678"
    assert begun <= error.sent_at <= datetime.now(UTC)
    found = sdk(
        lambda client: client.transactions.find(
            reference=error.reference, amount=error.amount, phone=error.phone, since=error.sent_at
        )
    )
    assert len(found) == payments
