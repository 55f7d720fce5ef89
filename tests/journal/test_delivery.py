"""Records of the service are recorded in the entry that they are about, and each end is delivered once."""

import random
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from sqlalchemy import literal, select

from forked import in_a_fork
from journal.constants import ACCEPTED, COLLECTION, PAYOUT, PHONE, REFUSED, UNKNOWN
from journal.database_kit import another_process, execute, just_before, store_of
from journal.kit import found, put, put_collection
from journal.records import callback, payout
from momopay import Callback, CallbackError, CallbackMismatchError, Journal, JournalState, Payout, Transaction
from momopay.journal import history, schema
from momopay.journal.delivery import End
from momopay.journal.entries import HistoryKind
from momopay.journal.journal import internals
from momopay.models.enums import TransactionStatus

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
    assert str(caught.value).endswith(f"differ in {', '.join(differing)}")
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
    assert internals(journal).recorder.check(fits.transaction) == found(journal, "s")
    put(journal, "t", amount=20)
    for other in (callback("s", amount=30), callback("t", amount=20)):
        with pytest.raises(CallbackMismatchError):
            internals(journal).recorder.check(other.transaction)


@pytest.mark.parametrize(("status", "kept"), [("SUCCESS", True), ("FAILED", False)])
def test_the_receipt_of_an_end_that_a_sweep_recorded_is_added(journal: Journal, status: str, kept: bool) -> None:
    put(journal, "r", transaction_id="the-id", status="SUCCESS")

    def add(told: Callback) -> None:
        internals(journal).recorder.add_receipt(
            found(journal, told.transaction.account_reference or ""), told.transaction
        )

    add(callback("r", "unknown", momo_receipt="X"))
    add(callback(status=status, momo_receipt="QK12"))
    assert found(journal).receipt == ("QK12" if kept else None)
    add(callback(momo_receipt="another"))
    assert found(journal).receipt == ("QK12" if kept else "another")
    for known in (None, "PENDING"):
        put(journal, f"open {known}", transaction_id=f"open {known}", status=known)
        add(callback(f"open {known}", f"open {known}", momo_receipt="X"))
        assert (found(journal, f"open {known}").receipt, found(journal, f"open {known}").status) == (None, known)


def test_a_read_that_confirms_a_callback_is_recorded_with_what_the_callback_adds_once(journal: Journal) -> None:
    put(journal, "r", transaction_id="the-id")
    other, now = put(journal, "s", UNKNOWN), datetime(2026, 11, 20, 11, tzinfo=UTC)
    confirm = internals(journal).recorder.record_read
    for entry, receipt in ((None, "QK12"), (None, "later"), (other, "of another entry")):
        of, evidence = confirm(entry or found(journal), payout(), callback(momo_receipt=receipt).transaction, now)
        assert (of and of.reference, evidence.receipt) == ("r", "QK12")
    assert found(journal).receipt == "QK12"
    assert [each.service_time for each in journal.history("r") if each.what == "status"] == [now]


def test_of_two_entries_with_one_receipt_the_newest_is_shown(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    assert journal.by_receipt("QK12") is None
    for reference in ("r", "s"):
        put(journal, reference, ACCEPTED, transaction_id=reference)
        journal.record(callback(reference, reference, momo_receipt="QK12"))
    assert journal.by_receipt("QK12") == found(journal, "s")
    assert "2 entries have the receipt 'QK12'" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "sjk4h7l2qp",
        " SJK4 H7L2 QP. ",
        "sjk4-h7l2-qp",
        "\u200bSJK4H7\u200bL2QP",
        "SJK4H7L2QP Confirmed. Ksh1,250.00 sent",
    ],
)
@pytest.mark.parametrize("kept", ["SJK4H7L2QP", "sjk4h7l2qp", "Sjk4 H7L2-QP"])
def test_a_receipt_is_found_however_it_is_written(journal: Journal, text: str, kept: str) -> None:
    for reference, receipt in (("r", kept), ("s", "SJK4H7L2QX")):
        put(journal, reference, ACCEPTED, transaction_id=reference)
        journal.record(callback(reference, reference, momo_receipt=receipt))
    assert journal.by_receipt(text) == found(journal, "r")
    assert journal.by_receipt("SJK4H7L2Q") is journal.by_receipt("") is journal.by_receipt("...") is None


def test_of_a_message_with_two_receipts_the_first_counts(journal: Journal) -> None:
    for reference, receipt in (("r", "AAAA111111"), ("s", "BBBB222222")):
        put(journal, reference, ACCEPTED, transaction_id=reference)
        journal.record(callback(reference, reference, momo_receipt=receipt))
    assert journal.by_receipt("AAAA111111 Confirmed. It reverses BBBB222222.") == found(journal, "r")
    assert journal.by_receipt("BBBB222222 Confirmed. It reverses AAAA111111.") == found(journal, "s")


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
    put(journal, "r", transaction_id="the-id")
    assert journal.settle(payout(None)) == found(journal)
    assert found(journal).status == "SUCCESS"


# Deliveries: among processes, over crashes, and none after one that outranks it


DELIVERED, FAILED = HistoryKind.DELIVERED, HistoryKind.DELIVERY_FAILED


def is_handled(journal: Journal, record: Callback | Transaction | None = None) -> bool:
    """Return whether an end was handled; False if it was free to be, and handle it then."""
    with journal.handling(record or callback()) as is_new:
        return not is_new


def test_an_end_is_new_once_whatever_its_name(journal: Journal, other: Journal, url: str) -> None:
    """A callback may say CANCELLED, or EXPIRED, where a read says FAILED."""
    assert not is_handled(journal, callback(status="CANCELLED"))
    for each in (journal, other):
        assert is_handled(each, callback(status="EXPIRED"))
        assert is_handled(each, callback(status="CANCELLED"))
        assert is_handled(each, payout(status="FAILED"))
    assert not is_handled(journal, payout(status="SUCCESS"))
    assert is_handled(journal, callback(status="SUCCESS"))
    assert not is_handled(journal, callback(identity="another"))
    with Journal(url, account="another") as another:
        assert not is_handled(another, callback(status="FAILED"))


# Rank: no end is handled after one that outranks it


@pytest.mark.parametrize("high", ["SUCCESS", "REVERSED"])
def test_what_outranks_a_failure_is_handled_after_it_and_not_before_it(journal: Journal, high: str) -> None:
    """A late PIN, or money that came back."""
    assert not is_handled(journal, callback(status="FAILED"))
    for handled in (False, True):
        assert is_handled(journal, callback(status=high)) is handled
    for low in ("FAILED", "CANCELLED", "EXPIRED"):
        assert not is_handled(journal, callback(identity=low, status=high))
        assert is_handled(journal, callback(identity=low, status=low))
        assert is_handled(journal, callback(identity=low, status=low))
        assert not is_handled(journal, callback(identity=f"another {low}", status=low))


def test_an_open_status_outranks_nothing_and_is_not_handled_after_an_end(journal: Journal) -> None:
    for status in ("PENDING", "PROCESSING", "NEW", "FAILED"):
        assert not is_handled(journal, callback(status=status))
    assert not is_handled(journal, callback(identity="another", status="FAILED"))
    for status in ("PENDING", "PROCESSING", "NEW"):
        assert is_handled(journal, callback(identity="another", status=status))


@pytest.mark.parametrize(("held", "arriving"), [("SUCCESS", "FAILED"), ("FAILED", "SUCCESS"), ("FAILED", "REVERSED")])
def test_an_end_waits_while_another_of_its_transaction_is_being_handled(
    journal: Journal, other: Journal, held: str, arriving: str
) -> None:
    """Else the handler of the failure could run last. If the first one's fails, the second one is free."""
    with suppress(KeyError), journal.handling(callback(status=held)):
        with pytest.raises(CallbackError, match="another call"), other.handling(callback(status=arriving)):
            pytest.fail("it was handled beside the other one")
        assert not is_handled(other, callback(identity="another", status=arriving))
        raise KeyError
    assert not is_handled(other, callback(status=arriving))


@pytest.mark.both_databases
def test_of_two_ends_that_arrive_at_once_the_lower_one_finds_the_other(journal: Journal, other: Journal) -> None:
    with just_before("INSERT", journal, lambda: is_handled(other)):
        assert is_handled(journal, callback(status="FAILED"))


@pytest.mark.both_databases
def test_an_end_that_was_handled_since_its_row_was_read_outranks_a_failure(journal: Journal) -> None:
    with ExitStack() as handling:
        handling.enter_context(journal.handling(callback()))
        with just_before("SELECT momopay_deliveries", journal, handling.close, "after"):
            assert is_handled(journal, callback(status="FAILED"))


# Once


@pytest.mark.parametrize("fails", [False, True])
def test_a_forked_child_leaves_its_parents_end_alone(journal: Journal, other: Journal, fails: bool) -> None:
    with ExitStack() as handling:
        handling.enter_context(journal.handling(callback()))
        child_leaves = partial(handling.__exit__, *((KeyError, KeyError(), None) if fails else (None, None, None)))
        assert in_a_fork(child_leaves) == 0
        with pytest.raises(CallbackError, match="another call"), other.handling(callback()):
            pytest.fail("it was handled twice at once")


def test_what_failed_is_handled_when_it_comes_again_to_any_process(journal: Journal, other: Journal) -> None:
    for failure in (KeyError, KeyboardInterrupt):
        with pytest.raises(failure), journal.handling(callback()):
            raise failure
    assert not is_handled(other)


@pytest.mark.both_databases
@pytest.mark.parametrize("reference", ["a\0b", random.Random(1).randbytes(4000).hex()], ids=["NUL", "long"])
def test_an_end_whose_reference_cannot_be_kept_is_handled_once(journal: Journal, reference: str) -> None:
    for handled in (False, True):
        assert is_handled(journal, callback(reference, "link")) is handled


@pytest.mark.parametrize("failure", [None, KeyError])
def test_a_late_handler_leaves_its_successors_callback_alone(
    journal: Journal, other: Journal, url: str, failure: type[Exception] | None
) -> None:
    with ExitStack() as successor:
        with suppress(KeyError), journal.handling(callback()):
            execute(other, "UPDATE momopay_deliveries SET lease_until = lease_until - 590")
            with pytest.raises(CallbackError), other.handling(callback()):
                pytest.fail("it has ten minutes")
            execute(other, "UPDATE momopay_deliveries SET lease_until = lease_until - 10")
            assert successor.enter_context(other.handling(callback()))
            if failure is not None:
                raise failure
        with another_process(url) as third:
            if failure is None:  # it was late, and it was handled
                assert is_handled(third)
            else:
                with pytest.raises(CallbackError), third.handling(callback()):
                    pytest.fail("its successor is still handling it")
    assert is_handled(journal)


@pytest.mark.both_databases
def test_an_abandoned_end_is_taken_over_once(journal: Journal, other: Journal) -> None:
    """After it was read as abandoned, another process takes it over."""
    assert not is_handled(other)
    execute(journal, "DELETE FROM momopay_history WHERE what = 'delivered'")
    execute(journal, "UPDATE momopay_deliveries SET lease_until = 0")
    with ExitStack() as taken:

        def be_first() -> None:
            assert taken.enter_context(other.handling(callback()))

        with just_before("UPDATE", journal, be_first), pytest.raises(CallbackError), journal.handling(callback()):
            pytest.fail("the other one was first")


def test_the_error_of_a_handler_is_raised_even_if_the_journal_fails(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    def handle() -> None:
        with journal.handling(callback()):
            execute(journal, "DROP TABLE momopay_history")
            raise KeyError

    with pytest.raises(KeyError):
        handle()
    assert f"the end of {callback().transaction.transaction_id}: the journal cannot be" in caplog.text


def test_code_and_sql_agree_on_which_ends_a_delivery_is_of(journal: Journal) -> None:
    journal.get("r")
    assert not internals(journal).deliveries.was_delivered("a\0b", TransactionStatus.SUCCESS)
    told = schema.history.c
    with store_of(journal).database.connection() as connection:
        for status in TransactionStatus:
            delivery = [(DELIVERED, None, status.value)]
            history.add(connection, "any", End(PAYOUT, "r", status, status), delivery, transaction_id=status)
        rows = list(connection.execute(select(told.what, told.after)))
        for status in TransactionStatus:
            chosen = connection.execute(select(told.after).where(history.delivers(literal(status.value)))).scalars()
            assert set(chosen) == {each.after for each in rows if history.was_delivered([each], status)}
