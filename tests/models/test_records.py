"""Every record of the service parses in both naming styles, keeps what it does not know, and shows no phone."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import httpx
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from drivers import Driver

PHONE = "254712345678"
MASKED = "2547*****678"
REQUEST_ID = "6a1f0a54-90f5-4d3d-9f0d-6f9d9a3b1c2e"
ID = "3b241101-e2bb-4255-8caf-4136c566a962"
TENANT = "11111111-1111-4111-8111-111111111111"
CHANNEL = "22222222-2222-4222-8222-222222222222"
CREATED = "2025-03-01T10:15:30.250Z"
UPDATED = "2025-03-01T13:16:00+03:00"
CREATED_AT = datetime(2025, 3, 1, 10, 15, 30, 250_000, tzinfo=UTC)
UPDATED_AT = datetime(2025, 3, 1, 10, 16, tzinfo=UTC)

STK_CAMEL: dict[str, Any] = {
    "transactionId": ID,
    "tenantId": TENANT,
    "channelId": CHANNEL,
    "type": "STK",
    "status": "PENDING",
    "amount": 100.5,
    "currency": "KES",
    "phone": PHONE,
    "accountReference": "INV-42",
    "transactionDesc": "Order 42",
    "providerRequestId": "mr-1",
    "providerCheckoutId": "ws-1",
    "transactionFee": 1.25,
    "resultCode": "0",
    "resultDescription": "accepted",
    "createdAt": CREATED,
    "updatedAt": UPDATED,
}
STK_SNAKE: dict[str, Any] = {
    "transaction_id": ID,
    "tenant_id": TENANT,
    "channel_id": CHANNEL,
    "type": "STK",
    "status": "PENDING",
    "amount": 100.5,
    "currency": "KES",
    "phone_number": PHONE,
    "external_reference": "INV-42",
    "transaction_desc": "Order 42",
    "provider_request_id": "mr-1",
    "provider_checkout_id": "ws-1",
    "transaction_fee": 1.25,
    "result_code": "0",
    "result_desc": "accepted",
    "created_at": CREATED,
    "updated_at": UPDATED,
}
STK_FIELDS: dict[str, Any] = {
    "transaction_id": ID,
    "tenant_id": TENANT,
    "channel_id": CHANNEL,
    "type": "STK",
    "status": "PENDING",
    "amount": Decimal("100.5"),
    "currency": "KES",
    "phone": PHONE,
    "account_reference": "INV-42",
    "transaction_desc": "Order 42",
    "provider_request_id": "mr-1",
    "provider_checkout_id": "ws-1",
    "transaction_fee": Decimal("1.25"),
    "result_code": "0",
    "result_description": "accepted",
    "created_at": CREATED_AT,
    "updated_at": UPDATED_AT,
}
PAYOUT_CAMEL: dict[str, Any] = {
    "transactionId": ID,
    "tenantId": TENANT,
    "channelId": None,
    "type": "B2C",
    "status": "PENDING",
    "amount": 250,
    "currency": "KES",
    "phone": PHONE,
    "reference": "PAY-7",
    "description": "Refund",
    "resultDescription": "Payout queued",
    "transactionFee": 0,
    "createdAt": CREATED,
    "updatedAt": UPDATED,
}
PAYOUT_SNAKE: dict[str, Any] = {
    "transaction_id": ID,
    "tenant_id": TENANT,
    "channel_id": None,
    "type": "B2C",
    "status": "PENDING",
    "amount": 250,
    "currency": "KES",
    "phone_number": PHONE,
    "external_reference": "PAY-7",
    "description": "Refund",
    "result_desc": "Payout queued",
    "transaction_fee": 0,
    "created_at": CREATED,
    "updated_at": UPDATED,
}
PAYOUT_FIELDS: dict[str, Any] = {
    "transaction_id": ID,
    "tenant_id": TENANT,
    "channel_id": None,
    "type": "B2C",
    "status": "PENDING",
    "amount": Decimal(250),
    "currency": "KES",
    "phone": PHONE,
    "reference": "PAY-7",
    "description": "Refund",
    "result_description": "Payout queued",
    "transaction_fee": Decimal(0),
    "created_at": CREATED_AT,
    "updated_at": UPDATED_AT,
}
READ_CAMEL: dict[str, Any] = {
    "transactionId": ID,
    "tenantId": TENANT,
    "type": "STK",
    "status": "SUCCESS",
    "amount": 100.5,
    "currency": "KES",
    "phone": PHONE,
    "channelId": CHANNEL,
    "accountReference": "INV-42",
    "transactionDesc": "Order 42",
    "provider": "the provider",
    "providerRequestId": "mr-1",
    "providerCheckoutId": "ws-1",
    "resultCode": "0",
    "resultDesc": "done",
    "createdAt": CREATED,
    "updatedAt": UPDATED,
}
READ_SNAKE: dict[str, Any] = {
    "transaction_id": ID,
    "tenant_id": TENANT,
    "type": "STK",
    "status": "SUCCESS",
    "amount": 100.5,
    "currency": "KES",
    "phone_number": PHONE,
    "channel_id": CHANNEL,
    "external_reference": "INV-42",
    "transaction_desc": "Order 42",
    "provider": "the provider",
    "provider_request_id": "mr-1",
    "provider_checkout_id": "ws-1",
    "result_code": "0",
    "result_desc": "done",
    "created_at": CREATED,
    "updated_at": UPDATED,
}
READ_FIELDS: dict[str, Any] = {
    "transaction_id": ID,
    "tenant_id": TENANT,
    "type": "STK",
    "status": "SUCCESS",
    "amount": Decimal("100.5"),
    "currency": "KES",
    "phone": PHONE,
    "channel_id": CHANNEL,
    "account_reference": "INV-42",
    "transaction_desc": "Order 42",
    "provider": "the provider",
    "provider_request_id": "mr-1",
    "provider_checkout_id": "ws-1",
    "result_code": "0",
    "result_desc": "done",
    "created_at": CREATED_AT,
    "updated_at": UPDATED_AT,
}
ITEM_CAMEL: dict[str, Any] = {
    "transactionId": ID,
    "type": "WALLET_TOPUP",
    "status": "FAILED",
    "amount": 99.99,
    "currency": "KES",
    "phone": PHONE,
    "accountReference": "INV-42",
    "transactionFee": 0,
    "createdAt": CREATED,
    "updatedAt": UPDATED,
}
ITEM_SNAKE: dict[str, Any] = {
    "transaction_id": ID,
    "type": "WALLET_TOPUP",
    "status": "FAILED",
    "amount": 99.99,
    "currency": "KES",
    "phone_number": PHONE,
    "external_reference": "INV-42",
    "transaction_fee": 0,
    "created_at": CREATED,
    "updated_at": UPDATED,
}
ITEM_FIELDS: dict[str, Any] = {
    "transaction_id": ID,
    "type": "WALLET_TOPUP",
    "status": "FAILED",
    "amount": Decimal("99.99"),
    "currency": "KES",
    "phone": PHONE,
    "account_reference": "INV-42",
    "transaction_fee": Decimal(0),
    "created_at": CREATED_AT,
    "updated_at": UPDATED_AT,
}
BALANCE_CAMEL: dict[str, Any] = {
    "walletId": ID,
    "tenantId": TENANT,
    "currency": "KES",
    "availableBalance": 9999.99,
    "ledgerBalance": 10000,
    "updatedAt": UPDATED,
}
BALANCE_SNAKE: dict[str, Any] = {
    "wallet_id": ID,
    "tenant_id": TENANT,
    "currency": "KES",
    "available_balance": 9999.99,
    "ledger_balance": 10000,
    "updated_at": UPDATED,
}
BALANCE_FIELDS: dict[str, Any] = {
    "wallet_id": ID,
    "tenant_id": TENANT,
    "currency": "KES",
    "available_balance": Decimal("9999.99"),
    "ledger_balance": Decimal(10000),
    "updated_at": UPDATED_AT,
}
CHANNEL_CAMEL: dict[str, Any] = {
    "id": CHANNEL,
    "tenantId": TENANT,
    "category": "PAYMENT_WALLET",
    "type": "PAYBILL",
    "shortcode": "600100",
    "name": "Shop",
    "accountNumber": "ACC-1",
    "isDefault": True,
    "createdAt": CREATED,
}
CHANNEL_SNAKE: dict[str, Any] = {
    "id": CHANNEL,
    "tenant_id": TENANT,
    "category": "PAYMENT_WALLET",
    "type": "PAYBILL",
    "shortcode": "600100",
    "name": "Shop",
    "account_number": "ACC-1",
    "is_default": True,
    "created_at": CREATED,
}
CHANNEL_FIELDS: dict[str, Any] = {
    "id": CHANNEL,
    "tenant_id": TENANT,
    "category": "PAYMENT_WALLET",
    "type": "PAYBILL",
    "shortcode": "600100",
    "name": "Shop",
    "account_number": "ACC-1",
    "is_default": True,
    "created_at": CREATED_AT,
}
CALLBACK: dict[str, Any] = {
    "event": "transaction.updated",
    "event_type": "transaction.success",
    "transaction": {
        "id": ID,
        "tenant_id": TENANT,
        "type": "STK",
        "status": "SUCCESS",
        "amount": 100.5,
        "currency": "KES",
        "phone_number": PHONE,
        "external_reference": "INV-42",
        "provider": "the provider",
        "provider_request_id": "mr-1",
        "provider_checkout_id": "ws-1",
        "momo_receipt": "RCPT1",
        "transaction_fee": 1,
        "result_code": "0",
        "result_desc": "done",
        "created_at": CREATED,
        "updated_at": UPDATED,
    },
}


def initiate_stk(client: Any) -> Any:
    return client.stk.initiate(amount=100, phone=PHONE)


def initiate_payout(client: Any) -> Any:
    return client.payouts.initiate(amount=250, phone=PHONE, reference="PAY-7")


def read_transaction(client: Any) -> Any:
    return client.transactions.get(ID)


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=100, phone=PHONE)


def read_balance(client: Any) -> Any:
    return client.wallet.balance()


def read_channel(client: Any) -> Any:
    return client.channels.get(CHANNEL)


def list_transactions(client: Any) -> Any:
    return client.transactions.list()


def list_channels(client: Any) -> Any:
    return client.channels.list()


RECORDS = [
    pytest.param(initiate_stk, momopay.StkTransaction, STK_CAMEL, STK_FIELDS, id="stk-camel"),
    pytest.param(initiate_stk, momopay.StkTransaction, STK_SNAKE, STK_FIELDS, id="stk-snake"),
    pytest.param(top_up, momopay.TopUp, STK_CAMEL, STK_FIELDS, id="top-up-camel"),
    pytest.param(top_up, momopay.TopUp, STK_SNAKE, STK_FIELDS, id="top-up-snake"),
    pytest.param(initiate_payout, momopay.Payout, PAYOUT_CAMEL, PAYOUT_FIELDS, id="payout-camel"),
    pytest.param(initiate_payout, momopay.Payout, PAYOUT_SNAKE, PAYOUT_FIELDS, id="payout-snake"),
    pytest.param(read_transaction, momopay.Transaction, READ_CAMEL, READ_FIELDS, id="read-camel"),
    pytest.param(read_transaction, momopay.Transaction, READ_SNAKE, READ_FIELDS, id="read-snake"),
    pytest.param(read_balance, momopay.WalletBalance, BALANCE_CAMEL, BALANCE_FIELDS, id="balance-camel"),
    pytest.param(read_balance, momopay.WalletBalance, BALANCE_SNAKE, BALANCE_FIELDS, id="balance-snake"),
    pytest.param(read_channel, momopay.PaymentChannel, CHANNEL_CAMEL, CHANNEL_FIELDS, id="channel-camel"),
    pytest.param(read_channel, momopay.PaymentChannel, CHANNEL_SNAKE, CHANNEL_FIELDS, id="channel-snake"),
]
ONE_OF_EACH = [each for each in RECORDS if str(each.id).endswith("camel")]
WITH_PHONE = [each for each in ONE_OF_EACH if str(each.id).split("-camel")[0] not in {"balance", "channel"}]


def serving(data: Any) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        body = {"success": True, "data": data, "requestId": REQUEST_ID}
        return httpx.Response(200, json=body, headers={"X-Served-By": "node-7"})

    return httpx.MockTransport(answer)


def serving_text(data: str) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=f'{{"success": true, "data": {data}, "requestId": "{REQUEST_ID}"}}')

    return httpx.MockTransport(answer)


def text_with(data: dict[str, Any], key: str, literal: str) -> str:
    return json.dumps({**data, key: "LITERAL"}).replace('"LITERAL"', literal)


@pytest.mark.parametrize(("call", "kind", "data", "expected"), RECORDS)
def test_record_parses_in_either_naming_style(
    drive: Callable[..., Driver], call: Any, kind: type[Any], data: dict[str, Any], expected: dict[str, Any]
) -> None:
    record = drive(transport=serving(data))(call)
    assert type(record) is kind
    assert {name: getattr(record, name) for name in expected} == expected
    assert not record.model_extra


@pytest.mark.parametrize("spelling", ["reference", "accountReference", "account_reference", "external_reference"])
@pytest.mark.parametrize(
    ("call", "data", "name"),
    [
        (initiate_stk, STK_CAMEL, "account_reference"),
        (top_up, STK_CAMEL, "account_reference"),
        (initiate_payout, PAYOUT_CAMEL, "reference"),
        (read_transaction, READ_CAMEL, "account_reference"),
    ],
)
def test_every_spelling_of_the_reference_is_understood(
    drive: Callable[..., Driver], call: Any, data: dict[str, Any], name: str, spelling: str
) -> None:
    rest = {key: value for key, value in data.items() if key not in {"reference", "accountReference"}}
    record = drive(transport=serving({**rest, spelling: "REF-9"}))(call)
    assert getattr(record, name) == "REF-9"


@pytest.mark.parametrize("spelling", ["resultDesc", "result_desc", "resultDescription", "result_description"])
@pytest.mark.parametrize(
    ("call", "data", "name"),
    [
        (initiate_stk, STK_CAMEL, "result_description"),
        (initiate_payout, PAYOUT_CAMEL, "result_description"),
        (read_transaction, READ_CAMEL, "result_desc"),
    ],
)
def test_every_spelling_of_the_result_description_is_understood(
    drive: Callable[..., Driver], call: Any, data: dict[str, Any], name: str, spelling: str
) -> None:
    rest = {key: value for key, value in data.items() if not key.startswith("resultDesc")}
    record = drive(transport=serving({**rest, spelling: "queued"}))(call)
    assert getattr(record, name) == "queued"


@pytest.mark.parametrize("item", [ITEM_CAMEL, ITEM_SNAKE], ids=["camel", "snake"])
@pytest.mark.parametrize("cursor_name", ["nextCursor", "next_cursor"])
def test_page_holds_items_overview_and_cursor(
    drive: Callable[..., Driver], item: dict[str, Any], cursor_name: str
) -> None:
    overview = {"total": 9, "completed": 4, "failed": 3, "pending": 2}
    data = {"overview": overview, "items": [item, item], cursor_name: "c2"}
    page = drive(transport=serving(data))(list_transactions)
    assert type(page) is momopay.TransactionPage
    assert page.next_cursor == "c2"
    seen = page.overview
    assert (seen.total, seen.completed, seen.failed, seen.pending) == (9, 4, 3, 2)
    assert [type(each) for each in page.items] == [momopay.TransactionSummary, momopay.TransactionSummary]
    assert {name: getattr(page.items[0], name) for name in ITEM_FIELDS} == ITEM_FIELDS


def test_last_page_has_no_cursor(drive: Callable[..., Driver]) -> None:
    overview = {"total": 0, "completed": 0, "failed": 0, "pending": 0}
    page = drive(transport=serving({"overview": overview, "items": [], "nextCursor": None}))(list_transactions)
    assert (list(page.items), page.next_cursor) == ([], None)


def test_channels_come_as_a_list_in_the_order_of_the_service(drive: Callable[..., Driver]) -> None:
    till = {**CHANNEL_CAMEL, "id": ID, "type": "TILL_NUMBER", "accountNumber": None, "isDefault": False}
    channels = drive(transport=serving({"items": [CHANNEL_CAMEL, till]}))(list_channels)
    assert [each.id for each in channels] == [CHANNEL, ID]
    assert [each.type for each in channels] == ["PAYBILL", "TILL_NUMBER"]
    assert [each.account_number for each in channels] == ["ACC-1", None]
    assert [each.is_default for each in channels] == [True, False]


def test_nulls_of_the_specification_are_none(drive: Callable[..., Driver]) -> None:
    nulls = ("channelId", "providerRequestId", "providerCheckoutId", "resultCode", "resultDescription")
    record = drive(transport=serving({**STK_CAMEL, **dict.fromkeys(nulls)}))(initiate_stk)
    assert record.channel_id is None
    assert record.provider_request_id is None
    assert record.provider_checkout_id is None
    assert record.result_code is None
    assert record.result_description is None


@pytest.mark.parametrize(("call", "kind", "data", "expected"), ONE_OF_EACH)
def test_unknown_fields_are_kept(
    drive: Callable[..., Driver], call: Any, kind: type[Any], data: dict[str, Any], expected: dict[str, Any]
) -> None:
    record = drive(transport=serving({**data, "loyaltyTier": {"name": "gold", "points": [1, 2]}}))(call)
    assert record.model_extra == {"loyaltyTier": {"name": "gold", "points": [1, 2]}}
    assert record.loyaltyTier == {"name": "gold", "points": [1, 2]}
    assert {name: getattr(record, name) for name in expected} == expected


@pytest.mark.parametrize(
    "name",
    ["response", "_response", "model_config", "model_extra", "model_fields", "__dict__", "__class__", "copy", ""],
)
def test_unknown_field_of_an_awkward_name_does_no_harm(drive: Callable[..., Driver], name: str) -> None:
    record = drive(transport=serving({**READ_CAMEL, name: {"request_id": "forged"}}))(read_transaction)
    assert type(record) is momopay.Transaction
    assert record.response.request_id == REQUEST_ID
    assert record.status == "SUCCESS"
    assert MASKED in repr(record)
    assert pickle.loads(pickle.dumps(record)).transaction_id == ID


@pytest.mark.parametrize(("call", "kind", "data", "expected"), ONE_OF_EACH)
def test_record_tells_of_the_answer_it_came_in(
    drive: Callable[..., Driver], call: Any, kind: type[Any], data: dict[str, Any], expected: dict[str, Any]
) -> None:
    response = drive(transport=serving(data))(call).response
    assert type(response) is momopay.ResponseInfo
    assert response.request_id == REQUEST_ID
    assert response.status_code == 200
    assert response.headers["x-served-by"] == "node-7"
    assert response.headers["X-Served-By"] == "node-7"
    assert response.attempts == 1
    assert 0 <= response.elapsed < 30


def test_page_and_its_items_tell_of_the_answer(drive: Callable[..., Driver]) -> None:
    overview = {"total": 1, "completed": 0, "failed": 1, "pending": 0}
    data = {"overview": overview, "items": [ITEM_CAMEL], "nextCursor": None}
    page = drive(transport=serving(data))(list_transactions)
    assert page.response.request_id == REQUEST_ID
    assert page.items[0].response.request_id == REQUEST_ID


def test_overview_tells_of_the_answer(drive: Callable[..., Driver]) -> None:
    overview = {"total": 1, "completed": 0, "failed": 1, "pending": 0}
    page = drive(transport=serving({"overview": overview, "items": [], "nextCursor": None}))(list_transactions)
    assert page.overview.response.request_id == REQUEST_ID


def test_listed_channels_tell_of_the_answer(drive: Callable[..., Driver]) -> None:
    channels = drive(transport=serving({"items": [CHANNEL_CAMEL]}))(list_channels)
    assert channels[0].response.request_id == REQUEST_ID


AMOUNTS = ["1", "100", "99.99", "0.1", "0.07", "100.10", "1e2", "1234567.89", "9999999999999.99"]


@pytest.mark.parametrize("literal", AMOUNTS)
def test_amount_is_exact(drive: Callable[..., Driver], literal: str) -> None:
    record = drive(transport=serving_text(text_with(READ_CAMEL, "amount", literal)))(read_transaction)
    assert type(record.amount) is Decimal
    assert record.amount == Decimal(literal)


@pytest.mark.parametrize("literal", AMOUNTS)
def test_balance_is_exact(drive: Callable[..., Driver], literal: str) -> None:
    record = drive(transport=serving_text(text_with(BALANCE_CAMEL, "availableBalance", literal)))(read_balance)
    assert type(record.available_balance) is Decimal
    assert record.available_balance == Decimal(literal)


@pytest.mark.parametrize("literal", AMOUNTS)
def test_amount_of_a_listed_transaction_is_exact(drive: Callable[..., Driver], literal: str) -> None:
    overview = '{"total": 1, "completed": 0, "failed": 1, "pending": 0}'
    data = f'{{"overview": {overview}, "items": [{text_with(ITEM_CAMEL, "amount", literal)}], "nextCursor": null}}'
    page = drive(transport=serving_text(data))(list_transactions)
    assert page.items[0].amount == Decimal(literal)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "true", "null", '"much"', "[]", "{}"])
def test_amount_that_is_no_number_is_a_protocol_error(drive: Callable[..., Driver], literal: str) -> None:
    driver = drive(transport=serving_text(text_with(READ_CAMEL, "amount", literal)), max_attempts=1)
    with pytest.raises(momopay.ProtocolError) as caught:
        driver(read_transaction)
    assert "712345678" not in f"{caught.value} {caught.value!r}"


@given(st.decimals(min_value=1, max_value=Decimal("9999999999999.99"), places=2))
def test_any_amount_of_a_callback_is_exact(amount: Decimal) -> None:
    text = json.dumps({**CALLBACK, "transaction": {**CALLBACK["transaction"], "amount": "LITERAL"}})
    callback = momopay.parse_callback(text.replace('"LITERAL"', str(amount)))
    assert callback.transaction.amount == amount


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2025-03-01T10:15:30Z", datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC)),
        ("2025-03-01T10:15:30.123456Z", datetime(2025, 3, 1, 10, 15, 30, 123456, tzinfo=UTC)),
        ("2025-03-01T13:15:30+03:00", datetime(2025, 3, 1, 13, 15, 30, tzinfo=timezone(timedelta(hours=3)))),
        ("2025-03-01T10:15:30", datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC)),
    ],
)
def test_times_are_aware(drive: Callable[..., Driver], text: str, instant: datetime) -> None:
    record = drive(transport=serving({**READ_CAMEL, "createdAt": text}))(read_transaction)
    assert record.created_at.utcoffset() is not None
    assert record.created_at == instant


@pytest.mark.parametrize(("call", "kind", "data", "expected"), ONE_OF_EACH)
def test_record_is_frozen(
    drive: Callable[..., Driver], call: Any, kind: type[Any], data: dict[str, Any], expected: dict[str, Any]
) -> None:
    record = drive(transport=serving(data))(call)
    for name in [*expected, "response", "brand_new"]:
        with pytest.raises((pydantic.ValidationError, AttributeError, TypeError)):
            setattr(record, name, "changed")
    with pytest.raises((pydantic.ValidationError, AttributeError, TypeError)):
        delattr(record, next(iter(expected)))
    assert {name: getattr(record, name) for name in expected} == expected


def test_response_info_is_frozen(drive: Callable[..., Driver]) -> None:
    response: Any = drive(transport=serving(READ_CAMEL))(read_transaction).response
    for name in ("request_id", "status_code", "headers", "attempts", "elapsed"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(response, name, "changed")


def case(call: Callable[[Any], Any], *values: Any, name: str) -> Any:
    return pytest.param(call, *values, id=name)


COPIES: list[Any] = [
    case(lambda record: pickle.loads(pickle.dumps(record)), name="pickle"),
    case(lambda record: pickle.loads(pickle.dumps(record, protocol=2)), name="pickle-2"),
    case(copy.copy, name="copy"),
    case(copy.deepcopy, name="deepcopy"),
    case(lambda record: record.model_copy(), name="model-copy"),
]


@pytest.mark.parametrize("duplicate", COPIES)
@pytest.mark.parametrize(("call", "kind", "data", "expected"), ONE_OF_EACH)
def test_copy_equals_the_record_and_keeps_all(
    drive: Callable[..., Driver],
    call: Any,
    kind: type[Any],
    data: dict[str, Any],
    expected: dict[str, Any],
    duplicate: Callable[[Any], Any],
) -> None:
    record = drive(transport=serving({**data, "type": "NEW_TYPE", "status": "NEW_STATUS", "loyalty": "gold"}))(call)
    twin = duplicate(record)
    assert twin == record
    assert type(twin) is kind
    assert twin.loyalty == "gold"
    assert twin.response == record.response
    assert twin.response.headers["x-served-by"] == "node-7"
    assert repr(twin) == repr(record)


@pytest.mark.parametrize("duplicate", COPIES)
def test_copy_of_a_page_equals_the_page(drive: Callable[..., Driver], duplicate: Callable[[Any], Any]) -> None:
    overview = {"total": 1, "completed": 0, "failed": 1, "pending": 0}
    data = {"overview": overview, "items": [ITEM_CAMEL], "nextCursor": "c2"}
    page = drive(transport=serving(data))(list_transactions)
    twin = duplicate(page)
    assert twin == page
    assert twin.items[0].response.request_id == REQUEST_ID


@pytest.mark.parametrize("duplicate", COPIES)
def test_copy_of_a_callback_equals_the_callback(duplicate: Callable[[Any], Any]) -> None:
    callback = momopay.parse_callback(CALLBACK)
    twin = duplicate(callback)
    assert twin == callback
    assert twin.key == callback.key


def test_same_data_read_twice_is_equal(drive: Callable[..., Driver]) -> None:
    numbers = iter(range(10))

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"success": True, "data": READ_CAMEL, "requestId": f"r{next(numbers)}"})

    driver = drive(transport=httpx.MockTransport(answer))
    first, second = driver(read_transaction), driver(read_transaction)
    assert first == second
    assert first.response.request_id != second.response.request_id


def test_records_of_other_data_differ(drive: Callable[..., Driver]) -> None:
    first = drive(transport=serving(READ_CAMEL))(read_transaction)
    second = drive(transport=serving({**READ_CAMEL, "status": "FAILED"}))(read_transaction)
    third = drive(transport=serving({**READ_CAMEL, "loyalty": "gold"}))(read_transaction)
    assert first != second
    assert first != third
    assert first != "SUCCESS"


@pytest.mark.parametrize(("call", "kind", "data", "expected"), ONE_OF_EACH)
def test_record_may_stand_in_a_set(
    drive: Callable[..., Driver], call: Any, kind: type[Any], data: dict[str, Any], expected: dict[str, Any]
) -> None:
    driver = drive(transport=serving({**data, "loyalty": {"tier": ["gold"]}}))
    record = driver(call)
    assert len({record, pickle.loads(pickle.dumps(record))}) == 1


@pytest.mark.parametrize(("call", "kind", "data", "expected"), WITH_PHONE)
def test_phone_is_masked_wherever_a_record_is_shown(
    drive: Callable[..., Driver], call: Any, kind: type[Any], data: dict[str, Any], expected: dict[str, Any]
) -> None:
    record = drive(transport=serving(data))(call)
    for shown in (repr(record), str(record), f"{record}", repr([record]), "{!r}".format({"record": record})):
        assert MASKED in shown
        assert "712345678" not in shown
    assert record.phone == PHONE


def test_phone_is_masked_in_a_page_and_a_callback(drive: Callable[..., Driver]) -> None:
    overview = {"total": 1, "completed": 0, "failed": 1, "pending": 0}
    data = {"overview": overview, "items": [ITEM_CAMEL], "nextCursor": None}
    page = drive(transport=serving(data))(list_transactions)
    callback = momopay.parse_callback(CALLBACK)
    for shown in (repr(page), str(page), repr(callback), str(callback), repr(callback.transaction)):
        assert MASKED in shown
        assert "712345678" not in shown
    assert page.items[0].phone == PHONE
    assert callback.transaction.phone_number == PHONE


@pytest.mark.parametrize(
    "value",
    [
        PHONE,
        f"+{PHONE}",
        "0712345678",
        "0112345678",
        "254112345678",
        int(PHONE),
        float(PHONE),
        f"paid by {PHONE}, thanks",
        {"msisdn": PHONE},
        {PHONE: "payer"},
        [PHONE],
        [{"payers": [{"phone": f"+{PHONE}"}]}],
        "tel:+254712345678",
    ],
    ids=repr,
)
def test_phone_in_an_unknown_field_is_masked(drive: Callable[..., Driver], value: Any) -> None:
    record = drive(transport=serving({**READ_CAMEL, "phone": "", "payer": value}))(read_transaction)
    for shown in (repr(record), str(record)):
        digits = "".join(each for each in shown if each.isdigit())
        assert "12345678" not in shown
        assert "12345678" not in digits
    assert record.payer == value


@pytest.mark.parametrize("reference", [PHONE, f"+{PHONE}", "0712345678", "for 254712345678."])
@pytest.mark.parametrize(
    ("call", "data", "wire_name", "name"),
    [
        (initiate_stk, STK_CAMEL, "accountReference", "account_reference"),
        (initiate_payout, PAYOUT_CAMEL, "reference", "reference"),
        (read_transaction, READ_CAMEL, "accountReference", "account_reference"),
        (initiate_stk, STK_CAMEL, "transactionDesc", "transaction_desc"),
        (read_transaction, READ_CAMEL, "resultDesc", "result_desc"),
        (read_channel, CHANNEL_CAMEL, "name", "name"),
        (read_channel, CHANNEL_CAMEL, "accountNumber", "account_number"),
        (read_channel, CHANNEL_CAMEL, "shortcode", "shortcode"),
    ],
)
def test_phone_in_a_text_field_is_masked(
    drive: Callable[..., Driver], call: Any, data: dict[str, Any], wire_name: str, name: str, reference: str
) -> None:
    record = drive(transport=serving({**data, wire_name: reference}))(call)
    for shown in (repr(record), str(record)):
        assert "12345678" not in shown
    assert getattr(record, name) == reference


@pytest.mark.parametrize("reference", ["0712-345-678", "0712 345 678", "A254712345678", "254712345678B"])
def test_phone_among_separators_or_letters_is_masked(drive: Callable[..., Driver], reference: str) -> None:
    record = drive(transport=serving({**READ_CAMEL, "phone": "", "accountReference": reference}))(read_transaction)
    for shown in (repr(record), str(record)):
        assert reference not in shown
    assert record.account_reference == reference


def test_what_is_no_phone_is_shown_whole(drive: Callable[..., Driver]) -> None:
    shown = repr(drive(transport=serving(READ_CAMEL))(read_transaction))
    for text in (ID, TENANT, "INV-42", "100.5", "SUCCESS"):
        assert text in shown


@pytest.mark.parametrize("phone", ["2547*****678", "07XX", "", "+1 202 555 0100"])
def test_phone_from_the_service_is_not_validated(drive: Callable[..., Driver], phone: str) -> None:
    record = drive(transport=serving({**READ_CAMEL, "phone": phone}))(read_transaction)
    assert record.phone == phone


OPEN_ENUMS: list[Any] = [
    (momopay.TransactionStatus, ["PENDING", "PROCESSING", "SUCCESS", "FAILED", "REVERSED", "CANCELLED", "EXPIRED"]),
    (momopay.TransactionType, ["STK", "B2C", "WALLET_TOPUP"]),
    (momopay.ChannelType, ["PAYBILL", "TILL_NUMBER", "SEND_MONEY"]),
    (
        momopay.EventType,
        ["transaction.success", "transaction.failed", "transaction.cancelled", "transaction.expired"],
    ),
    (momopay.ResultCode, ["0", "1", "17", "20", "1032", "1037"]),
]


@pytest.mark.parametrize(("kind", "values"), OPEN_ENUMS)
def test_enum_has_the_values_of_the_specification_and_no_more(kind: Any, values: list[str]) -> None:
    kind("SEEN_BEFORE")
    assert sorted(each.value for each in kind) == sorted(values)
    assert all(kind(value) is kind(value) for value in values)


@pytest.mark.parametrize("text", ["WEIRD", "success", "SUCCESS ", "0000", "", "ünïcode", "name", "value", "__class__"])
@pytest.mark.parametrize(("kind", "values"), OPEN_ENUMS)
def test_unknown_value_keeps_its_text(kind: Any, values: list[str], text: str) -> None:
    member = kind(text)
    assert isinstance(member, kind)
    assert member == text
    assert member == kind(text)
    assert hash(member) == hash(text)
    assert {text: 1}[member] == 1
    assert member.value == text
    assert str(member) == text
    assert f"{member}" == text
    assert json.loads(json.dumps(member)) == text
    assert member != kind(values[0])
    assert member != "another"


@pytest.mark.parametrize("duplicate", COPIES[:4])
@pytest.mark.parametrize(("kind", "values"), OPEN_ENUMS)
def test_enum_values_survive_copying(kind: Any, values: list[str], duplicate: Callable[[Any], Any]) -> None:
    unknown = duplicate(kind("WEIRD"))
    assert isinstance(unknown, kind)
    assert unknown.value == "WEIRD"
    assert unknown == "WEIRD"
    assert hash(unknown) == hash("WEIRD")
    for value in values:
        assert duplicate(kind(value)) is kind(value)


@given(st.text())
def test_any_unknown_status_keeps_its_text_and_never_ends(text: str) -> None:
    member = momopay.TransactionStatus(text)
    assert member == text
    assert pickle.loads(pickle.dumps(member)) == text
    assert member.is_terminal is (text in {"SUCCESS", "FAILED", "REVERSED", "CANCELLED", "EXPIRED"})


@pytest.mark.parametrize(
    ("status", "terminal"),
    [
        ("PENDING", False),
        ("PROCESSING", False),
        ("SUCCESS", True),
        ("FAILED", True),
        ("REVERSED", True),
        ("CANCELLED", True),
        ("EXPIRED", True),
        ("WEIRD", False),
        ("success", False),
    ],
)
def test_which_states_are_terminal(drive: Callable[..., Driver], status: str, terminal: bool) -> None:
    record = drive(transport=serving({**READ_CAMEL, "status": status}))(read_transaction)
    assert type(record.status) is momopay.TransactionStatus
    assert record.status == status
    assert record.status.is_terminal is terminal


@pytest.mark.parametrize(
    ("call", "data", "wire_name", "name", "kind"),
    [
        (read_transaction, READ_CAMEL, "status", "status", momopay.TransactionStatus),
        (read_transaction, READ_CAMEL, "type", "type", momopay.TransactionType),
        (read_transaction, READ_CAMEL, "resultCode", "result_code", momopay.ResultCode),
        (initiate_stk, STK_CAMEL, "resultCode", "result_code", momopay.ResultCode),
        (read_channel, CHANNEL_CAMEL, "type", "type", momopay.ChannelType),
    ],
)
def test_unknown_value_in_a_record_parses(
    drive: Callable[..., Driver], call: Any, data: dict[str, Any], wire_name: str, name: str, kind: Any
) -> None:
    value = getattr(drive(transport=serving({**data, wire_name: "BRAND_NEW"}))(call), name)
    assert isinstance(value, kind)
    assert value == "BRAND_NEW"
