"""STK collections, from the call to the request and back to the record."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from drivers import LOOPBACK, Driver
from models.kit import CHANNEL, ID, PAYBILL, PHONE, STK, parse
from resources.kit import Recorder, assert_came_with_its_response, assert_sent, refused

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
