"""A callback's body parses whole or is refused, and a callback agrees with the service's record or is a mismatch."""

import json
import pickle
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from in_turn import in_turn
from models.kit import ID, PAYLOAD, PHONE, READ, STATED, parse
from momopay.callbacks import MAX_BODY_BYTES, callback_body, check_agreement

EVENT_OF = {status: f"transaction.{status.lower()}" for status in ("SUCCESS", "FAILED", "CANCELLED", "EXPIRED")}


def payload(**changes: Any) -> dict[str, Any]:
    transaction = {**STATED, **changes}
    event_type = EVENT_OF.get(str(transaction["status"]), "transaction.failed")
    return {**PAYLOAD, "event_type": event_type, "transaction": transaction}


def refused(body: Any) -> momopay.InvalidCallbackError:
    """Parse what is not a callback; nothing of it may be shown, by the error or by what it is chained to."""
    with pytest.raises(momopay.InvalidCallbackError) as caught:
        momopay.parse_callback(body)
    error = caught.value
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = [frame for part in (report, report.__cause__) if part for frame in part.stack]
    shown = [str(frame.locals) for frame in frames if "/tests/" not in frame.filename]
    shown += [f"{link}{link!r}" for link in (error, error.__cause__, error.__context__)]
    assert "712345678" not in "".join(shown)
    assert error.may_have_executed is False
    assert len(str(error)) < 2000
    return error


FORMS: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda data: json.dumps(data).encode(),
    "str": json.dumps,
    "bytearray": lambda data: bytearray(json.dumps(data).encode()),
    "slice": lambda data: memoryview(b"__\xef\xbb\xbf" + json.dumps(data).encode())[2:],
    "bytes with a byte order mark": lambda data: b"\xef\xbb\xbf" + json.dumps(data).encode(),
    "text with a byte order mark": lambda data: "\ufeff" + json.dumps(data),
    "dict": dict,
    "mapping": lambda data: MappingProxyType({**data, "transaction": MappingProxyType(data["transaction"])}),
    "indented": lambda data: b" \r\n\t" + json.dumps(data, ensure_ascii=False, indent=2).encode() + b"\n",
}


@in_turn("form", FORMS)
def test_the_payload_of_the_service_parses_from_every_form(form: str) -> None:
    callback = momopay.parse_callback(FORMS[form](PAYLOAD))
    assert (type(callback), callback.event) == (momopay.Callback, "transaction.updated")
    assert callback.event_type is momopay.EventType.SUCCESS
    assert {name: getattr(callback.transaction, name) for name in STATED} == {
        **STATED,
        "amount": Decimal("100.5"),
        "transaction_fee": Decimal("1.5"),
        "created_at": datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC),
        "updated_at": datetime(2025, 3, 1, 10, 16, 30, tzinfo=UTC),
    }
    assert pickle.loads(pickle.dumps(callback)) == callback


@given(st.decimals(min_value=1, max_value=Decimal("9999999999999.99"), places=2))
def test_any_amount_is_exact(amount: Decimal) -> None:
    text = json.dumps(payload(amount="AMOUNT")).replace('"AMOUNT"', str(amount))
    assert momopay.parse_callback(text).transaction.amount == amount


def padded(size: int, letter: str = "x") -> str:
    body = json.dumps({**PAYLOAD, "padding": ""})
    more = (size - len(body)) // len(letter.encode())
    return body.replace('"padding": ""', f'"padding": "{letter * more}"')


def test_a_body_up_to_the_limit_parses_and_no_more_is_taken() -> None:
    assert MAX_BODY_BYTES == 65_536
    whole = padded(MAX_BODY_BYTES)
    assert momopay.parse_callback(whole) == momopay.parse_callback(whole.encode())
    longer, of_fewer_characters = padded(MAX_BODY_BYTES + 1), padded(2 * MAX_BODY_BYTES, "€")
    assert len(of_fewer_characters) < MAX_BODY_BYTES
    refused("\ud800")
    for body in (longer, longer.encode(), bytearray(longer.encode()), memoryview(longer.encode()), of_fewer_characters):
        assert "64 KiB" in str(refused(body))


ENDLESS: dict[str, Any] = {**PAYLOAD}
ENDLESS["more"] = ENDLESS
MALFORMED: list[Any] = [
    *(b"", "", " ", "{", "{}", "[]", "null", "7", "true", '"text"', "<html></html>", "event=transaction.updated"),
    *(b"\xff\xfe\x00", b'{"event": "\xff254712345678"}', b"\xef\xbb\xbf", "\ud800", '{"event": "\ud800254712345678"}'),
    *("[" * 30_000, '{"a":' * 12_000, "[" * 30_000 + "]" * 30_000, "{'event': 'transaction.updated'}"),
    *(json.dumps([PAYLOAD]), json.dumps(PAYLOAD) * 2, json.dumps(PAYLOAD)[:-1], json.dumps(PAYLOAD).encode("utf-16")),
    *(json.dumps({**PAYLOAD, "transaction": None}), json.dumps({**PAYLOAD, "transaction": []})),
    json.dumps({**PAYLOAD, "transaction": json.dumps(STATED)}),
    json.dumps({"event": "transaction.updated", "event_type": "transaction.success"}),
    json.dumps(STATED),
    *(None, 7, 7.5, True, [], [PAYLOAD], (), type, {1: 2}, {}, set[str]()),
    {**PAYLOAD, PHONE: "\ud800" + PHONE},
    *({**PAYLOAD, "more": type}, ENDLESS),
    {**PAYLOAD, "more": b"\xff254712345678"},
]


@in_turn("body", MALFORMED)
def test_what_is_not_a_callback_is_refused_and_not_shown(body: Any) -> None:
    refused(body)


def test_a_callback_without_its_id_is_refused() -> None:
    refused({**PAYLOAD, "transaction": {key: value for key, value in STATED.items() if key != "id"}})
    unusable: list[Any] = [None, "", "  ", ".", 7, True, [], {}, [ID], "x" * 256]
    for each in unusable:
        refused(payload(id=each))


def test_an_id_is_enough() -> None:
    least: dict[str, Any] = {"transaction": {"id": ID}}
    callback = momopay.parse_callback(json.dumps(least))
    assert (callback.key, callback.status, callback.event_type) == ((ID, None), None, None)
    assert {getattr(callback.transaction, name) for name in STATED} == {ID, "KES", None}
    assert disagreement(least, {}) == ()


TIMES = ("created_at", "updated_at")
WRONG_TYPES: list[Any] = [None, True, False, 0, -7, 7.5, 1e300, 10**400, [], ["x"], {}, {"a": 1}, "", "N/A", "1,250.00"]
MORE: list[Any] = ["\0", "x" * 5000, 20191399999999]


@in_turn("name", sorted(STATED.keys() - {"id"}))
def test_no_field_but_the_id_decides_whether_a_callback_is_taken(name: str) -> None:
    """Each field with each JSON type, beside whole ones: what it says is text, a value of its type, or left out."""
    for value in WRONG_TYPES + MORE:
        callback = momopay.parse_callback(json.dumps(payload(**{name: value})))
        stated = getattr(callback.transaction, name)
        assert stated is None or isinstance(stated, str | Decimal | datetime), value
        assert callback.transaction.id == ID
        differing = set(disagreement(payload(**{name: value}), {}))
        if isinstance(value, dict | list | bool) or value in {None, "", "N/A"}:
            assert differing == set(), value


@in_turn("name", ["event", "event_type"])
def test_no_field_of_the_event_decides_it_either(name: str) -> None:
    for value in WRONG_TYPES + MORE:
        assert momopay.parse_callback(json.dumps({**PAYLOAD, name: value})).key == (ID, "SUCCESS")


@in_turn(
    ("field", "value", "kept"),
    [
        *(("phone_number", 254712345678, PHONE), ("external_reference", 42, "42")),
        *(
            ("phone_number", 254712345678.0, PHONE),
            ("phone_number", "N/A", None),
            ("phone_number", "2547*****678", ...),
        ),
        *(("amount", "100.50", Decimal("100.5")), ("amount", "1,250.00", None), ("amount", "N/A", None)),
        *(("result_code", 1032, "1032"), ("result_code", "n/a", None), ("external_reference", "null", None)),
        *(("status", 5, None), ("status", "WEIRD", ...), ("status", ["SUCCESS"], None), ("type", {}, None)),
        *((name, 20191219102115, datetime(2019, 12, 19, 7, 21, 15, tzinfo=UTC)) for name in TIMES),
        *((name, "20191219102115", datetime(2019, 12, 19, 7, 21, 15, tzinfo=UTC)) for name in TIMES),
        *((name, 1740824130, datetime(2025, 3, 1, 10, 15, 30, tzinfo=UTC)) for name in TIMES),
        *((name, text, None) for name in TIMES for text in ("20191319102115", "1999-12-31T23:59:59Z", "19/12/2019")),
        *((name, text, None) for name in TIMES for text in ("2101-01-01T00:00:00Z", 99999999999999, "", "soon")),
    ],
)
def test_what_cannot_be_read_is_left_out_and_named(
    field: str, value: Any, kept: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    stated = momopay.parse_callback(json.dumps(payload(**{field: value}))).transaction
    assert getattr(stated, field) == (value if kept is ... else kept)
    named = [each.getMessage() for each in caplog.records if field in each.getMessage()]
    assert len(named) == int(kept is None)
    assert all(each.startswith("the callback for transaction") for each in named)


@in_turn("name", sorted(STATED.keys() - {"id", "status"}))
def test_every_other_field_may_be_missing_or_null(name: str) -> None:
    missing = {**PAYLOAD, "transaction": {key: value for key, value in STATED.items() if key != name}}
    null = {**payload(**{name: None}), "event": None}
    assert getattr(momopay.parse_callback(null).transaction, name) is momopay.parse_callback(null).event is None
    for callback in (missing, null):
        assert disagreement(callback, {}) == ()
        assert disagreement(callback, {"status": "PENDING"}) == ("status",)


@in_turn(
    "fields",
    [
        ({"momo_receipt": 1234567890}, "1234567890"),
        ({"momo_receipt": "N/A"}, None),
        ({"momo_receipt": "N/A", "brand_receipt": "QK12"}, "QK12"),
        *(({"momo_receipt": value}, None) for value in (["QK12"], {"number": "QK12"}, True, 1234.5, 1, -1234)),
    ],
)
def test_a_receipt_may_be_a_number_and_is_left_out_if_it_cannot_be_one(
    fields: tuple[dict[str, Any], str | None], caplog: pytest.LogCaptureFixture
) -> None:
    changes, receipt = fields
    assert momopay.parse_callback(payload(**changes)).receipt == receipt
    is_left_out = receipt != str(changes["momo_receipt"])
    assert ("has a momo_receipt that cannot be read; it is left out" in caplog.text) is is_left_out
    caplog.clear()
    for none in (None, ""):  # as of a failure
        assert momopay.parse_callback(payload(momo_receipt=none)).receipt is None
    assert caplog.text == ""


def disagreement(callback: dict[str, Any], record: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields that differ."""
    stated = momopay.parse_callback(callback)
    try:
        check_agreement(stated, parse(momopay.Transaction, {**READ.camel, **record}))
    except momopay.CallbackMismatchError as error:
        mismatch = error
    else:
        return ()
    assert mismatch.transaction_id == stated.transaction.id
    assert str(mismatch).endswith(f"and the service's record differ in {', '.join(mismatch.fields)}")
    assert "712345678" not in repr(mismatch)
    return mismatch.fields


@in_turn(
    "record",
    [
        {},
        *({"phone": phone} for phone in ("2547*****678", "254*******78", "+254712345678", "0712345678")),
        *({"amount": 100.50}, {"type": "WALLET_TOPUP"}, {"type": "ANOTHER"}),
        *({"phone": None}, {"phone": ""}, {"phone": "N/A"}, {"accountReference": None}, {"accountReference": ""}),
        {"resultDesc": "other words", "updatedAt": "2025-03-01T12:00:00Z", "provider": "other name"},
    ],
)
def test_a_record_that_says_the_same_agrees(record: dict[str, Any]) -> None:
    assert disagreement(PAYLOAD, record) == ()
    for stated, read in ((None, ""), ("", None), ("Caf\u00e9", "Cafe\u0301"), ("Cafe\u0301", "Caf\u00e9")):
        assert disagreement(payload(external_reference=stated), {**record, "accountReference": read}) == ()


WRONG = {"status": "FAILED", "amount": 1, "phone": "254112345678", "accountReference": "other"}


@in_turn(
    ("record", "field"),
    [
        *(({"status": status}, "status") for status in ("PENDING", "PROCESSING", "FAILED", "REVERSED", "WEIRD")),
        *(({"amount": amount}, "amount") for amount in (100.49, 100, 10050)),
        *(({"phone": phone}, "phone") for phone in ("254712345679", "2547*****679", "2541*****678")),
        *(({"accountReference": reference}, "reference") for reference in ("INV-43", "inv-42")),
        *(({"type": "B2C"}, "type"), (WRONG, ("status", "amount", "phone", "reference"))),
        ({"transactionId": "4b241101-e2bb-4255-8caf-4136c566a962"}, "transaction_id"),
    ],
)
def test_a_record_that_says_otherwise_is_a_mismatch(record: dict[str, Any], field: str | tuple[str, ...]) -> None:
    assert disagreement(PAYLOAD, record) == (field if isinstance(field, tuple) else (field,))


FAILURES = {"FAILED", "CANCELLED", "EXPIRED"}
AGREEING: dict[str, set[str]] = {"SUCCESS": {"SUCCESS"}, **dict.fromkeys(FAILURES, FAILURES)}
AGREEING["REVERSED"] = {*FAILURES, "REVERSED"}
NO_ENDS = {"PENDING", "PROCESSING", "WEIRD"}
"""By the status of the record: the ends that a callback may state. A status that is no end agrees with every record."""


def agree(record: str, stated: str) -> bool:
    return stated in NO_ENDS | AGREEING.get(record, set())


@in_turn("stated", sorted(AGREEING.keys() | NO_ENDS))
def test_a_callback_may_not_state_an_end_that_the_record_does_not_show(stated: str) -> None:
    for status in AGREEING.keys() | NO_ENDS:
        expected = () if agree(status, stated) else ("status",)
        assert disagreement(payload(status=stated), {"status": status}) == expected


@in_turn("event_type", [*momopay.EventType, "transaction.updated", "transaction.completed"])
def test_the_status_decides_whatever_the_event_type_says(event_type: str) -> None:
    assert disagreement({**payload(status="FAILED"), "event_type": event_type}, {"status": "CANCELLED"}) == ()
    assert disagreement({**payload(status="FAILED"), "event_type": event_type}, {}) == ("status",)


@pytest.mark.usefixtures("in_nairobi")
def test_a_body_made_of_a_read_parses_and_agrees_with_it() -> None:
    times = {"createdAt": "0001-01-01T00:00:00+03:00", "updatedAt": "2025-03-01T13:16:30+03:00"}  # UTC has no such year
    read = parse(momopay.Transaction, {**READ.camel, "amount": 100.5, "transactionFee": 1.5, **times})
    made = callback_body(read)
    written = {"created_at": "0001-01-01T00:00:00.000+03:00", "updated_at": "2025-03-01T10:16:30.000Z"}
    assert json.loads(made) == {**PAYLOAD, "transaction": {**STATED, **written, "momo_receipt": None}}
    callback = momopay.parse_callback(made)
    check_agreement(callback, read)
    stated = callback.transaction
    assert (stated.amount, stated.transaction_fee, stated.momo_receipt) == (Decimal("100.5"), Decimal("1.5"), None)
    assert (callback.event, callback.event_type) == (PAYLOAD["event"], "transaction.success")
    assert stated.result_code == "0"
    assert (stated.created_at, stated.updated_at) == (None, read.updated_at)
    bare = callback_body(parse(momopay.Transaction, {**READ.camel, "resultCode": None}))
    assert json.loads(bare)["transaction"].items() >= {("transaction_fee", 0), ("result_code", "0")}


@in_turn("status", ["FAILED", "REVERSED"])
@in_turn("code", ["1", None])
def test_the_body_of_a_payout_that_failed_says_failed(status: str, code: str | None) -> None:
    read = parse(
        momopay.Transaction, {**READ.camel, "type": "B2C", "status": status, "resultCode": code, "transactionFee": 1}
    )
    callback = momopay.parse_callback(callback_body(read))
    assert (callback.event_type, callback.transaction.status) == ("transaction.failed", "FAILED")
    assert callback.transaction.result_code == code
    assert callback.transaction.transaction_fee == 0
    check_agreement(callback, read)
