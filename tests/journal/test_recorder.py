"""What a callback says is recorded with the entry that it is about, or is a mismatch and leaves nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from journal.kit import PHONE, begin, callback, execute, found, lease_of, payout, put, put_collection, record
from momopay import CallbackMismatchError, EntryKind, Journal, JournalState

ACCEPTED, UNKNOWN = JournalState.ACCEPTED, JournalState.UNKNOWN


@pytest.mark.both_databases
def test_all_that_a_callback_says_is_kept(journal: Journal) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    entry = journal.record(callback(momo_receipt="QK12", transaction_fee=15, result_code="0"))
    assert entry is not None
    assert entry == found(journal)
    assert (entry.status, entry.receipt, entry.fee, entry.result_code) == ("SUCCESS", "QK12", Decimal(15), "0")
    assert entry.ended_at == datetime(2026, 11, 20, 10, tzinfo=UTC)


def test_a_callback_of_a_payout_in_doubt_shows_that_it_was_made(journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    entry = journal.record(callback())
    assert entry is not None
    assert (entry.state, entry.transaction_id) == (ACCEPTED, "the-id")


def test_a_callback_without_a_type_is_that_of_its_reference(journal: Journal) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    entry = journal.record(callback(type=None, momo_receipt="QK12"))
    assert entry is not None
    assert entry.receipt == "QK12"


def test_a_callback_of_which_the_journal_knows_nothing_is_none(journal: Journal) -> None:
    entry = put(journal, "r", ACCEPTED, transaction_id="t")
    assert journal.record(callback("s", "another")) is None
    assert journal.record(callback("r", "another", type="STK")) is None
    assert journal.record(callback("r", "another", external_reference=None)) is None
    assert found(journal) == entry


@pytest.mark.parametrize(
    ("fields", "differing"),
    [
        ({"amount": 11}, ("amount",)),
        ({"phone_number": "254712345679"}, ("phone",)),
        ({"external_reference": "s"}, ("reference",)),
        ({"external_reference": "s", "amount": 11}, ("reference", "amount")),
        ({"type": "STK"}, ("type",)),
    ],
)
def test_a_callback_that_differs_leaves_nothing(
    journal: Journal, fields: dict[str, Any], differing: tuple[str, ...]
) -> None:
    entry = put(journal, "r", ACCEPTED, transaction_id="the-id")
    put(journal, "s", ACCEPTED, transaction_id="another")
    with pytest.raises(CallbackMismatchError) as caught:
        journal.record(callback(momo_receipt="QK12", **fields))
    assert (caught.value.fields, caught.value.transaction_id) == (differing, "the-id")
    assert PHONE not in str(caught.value)
    assert found(journal) == entry
    assert journal.by_receipt("QK12") is None


@pytest.mark.parametrize("missing", ["amount", "phone_number"])
def test_a_payout_in_doubt_needs_amount_and_phone(journal: Journal, missing: str) -> None:
    entry = put(journal, "r", UNKNOWN, transaction_id="the-id")
    nothing: dict[str, Any] = {missing: None}
    assert journal.record(callback(**nothing)) is None
    assert found(journal) == entry


def test_an_accepted_payout_needs_its_id_only(journal: Journal) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    nothing: dict[str, Any] = dict.fromkeys(("amount", "phone_number", "type", "external_reference", "updated_at"))
    before = datetime.now(UTC)
    entry = journal.record(callback(momo_receipt="QK12", **nothing))
    assert entry is not None
    assert (entry.receipt, entry.status) == ("QK12", "SUCCESS")
    assert entry.ended_at is not None
    assert before <= entry.ended_at <= datetime.now(UTC)


def test_a_callback_that_comes_again_after_the_reversal_changes_nothing(journal: Journal) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    journal.record(callback(status="FAILED", result_code="1"))
    reversed_one = journal.settle(payout(status="REVERSED"))
    assert journal.record(callback(status="FAILED", result_code="1")) == reversed_one
    assert (found(journal).status, found(journal).has_settled) == ("REVERSED", True)


def test_times_are_kept_in_utc(journal: Journal) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    journal.record(callback(updated_at="2026-11-20T13:00:00+03:00"))
    with journal._database.connection() as connection:
        kept = connection.exec_driver_sql("SELECT ended_at FROM momopay_payments").scalar()
    assert kept == "2026-11-20T10:00:00+00:00"


def test_what_is_open_has_been_accepted_and_has_not_settled(journal: Journal) -> None:
    for number, status in enumerate([None, "PENDING", "FAILED", "NEWS", "SUCCESS", "REVERSED", "CANCELLED", "EXPIRED"]):
        put(journal, f"r{number}", ACCEPTED, transaction_id=f"t{number}")
        if status is not None:
            journal.settle(payout(f"r{number}", transactionId=f"t{number}", status=status))
    put(journal, "unknown", UNKNOWN)
    put(journal, "refused", JournalState.REFUSED)
    with lease_of(journal) as lease:
        begin(journal, lease, "being sent")
        assert [entry.reference for entry in journal.open()] == ["r0", "r1", "r2", "r3"]
        record(journal, lease, ACCEPTED, "being sent")
    assert [entry.reference for entry in journal.open()] == ["r0", "r1", "r2", "r3", "being sent"]


def test_of_two_entries_with_one_receipt_the_newest_is_shown(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    assert journal.by_receipt("QK12") is None
    for reference in ("r", "s"):
        put(journal, reference, ACCEPTED, transaction_id=reference)
        journal.record(callback(reference, reference, momo_receipt="QK12"))
    assert journal.by_receipt("QK12") == found(journal, "s")
    assert "2 entries have the receipt 'QK12'" in caplog.text


# The entry of a transaction.


@pytest.mark.both_databases
def test_the_order_and_the_payout_of_one_reference_are_told_apart(journal: Journal) -> None:
    put_collection(journal, "INV-1", 10)
    execute(journal, "UPDATE momopay_payments SET wire_reference = reference")
    put(journal, "INV-1", UNKNOWN)
    kinds = {"STK": EntryKind.COLLECTION, "B2C": EntryKind.PAYOUT}
    for kind, expected in kinds.items():
        entry = journal.by_transaction(payout("INV-1", type=kind))
        assert entry == journal.get("INV-1", expected)
        assert entry is not None


def test_an_order_is_found_under_the_reference_that_the_service_has(journal: Journal) -> None:
    put_collection(journal, "order-2026-11-22-0042", 10)
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'J2PX4MQ7KD5A'")
    for transaction in (
        payout("J2PX4MQ7KD5A", type="STK"),
        payout("J2PX4MQ7KD5A", transactionId="order-2026-11-22-0042-0", type="STK", amount=11),  # with the fee
    ):
        entry = journal.by_transaction(transaction)
        assert entry is not None
        assert entry.reference == "order-2026-11-22-0042"


@pytest.mark.parametrize("fields", [{"amount": 11}, {"phone": "254712345679"}, {"accountReference": "s"}])
def test_what_the_journal_does_not_have_is_the_transaction_of_no_entry(
    journal: Journal, fields: dict[str, Any]
) -> None:
    entry = put(journal, "r", UNKNOWN)
    assert journal.by_transaction(payout(**fields)) is None
    assert found(journal) == entry  # nothing is recorded
    assert journal.by_transaction(callback()) == entry
