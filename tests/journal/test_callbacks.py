"""What callbacks and reads say is recorded with the entry that they are about."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from journal.kit import (
    ACCEPTED,
    COLLECTION,
    PAYOUT,
    PHONE,
    REFUSED,
    UNKNOWN,
    callback,
    execute,
    found,
    payout,
    put,
    put_collection,
)
from momopay import Callback, CallbackMismatchError, Journal, JournalState, Payout, Transaction
from momopay.journal.journal import parts_of

ANSWER = Payout.model_validate(
    {"transactionId": "the-id", "status": "PENDING", "amount": 10, "phone": PHONE, "reference": "r"}
    | {"type": "B2C", "createdAt": "2026-11-20T10:00:00Z", "updatedAt": "2026-11-20T10:00:00Z"}
)


# The service's own record


@pytest.mark.parametrize(
    ("state", "evidence"),
    [(UNKNOWN, payout()), (REFUSED, callback()), (UNKNOWN, callback(status="FAILED")), (REFUSED, ANSWER)],
)
def test_a_record_of_the_service_is_recorded_as_accepted(
    journal: Journal, state: JournalState, evidence: Transaction | Callback | Payout
) -> None:
    put(journal, "r", state, code="c")
    entry = journal.settle(evidence)
    assert entry is not None
    assert (entry.state, entry.transaction_id, entry.code) == (ACCEPTED, "the-id", None)
    assert found(journal) == entry


@pytest.mark.parametrize(
    "fields",
    [{"amount": 11}, {"phone": "254712345679"}, {"type": "STK"}, {"accountReference": "s"}, {"accountReference": None}],
)
def test_a_record_of_something_else_changes_nothing(
    journal: Journal, caplog: pytest.LogCaptureFixture, fields: dict[str, Any]
) -> None:
    entry = put(journal, PHONE, UNKNOWN)
    assert journal.by_transaction(payout(PHONE, **fields)) is None
    assert journal.settle(payout(PHONE, **fields)) is None
    assert found(journal, PHONE) == entry
    assert (len(caplog.records), PHONE in caplog.text) == (len(fields.keys() & {"amount", "phone"}), False)


def test_what_was_anonymised_is_settled_by_its_own_transaction_alone(journal: Journal) -> None:
    put(journal, "r", transaction_id="the-id", status="SUCCESS")
    assert journal.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC)) == 1
    assert getattr(journal.settle(payout(transactionFee=7)), "fee", None) == 7
    assert journal.settle(payout(transactionId="another")) is None


def test_a_transaction_that_is_anothers_is_an_error_in_the_log(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """The list shows under this payment's reference what the journal knows as another's."""
    put(journal, "r", UNKNOWN)
    put(journal, "s", transaction_id="the-id")
    entry = found(journal)
    assert journal.settle(payout()) == entry
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert journal.settle(payout(transactionId="a\0b")) == entry
    assert found(journal) == entry


def test_of_orders_that_share_a_reference_a_record_is_about_the_one_that_fits(journal: Journal) -> None:
    put_collection(journal, "january", 100, ["SUCCESS"])
    put_collection(journal, "february", 100, ["PENDING"])
    put_collection(journal, "march", 70, ["PENDING"])
    for reference, state in (("april", REFUSED), ("may", UNKNOWN)):
        put(journal, reference, state, COLLECTION, amount=80)
    execute(journal, "UPDATE momopay_payments SET wire_reference = 'M\u00c9TER'")
    for fields, expected in [
        ({"transactionId": "january-0", "amount": 101}, "january"),  # with the fee
        ({"transactionId": "new", "amount": 100}, "february"),  # january has settled
        ({"transactionId": "new", "amount": 70}, "march"),
        ({"transactionId": "new", "amount": 71}, None),
        ({"transactionId": "new", "amount": 80}, "may"),  # april was refused
    ]:
        entry = journal.by_transaction(payout("ME\u0301TER", type="STK", **fields))  # decomposed by the service
        assert (entry and entry.reference) == expected, fields


# Callbacks


@pytest.mark.parametrize("state", [ACCEPTED, UNKNOWN])
def test_all_that_a_callback_says_is_kept(journal: Journal, state: JournalState) -> None:
    """That of an unresolved payout shows that it was made."""
    known: Any = {"transaction_id": "the-id"} if state is ACCEPTED else {}
    put(journal, "r", state, **known)
    said: Any = {"momo_receipt": "QK12", "transaction_fee": 15, "result_code": "0"}
    entry = journal.record(callback(updated_at="2026-11-20T13:00:00+03:00", **said))
    assert entry is not None
    assert entry == found(journal)
    assert (entry.state, entry.transaction_id) == (ACCEPTED, "the-id")
    assert (entry.status, entry.receipt, entry.fee, entry.result_code) == ("SUCCESS", "QK12", Decimal(15), "0")
    assert entry.ended_at == datetime(2026, 11, 20, 10, tzinfo=UTC)


@pytest.mark.parametrize("missing", [("type",), ("amount", "phone_number", "type", "external_reference", "updated_at")])
def test_an_accepted_payout_needs_its_id_only(journal: Journal, missing: tuple[str, ...]) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    nothing: dict[str, Any] = dict.fromkeys(missing)
    before = datetime.now(UTC)
    entry = journal.record(callback(momo_receipt="QK12", **nothing))
    assert entry is not None
    assert (entry.receipt, entry.status) == ("QK12", "SUCCESS")
    assert entry.ended_at is not None
    assert len(missing) == 1 or before <= entry.ended_at <= datetime.now(UTC)


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
    with pytest.raises(CallbackMismatchError) as caught:
        journal.record(callback(momo_receipt="QK12", **fields))
    assert (caught.value.fields, caught.value.transaction_id) == (differing, "the-id")
    assert PHONE not in str(caught.value)
    assert found(journal) == entry
    assert journal.by_receipt("QK12") is None


@pytest.mark.parametrize("missing", ["amount", "phone_number"])
def test_an_unresolved_payout_needs_amount_and_phone(journal: Journal, missing: str) -> None:
    entry = put(journal, "r", UNKNOWN, seen_id="the-id")
    nothing: dict[str, Any] = {missing: None}
    assert journal.record(callback(**nothing)) is None
    assert found(journal) == entry


def test_a_prompt_that_the_journal_does_not_know_is_recorded_from_a_read_alone(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has the URL could invent prompts, and raise the limit of refunds."""
    order = put_collection(journal, statuses=["PENDING"])
    invented = callback("o", "invented", type="STK", amount=100)
    assert journal.record(invented) == found(journal, "o") == order
    assert "'o'" in caplog.text
    assert journal.record(callback("o", "o-0", "CANCELLED", type="STK", amount=100)) == found(journal, "o")
    entry = journal.settle(invented)
    assert entry is not None
    assert sorted(entry.transaction_ids) == ["invented", "o-0"]


def test_a_foreign_id_of_a_broken_answer_is_no_mismatch_of_its_owner(journal: Journal) -> None:
    """A broken response gave the entry of "r" the transaction of "s"."""
    put(journal, "r", transaction_id="the-id")
    put(journal, "s", UNKNOWN, amount=20)
    fits = callback("s", amount=20)
    assert parts_of(journal).recorder.check(fits.transaction) == found(journal, "s")
    put(journal, "t", amount=20)
    for other in (callback("s", amount=30), callback("t", amount=20)):
        with pytest.raises(CallbackMismatchError):
            parts_of(journal).recorder.check(other.transaction)


@pytest.mark.parametrize(("status", "kept"), [("SUCCESS", True), ("FAILED", False)])
def test_the_receipt_of_an_end_that_a_sweep_recorded_is_added(journal: Journal, status: str, kept: bool) -> None:
    put(journal, "r", transaction_id="the-id", status="SUCCESS")

    def add(told: Callback) -> None:
        parts_of(journal).recorder.add_receipt(
            found(journal, told.transaction.account_reference or ""), told.transaction
        )

    add(callback("r", "unknown", momo_receipt="X"))
    add(callback(status=status, momo_receipt="QK12"))
    assert found(journal).receipt == ("QK12" if kept else None)
    add(callback(momo_receipt="another"))
    assert found(journal).receipt == ("QK12" if kept else "another")
    put(journal, "open", transaction_id="open")
    add(callback("open", "open", momo_receipt="X"))
    assert found(journal, "open").receipt is None


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


def test_the_order_and_the_payout_of_one_reference_are_told_apart(journal: Journal) -> None:
    put_collection(journal, "INV-1", 10)
    put(journal, "INV-1", UNKNOWN)
    kinds = {"STK": COLLECTION, "B2C": PAYOUT}
    for kind, expected in kinds.items():
        assert journal.by_transaction(payout("INV-1", type=kind)) == found(journal, "INV-1", expected)
    assert journal.by_transaction(callback("INV-1")) == found(journal, "INV-1", PAYOUT)
    assert journal.by_transaction(callback("INV-1", type=None)) is None
    known = callback("INV-1", identity=found(journal, "INV-1", COLLECTION).transaction_ids[0], type=None)
    assert journal.by_transaction(known) == journal.settle(known) == found(journal, "INV-1", COLLECTION)
