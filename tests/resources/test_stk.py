"""STK collections, from the call to the request and back to the record."""

from decimal import Decimal
from uuid import UUID

from drivers import LOOPBACK, Drive
from models.kit import CHANNEL, ID, PAYBILL, PHONE, STK, parse
from resources.kit import Recorder, assert_came_with_its_response, assert_sent

HOOK = "https://shop.example/momo?order=42"


def test_a_prompt_is_sent_as_the_service_states(drive: Drive) -> None:
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
    drive(transport=service.transport)(lambda client: client.stk.initiate(amount=1, phone=PHONE))
    assert_sent(service.requests[1], "POST", "/v1/payments/stk", {"amount": 1, "phone": PHONE})
    assert type(prompt) is STK.kind
    assert_came_with_its_response(prompt)


def test_the_sandbox_may_call_back_to_loopback(drive: Drive) -> None:
    service = Recorder(STK.camel)
    driver = drive(transport=service.transport, base_url=LOOPBACK)
    driver(lambda client: client.stk.initiate(amount=1, phone=PHONE, callback_url="http://localhost:8000/momo"))
    assert b"http://localhost:8000/momo" in service.requests[0].content
