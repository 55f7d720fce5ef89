"""A callback is read whole or refused by name, and believed only after the service's own record agrees."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from drivers import Driver

PHONE = "254712345678"
ID = "3b241101-e2bb-4255-8caf-4136c566a962"
TENANT = "11111111-1111-4111-8111-111111111111"
CREATED = "2025-03-01T10:15:30Z"
UPDATED = "2025-03-01T10:16:30Z"
LIMIT = 64 * 1024

TOLD: dict[str, Any] = {
    "id": ID,
    "tenant_id": TENANT,
    "type": "STK",
    "status": "SUCCESS",
    "amount": 99.99,
    "currency": "KES",
    "phone_number": PHONE,
    "external_reference": "INV-42",
    "provider": "the provider",
    "provider_request_id": "mr-1",
    "provider_checkout_id": "ws-1",
    "momo_receipt": "RCPT1",
    "transaction_fee": 1.5,
    "result_code": "0",
    "result_desc": "done",
    "created_at": CREATED,
    "updated_at": UPDATED,
}
PAYLOAD: dict[str, Any] = {"event": "transaction.updated", "event_type": "transaction.success", "transaction": TOLD}
RECORD: dict[str, Any] = {
    "transactionId": ID,
    "tenantId": TENANT,
    "type": "STK",
    "status": "SUCCESS",
    "amount": 99.99,
    "currency": "KES",
    "phone": PHONE,
    "channelId": None,
    "accountReference": "INV-42",
    "resultCode": "0",
    "resultDesc": "done",
    "createdAt": CREATED,
    "updatedAt": UPDATED,
}
EVENT_OF = {
    "SUCCESS": "transaction.success",
    "FAILED": "transaction.failed",
    "CANCELLED": "transaction.cancelled",
    "EXPIRED": "transaction.expired",
}
WITHOUT_SUCCESS = ["FAILED", "CANCELLED", "EXPIRED", "REVERSED"]


def payload(**changes: Any) -> dict[str, Any]:
    transaction = {**TOLD, **changes}
    event_type = EVENT_OF.get(str(transaction["status"]), "transaction.failed")
    return {**PAYLOAD, "event_type": event_type, "transaction": transaction}


def padded(size: int) -> bytes:
    body = json.dumps({**PAYLOAD, "padding": ""}).encode()
    return body.replace(b'"padding": ""', b'"padding": "' + b"x" * (size - len(body)) + b'"')


def parse_refused(body: Any) -> momopay.InvalidCallbackError:
    with pytest.raises(momopay.InvalidCallbackError) as caught:
        momopay.parse_callback(body)
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.may_have_executed is False
    assert "712345678" not in "".join([repr(error), *traceback.format_exception(error)])
    assert len(str(error)) < 2000
    return error


def case(call: Callable[[Any], Any], *values: Any, name: str) -> Any:
    return pytest.param(call, *values, id=name)


FORMS: list[Any] = [
    case(lambda data: json.dumps(data).encode(), name="bytes"),
    case(json.dumps, name="str"),
    case(lambda data: bytearray(json.dumps(data).encode()), name="bytearray"),
    case(lambda data: memoryview(json.dumps(data).encode()), name="memoryview"),
    case(lambda data: memoryview(b"__" + json.dumps(data).encode())[2:], name="memoryview-slice"),
    case(dict, name="dict"),
    case(MappingProxyType, name="mapping"),
    case(lambda data: {**data, "transaction": MappingProxyType(data["transaction"])}, name="nested-mapping"),
    case(lambda data: b" \r\n\t" + json.dumps(data).encode() + b"\n", name="surrounding-space"),
    case(lambda data: json.dumps(data, ensure_ascii=False, indent=2).encode(), name="indented"),
]


@pytest.mark.parametrize("form", FORMS)
def test_payload_of_the_specification_parses_from_every_form(form: Callable[[dict[str, Any]], Any]) -> None:
    callback = momopay.parse_callback(form(PAYLOAD))
    assert type(callback) is momopay.Callback
    assert callback.event == "transaction.updated"
    assert callback.event_type is momopay.EventType("transaction.success")
    transaction = callback.transaction
    assert type(transaction) is momopay.CallbackTransaction
    assert {name: getattr(transaction, name) for name in TOLD} == {
        **TOLD,
        "amount": Decimal("99.99"),
        "transaction_fee": Decimal("1.5"),
        "created_at": datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC),
        "updated_at": datetime(2025, 3, 1, 10, 16, 30, tzinfo=UTC),
    }
    assert type(transaction.amount) is Decimal
    assert transaction.status.is_terminal is True


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_an_equal_callback(form: Callable[[dict[str, Any]], Any]) -> None:
    assert momopay.parse_callback(form(PAYLOAD)) == momopay.parse_callback(json.dumps(PAYLOAD))


def test_mapping_that_was_given_is_left_as_it_was() -> None:
    given_one = copy.deepcopy(PAYLOAD)
    callback = momopay.parse_callback(given_one)
    assert given_one == PAYLOAD
    given_one["transaction"]["amount"] = 1
    assert callback.transaction.amount == Decimal("99.99")


@pytest.mark.parametrize("status", list(EVENT_OF))
def test_every_end_parses(status: str) -> None:
    changes: dict[str, Any] = {"status": status, "momo_receipt": None, "transaction_fee": 0, "result_code": "1032"}
    callback = momopay.parse_callback(payload(**changes))
    assert callback.event_type == EVENT_OF[status]
    assert callback.transaction.status == status
    assert callback.transaction.status.is_terminal is True
    assert callback.transaction.momo_receipt is None


def test_unknown_fields_and_values_are_kept() -> None:
    body = {
        **PAYLOAD,
        "event_type": "transaction.thawed",
        "delivery": {"attempt": 2},
        "transaction": {**TOLD, "status": "THAWED", "type": "NEW", "result_code": "9999", "score": [1, "two"]},
    }
    callback = momopay.parse_callback(json.dumps(body))
    assert callback.model_extra == {"delivery": {"attempt": 2}}
    assert callback.transaction.model_extra == {"score": [1, "two"]}
    assert callback.event_type == "transaction.thawed"
    assert callback.transaction.status == "THAWED"
    assert callback.transaction.status.is_terminal is False
    assert callback.transaction.type == "NEW"
    assert callback.transaction.result_code == "9999"


def test_key_is_the_same_for_a_repeat_and_differs_for_another_state() -> None:
    first = momopay.parse_callback(payload())
    repeat = momopay.parse_callback(payload(updated_at="2025-03-01T11:00:00Z"))
    later = momopay.parse_callback(payload(status="FAILED"))
    other = momopay.parse_callback(payload(id="4b241101-e2bb-4255-8caf-4136c566a962"))
    assert first.key == repeat.key
    assert len({first.key, later.key, other.key}) == 3
    assert pickle.loads(pickle.dumps(first)).key == first.key


@pytest.mark.parametrize("size", [1000, LIMIT - 1, LIMIT])
def test_body_up_to_the_limit_parses(size: int) -> None:
    body = padded(size)
    assert len(body) == size
    assert momopay.parse_callback(body).transaction.id == ID
    assert momopay.parse_callback(body.decode()).transaction.id == ID


@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT * 2, 10_000_000])
def test_body_over_the_limit_is_refused(size: int) -> None:
    for body in (padded(size), padded(size).decode(), bytearray(padded(size)), memoryview(padded(size))):
        parse_refused(body)


def test_limit_counts_bytes_not_letters() -> None:
    body = json.dumps({**PAYLOAD, "padding": "€" * (LIMIT // 2)}, ensure_ascii=False)
    assert len(body) < LIMIT < len(body.encode())
    parse_refused(body)
    parse_refused(body.encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        "",
        " ",
        "{",
        "{}",
        "[]",
        "null",
        "7",
        "true",
        '"text"',
        "<html></html>",
        "event=transaction.updated",
        b"\xff\xfe\x00",
        b'{"event": "\xff"}',
        b"\xef\xbb\xbf",
        "\ud800",
        '{"event": "\ud800"}',
        "[" * 30_000,
        '{"a":' * 12_000,
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 30_000 + "]" * 30_000,
        "{'event': 'transaction.updated'}",
        json.dumps([PAYLOAD]),
        json.dumps(PAYLOAD) + json.dumps(PAYLOAD),
        json.dumps(PAYLOAD)[:-1],
        json.dumps(PAYLOAD).encode("utf-16"),
        json.dumps({**PAYLOAD, "transaction": None}),
        json.dumps({**PAYLOAD, "transaction": []}),
        json.dumps({**PAYLOAD, "transaction": json.dumps(TOLD)}),
        json.dumps({"event": "transaction.updated", "event_type": "transaction.success"}),
        json.dumps(TOLD),
    ],
    ids=lambda body: repr(body[:24]),
)
def test_malformed_body_is_refused(body: Any) -> None:
    parse_refused(body)


@pytest.mark.parametrize("body", [None, 7, 7.5, True, [], [PAYLOAD], (), type, {1: 2}, {}, set[str]()], ids=repr)
def test_body_of_another_type_is_refused(body: Any) -> None:
    parse_refused(body)


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(levels):
        inner = {"a": inner}
    return inner


def refused_or_usable(body: Any) -> None:
    try:
        callback = momopay.parse_callback(body)
    except momopay.InvalidCallbackError:
        return
    assert isinstance(repr(callback), str)
    assert pickle.loads(pickle.dumps(callback)).key == callback.key


def test_mapping_nested_without_end_is_refused_or_usable() -> None:
    refused_or_usable({**PAYLOAD, "more": nested(100_000)})


def test_mapping_that_holds_itself_is_refused_or_usable() -> None:
    endless: dict[str, Any] = {**PAYLOAD}
    endless["more"] = endless
    refused_or_usable(endless)


def test_known_field_nested_without_end_is_refused() -> None:
    text = json.dumps({**PAYLOAD, "transaction": {**TOLD, "status": "DEEP"}})
    parse_refused(text.replace('"DEEP"', "[" * 20_000 + "]" * 20_000))


@pytest.mark.parametrize(
    "literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", '"much"', "true", "null", "[]", "{}", '"NaN"']
)
def test_amount_that_is_no_amount_is_refused(literal: str) -> None:
    text = json.dumps(payload(amount="AMOUNT")).replace('"AMOUNT"', literal)
    parse_refused(text)
    parse_refused(text.encode())


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity")])
def test_amount_of_a_mapping_that_is_no_amount_is_refused(amount: Any) -> None:
    parse_refused(payload(amount=amount))


@pytest.mark.parametrize("name", list(TOLD))
@pytest.mark.parametrize("literal", ["1" * 5000, "1e999999999", "NaN", "[" * 500 + "]" * 500, '"\\ud800"', '"\\u0000"'])
def test_hostile_field_parses_or_is_refused(name: str, literal: str) -> None:
    text = json.dumps(payload(**{name: "HOSTILE"})).replace('"HOSTILE"', literal)
    refused_or_usable(text)


@pytest.mark.parametrize("name", ["id", "status", "amount", "phone_number"])
def test_callback_without_what_it_is_about_is_refused(name: str) -> None:
    parse_refused({**PAYLOAD, "transaction": {key: value for key, value in TOLD.items() if key != name}})
    parse_refused(payload(**{name: None}))


@pytest.mark.parametrize("transaction_id", ["", "  ", ".", "..", 5, None, [ID], True])
def test_callback_without_an_id_to_read_by_is_refused(transaction_id: Any) -> None:
    parse_refused(payload(id=transaction_id))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_else(body: bytes) -> None:
    parse_refused(body)


@given(st.text(alphabet=st.characters(), max_size=300))
def test_arbitrary_text_raises_nothing_else(body: str) -> None:
    parse_refused(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters()) | st.decimals(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def parses_or_is_refused(body: Any) -> None:
    try:
        callback = momopay.parse_callback(body)
    except momopay.InvalidCallbackError as error:
        shown = f"{error} {error!r}"
    else:
        shown = f"{callback} {callback!r}"
        assert pickle.loads(pickle.dumps(callback)).key == callback.key
    assert "712345678" not in shown


@given(st.dictionaries(st.text(), JSON) | JSON)
def test_arbitrary_json_raises_nothing_else(body: Any) -> None:
    parse_refused(json.dumps(body, default=str))
    if isinstance(body, Mapping):
        parse_refused(body)


@given(st.sampled_from(sorted(TOLD)), JSON)
def test_payload_with_one_field_changed_parses_or_is_refused(name: str, value: Any) -> None:
    parses_or_is_refused(payload(**{name: value}))
    parses_or_is_refused(json.dumps(payload(**{name: value}), default=str))


@given(st.sampled_from(["event", "event_type", "transaction", "extra"]), JSON)
def test_payload_with_one_part_changed_parses_or_is_refused(name: str, value: Any) -> None:
    parses_or_is_refused({**PAYLOAD, name: value})
    parses_or_is_refused(json.dumps({**PAYLOAD, name: value}, default=str))


@given(st.data())
def test_payload_with_bytes_changed_parses_or_is_refused(data: st.DataObject) -> None:
    body = bytearray(json.dumps(PAYLOAD).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=3))
    parses_or_is_refused(bytes(body))


@given(st.integers(0, len(json.dumps(PAYLOAD)) - 1))
def test_payload_cut_short_is_refused(length: int) -> None:
    parse_refused(json.dumps(PAYLOAD)[:length])


def serving(record: dict[str, Any], sent: list[httpx.Request] | None = None) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        if sent is not None:
            sent.append(request)
        return httpx.Response(200, json={"success": True, "data": record, "requestId": "r-1"})

    return httpx.MockTransport(answer)


def mismatch(driver: Driver, callback: momopay.Callback) -> momopay.CallbackMismatchError:
    with pytest.raises(momopay.CallbackMismatchError) as caught:
        driver(lambda client: client.transactions.confirm(callback))
    error = caught.value
    assert "712345678" not in "".join([repr(error), *traceback.format_exception(error)])
    return error


def test_confirm_reads_once_and_gives_the_services_own_record(drive: Callable[..., Driver]) -> None:
    sent: list[httpx.Request] = []
    driver = drive(transport=serving(RECORD, sent))
    transaction = driver(lambda client: client.transactions.confirm(momopay.parse_callback(PAYLOAD)))
    assert type(transaction) is momopay.Transaction
    assert transaction.transaction_id == ID
    assert transaction.response.request_id == "r-1"
    assert [(request.method, request.url.path) for request in sent] == [("GET", f"/v1/transactions/{ID}")]


@pytest.mark.parametrize(
    "record",
    [
        {**RECORD, "phone": "2547*****678"},
        {**RECORD, "phone": "254*******78"},
        {**RECORD, "phone": "+254712345678"},
        {**RECORD, "phone": "0712345678"},
        {**RECORD, "amount": 99.990},
        {**RECORD, "resultDesc": "another wording"},
        {**RECORD, "updatedAt": "2025-03-01T12:00:00Z"},
        {**RECORD, "provider": "another name"},
    ],
)
def test_record_that_says_the_same_agrees(drive: Callable[..., Driver], record: dict[str, Any]) -> None:
    driver = drive(transport=serving(record))
    transaction = driver(lambda client: client.transactions.confirm(momopay.parse_callback(PAYLOAD)))
    assert transaction.status == "SUCCESS"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"status": "PENDING"}, "status"),
        ({"status": "PROCESSING"}, "status"),
        ({"status": "FAILED"}, "status"),
        ({"status": "CANCELLED"}, "status"),
        ({"status": "EXPIRED"}, "status"),
        ({"status": "REVERSED"}, "status"),
        ({"status": "WEIRD"}, "status"),
        ({"amount": 99.98}, "amount"),
        ({"amount": 100}, "amount"),
        ({"amount": 9999}, "amount"),
        ({"phone": "254712345679"}, "phone"),
        ({"phone": "2547*****679"}, "phone"),
        ({"phone": "2541*****678"}, "phone"),
        ({"phone": ""}, "phone"),
        ({"type": "B2C"}, "type"),
        ({"accountReference": "INV-43"}, "reference"),
        ({"accountReference": "inv-42"}, "reference"),
        ({"accountReference": None}, "reference"),
    ],
)
def test_record_that_says_otherwise_is_a_mismatch(
    drive: Callable[..., Driver], changes: dict[str, Any], field: str
) -> None:
    error = mismatch(drive(transport=serving({**RECORD, **changes})), momopay.parse_callback(PAYLOAD))
    assert list(error.fields) == [field]
    assert error.transaction_id == ID


def test_all_that_differs_is_told_at_once(drive: Callable[..., Driver]) -> None:
    record = {
        **RECORD,
        "status": "FAILED",
        "amount": 1,
        "phone": "254112345678",
        "accountReference": "another",
    }
    error = mismatch(drive(transport=serving(record)), momopay.parse_callback(PAYLOAD))
    assert set(error.fields) == {"status", "amount", "phone", "reference"}


@pytest.mark.parametrize("told", ["FAILED", "CANCELLED", "EXPIRED"])
@pytest.mark.parametrize("status", WITHOUT_SUCCESS)
def test_any_two_ends_without_success_agree(drive: Callable[..., Driver], told: str, status: str) -> None:
    callback = momopay.parse_callback(payload(status=told))
    driver = drive(transport=serving({**RECORD, "status": status}))
    assert driver(lambda client: client.transactions.confirm(callback)).status == status


@pytest.mark.parametrize("told", ["FAILED", "CANCELLED", "EXPIRED"])
@pytest.mark.parametrize("status", ["SUCCESS", "PENDING", "PROCESSING", "WEIRD"])
def test_end_without_success_does_not_agree_with_anything_else(
    drive: Callable[..., Driver], told: str, status: str
) -> None:
    error = mismatch(
        drive(transport=serving({**RECORD, "status": status})), momopay.parse_callback(payload(status=told))
    )
    assert list(error.fields) == ["status"]


def test_event_type_that_belies_its_status_is_not_confirmed(drive: Callable[..., Driver]) -> None:
    forged = {**payload(status="FAILED"), "event_type": "transaction.success"}
    driver = drive(transport=serving({**RECORD, "status": "FAILED"}))
    with pytest.raises(momopay.CallbackError):
        driver(lambda client: client.transactions.confirm(momopay.parse_callback(forged)))


def test_event_type_that_is_new_is_confirmed_by_its_status(drive: Callable[..., Driver]) -> None:
    told = {**payload(status="SUCCESS"), "event_type": "transaction.completed"}
    driver = drive(transport=serving({**RECORD, "status": "SUCCESS"}))
    assert driver(lambda client: client.transactions.confirm(momopay.parse_callback(told))).status == "SUCCESS"


def test_record_of_another_transaction_is_not_confirmed(drive: Callable[..., Driver]) -> None:
    other = {**RECORD, "transactionId": "4b241101-e2bb-4255-8caf-4136c566a962"}
    driver = drive(transport=serving(other))
    with pytest.raises((momopay.CallbackMismatchError, momopay.ProtocolError)):
        driver(lambda client: client.transactions.confirm(momopay.parse_callback(PAYLOAD)))


@pytest.mark.parametrize("status", [400, 404])
def test_callback_of_an_unknown_transaction_is_told_as_such(drive: Callable[..., Driver], status: int) -> None:
    error: dict[str, Any] = {"message": "No such transaction", "code": "TRANSACTION_NOT_FOUND", "details": {}}
    body: dict[str, Any] = {"success": False, "error": error, "requestId": "r-1"}
    driver = drive(transport=httpx.MockTransport(lambda request: httpx.Response(status, json=body)))
    with pytest.raises(momopay.TransactionNotFoundError):
        driver(lambda client: client.transactions.confirm(momopay.parse_callback(PAYLOAD)))


def test_id_of_a_callback_cannot_leave_its_path_segment(drive: Callable[..., Driver]) -> None:
    sent: list[httpx.Request] = []
    driver = drive(transport=serving({**RECORD, "transactionId": "../wallets?x=1"}, sent))
    driver(lambda client: client.transactions.confirm(momopay.parse_callback(payload(id="../wallets?x=1"))))
    assert [request.url.raw_path for request in sent] == [b"/v1/transactions/..%2Fwallets%3Fx%3D1"]
