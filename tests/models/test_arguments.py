"""The types of arguments: what each accepts, what it refuses, and that no refusal repeats the value."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter, ValidationError

from in_turn import in_turn
from models.kit import CHANNEL, ID, ITEM, PAYBILL, PAYOUT, READ, STK, TOP_UP, parse
from models.test_callbacks import callback
from momopay import RequestValidationError
from momopay.models import arguments
from momopay.models.arguments import check_channel_id, check_transaction_id, checked_metadata

ADAPTERS: dict[str, TypeAdapter[Any]] = {
    "amount": TypeAdapter(Annotated[Decimal, arguments.kes(minimum=10)]),
    "phone": TypeAdapter(arguments.Phone),
    "name": TypeAdapter(arguments.Name),
    "text": TypeAdapter(arguments.Text),
    "short": TypeAdapter(Annotated[str, arguments.text(5)]),
    "currency": TypeAdapter(arguments.Currency),
    "moment": TypeAdapter(arguments.Moment),
    "since": TypeAdapter(arguments.Since),
    "header": TypeAdapter(arguments.HeaderValue),
    "page_size": TypeAdapter(arguments.PageSize),
    "seconds": TypeAdapter(arguments.Seconds),
    "callback_url": TypeAdapter(arguments.CallbackUrl),
    "channel": TypeAdapter(arguments.ChannelId),
    "credential": TypeAdapter(arguments.CredentialId),
}
NOON = datetime(2025, 3, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=3)))


@in_turn(
    ("kind", "value", "expected"),
    [
        *(("amount", 10, Decimal(10)), ("amount", Decimal("99.99"), Decimal("99.99"))),
        *(("phone", "0712 345 678", "254712345678"), ("name", "a", "a"), ("text", "", "")),
        *(("short", letter * 5, letter * 5) for letter in ("x", "é", "𝄞")),
        *(("currency", "KES", "KES"), ("moment", NOON, "2025-03-01T12:00:00.123456+03:00")),
        *(("moment", date(2025, 3, 1), "2025-03-01"), ("moment", "yesterday", "yesterday"), ("since", NOON, NOON)),
        *(("moment", text, text) for text in ("2025-03-01", "20250301", "2025-03-01T12:00Z", "1740819600")),
        *(("header", "attempt-2025/7", "attempt-2025/7"), ("header", "k" * 255, "k" * 255)),
        *(("page_size", size, size) for size in (1, 20, 100)),
        *(("seconds", value, float(value)) for value in (0, 0.5, 60)),
        ("callback_url", "https://shop.example/momo", "https://shop.example/momo"),
        *(("channel", UUID(CHANNEL), CHANNEL), ("credential", UUID(ID), ID), ("credential", "x" * 255, "x" * 255)),
    ],
)
def test_what_is_meant_is_accepted(kind: str, value: Any, expected: Any) -> None:
    found = ADAPTERS[kind].validate_python(value)
    assert (found, type(found)) == (expected, type(expected))


NO_TEXT: list[Any] = [5, b"INV", ["INV"], True, 1.5, None, "a\ud800"]


@in_turn(
    ("kind", "value"),
    [
        *(("amount", value) for value in (9, Decimal("9.99"), 10.0, True, "10", Decimal("10.001"), None)),
        *(("phone", value) for value in ("07123456789", 254712345678, None)),
        *(("name", value) for value in ("", " ", "\t\n", "\u2003", *NO_TEXT)),
        *(("text", value) for value in NO_TEXT),
        *(("short", value) for value in ("x" * 6, *NO_TEXT)),
        *(("currency", value) for value in ("USD", "kes", "", "KES ", 404)),
        *(
            ("moment", value)
            for value in (5, None, "a\ud800", NOON.replace(tzinfo=None), "2025-03-01T12:00", "20250301T12")
        ),
        *(("since", value) for value in (NOON.replace(tzinfo=None), date(2025, 3, 1), "2025-03-01", None)),
        *(("header", value) for value in ("", "  ", "a\r\nX-Evil: 1", "a\nb", "a\x00b", "clé", 5, b"k", "k" * 256)),
        *(("seconds", value) for value in (-0.1, float("nan"), float("inf"), "5", True)),
        *(("page_size", value) for value in (0, -1, 101, True, 20.0, "20", Decimal(20))),
        *(("callback_url", value) for value in ("http://shop.example/momo", "https://localhost/momo", 5)),
        *(("credential", value) for value in ("", "..", 5, "x" * 256)),
    ],
)
def test_what_is_not_meant_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        ADAPTERS[kind].validate_python(value)


@in_turn("metadata", [[], "text", {1: "a"}, {"a": object()}, {"a": float("nan")}])
def test_metadata_is_what_json_can_hold(metadata: Any) -> None:
    with pytest.raises(RequestValidationError, match="metadata"):
        checked_metadata(metadata)
    assert checked_metadata({"a": [1]}) == {"a": [1]}


TRANSACTIONS = {sample.kind.__name__: parse(sample.kind, sample.camel) for sample in (STK, TOP_UP, PAYOUT, READ, ITEM)}


@in_turn("record", [*TRANSACTIONS.values(), callback(), callback().transaction, UUID(ID), ID])
def test_a_record_of_a_transaction_may_be_given_for_its_id(record: Any) -> None:
    assert check_transaction_id(record) == ID


@in_turn("channel", [parse(PAYBILL.kind, PAYBILL.camel), UUID(CHANNEL), CHANNEL])
def test_a_channel_may_be_given_for_its_id(channel: Any) -> None:
    assert check_channel_id(channel) == CHANNEL


@in_turn("value", ["", "  ", ".", "..", None, 5, True, b"id", [ID], {"id": ID}, "x" * 256, "a\ud800"])
@in_turn("check", [check_transaction_id, check_channel_id])
def test_what_names_nothing_is_refused(check: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        check(value)


def test_records_of_one_kind_are_not_taken_for_the_other() -> None:
    with pytest.raises(ValueError, match="must be an id"):
        check_transaction_id(parse(PAYBILL.kind, PAYBILL.camel))
    for transaction in (callback().transaction, TRANSACTIONS["Transaction"]):
        with pytest.raises(ValueError, match="must be an id"):
            check_channel_id(transaction)
