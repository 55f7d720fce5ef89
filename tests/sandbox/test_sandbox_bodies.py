from decimal import Decimal
from typing import Any

import httpx
import pytest

from momopay.sandbox import Sandbox
from momopay.sandbox._bodies import parse_json
from momopay.sandbox._values import json_number
from momopay.sandbox._refusals import Refusal
from sandbox.kit import Service, data, refusal


@pytest.mark.parametrize(
    ("amount", "text"),
    [("1", "1"), ("100.00", "100"), ("0.10", "0.1"), ("250.5", "250.5"), ("999999999.99", "999999999.99")],
)
def test_money_is_a_json_number_exact_to_the_cent(amount: str, text: str) -> None:
    assert repr(json_number(Decimal(amount))) == text


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"[" * 100_000, b"1e99999999999999999999999"],
    ids=["empty", "cut", "nan", "infinity", "bytes", "deep", "huge"],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal, match="VALIDATION_ERROR"):
        parse_json(raw)


STK_FAULTS: list[tuple[str, Any]] = [
    ("amount", 0),
    ("amount", 0.99),
    ("amount", -5),
    ("amount", 1.001),
    ("amount", "100"),
    ("amount", True),
    ("amount", None),
    ("amount", 1e300),
    ("phone", None),
    ("phone", 254712345678),
    ("accountReference", "x" * 13),
    ("accountReference", 5),
    ("transactionDesc", "x" * 14),
    ("callbackUrl", "not a url"),
    ("callbackUrl", "ftp://shop.example/momo"),
    ("callbackUrl", "http://shop.example/momo"),
    ("callbackUrl", "https://10.0.0.5/momo"),
    ("callbackUrl", "https://192.168.1.5/momo"),
    ("callbackUrl", "https://intranet/momo"),
    ("callbackUrl", "https://shop.example:99999/momo"),
    ("callbackUrl", "https://[oops/momo"),
    ("credential_id", "not-a-uuid"),
    ("channelId", 7),
]


@pytest.mark.parametrize(("field", "value"), STK_FAULTS)
def test_an_stk_field_at_fault_is_named(service: Service, sandbox: Sandbox, field: str, value: Any) -> None:
    response = service.stk(**{field: value})
    assert refusal(response) == (400, "VALIDATION_ERROR")
    assert field in response.json()["error"]["details"]["fields"]
    assert sandbox.ledger == []


@pytest.mark.parametrize("field", ["amount", "phone"])
def test_amount_and_phone_cannot_be_left_out(api: httpx.Client, field: str) -> None:
    for path in ("/payments/stk", "/b2c/payouts", "/wallets/service/topups"):
        body = {"amount": 100, "phone": "0712345678"}
        del body[field]
        assert refusal(api.post(path, json=body)) == (400, "VALIDATION_ERROR")


def test_limits_are_inclusive(service: Service) -> None:
    assert data(service.stk(amount=1, accountReference="x" * 12, transactionDesc="x" * 13))["amount"] == 1
    assert data(service.payout(amount=10))["amount"] == 10
    assert data(service.top_up(amount=1, accountReference="x" * 120, transactionDesc="x" * 255))["amount"] == 1


def test_other_limits_are_kept_too(service: Service) -> None:
    for response in (
        service.payout(amount=9.99),
        service.payout(currency="USD"),
        service.top_up(amount=0.5),
        service.top_up(accountReference="x" * 121),
        service.top_up(transactionDesc="x" * 256),
    ):
        assert refusal(response) == (400, "VALIDATION_ERROR")


def test_null_is_the_same_as_nothing_and_unknown_fields_do_not_matter(service: Service) -> None:
    sent = service.stk(accountReference=None, transactionDesc=None, callbackUrl=None, channelId=None, more=1)
    assert data(sent)["accountReference"] == ""


def test_with_strict_fields_everything_not_called_optional_is_required(service: Service, sandbox: Sandbox) -> None:
    sandbox.account("pk_test_suite").switches.strict_fields = True
    assert refusal(service.stk()) == (400, "VALIDATION_ERROR")
    assert refusal(service.payout(currency="KES")) == (400, "VALIDATION_ERROR")
    url = "https://shop.example/momo"
    data(service.stk(callbackUrl=url))
    data(service.payout(currency="KES", callbackUrl=url))


def test_with_strict_callback_urls_loopback_is_refused(service: Service, sandbox: Sandbox) -> None:
    loopback = ["http://127.0.0.1:9/x", "https://localhost/x", "http://[::1]:9/x"]
    for url in loopback:
        data(service.stk(callbackUrl=url))
    sandbox.account("pk_test_suite").switches.strict_callback_urls = True
    for url in [*loopback, "https://a.localhost/x"]:
        assert refusal(service.stk(callbackUrl=url)) == (400, "VALIDATION_ERROR")
    data(service.stk(callbackUrl="https://8.8.8.8/momo"))


@pytest.mark.parametrize("host", ["10.1", "127.1", "0x7f.1", "10.0.0.0x1", "224.0.0.1", "shop", "localhost.", "."])
def test_an_address_in_disguise_is_no_public_host(service: Service, host: str) -> None:
    assert refusal(service.stk(callbackUrl=f"https://{host}/momo")) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize("raw", [b"", b"[]", b'"x"', b"{"])
def test_a_body_that_is_no_object_is_refused(api: httpx.Client, raw: bytes) -> None:
    assert refusal(api.post("/payments/stk", content=raw)) == (400, "VALIDATION_ERROR")


def test_a_body_over_1_mib_is_refused(api: httpx.Client, sandbox: Sandbox) -> None:
    assert refusal(api.post("/payments/stk", content=b" " * (1 << 21))) == (413, "PAYLOAD_TOO_LARGE")
    assert len(sandbox.requests[0].body) == (1 << 20) + 1


@pytest.mark.parametrize("phone", ["", "0712 345 678", "812345678"])
def test_a_phone_in_no_known_form(service: Service, phone: str) -> None:
    for response in (service.stk(phone=phone), service.payout(phone=phone), service.top_up(phone=phone)):
        assert refusal(response) == (400, "INVALID_PHONE")
