"""The types of arguments: what each accepts, what it refuses, and that records may be given for their ids."""

from datetime import date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter, ValidationError

from in_turn import in_turn
from models.kit import CHANNEL, ID, ITEM, PAYBILL, PAYOUT, READ, STK, TOP_UP, callback_with, parse
from momopay import RequestValidationError
from momopay.models import arguments
from momopay.models.arguments import check_channel_id, check_transaction_id, checked_metadata

NOON = datetime(2025, 3, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=3)))


def validated(kind: str, value: Any) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(getattr(arguments, kind))
    return adapter.validate_python(value)


@in_turn(
    ("kind", "value", "expected"),
    [
        *(("Name", "a", "a"), ("Text", "", ""), ("Since", NOON, NOON), ("CredentialId", UUID(ID), ID)),
        *(("Moment", NOON, "2025-03-01T12:00:00.123456+03:00"), ("Moment", date(2025, 3, 1), "2025-03-01")),
        *(("Moment", text, text) for text in ("20250301", "2025-03-01T12:00Z", "1740819600", "yesterday")),
        *(("IdempotencyKey", text, text) for text in ("attempt-2025/7", "k" * 120)),
        *(("PageSize", size, size) for size in (1, 20, 100)),
        *(("Seconds", value, float(value)) for value in (0, 0.5, 60)),
    ],
)
def test_what_is_meant_is_accepted(kind: str, value: Any, expected: Any) -> None:
    found = validated(kind, value)
    assert (found, type(found)) == (expected, type(expected))


NO_TEXT: list[Any] = [5, b"INV", ["INV"], True, 1.5, None, "a\ud800"]


@in_turn(
    ("kind", "value"),
    [
        *(("Name", value) for value in ("", " ", "\t\n", "\u2003", *NO_TEXT)),
        *(("Text", value) for value in NO_TEXT),
        *(("Currency", value) for value in ("kes", "", "KES ", 404)),
        *(("Moment", value) for value in (5, None, "a\ud800", NOON.replace(tzinfo=None), "2025-03-01T12:00")),
        *(("Since", value) for value in (NOON.replace(tzinfo=None), date(2025, 3, 1), "2025-03-01", None)),
        *(
            ("IdempotencyKey", value)
            for value in ("", "  ", "a\r\nX-Evil: 1", "a\nb", "a\x00b", "clé", b"k", "k" * 121)
        ),
        *(("Seconds", value) for value in (-0.1, float("nan"), float("inf"), "5", True)),
        *(("PageSize", value) for value in (0, -1, 101, True, 20.0, "20")),
        *(("CredentialId", value) for value in ("", "..", 5)),
    ],
)
def test_what_is_not_meant_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        validated(kind, value)


@in_turn("metadata", [[], "text", {1: "a"}, {"a": object()}, {"a": float("nan")}])
def test_metadata_is_what_json_can_hold(metadata: Any) -> None:
    with pytest.raises(RequestValidationError, match="metadata"):
        checked_metadata(metadata)
    assert checked_metadata({"a": [1]}) == {"a": [1]}


TRANSACTIONS = [parse(sample.kind, sample.camel) for sample in (READ, STK, TOP_UP, PAYOUT, ITEM)]
OURS = parse(PAYBILL.kind, PAYBILL.camel)


def test_a_record_may_be_given_for_its_id() -> None:
    for record in (*TRANSACTIONS, callback_with(), callback_with().transaction, UUID(ID), ID):
        assert check_transaction_id(record) == ID
    for channel in (OURS, UUID(CHANNEL), CHANNEL):
        assert check_channel_id(channel) == CHANNEL


NO_IDS: list[Any] = ["", "  ", ".", "..", None, 5, True, b"id", [ID], {"id": ID}, "x" * 256, "a\ud800"]


def test_what_names_nothing_and_a_record_of_the_other_kind_is_refused() -> None:
    for check, others in (
        (check_transaction_id, [OURS]),
        (check_channel_id, [callback_with().transaction, TRANSACTIONS[0]]),
    ):
        for value in (*NO_IDS, *others):
            with pytest.raises(ValueError, match="must be an id"):
                check(value)


@in_turn("identity", ["", "  ", ".", "..", "x" * 256, 5, True, None])
def test_a_record_whose_id_cannot_be_read_by_is_refused(identity: Any) -> None:
    with pytest.raises(ValueError, match="transactionId"):
        parse(READ.kind, {**READ.camel, "transactionId": identity})
    with pytest.raises(ValueError, match=r"transaction\.id"):
        callback_with(id=identity)
