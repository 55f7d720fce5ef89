"""What goes out on the wire, to the byte where it matters, and what is refused before anything goes out."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from drivers import KEY, LOOPBACK, Driver

PHONE = "254712345678"
ID = "3b241101-e2bb-4255-8caf-4136c566a962"
CHANNEL = "22222222-2222-4222-8222-222222222222"
CREDENTIAL = "33333333-3333-4333-8333-333333333333"
HOOK = "https://shop.example/momo?order=42"
NOW = "2025-03-01T10:15:30Z"

PAYMENT: dict[str, Any] = {
    "transactionId": ID,
    "type": "STK",
    "status": "PENDING",
    "amount": 100,
    "currency": "KES",
    "phone": PHONE,
    "createdAt": NOW,
    "updatedAt": NOW,
}
PAGE: dict[str, Any] = {
    "overview": {"total": 0, "completed": 0, "failed": 0, "pending": 0},
    "items": [],
    "nextCursor": None,
}
BALANCE: dict[str, Any] = {
    "walletId": ID,
    "tenantId": ID,
    "currency": "KES",
    "availableBalance": 1,
    "ledgerBalance": 1,
    "updatedAt": NOW,
}
TILL: dict[str, Any] = {
    "id": CHANNEL,
    "tenantId": ID,
    "category": "PAYMENT_WALLET",
    "type": "TILL_NUMBER",
    "shortcode": "600100",
    "name": "Shop",
    "accountNumber": None,
    "isDefault": False,
    "createdAt": NOW,
}
CALLBACK: dict[str, Any] = {
    "event": "transaction.updated",
    "event_type": "transaction.success",
    "transaction": {
        "id": ID,
        "type": "STK",
        "status": "SUCCESS",
        "amount": 100,
        "currency": "KES",
        "phone_number": PHONE,
        "external_reference": "INV-42",
        "result_code": "0",
        "created_at": NOW,
        "updated_at": NOW,
    },
}


def recording(data: Any) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"success": True, "data": data, "requestId": "r1"})

    return httpx.MockTransport(answer), sent


def target(request: httpx.Request) -> str:
    return request.url.raw_path.decode("ascii")


def body(request: httpx.Request) -> Any:
    return json.loads(request.content, parse_float=Decimal)


def amount_text(request: httpx.Request) -> str:
    found = re.search(rb'"amount"\s*:\s*([^,}\s]+)', request.content)
    assert found is not None
    return found.group(1).decode("ascii")


def refused(driver: Driver, call: Callable[[Any], Any]) -> dict[str, str]:
    with pytest.raises(momopay.RequestValidationError) as caught:
        driver(call)
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.may_have_executed is False
    shown = f"{error} {error!r} {error.args} {dict(error.fields)}"
    assert KEY not in shown
    assert "712345678" not in shown
    assert all(isinstance(text, str) and text.strip() for text in error.fields.values())
    return dict(error.fields)


def case(call: Callable[[Any], Any] | Callable[[Any, Any], Any], *values: Any, name: str) -> Any:
    return pytest.param(call, *values, id=name)


TRACES: list[Any] = [
    case(
        lambda client: client.stk.initiate(amount=100, phone=PHONE),
        ("POST", "/v1/payments/stk", {"amount": 100, "phone": PHONE}, PAYMENT),
        name="stk-least",
    ),
    case(
        lambda client: client.stk.initiate(
            amount=Decimal("100.50"),
            phone="0712 345 678",
            account_reference="INV-42",
            transaction_desc="Order 42",
            callback_url=HOOK,
            channel_id=CHANNEL,
            credential_id=UUID(CREDENTIAL),
        ),
        (
            "POST",
            "/v1/payments/stk",
            {
                "amount": Decimal("100.5"),
                "phone": PHONE,
                "accountReference": "INV-42",
                "transactionDesc": "Order 42",
                "callbackUrl": HOOK,
                "channelId": CHANNEL,
                "credential_id": CREDENTIAL,
            },
            PAYMENT,
        ),
        name="stk-most",
    ),
    case(
        lambda client: client.payouts.initiate(amount=10, phone="+254712345678", reference="PAY-7"),
        ("POST", "/v1/b2c/payouts", {"amount": 10, "phone": PHONE, "reference": "PAY-7", "currency": "KES"}, PAYMENT),
        name="payout-least",
    ),
    case(
        lambda client: client.payouts.initiate(
            amount=Decimal(10),
            phone="(0712)-345-678",
            reference="PAY-7",
            description="Refund",
            currency="KES",
            channel_id=CHANNEL,
            callback_url=HOOK,
        ),
        (
            "POST",
            "/v1/b2c/payouts",
            {
                "amount": 10,
                "phone": PHONE,
                "reference": "PAY-7",
                "description": "Refund",
                "currency": "KES",
                "channelId": CHANNEL,
                "callbackUrl": HOOK,
            },
            PAYMENT,
        ),
        name="payout-most",
    ),
    case(
        lambda client: client.wallet.top_up(amount=1, phone="0112345678"),
        ("POST", "/v1/wallets/service/topups", {"amount": 1, "phone": "254112345678"}, PAYMENT),
        name="top-up-least",
    ),
    case(
        lambda client: client.wallet.top_up(
            amount=1, phone=PHONE, account_reference="A" * 120, transaction_desc="D" * 255, idempotency_key="k-1"
        ),
        (
            "POST",
            "/v1/wallets/service/topups",
            {"amount": 1, "phone": PHONE, "accountReference": "A" * 120, "transactionDesc": "D" * 255},
            PAYMENT,
        ),
        name="top-up-most",
    ),
    case(lambda client: client.wallet.balance(), ("GET", "/v1/wallets/service/balance", None, BALANCE), name="balance"),
    case(lambda client: client.transactions.get(ID), ("GET", f"/v1/transactions/{ID}", None, PAYMENT), name="read"),
    case(lambda client: client.transactions.list(), ("GET", "/v1/transactions?limit=20", None, PAGE), name="list"),
    case(
        lambda client: client.channels.list(),
        ("GET", "/v1/payment-wallet/channels", None, {"items": []}),
        name="channels-list",
    ),
    case(
        lambda client: client.channels.get(CHANNEL),
        ("GET", f"/v1/payment-wallet/channels/{CHANNEL}", None, TILL),
        name="channels-get",
    ),
    case(
        lambda client: client.channels.create(name="Shop", type="TILL_NUMBER", shortcode="600100"),
        (
            "POST",
            "/v1/payment-wallet/channels",
            {"name": "Shop", "type": "TILL_NUMBER", "shortcode": "600100"},
            TILL,
        ),
        name="channels-create-least",
    ),
    case(
        lambda client: client.channels.create(
            name="Shop",
            type=momopay.ChannelType.PAYBILL,
            shortcode="600100",
            account_number="ACC-1",
            is_default=False,
        ),
        (
            "POST",
            "/v1/payment-wallet/channels",
            {"name": "Shop", "type": "PAYBILL", "shortcode": "600100", "accountNumber": "ACC-1", "isDefault": False},
            TILL,
        ),
        name="channels-create-most",
    ),
    case(
        lambda client: client.channels.update(CHANNEL, account_number=None),
        ("PATCH", f"/v1/payment-wallet/channels/{CHANNEL}", {"accountNumber": None}, TILL),
        name="channels-update-null",
    ),
    case(
        lambda client: client.channels.update(CHANNEL, is_default=False),
        ("PATCH", f"/v1/payment-wallet/channels/{CHANNEL}", {"isDefault": False}, TILL),
        name="channels-update-flag",
    ),
    case(
        lambda client: client.channels.update(CHANNEL, name="New", account_number="ACC-2", is_default=True),
        (
            "PATCH",
            f"/v1/payment-wallet/channels/{CHANNEL}",
            {"name": "New", "accountNumber": "ACC-2", "isDefault": True},
            TILL,
        ),
        name="channels-update-all",
    ),
    case(
        lambda client: client.channels.delete(CHANNEL),
        ("DELETE", f"/v1/payment-wallet/channels/{CHANNEL}", None, {}),
        name="channels-delete",
    ),
]


@pytest.mark.parametrize(("call", "trace"), TRACES)
def test_operation_sends_exactly_this(drive: Callable[..., Driver], call: Any, trace: Any) -> None:
    method, path, expected, data = trace
    transport, sent = recording(data)
    drive(transport=transport)(call)
    assert len(sent) == 1
    request = sent[0]
    assert (request.method, target(request)) == (method, path)
    assert request.url.host == "api.example"
    assert request.headers["host"] == "api.example"
    if expected is None:
        assert request.content == b""
    else:
        assert body(request) == expected
        assert request.headers["content-type"].split(";")[0] == "application/json"
        assert request.headers["content-length"] == str(len(request.content))


@pytest.mark.parametrize(("call", "trace"), TRACES)
def test_every_operation_authenticates_as_basic_requires(drive: Callable[..., Driver], call: Any, trace: Any) -> None:
    transport, sent = recording(trace[3])
    drive(transport=transport)(call)
    assert sent[0].headers["authorization"] == "Basic " + base64.b64encode(f"{KEY}:".encode()).decode()
    assert KEY not in str(sent[0].url)


@pytest.mark.parametrize(("call", "trace"), TRACES)
def test_only_top_ups_carry_an_idempotency_key(drive: Callable[..., Driver], call: Any, trace: Any) -> None:
    transport, sent = recording(trace[3])
    drive(transport=transport)(call)
    assert ("idempotency-key" in sent[0].headers) is trace[1].endswith("/topups")


def test_given_idempotency_key_is_sent_as_it_is(drive: Callable[..., Driver]) -> None:
    transport, sent = recording(PAYMENT)
    drive(transport=transport)(lambda c: c.wallet.top_up(amount=1, phone=PHONE, idempotency_key="attempt-2025/7"))
    assert sent[0].headers["idempotency-key"] == "attempt-2025/7"


def test_each_top_up_makes_an_idempotency_key_of_its_own(drive: Callable[..., Driver]) -> None:
    transport, sent = recording(PAYMENT)
    driver = drive(transport=transport)
    for _ in range(5):
        driver(lambda client: client.wallet.top_up(amount=1, phone=PHONE))
    keys = [request.headers["idempotency-key"] for request in sent]
    assert len(set(keys)) == 5
    assert all(len(key) >= 16 for key in keys)


@pytest.mark.parametrize("key", ["", "  ", "a\r\nX-Evil: 1", "a\nb", "a\x00b", "clé\u20ac", 5, b"bytes", "\ud800"])
def test_idempotency_key_that_is_no_header_value_is_refused(drive: Callable[..., Driver], key: Any) -> None:
    transport, sent = recording(PAYMENT)
    driver = drive(transport=transport)
    fields = refused(driver, lambda client: client.wallet.top_up(amount=1, phone=PHONE, idempotency_key=key))
    assert set(fields) == {"idempotency_key"}
    assert sent == []


PAYING: list[Any] = [
    case(lambda client, amount: client.stk.initiate(amount=amount, phone=PHONE), 1, name="stk"),
    case(
        lambda client, amount: client.payouts.initiate(amount=amount, phone=PHONE, reference="PAY-7"), 10, name="payout"
    ),
    case(lambda client, amount: client.wallet.top_up(amount=amount, phone=PHONE), 1, name="top-up"),
]


@pytest.mark.parametrize(
    "amount",
    [
        10,
        100,
        150_000,
        10**12 + 1,
        Decimal(10),
        Decimal("10.00"),
        Decimal("10.0000"),
        Decimal("99.99"),
        Decimal("100.1"),
        Decimal("100.10"),
        Decimal("1E+2"),
        Decimal("1.5E+3"),
        Decimal("12345678901.89"),
    ],
)
@pytest.mark.parametrize(("pay", "minimum"), PAYING)
def test_amount_goes_out_exact_to_the_cent_as_a_json_number(
    drive: Callable[..., Driver], pay: Any, minimum: int, amount: Any
) -> None:
    transport, sent = recording(PAYMENT)
    drive(transport=transport)(lambda client: pay(client, amount))
    text = amount_text(sent[0])
    assert re.fullmatch(r"[1-9]\d*(\.\d\d?)?", text)
    assert Decimal(text) == amount


@pytest.mark.parametrize(("pay", "minimum"), PAYING)
def test_any_amount_goes_out_exact_to_the_cent(drive: Callable[..., Driver], pay: Any, minimum: int) -> None:
    transport, sent = recording(PAYMENT)
    driver = drive(transport=transport)
    amounts = st.decimals(min_value=minimum, max_value=10**12, places=2) | st.integers(minimum, 10**12)

    @given(amounts)
    def check(amount: Any) -> None:
        sent.clear()
        driver(lambda client: pay(client, amount))
        text = amount_text(sent[0])
        assert re.fullmatch(r"[1-9]\d*(\.\d\d?)?", text)
        assert Decimal(text) == amount

    check()


@pytest.mark.parametrize(
    "amount", [2**53 + 1, 10**400, Decimal("123456789012345678901234567890.12"), Decimal("1E+999999")]
)
@pytest.mark.parametrize(("pay", "minimum"), PAYING)
def test_huge_amount_goes_out_exact_or_not_at_all(
    drive: Callable[..., Driver], pay: Any, minimum: int, amount: Any
) -> None:
    transport, sent = recording(PAYMENT)
    driver = drive(transport=transport)
    try:
        driver(lambda client: pay(client, amount))
    except momopay.RequestValidationError:
        assert sent == []
    else:
        assert Decimal(amount_text(sent[0])) == amount


@pytest.mark.parametrize(("pay", "minimum"), PAYING)
def test_minimum_itself_is_sent(drive: Callable[..., Driver], pay: Any, minimum: int) -> None:
    transport, sent = recording(PAYMENT)
    drive(transport=transport)(lambda client: pay(client, minimum))
    assert amount_text(sent[0]) == str(minimum)


BAD_AMOUNTS: list[Any] = [
    True,
    False,
    100.0,
    99.99,
    float("nan"),
    float("inf"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("-Infinity"),
    Decimal("100.001"),
    Decimal("100.999"),
    Decimal("1E-7"),
    "100",
    b"100",
    None,
    [100],
    100 + 0j,
    0,
    -1,
    -100,
    Decimal(0),
    Decimal("-0"),
    Decimal("0.99"),
    Decimal(-100),
]


@pytest.mark.parametrize("amount", BAD_AMOUNTS, ids=repr)
@pytest.mark.parametrize(("pay", "minimum"), PAYING)
def test_senseless_amount_is_refused(drive: Callable[..., Driver], pay: Any, minimum: int, amount: Any) -> None:
    transport, sent = recording(PAYMENT)
    assert set(refused(drive(transport=transport), lambda client: pay(client, amount))) == {"amount"}
    assert sent == []


@pytest.mark.parametrize("under", [1, Decimal("0.01")])
@pytest.mark.parametrize(("pay", "minimum"), PAYING)
def test_amount_below_the_minimum_is_refused(drive: Callable[..., Driver], pay: Any, minimum: int, under: Any) -> None:
    transport, sent = recording(PAYMENT)
    assert set(refused(drive(transport=transport), lambda client: pay(client, minimum - under))) == {"amount"}
    assert sent == []


PHONING: list[Any] = [
    case(lambda client, phone: client.stk.initiate(amount=100, phone=phone), name="stk"),
    case(lambda client, phone: client.payouts.initiate(amount=100, phone=phone, reference="PAY-7"), name="payout"),
    case(lambda client, phone: client.wallet.top_up(amount=100, phone=phone), name="top-up"),
]


@pytest.mark.parametrize(
    ("phone", "sent_as"),
    [
        ("0712345678", PHONE),
        ("0112345678", "254112345678"),
        ("+254712345678", PHONE),
        ("254712345678", PHONE),
        ("0712 345 678", PHONE),
        ("+254-712-345-678", PHONE),
        ("+254 (712) 345678", PHONE),
    ],
)
@pytest.mark.parametrize("call", PHONING)
def test_phone_goes_out_normalised(drive: Callable[..., Driver], call: Any, phone: str, sent_as: str) -> None:
    transport, sent = recording(PAYMENT)
    drive(transport=transport)(lambda client: call(client, phone))
    assert body(sent[0])["phone"] == sent_as


@pytest.mark.parametrize(
    "phone",
    [
        "",
        "712345678",
        "07123456789",
        "071234567",
        "0712345678x",
        "2547123456789",
        "+2547123456789",
        "00254712345678",
        "++254712345678",
        "255712345678",
        "0712.345.678",
        "0712\u00a0345\u00a0678",
        "٠٧١٢٣٤٥٦٧٨",
        "\uff10\uff17\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18",
        "0712345678\n",
        "2547*****678",
        254712345678,
        712345678,
        b"0712345678",
        None,
        True,
        ["0712345678"],
    ],
    ids=repr,
)
@pytest.mark.parametrize("call", PHONING)
def test_what_is_no_phone_is_refused_without_being_shown(drive: Callable[..., Driver], call: Any, phone: Any) -> None:
    transport, sent = recording(PAYMENT)
    assert set(refused(drive(transport=transport), lambda client: call(client, phone))) == {"phone"}
    assert sent == []


STK_TEXTS = {"account_reference": ("accountReference", 12), "transaction_desc": ("transactionDesc", 13)}
TOP_UP_TEXTS = {"account_reference": ("accountReference", 120), "transaction_desc": ("transactionDesc", 255)}


def stk_with(client: Any, **more: Any) -> Any:
    return client.stk.initiate(**{"amount": 100, "phone": PHONE, **more})


def payout_with(client: Any, **more: Any) -> Any:
    return client.payouts.initiate(**{"amount": 100, "phone": PHONE, "reference": "PAY-7", **more})


def top_up_with(client: Any, **more: Any) -> Any:
    return client.wallet.top_up(**{"amount": 100, "phone": PHONE, **more})


def create_with(client: Any, **more: Any) -> Any:
    return client.channels.create(**{"name": "Shop", "type": "TILL_NUMBER", "shortcode": "600100", **more})


LIMITS: list[Any] = [
    (call, name, wire_name, limit)
    for call, texts in ((stk_with, STK_TEXTS), (top_up_with, TOP_UP_TEXTS))
    for name, (wire_name, limit) in texts.items()
]


@pytest.mark.parametrize("letter", ["x", "é", "𝄞"])
@pytest.mark.parametrize(("call", "name", "wire_name", "limit"), LIMITS)
def test_text_of_the_greatest_length_goes_out_whole(
    drive: Callable[..., Driver], call: Any, name: str, wire_name: str, limit: int, letter: str
) -> None:
    transport, sent = recording(PAYMENT)
    drive(transport=transport)(lambda client: call(client, **{name: letter * limit}))
    assert body(sent[0])[wire_name] == letter * limit


@pytest.mark.parametrize(("call", "name", "wire_name", "limit"), LIMITS)
def test_longer_text_is_refused_not_cut(
    drive: Callable[..., Driver], call: Any, name: str, wire_name: str, limit: int
) -> None:
    transport, sent = recording(PAYMENT)
    text = (PHONE + "x" * limit)[: limit + 1]
    assert set(refused(drive(transport=transport), lambda client: call(client, **{name: text}))) == {name}
    assert sent == []


@pytest.mark.parametrize("value", [5, b"INV", ["INV"], True, 1.5], ids=repr)
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (stk_with, "account_reference"),
        (stk_with, "transaction_desc"),
        (top_up_with, "account_reference"),
        (top_up_with, "transaction_desc"),
        (payout_with, "reference"),
        (payout_with, "description"),
        (create_with, "name"),
        (create_with, "shortcode"),
        (create_with, "account_number"),
    ],
)
def test_text_that_is_no_text_is_refused(drive: Callable[..., Driver], call: Any, name: str, value: Any) -> None:
    transport, sent = recording(PAYMENT)
    assert set(refused(drive(transport=transport), lambda client: call(client, **{name: value}))) == {name}
    assert sent == []


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (stk_with, "account_reference"),
        (stk_with, "transaction_desc"),
        (top_up_with, "account_reference"),
        (payout_with, "reference"),
        (payout_with, "description"),
        (create_with, "name"),
    ],
)
def test_text_that_no_json_can_carry_is_refused(drive: Callable[..., Driver], call: Any, name: str) -> None:
    transport, sent = recording(PAYMENT)
    assert set(refused(drive(transport=transport), lambda client: call(client, **{name: "a\ud800"}))) == {name}
    assert sent == []


@pytest.mark.parametrize("reference", ["", " ", "\t\n", "\u2003", None])
def test_payout_without_a_reference_is_refused(drive: Callable[..., Driver], reference: Any) -> None:
    transport, sent = recording(PAYMENT)
    fields = refused(drive(transport=transport), lambda client: payout_with(client, reference=reference))
    assert set(fields) == {"reference"}
    assert sent == []


@pytest.mark.parametrize("currency", ["USD", "kes", "", "KES ", 404])
def test_other_currency_is_refused(drive: Callable[..., Driver], currency: Any) -> None:
    transport, sent = recording(PAYMENT)
    fields = refused(drive(transport=transport), lambda client: payout_with(client, currency=currency))
    assert set(fields) == {"currency"}
    assert sent == []


@pytest.mark.parametrize("account_number", [None, "", "  "])
@pytest.mark.parametrize("kind", ["PAYBILL", momopay.ChannelType.PAYBILL])
def test_paybill_channel_without_an_account_number_is_refused(
    drive: Callable[..., Driver], kind: Any, account_number: Any
) -> None:
    transport, sent = recording(TILL)
    fields = refused(
        drive(transport=transport), lambda client: create_with(client, type=kind, account_number=account_number)
    )
    assert set(fields) == {"account_number"}
    assert sent == []


@pytest.mark.parametrize("flag", ["yes", 1, 0, "true"])
def test_default_flag_that_is_no_truth_value_is_refused(drive: Callable[..., Driver], flag: Any) -> None:
    transport, sent = recording(TILL)
    driver = drive(transport=transport)
    assert set(refused(driver, lambda client: create_with(client, is_default=flag))) == {"is_default"}
    assert set(refused(driver, lambda client: client.channels.update(CHANNEL, is_default=flag))) == {"is_default"}
    assert sent == []


BAD_HOOKS: list[Any] = [
    "",
    "shop.example/momo",
    "//shop.example/momo",
    "https://",
    "https:///momo",
    "http://shop.example/momo",
    "ftp://shop.example/momo",
    "javascript:alert(1)",
    "https://localhost/momo",
    "https://LOCALHOST./momo",
    "https://shop.localhost/momo",
    "https://127.0.0.1/momo",
    "https://127.1/momo",
    "https://2130706433/momo",
    "https://0x7f000001/momo",
    "https://0177.0.0.1/momo",
    "https://0.0.0.0/momo",
    "https://10.1.2.3/momo",
    "https://172.16.0.1/momo",
    "https://172.31.255.255/momo",
    "https://192.168.1.1:8443/momo",
    "https://169.254.169.254/latest",
    "https://100.64.0.1/momo",
    "https://[::1]/momo",
    "https://[fe80::1]/momo",
    "https://[fd00::1]/momo",
    "https://[::ffff:127.0.0.1]/momo",
    "https://[::ffff:10.0.0.1]/momo",
    "https://[::1/momo",
    "https://shop.example:99999/momo",
    "https://shop.example:port/momo",
    "https://shop .example/momo",
    "https://shop.example/mo mo",
    "https://shop.example/momo\r\nX-Evil: 1",
    " https://shop.example/momo",
    b"https://shop.example/momo",
    5,
    ["https://shop.example/momo"],
]


@pytest.mark.parametrize("url", BAD_HOOKS, ids=repr)
@pytest.mark.parametrize("call", [stk_with, payout_with])
def test_callback_url_that_is_not_public_https_is_refused(drive: Callable[..., Driver], call: Any, url: Any) -> None:
    transport, sent = recording(PAYMENT)
    fields = refused(drive(transport=transport), lambda client: call(client, callback_url=url))
    assert set(fields) == {"callback_url"}
    assert sent == []


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/momo",
        "https://shop.example",
        "https://shop.example:8443/momo?order=42&token=a%2Fb",
        "https://8.8.8.8/momo",
        "https://[2606:4700:4700::1111]/momo",
        "https://172.32.0.1/momo",
        "HTTPS://Shop.Example/Momo",
    ],
)
@pytest.mark.parametrize("call", [stk_with, payout_with])
def test_public_callback_url_goes_out_as_it_was_given(drive: Callable[..., Driver], call: Any, url: str) -> None:
    transport, sent = recording(PAYMENT)
    drive(transport=transport)(lambda client: call(client, callback_url=url))
    assert body(sent[0])["callbackUrl"] == url


@pytest.mark.parametrize("base_url", [LOOPBACK, "http://localhost:8787/v1", "http://[::1]:8787/v1"])
@pytest.mark.parametrize(
    "url", ["http://localhost:8000/momo", "http://127.0.0.1:8000/momo", "http://10.0.0.1/momo", "https://shop.example/"]
)
def test_loopback_base_url_lifts_the_rule_of_public_https(
    drive: Callable[..., Driver], base_url: str, url: str
) -> None:
    transport, sent = recording(PAYMENT)
    drive(transport=transport, base_url=base_url)(lambda client: stk_with(client, callback_url=url))
    assert body(sent[0])["callbackUrl"] == url


@pytest.mark.parametrize("url", ["", "momo", "ftp://localhost/momo", "http://", "http://local host/", 5])
def test_loopback_base_url_still_wants_a_url(drive: Callable[..., Driver], url: Any) -> None:
    transport, sent = recording(PAYMENT)
    driver = drive(transport=transport, base_url=LOOPBACK)
    assert set(refused(driver, lambda client: stk_with(client, callback_url=url))) == {"callback_url"}
    assert sent == []


ALL_AT_ONCE: list[Any] = [
    case(
        lambda client: client.stk.initiate(
            amount=0.5,
            phone="07123456789",
            account_reference="x" * 13,
            transaction_desc="x" * 14,
            callback_url="http://shop.example",
            channel_id="",
            credential_id=5,
        ),
        {
            "amount",
            "phone",
            "account_reference",
            "transaction_desc",
            "callback_url",
            "channel_id",
            "credential_id",
        },
        name="stk",
    ),
    case(
        lambda client: client.payouts.initiate(
            amount=9,
            phone="+25471234567890",
            reference=" ",
            description=5,
            currency="USD",
            channel_id="",
            callback_url="https://localhost",
        ),
        {"amount", "phone", "reference", "description", "currency", "channel_id", "callback_url"},
        name="payout",
    ),
    case(
        lambda client: client.wallet.top_up(
            amount=0, phone=None, account_reference="x" * 121, transaction_desc="x" * 256, idempotency_key="a\nb"
        ),
        {"amount", "phone", "account_reference", "transaction_desc", "idempotency_key"},
        name="top-up",
    ),
    case(
        lambda client: client.channels.create(name=5, type="PAYBILL", shortcode=5, is_default="yes"),
        {"name", "shortcode", "account_number", "is_default"},
        name="channels-create",
    ),
    case(
        lambda client: client.channels.update("", name=5, account_number=5, is_default="yes"),
        {"channel_id", "name", "account_number", "is_default"},
        name="channels-update",
    ),
    case(
        lambda client: client.transactions.list(
            limit=0, cursor=5, from_=5, to=5, channel_id="", amount_min=1.5, amount_max=True, q=5
        ),
        {"limit", "cursor", "from_", "to", "channel_id", "amount_min", "amount_max", "q"},
        name="list",
    ),
]


@pytest.mark.parametrize(("call", "names"), ALL_AT_ONCE)
def test_all_faults_are_told_at_once_by_their_python_names(
    drive: Callable[..., Driver], call: Any, names: set[str]
) -> None:
    transport, sent = recording(PAYMENT)
    assert set(refused(drive(transport=transport), call)) == names
    assert sent == []


@pytest.mark.parametrize("limit", [1, 20, 100])
def test_page_size_within_bounds_goes_out(drive: Callable[..., Driver], limit: int) -> None:
    transport, sent = recording(PAGE)
    driver = drive(transport=transport)
    driver(lambda client: client.transactions.list(limit=limit))
    driver.collect(lambda client: client.transactions.iter(page_size=limit))
    assert [dict(request.url.params)["limit"] for request in sent] == [str(limit), str(limit)]


SENSELESS_SIZES: list[Any] = [0, -1, 101, True, 20.0, "20", Decimal(20)]


@pytest.mark.parametrize("limit", SENSELESS_SIZES, ids=repr)
def test_page_size_of_a_list_out_of_bounds_is_refused(drive: Callable[..., Driver], limit: Any) -> None:
    transport, sent = recording(PAGE)
    fields = refused(drive(transport=transport), lambda client: client.transactions.list(limit=limit))
    assert set(fields) == {"limit"}
    assert sent == []


@pytest.mark.parametrize("page_size", SENSELESS_SIZES, ids=repr)
def test_page_size_of_an_iteration_out_of_bounds_is_refused(drive: Callable[..., Driver], page_size: Any) -> None:
    transport, sent = recording(PAGE)
    driver = drive(transport=transport)
    with pytest.raises(momopay.RequestValidationError) as caught:
        driver.collect(lambda client: client.transactions.iter(page_size=page_size))
    assert set(caught.value.fields) == {"page_size"}
    assert sent == []


def test_every_filter_goes_out_under_its_wire_name(drive: Callable[..., Driver]) -> None:
    transport, sent = recording(PAGE)
    drive(transport=transport)(
        lambda client: client.transactions.list(
            limit=50,
            cursor="c+/=&x",
            status="SUCCESS",
            type=momopay.TransactionType.B2C,
            from_="2025-03-01",
            to="2025-03-02T00:00:00+03:00",
            channel_id=CHANNEL,
            amount_min=10,
            amount_max=Decimal("99.99"),
            q="jane & co #1 é",
        )
    )
    assert sent[0].url.path == "/v1/transactions"
    assert len(sent[0].url.params.multi_items()) == 10
    assert dict(sent[0].url.params) == {
        "limit": "50",
        "cursor": "c+/=&x",
        "status": "SUCCESS",
        "type": "B2C",
        "from": "2025-03-01",
        "to": "2025-03-02T00:00:00+03:00",
        "channelId": CHANNEL,
        "amountMin": "10",
        "amountMax": "99.99",
        "q": "jane & co #1 é",
    }
    assert b"%2B03" in sent[0].url.query


def test_a_member_of_ones_own_enum_goes_out_as_its_text(drive: Callable[..., Driver]) -> None:
    class Ours(str, Enum):  # noqa: UP042  what is tested here
        PAID = "SUCCESS"

    transport, sent = recording(PAGE)
    drive(transport=transport)(lambda client: client.transactions.list(status=Ours.PAID, q=Ours.PAID))
    assert dict(sent[0].url.params) == {"limit": "20", "status": "SUCCESS", "q": "SUCCESS"}


@pytest.mark.parametrize(
    "instant",
    [
        datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC),
        datetime(2025, 3, 1, 10, 15, 30, 123456, tzinfo=timezone(timedelta(hours=3))),
    ],
)
@pytest.mark.parametrize(("name", "wire_name"), [("from_", "from"), ("to", "to")])
def test_time_filter_goes_out_as_iso_8601(
    drive: Callable[..., Driver], name: str, wire_name: str, instant: datetime
) -> None:
    transport, sent = recording(PAGE)
    drive(transport=transport)(lambda client: client.transactions.list(**{name: instant}))
    told = datetime.fromisoformat(dict(sent[0].url.params)[wire_name])
    assert told == instant
    assert told.utcoffset() is not None


@pytest.mark.parametrize(("name", "wire_name"), [("from_", "from"), ("to", "to")])
def test_date_filter_goes_out_as_a_date(drive: Callable[..., Driver], name: str, wire_name: str) -> None:
    transport, sent = recording(PAGE)
    drive(transport=transport)(lambda client: client.transactions.list(**{name: date(2025, 3, 1)}))
    assert dict(sent[0].url.params)[wire_name] == "2025-03-01"


@pytest.mark.parametrize(
    "amount", [True, 1.5, Decimal("NaN"), Decimal("Infinity"), Decimal("1.001"), "10", -1], ids=repr
)
@pytest.mark.parametrize("name", ["amount_min", "amount_max"])
def test_senseless_amount_filter_is_refused(drive: Callable[..., Driver], name: str, amount: Any) -> None:
    transport, sent = recording(PAGE)
    fields = refused(drive(transport=transport), lambda client: client.transactions.list(**{name: amount}))
    assert set(fields) == {name}
    assert sent == []


def test_iteration_carries_its_filters_to_every_page(drive: Callable[..., Driver]) -> None:
    sent: list[httpx.Request] = []
    pages: list[dict[str, Any]] = [{**PAGE, "items": [PAYMENT], "nextCursor": "c2"}, {**PAGE, "items": [PAYMENT]}]

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"success": True, "data": pages[len(sent) - 1], "requestId": "r"})

    driver = drive(transport=httpx.MockTransport(answer))
    items = driver.collect(lambda client: client.transactions.iter(status="SUCCESS", q="jane"))
    assert [each.transaction_id for each in items] == [ID, ID]
    assert [dict(request.url.params) for request in sent] == [
        {"limit": "100", "status": "SUCCESS", "q": "jane"},
        {"limit": "100", "status": "SUCCESS", "q": "jane", "cursor": "c2"},
    ]


BY_ID: list[Any] = [
    case(lambda c, i: c.transactions.get(i), "/v1/transactions/", PAYMENT, "transaction_id", name="read"),
    case(lambda c, i: c.channels.get(i), "/v1/payment-wallet/channels/", TILL, "channel_id", name="get"),
    case(
        lambda c, i: c.channels.update(i, name="New"), "/v1/payment-wallet/channels/", TILL, "channel_id", name="update"
    ),
    case(lambda c, i: c.channels.delete(i), "/v1/payment-wallet/channels/", {}, "channel_id", name="delete"),
]
ODD_IDS = [
    ("../x", "..%2Fx"),
    ("a/b", "a%2Fb"),
    ("a?b=c", "a%3Fb%3Dc"),
    ("a#b", "a%23b"),
    ("%2e%2e", "%252e%252e"),
    ("%2F", "%252F"),
    ("a b", "a%20b"),
    ("é", "%C3%A9"),
    ("..\\x", "..%5Cx"),
    ("a;b", "a%3Bb"),
]


@pytest.mark.parametrize(("odd", "segment"), ODD_IDS)
@pytest.mark.parametrize(("call", "folder", "data", "name"), BY_ID)
def test_id_goes_out_as_one_path_segment(
    drive: Callable[..., Driver], call: Any, folder: str, data: Any, name: str, odd: str, segment: str
) -> None:
    transport, sent = recording(data)
    drive(transport=transport)(lambda client: call(client, odd))
    assert target(sent[0]) == folder + segment


@pytest.mark.parametrize(("call", "folder", "data", "name"), BY_ID)
def test_any_id_goes_out_as_one_path_segment_or_not_at_all(
    drive: Callable[..., Driver], call: Any, folder: str, data: Any, name: str
) -> None:
    transport, sent = recording(data)
    driver = drive(transport=transport)

    @given(st.text())
    def check(text: str) -> None:
        sent.clear()
        try:
            driver(lambda client: call(client, text))
        except momopay.RequestValidationError:
            assert sent == []
        else:
            path = target(sent[0])
            assert path.startswith(folder)
            segment = path.removeprefix(folder)
            assert not set("/?#") & set(segment)
            assert segment not in {"", ".", ".."}
            assert unquote(segment, errors="strict") == text

    check()


@pytest.mark.parametrize("senseless", ["", "  ", ".", "..", None, 5, True, b"id", [ID], {"id": ID}], ids=repr)
@pytest.mark.parametrize(("call", "folder", "data", "name"), BY_ID)
def test_id_that_names_nothing_is_refused(
    drive: Callable[..., Driver], call: Any, folder: str, data: Any, name: str, senseless: Any
) -> None:
    transport, sent = recording(data)
    assert set(refused(drive(transport=transport), lambda client: call(client, senseless))) == {name}
    assert sent == []


TRANSACTION_RECORDS: list[Any] = [
    momopay.StkTransaction.model_validate(PAYMENT),
    momopay.Payout.model_validate(PAYMENT),
    momopay.TopUp.model_validate(PAYMENT),
    momopay.Transaction.model_validate(PAYMENT),
    momopay.TransactionSummary.model_validate(PAYMENT),
    momopay.parse_callback(CALLBACK),
    momopay.parse_callback(CALLBACK).transaction,
]


@pytest.mark.parametrize("record", TRANSACTION_RECORDS, ids=lambda record: type(record).__name__)
def test_record_of_a_transaction_stands_for_its_id(drive: Callable[..., Driver], record: Any) -> None:
    transport, sent = recording(PAYMENT)
    drive(transport=transport)(lambda client: client.transactions.get(record))
    assert target(sent[0]) == f"/v1/transactions/{ID}"


@pytest.mark.parametrize(
    "call",
    [
        case(lambda client, channel: client.channels.get(channel), name="get"),
        case(lambda client, channel: client.channels.update(channel, name="New"), name="update"),
        case(lambda client, channel: client.channels.delete(channel), name="delete"),
    ],
)
def test_channel_stands_for_its_id_in_a_path(drive: Callable[..., Driver], call: Any) -> None:
    transport, sent = recording(TILL)
    channel = momopay.PaymentChannel.model_validate(TILL)
    drive(transport=transport)(lambda client: call(client, channel))
    assert target(sent[0]) == f"/v1/payment-wallet/channels/{CHANNEL}"


@pytest.mark.parametrize("call", [stk_with, payout_with])
def test_channel_stands_for_its_id_in_a_body(drive: Callable[..., Driver], call: Any) -> None:
    transport, sent = recording(PAYMENT)
    channel = momopay.PaymentChannel.model_validate(TILL)
    drive(transport=transport)(lambda client: call(client, channel_id=channel))
    assert body(sent[0])["channelId"] == CHANNEL


def test_channel_stands_for_its_id_in_a_filter(drive: Callable[..., Driver]) -> None:
    transport, sent = recording(PAGE)
    channel = momopay.PaymentChannel.model_validate(TILL)
    driver = drive(transport=transport)
    driver(lambda client: client.transactions.list(channel_id=channel))
    driver.collect(lambda client: client.transactions.iter(channel_id=channel))
    assert [dict(request.url.params)["channelId"] for request in sent] == [CHANNEL, CHANNEL]


def test_channel_does_not_stand_for_a_transaction(drive: Callable[..., Driver]) -> None:
    transport, sent = recording(PAYMENT)
    channel = momopay.PaymentChannel.model_validate(TILL)
    fields = refused(drive(transport=transport), lambda client: client.transactions.get(channel))
    assert set(fields) == {"transaction_id"}
    assert sent == []


def test_transaction_of_a_callback_does_not_stand_for_a_channel(drive: Callable[..., Driver]) -> None:
    transport, sent = recording({})
    transaction = momopay.parse_callback(CALLBACK).transaction
    fields = refused(drive(transport=transport), lambda client: client.channels.delete(transaction))
    assert set(fields) == {"channel_id"}
    assert sent == []


def test_deleting_a_channel_gives_nothing(drive: Callable[..., Driver]) -> None:
    transport, sent = recording({"anything": True})
    assert drive(transport=transport)(lambda client: client.channels.delete(CHANNEL)) is None
    assert len(sent) == 1
