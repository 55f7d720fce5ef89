"""What outsiders say, in the journal's own form."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal.kit import draft, entry_of
from journal.records import callback, payout
from momopay.journal.evidence import Evidence, differences, is_indexable, is_keepable

NOW = datetime(2026, 11, 20, 11, tzinfo=UTC)


def test_what_a_record_does_not_say_is_none_but_the_time_of_an_end() -> None:
    said = Evidence.of(payout(status="PENDING"))
    assert (said.result_code, said.receipt, said.fee, said.ended_at) == (None,) * 4
    assert said.learned_at_service is None, "the times of a record may be old"
    assert Evidence.of(callback().transaction).learned_at_service is None, "an old callback may come again"
    assert Evidence.of(payout(), NOW).learned_at_service == NOW.isoformat()
    assert Evidence.of(payout(transactionFee=0)).fee == "0", "and not unknown"
    assert Evidence.of(payout(status=" ON HOLD")).status == " ON HOLD", "as the service writes it"
    nothing: dict[str, Any] = {"updated_at": None, "created_at": None}
    before = datetime.now(UTC)
    said = Evidence.of(callback(**nothing).transaction)
    assert said.ended_at is not None
    assert before <= datetime.fromisoformat(said.ended_at) <= datetime.now(UTC)
    assert (said.created_at, said.learned_at_service) == (None, None)


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        ({"result_code": "a\0"}, "result_code"),
        ({"momo_receipt": "a\0b"}, "receipt"),
        ({"momo_receipt": "é" * 1001}, "receipt"),  # no index of PostgreSQL takes it
        ({"status": "PAID\0"}, "status"),
    ],
)
def test_unkeepable_parts_are_left_out(caplog: pytest.LogCaptureFixture, fields: dict[str, str], left_out: str) -> None:
    given = {"status": "SUCCESS", "momo_receipt": "QK1", "result_code": "0", **fields}
    said = Evidence.of(callback(**given).transaction)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert f"the {left_out} of transaction 'the-id'" in caplog.text
    kept = {"status": said.status, "receipt": said.receipt, "result_code": said.result_code}
    assert [name for name, value in kept.items() if value is None] == [left_out] * (left_out in kept)
    assert said.ended_at is not None or left_out == "status"


@pytest.mark.parametrize("name", ["createdAt", "updatedAt"])
@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        *(("2000-01-01T00:00:00Z", True), ("2100-12-30T00:00:00Z", True), ("20191219102115", True)),
        *(("1999-12-31T23:59:59Z", False), ("1970-01-01T00:00:00Z", False), ("0001-01-01T00:00:00+03:00", False)),
        *(("2609-10-30T00:00:00Z", False), ("9999-12-31T23:59:59-03:00", False)),
    ],
)
def test_a_time_that_is_none_of_a_transaction_is_left_out_and_said(
    caplog: pytest.LogCaptureFixture, name: str, text: str, is_kept: bool
) -> None:
    said = Evidence.of(payout(status="SUCCESS", **{name: text}))
    assert ("cannot be kept" in caplog.text) is not is_kept
    if name == "createdAt":
        assert (said.created_at is not None) is is_kept
    elif not is_kept:  # the present, as the end was just learned
        assert said.ended_at is not None
        assert datetime.now(UTC) - datetime.fromisoformat(said.ended_at) < timedelta(minutes=1)


@pytest.mark.parametrize(("text", "keepable"), [("é 😀", True), ("", True), ("a\0b", False), ("\ud800", False)])
def test_which_text_a_database_keeps(text: str, keepable: bool) -> None:
    assert is_keepable(text) is keepable
    assert is_indexable(text) is keepable


def test_what_an_index_takes_is_counted_in_bytes() -> None:
    assert (is_indexable("é" * 1000), is_indexable("é" * 1000 + "e")) == (True, False)
    assert is_keepable("é" * 10_000)


def test_the_service_has_a_payment_by_its_wire_reference() -> None:
    requested = draft("an order", wire_reference="TOKEN").requested
    assert requested.differences("TOKEN", payout("TOKEN")) == []
    assert requested.differences("an order", payout("an order")) == ["reference"]


def test_a_record_is_compared_with_the_entry_or_with_its_own_transaction() -> None:
    """An order's customer may have paid a prompt from another phone than the latest one's."""
    order = entry_of("SUCCESS", phone="254722000111", wire_reference="WIRE")
    same = {"type": "STK", "amount": 100}
    assert differences(order, payout("WIRE", transactionId="t-0", **same)) == []
    assert differences(order, payout("WIRE", transactionId="new", **same)) == ["phone"]
    other = payout("o", transactionId="t-0", amount=99, type="B2C")
    assert differences(order, other) == ["reference", "amount", "type"]
