"""Records as the service sends them, in both naming styles, and the fields that they must parse into."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pydantic.alias_generators import to_snake

import momopay
from momopay.models.records import Envelope

PHONE = "254712345678"
MASKED = "2547*****678"
ID = "3b241101-e2bb-4255-8caf-4136c566a962"
TENANT = "11111111-1111-4111-8111-111111111111"
CHANNEL = "22222222-2222-4222-8222-222222222222"
CREATED, CREATED_AT = "2025-03-01T10:15:30.250Z", datetime(2025, 3, 1, 10, 15, 30, 250_000, tzinfo=UTC)
UPDATED, UPDATED_AT = "2025-03-01T13:16:00+03:00", datetime(2025, 3, 1, 10, 16, tzinfo=UTC)

_SNAKE_CASE = {
    "phone": "phone_number",
    "accountReference": "external_reference",
    "reference": "external_reference",
    "resultDesc": "result_desc",
    "resultDescription": "result_desc",
}
"""Fields whose snake_case name is another one (service page, "Transaction")."""


@dataclass(frozen=True)
class Sample:
    """A record in camelCase, and the fields whose values differ from those that were sent."""

    kind: type[Any]
    camel: dict[str, Any]
    parsed: dict[str, Any]

    @property
    def snake(self) -> dict[str, Any]:
        return {_SNAKE_CASE.get(name, to_snake(name)): value for name, value in self.camel.items()}

    @property
    def fields(self) -> dict[str, Any]:
        return {to_snake(name): value for name, value in self.camel.items()} | self.parsed


def parse(kind: type[Any], data: object) -> Any:
    text = data if isinstance(data, str) else json.dumps(data)
    envelope: Any = Envelope.__class_getitem__(kind)
    return envelope.model_validate_json(f'{{"success": true, "data": {text}, "requestId": "r"}}').data


def with_literal(data: dict[str, Any], name: str, literal: str) -> str:
    """Write a record as JSON, with one value in a spelling of one's own."""
    return json.dumps({**data, name: "LITERAL"}).replace('"LITERAL"', literal)


TIMES = {"createdAt": CREATED, "updatedAt": UPDATED}
PARSED_TIMES = {"created_at": CREATED_AT, "updated_at": UPDATED_AT}

_COLLECTION: dict[str, Any] = (
    {"transactionId": ID, "tenantId": TENANT, "channelId": CHANNEL, "type": "STK", "amount": 100.5}
    | {"currency": "KES", "phone": PHONE, "accountReference": "INV-42", "transactionDesc": "Order 42"}
    | {"providerRequestId": "mr-1", "providerCheckoutId": "ws-1", "resultCode": "0", **TIMES}
)
STK = Sample(
    momopay.StkTransaction,
    {**_COLLECTION, "status": "PENDING", "transactionFee": 1.25, "resultDescription": "accepted"},
    {"amount": Decimal("100.5"), "transaction_fee": Decimal("1.25"), **PARSED_TIMES},
)
READ = Sample(
    momopay.Transaction,
    {**_COLLECTION, "status": "SUCCESS", "provider": "the provider", "resultDesc": "done"},
    {"amount": Decimal("100.5"), **PARSED_TIMES},
)
TOP_UP = Sample(momopay.TopUp, STK.camel, STK.parsed)
PAYOUT = Sample(
    momopay.Payout,
    {"transactionId": ID, "tenantId": TENANT, "channelId": None, "type": "B2C", "status": "PENDING"}
    | {"amount": 250, "currency": "KES", "phone": PHONE, "reference": "PAY-7", "description": "Refund"}
    | {"resultDescription": "Payout queued", "transactionFee": 0, **TIMES},
    {"amount": Decimal(250), "transaction_fee": Decimal(0), **PARSED_TIMES},
)
ITEM = Sample(
    momopay.types.TransactionSummary,
    {"transactionId": ID, "type": "WALLET_TOPUP", "status": "FAILED", "amount": 99.99, "currency": "KES"}
    | {"phone": PHONE, "accountReference": "INV-42", "transactionFee": 0, **TIMES},
    {"amount": Decimal("99.99"), "transaction_fee": Decimal(0), **PARSED_TIMES},
)
BALANCE = Sample(
    momopay.WalletBalance,
    {"walletId": ID, "tenantId": TENANT, "currency": "KES", "availableBalance": 9999.99}
    | {"ledgerBalance": 10000, "updatedAt": UPDATED},
    {"available_balance": Decimal("9999.99"), "ledger_balance": Decimal(10000), "updated_at": UPDATED_AT},
)
PAYBILL = Sample(
    momopay.PaymentChannel,
    {"id": CHANNEL, "tenantId": TENANT, "category": "PAYMENT_WALLET", "type": "PAYBILL", "shortcode": "600100"}
    | {"name": "Shop", "accountNumber": "ACC-1", "isDefault": True, "createdAt": CREATED},
    {"created_at": CREATED_AT},
)
SAMPLES = {"stk": STK, "top-up": TOP_UP, "payout": PAYOUT, "read": READ, "item": ITEM, "balance": BALANCE} | {
    "channel": PAYBILL
}
OVERVIEW = {"total": 9, "completed": 4, "failed": 3, "pending": 2}
PAGE: dict[str, Any] = {"overview": OVERVIEW, "items": [ITEM.camel, ITEM.camel], "nextCursor": "c2"}
STATED: dict[str, Any] = (
    {"id": ID, "tenant_id": TENANT, "type": "STK", "status": "SUCCESS", "amount": 100.5, "currency": "KES"}
    | {"phone_number": PHONE, "external_reference": "INV-42", "provider": "the provider"}
    | {"provider_request_id": "mr-1", "provider_checkout_id": "ws-1", "momo_receipt": "RCPT1"}
    | {"transaction_fee": 1.5, "result_code": "0", "result_desc": "done"}
    | {"created_at": "2025-03-01T10:15:30Z", "updated_at": "2025-03-01T10:16:30Z"}
)
PAYLOAD: dict[str, Any] = {"event": "transaction.updated", "event_type": "transaction.success", "transaction": STATED}


def callback_with(**changes: Any) -> momopay.Callback:
    return momopay.Callback.model_validate({**PAYLOAD, "transaction": {**STATED, **changes}})
