"""B2C payouts, from the call to the request and back to the record."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from drivers import LOOPBACK, Driver
from models.kit import CHANNEL, PAYOUT, PHONE
from resources.kit import Recorder, assert_came_with_its_response, assert_sent, refused


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
