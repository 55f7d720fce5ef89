"""B2C payouts, from the call to the request and back to the record."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import momopay
from drivers import Drive, Driver, hasty
from models.kit import CHANNEL, PAYOUT, PHONE
from momopay.sandbox import Fault, Sandbox
from resources.kit import (
    UNRESOLVED,
    Recorder,
    assert_came_with_its_response,
    assert_sent,
    paid,
    pay,
    prompt,
    pushed,
)


def test_a_payout_is_sent_as_the_service_states(drive: Drive) -> None:
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
    drive(transport=service.transport)(lambda c: c.payouts.initiate(amount=10, phone=PHONE, reference="PAY-7"))
    least = {"amount": 10, "phone": PHONE, "reference": "PAY-7", "currency": "KES"}
    assert_sent(service.requests[1], "POST", "/v1/b2c/payouts", least)
    assert type(payout) is PAYOUT.kind
    assert_came_with_its_response(payout)


# Against the sandbox, whose ledger is the only witness of what was paid.


@pytest.mark.parametrize(
    ("call", "path", "kind", "fault", "payments"),
    [(pay, "/b2c/payouts", "payout", *each) for each in (*UNRESOLVED, (Fault.slow_drip, 1))]
    + [(prompt, "/payments/stk", "fee", Fault.reset_after_commit, 1)],
)
def test_a_payment_with_an_unknown_outcome_is_sent_once_and_can_be_found(
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
