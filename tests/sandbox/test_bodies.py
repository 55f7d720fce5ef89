"""Request bodies: exact amounts, phone numbers, callback URLs, and what is refused."""

import json
from decimal import Decimal
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

from in_turn import in_turn
from momopay.sandbox import Refusal, Sandbox, Switches
from momopay.sandbox._bodies import (
    Body,
    ChannelChangesBody,
    NewChannelBody,
    PayoutBody,
    StkBody,
    TopUpBody,
    check_callback_url,
    host_names,
    is_loopback,
    may_be_sent,
    normalise_phone,
    parse_json,
    read_body,
)
from sandbox.kit import KEY, Routes, data, error_of

VALID: dict[type[Body], dict[str, Any]] = {
    StkBody: {"amount": 1, "phone": "x"},
    PayoutBody: {"amount": 10, "phone": "x"},
    TopUpBody: {"amount": 1, "phone": "x"},
    NewChannelBody: {"name": "Shop", "type": "TILL_NUMBER", "shortcode": "1"},
    ChannelChangesBody: {},
}


def read(model: type[Body], **changes: Any) -> Body:
    return read_body(model, json.dumps({**VALID[model], **changes}).encode(), Switches())


@in_turn("raw", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"[" * 100_000, b"1e99999999999999999999999"])
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal, match="VALIDATION_ERROR"):
        parse_json(raw)


def test_numbers_are_exact_and_only_an_object_is_a_body() -> None:
    assert parse_json(b'{"a": [0.1, 1]}') == {"a": [Decimal("0.1"), Decimal(1)]}
    for raw in (b"[]", b'"x"', b"1", b"null"):
        with pytest.raises(Refusal, match="not a JSON object"):
            read_body(StkBody, raw, Switches())


@in_turn(
    ("model", "field", "value"),
    [
        *((StkBody, "amount", value) for value in (0, 0.99, -5, 1.001, "100", True, None, 1e300)),
        *((StkBody, "phone", value) for value in (None, 254712345678)),
        *((StkBody, "accountReference", value) for value in ("x" * 13, 5)),
        (StkBody, "transactionDesc", "x" * 14),
        (StkBody, "callbackUrl", "x" * 2049),
        (StkBody, "credential_id", "not-a-uuid"),
        (StkBody, "channelId", 7),
        (PayoutBody, "amount", 9.99),
        (PayoutBody, "currency", "USD"),
        (TopUpBody, "amount", 0.5),
        (TopUpBody, "accountReference", "x" * 121),
        (TopUpBody, "transactionDesc", "x" * 256),
        *((NewChannelBody, "type", value) for value in ("TILL", None)),
        (NewChannelBody, "name", ""),
        (NewChannelBody, "shortcode", 5),
        (NewChannelBody, "isDefault", "yes"),
        *((ChannelChangesBody, "name", value) for value in (None, "")),
        *((ChannelChangesBody, "isDefault", value) for value in (None, 1)),
    ],
)
def test_a_field_at_fault_is_named(model: type[Body], field: str, value: Any) -> None:
    with pytest.raises(Refusal, match="VALIDATION_ERROR") as refused:
        read(model, **{field: value})
    fields: Any = refused.value.details["fields"]
    assert list(fields) == [field]


def test_limits_are_inclusive() -> None:
    read(StkBody, amount=1, accountReference="x" * 12, transactionDesc="x" * 13, callbackUrl="x" * 2048)
    read(StkBody, amount=999999999.99, credential_id="5b0f1c1e-0000-4000-8000-000000000001")
    read(PayoutBody, amount=10, currency="KES")
    read(TopUpBody, amount=1, accountReference="x" * 120, transactionDesc="x" * 255)
    # Null is the same as nothing, and unknown fields do not matter.
    read(StkBody, accountReference=None, transactionDesc=None, callbackUrl=None, channelId=None, more=1)
    for model in (StkBody, PayoutBody, TopUpBody, NewChannelBody):
        for field in VALID[model]:
            body = {name: value for name, value in VALID[model].items() if name != field}
            with pytest.raises(Refusal, match="VALIDATION_ERROR"):
                read_body(model, json.dumps(body).encode(), Switches())


def test_with_strict_fields_everything_not_called_optional_is_required(service: Routes, sandbox: Sandbox) -> None:
    sandbox.account(KEY).switches.strict_fields = True
    url = "https://shop.example/momo"
    response = service.stk()
    assert error_of(response) == (400, "VALIDATION_ERROR")
    assert response.json()["error"]["details"] == {"fields": {"callbackUrl": "is required"}}
    assert error_of(service.payout(callbackUrl=url)) == (400, "VALIDATION_ERROR")
    data(service.stk(callbackUrl=url))
    data(service.payout(currency="KES", callbackUrl=url))


def test_a_body_over_1_mib_is_refused(api: httpx.Client, sandbox: Sandbox) -> None:
    assert error_of(api.post("/payments/stk", content=b" " * (1 << 21))) == (413, "PAYLOAD_TOO_LARGE")
    # Kept to one byte over the limit, so that a client cannot fill the memory.
    assert len(sandbox.requests[0].body) == (1 << 20) + 1


def test_four_forms_of_a_phone_become_one_and_any_other_text_is_refused() -> None:
    for phone in ("0712345678", "+254712345678", "254712345678"):
        assert normalise_phone(phone) == "254712345678"
    assert normalise_phone("0112345678") == "254112345678"
    for phone in (
        *("", "712345678", "0812345678", "07123456789", "071234567", "0712 345 678", "0712-345-678", "(0712)345678"),
        *("+2540712345678", "00254712345678", "+255712345678", "0712345678\n", "071234567\u0668", "\u0660712345678"),
    ):
        with pytest.raises(Refusal, match="INVALID_PHONE"):
            normalise_phone(phone)


LOOPBACK = ["http://127.0.0.1:9/x", "https://localhost/x", "http://[::1]:9/x"]
PUBLIC = ["https://shop.example/momo", "https://8.8.8.8/momo", "https://shop.example.:8443/momo"]


def test_public_https_and_loopback_are_accepted_and_loopback_alone_is_sent_to() -> None:
    for url in [*LOOPBACK, *PUBLIC]:
        assert check_callback_url(url, strict=False) == url
    for url in [*LOOPBACK, "https://a.localhost/x"]:
        with pytest.raises(Refusal, match="public host"):
            check_callback_url(url, strict=True)
    assert check_callback_url(PUBLIC[0], strict=True) == PUBLIC[0]
    assert all(map(may_be_sent, LOOPBACK))
    assert not any(map(may_be_sent, [*PUBLIC, "https://192.168.1.5/x", "ftp://127.0.0.1/x"]))
    assert is_loopback("127.8.8.8")
    assert not is_loopback("localhost.evil.example")


@in_turn(
    "url",
    [
        *("not a url", "ftp://shop.example/momo", "http://shop.example/momo", "https://shop.example/mo mo"),
        *("https://shop.example/\u00e9", "https://shop.example\t/momo", "https://10.0.0.5/momo"),
        *("https://192.168.1.5/momo", "https://224.0.0.1/momo", "https://intranet/momo"),
        *("https://printer.local/momo", "https://shop.example:99999/momo", "https://[oops/momo", "https:///momo"),
        *("https://10.1/momo", "https://127.1/momo", "https://0x7f.1/momo", "https://10.0.0.0x1/momo"),
        *("https://localhost./momo", "https://./momo"),
    ],
)
def test_any_other_callback_url_is_refused(url: str) -> None:
    with pytest.raises(Refusal, match="callbackUrl"):
        check_callback_url(url, strict=False)


def test_a_host_that_was_named_is_accepted_and_sent_to_and_no_other() -> None:
    hosts = host_names(["App", "10.0.0.5", "fd00::5"])
    for url in ("http://app:3000/momo", "https://APP/momo", "http://10.0.0.5/x", "http://[fd00::5]:9/x"):
        assert check_callback_url(url, strict=False, hosts=hosts) == url
        assert may_be_sent(url, hosts)
    for url in ("http://db:3000/momo", "http://app.example/momo", "http://my-app/momo", "http://10.0.0.6/x"):
        assert not may_be_sent(url, hosts)
        with pytest.raises(Refusal, match="public host"):
            check_callback_url(url, strict=False, hosts=hosts)
    with pytest.raises(Refusal, match="public host"):
        check_callback_url("http://app:3000/momo", strict=True, hosts=hosts)


@in_turn("name", ["*", "", "http://app", "app:80", "a b", "app/x", "*.example"])
def test_a_host_is_named_alone(name: str) -> None:
    for option in ("allow_hosts", "callback_hosts"):
        options: Any = {option: [name]}
        with pytest.raises(ValueError, match="not a host name or address alone"):
            Sandbox(**options).start()


@in_turn("second", ["AAA", "http://shop.example/momo", 5, f"https://shop.example/{'x' * 500}"])
def test_where_either_callback_field_is_taken_the_unused_one_must_be_a_url_too(second: object) -> None:
    switches = Switches(payout_callback_field="either", field_limits="contract")
    body = {**VALID[PayoutBody], "callbackUrl": "https://shop.example/a", "callback_url": "https://shop.example/b"}
    used = read_body(PayoutBody, json.dumps(body).encode(), switches)
    assert used.callback_url == "https://shop.example/a"
    with pytest.raises(Refusal, match="VALIDATION_ERROR") as caught:
        read_body(PayoutBody, json.dumps({**body, "callback_url": second}).encode(), switches)
    assert caught.value.details["fields"] == {"callback_url": ANY}
