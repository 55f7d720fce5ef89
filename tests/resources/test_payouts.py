"""B2C payouts, from the call to the request and back to the record."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import momopay
from drivers import Drive, Driver, hasty
from models.kit import CHANNEL, PAYOUT, PHONE
from momopay.sandbox import Fault, Sandbox
from resources.kit import UNRESOLVED, exchange, paid, pay, prompt, pushed

PATH = "/v1/b2c/payouts"
HOOK = "https://shop.example/momo"


def test_a_payout_is_sent_as_the_service_states(drive: Drive) -> None:
    least = {"amount": 10, "phone": PHONE, "reference": "PAY-7"}
    more = {"description": "Refund", "currency": "KES", "channel_id": CHANNEL, "callback_url": HOOK}
    body = {**least, "description": "Refund", "currency": "KES", "channelId": CHANNEL, "callbackUrl": HOOK}
    given: dict[str, Any] = {**least, **more, "amount": Decimal(10), "phone": "(0712)-345-678"}
    exchange(drive, PAYOUT, lambda client: client.payouts.initiate(**given), "POST", PATH, body)
    exchange(drive, PAYOUT, lambda client: client.payouts.initiate(**least), "POST", PATH, least | {"currency": "KES"})


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
