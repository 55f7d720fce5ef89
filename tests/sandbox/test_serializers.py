"""The records as they are on the wire, in both styles."""

from decimal import Decimal

import httpx

from momopay.sandbox import Outcome, Sandbox, phone_for
from sandbox.kit import KEY, Service, data


def test_reads_and_items_in_both_styles(service: Service, api: httpx.Client, sandbox: Sandbox) -> None:
    sent = service.stk(accountReference=None)
    made = data(sent)
    camel = service.read(sent)
    shared = {
        name: made[name]
        for name in ("transactionId", "type", "status", "amount", "currency", "phone", "accountReference")
    } | {"createdAt": made["createdAt"], "updatedAt": made["updatedAt"]}
    assert camel == {
        **shared,
        "tenantId": made["tenantId"],
        "channelId": made["channelId"],
        "transactionDesc": "Order 42",
        "provider": "MOMO",
        "providerRequestId": made["providerRequestId"],
        "providerCheckoutId": made["providerCheckoutId"],
        "resultCode": None,
        "resultDesc": None,
    }
    assert data(api.get("/transactions"))["items"] == [{**shared, "transactionFee": 1}]
    sandbox.account(KEY).switches.naming = "snake_case"
    assert service.read(sent) == {
        "transaction_id": made["transactionId"],
        "type": "STK",
        "status": "PENDING",
        "amount": 100,
        "currency": "KES",
        "phone_number": "254712345678",
        "external_reference": None,
        "transaction_fee": 1,
        "provider_request_id": made["providerRequestId"],
        "provider_checkout_id": made["providerCheckoutId"],
        "result_code": None,
        "result_desc": None,
        "created_at": made["createdAt"],
        "updated_at": made["updatedAt"],
    }
    assert data(api.get("/transactions"))["items"] == [{**shared, "transaction_fee": 1}]


def test_the_fee_by_status(service: Service, api: httpx.Client, sandbox: Sandbox) -> None:
    sandbox.account(KEY).fee = Decimal("2.50")
    service.stk()
    service.stk(phone=phone_for(Outcome.cancelled))
    service.payout(phone=phone_for(Outcome.reversed))

    def fees() -> list[tuple[str, float]]:
        return [(item["status"], item["transactionFee"]) for item in data(api.get("/transactions"))["items"]]

    assert fees() == [("PENDING", 2.5)] * 3
    sandbox.advance(10)
    assert fees() == [("PROCESSING", 0), ("CANCELLED", 0), ("PROCESSING", 0)]
    sandbox.advance(25)
    assert fees() == [("FAILED", 0), ("CANCELLED", 0), ("SUCCESS", 2.5)]
    sandbox.advance(10)
    assert fees()[0] == ("REVERSED", 0)
