"""The rows of payouts, on both databases: who may change one from what to what."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from journal.kit import (
    PHONE,
    begin,
    callback,
    execute,
    found,
    in_threads,
    just_before,
    lease_of,
    payout,
    put,
    record,
    sender,
)
from momopay import Journal, JournalError, JournalState, RequestValidationError
from momopay.journal.entries import MAY_BE_SENT
from momopay.journal.evidence import Report
from momopay.journal.journal import payments_of
from patience import until

ACCEPTED, REFUSED, NOT_SENT, UNKNOWN, SENDING = (
    JournalState.ACCEPTED,
    JournalState.REFUSED,
    JournalState.NOT_SENT,
    JournalState.UNKNOWN,
    JournalState.SENDING,
)
ENDS = [ACCEPTED, UNKNOWN, REFUSED, NOT_SENT]


@pytest.fixture
def other(url: str) -> Generator[Journal]:
    """The journal as another process has it."""
    with Journal(url) as other:
        yield other


@pytest.mark.both_databases
def test_a_payout_is_written_before_it_is_sent(journal: Journal, other: Journal) -> None:
    assert journal.get("r") is None
    before = datetime.now(UTC)
    with lease_of(journal) as lease:
        assert begin(journal, lease) is None
        entry = found(other)
    assert (entry.reference, entry.amount, entry.phone) == ("r", Decimal(10), PHONE)
    assert (entry.state, entry.transaction_id, entry.code, entry.body_hash) == (SENDING, None, None, "hash")
    assert before <= entry.sent_at <= datetime.now(UTC)


@pytest.mark.parametrize("state", ENDS)
def test_from_each_end_to_sending(journal: Journal, other: Journal, state: JournalState) -> None:
    first = put(journal, "r", state, transaction_id="t", code="c")
    assert first == found(other)
    assert (first.state, first.transaction_id) == (state, "t")
    assert (first.code, first.attempts) == (None if state is ACCEPTED else "c", 0 if state is NOT_SENT else 1)
    with lease_of(journal) as lease:
        if state in MAY_BE_SENT:
            assert begin(journal, lease, amount=11) == first
            assert begin(journal, lease, amount=Decimal("10.00")) is None
            again = found(journal)
            assert (again.state, again.code, again.transaction_id) == (SENDING, None, None)
            assert (again.attempts, again.created_at) == (first.attempts + 1, first.created_at)
            # What was refused may have been executed after all.
            assert again.sent_at > first.sent_at if state is NOT_SENT else again.sent_at == first.sent_at
        else:
            assert begin(journal, lease) == first == found(journal)


def test_a_lease_that_ended_reads_as_unknown(journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease)
        assert found(journal).state is SENDING
        assert journal.unresolved() == []
    assert found(journal).state is UNKNOWN
    assert journal.unresolved() == [found(journal)]


@pytest.mark.both_databases
def test_a_live_process_holds_its_row(journal: Journal, url: str) -> None:
    with sender(url) as process:
        assert process.says() == "held"
        assert found(journal).state is SENDING
        assert journal.unresolved() == []
        with lease_of(journal) as lease:
            assert begin(journal, lease) == found(journal)
        with pytest.raises(RequestValidationError, match="is being sent"):
            journal.release("r")
        process.kill()
    until(lambda: found(journal).state is UNKNOWN, "the database saw the process go")
    with lease_of(journal) as lease:
        assert begin(journal, lease) == found(journal)


@pytest.mark.both_databases
def test_a_lease_ends_by_its_time_for_other_processes(journal: Journal, other: Journal) -> None:
    with lease_of(other) as lease:
        begin(other, lease, seconds=0)
        assert found(journal).state is UNKNOWN
        assert found(other).state is SENDING


@pytest.mark.both_databases
def test_one_of_many_processes_begins(url: str) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(sender(url, kind="race")) for _ in range(3)]
        for each in processes:
            each.go()
        said = sorted(each.says() for each in processes)
    assert said == ["SENDING"] * 2 + ["held"]


@pytest.mark.both_databases
@pytest.mark.parametrize("earlier", [None, REFUSED])
def test_one_of_many_threads_begins(journal: Journal, earlier: JournalState | None) -> None:
    if earlier is not None:
        put(journal, "r", earlier)
    with ExitStack() as held:
        began = in_threads(8, lambda: begin(journal, held.enter_context(lease_of(journal))) is None)
    assert sorted(began) == [False] * 7 + [True]


@pytest.mark.parametrize("state", [REFUSED, NOT_SENT, UNKNOWN])
def test_an_old_sender_does_not_end_its_successors_payout(
    journal: Journal, other: Journal, state: JournalState
) -> None:
    """Both leases are held: only the row tells which of them it is."""
    with lease_of(journal) as old, lease_of(other) as new:
        begin(journal, old, seconds=-60)
        other.release("r")
        begin(other, new)
        record(journal, old, state)
        assert found(other).state is SENDING
        record(other, new, ACCEPTED, transaction_id="t")
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "t")


def test_a_lease_that_ended_records_nothing(journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease)
    record(journal, lease, NOT_SENT)
    assert found(journal).state is UNKNOWN


def test_an_outcome_that_comes_late_counts_while_nobody_decided(journal: Journal, other: Journal) -> None:
    with lease_of(other) as lease:
        begin(other, lease, seconds=0)
        assert found(journal).state is UNKNOWN
        record(other, lease, REFUSED, code="c")
    assert (found(journal).state, found(journal).code) == (REFUSED, "c")


def test_an_outcome_does_not_undo_what_a_search_saw(journal: Journal, other: Journal) -> None:
    """The frozen sender could not connect; its row was released, and then a payment was seen."""
    with lease_of(other) as lease:
        begin(other, lease, seconds=-60)
        payments_of(journal).sight(journal.release("r"))
        record(other, lease, NOT_SENT)
    assert found(journal).state is UNKNOWN


@pytest.mark.parametrize("state", ENDS)
def test_after_a_release_only_an_acceptance_counts(journal: Journal, other: Journal, state: JournalState) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease, seconds=-60)
        other.release("r")
        record(journal, lease, state, transaction_id="t")
    assert found(journal).state is (ACCEPTED if state is ACCEPTED else NOT_SENT)


@pytest.mark.both_databases
def test_what_the_service_says_counts_more_than_the_sender(journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease)
        journal.settle(callback(status="FAILED"))
        record(journal, lease, UNKNOWN)
        record(journal, lease, NOT_SENT)
    assert found(journal).state is ACCEPTED


def test_a_release_lets_it_be_sent_and_searched_for_from_the_first_time(journal: Journal) -> None:
    first = put(journal, "r", UNKNOWN)
    assert payments_of(journal).release(first, "Njeri")
    assert journal.unresolved() == []
    released = found(journal)
    assert (released.released_by, released.attempts) == ("Njeri", 1)
    assert released.released_at is not None
    with lease_of(journal) as lease:
        assert begin(journal, lease) is None
        assert found(journal).sent_at == first.sent_at


def test_the_offset_stays_that_of_the_clock_that_dated_the_first_attempt(journal: Journal) -> None:
    for offset, expected in ((3600.0, 3600.0), (2.0, 3600.0)):
        with lease_of(journal) as lease:
            begin(journal, lease)
            record(journal, lease, REFUSED, code="c", clock_offset=offset)
        assert found(journal).clock_offset == expected


def test_an_offset_that_was_not_measured_at_the_first_attempt_stays_unknown(journal: Journal) -> None:
    put(journal, "r", UNKNOWN)
    journal.release("r")
    with lease_of(journal) as lease:
        begin(journal, lease)
        record(journal, lease, REFUSED, code="c", clock_offset=2.0)
    assert found(journal).clock_offset is None


def test_what_is_being_sent_is_not_released(journal: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease, seconds=-60)
        assert not payments_of(journal).release(found(journal), None)
        assert found(journal).state is SENDING


@pytest.mark.parametrize("state", [ACCEPTED, REFUSED, NOT_SENT])
def test_a_release_of_anything_else_changes_nothing(journal: Journal, state: JournalState) -> None:
    entry = put(journal, "r", state)
    assert not payments_of(journal).release(entry, None)
    assert not payments_of(journal).release(entry.model_copy(update={"reference": "another"}), None)
    assert found(journal) == entry


@pytest.mark.both_databases
def test_a_release_of_what_was_sent_again_meanwhile_does_nothing(journal: Journal, other: Journal) -> None:
    """The row is SENDING as it was read, under another lease."""
    with lease_of(other) as frozen:
        begin(other, frozen, seconds=-60)

    def send_again() -> None:
        other.release("r")
        assert begin(other, lease) is None

    with lease_of(other) as lease:
        read = found(journal)
        with just_before("UPDATE", journal, send_again):
            assert not payments_of(journal).release(read, None)
        assert not payments_of(journal).release(read, None)
        assert found(journal).state is SENDING


def test_a_release_of_what_was_accepted_meanwhile_does_nothing(journal: Journal, other: Journal) -> None:
    entry = put(journal, "r", UNKNOWN)
    with just_before("UPDATE", journal, lambda: other.settle(payout())):
        assert not payments_of(journal).release(entry, None)
    assert found(journal).state is ACCEPTED


def first_by_the_service(journal: Journal, _other: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease)
        journal.settle(payout(transactionId="first"))
        record(journal, lease, ACCEPTED, transaction_id="second")


def first_after_a_release(journal: Journal, other: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease, seconds=-60)
        other.release("r")
        with lease_of(other) as new:
            begin(other, new)
            record(other, new, ACCEPTED, transaction_id="first")
        record(journal, lease, ACCEPTED, transaction_id="second")


def second_by_the_service(journal: Journal, _other: Journal) -> None:
    put(journal, "r", ACCEPTED, transaction_id="first")
    assert journal.settle(payout(transactionId="second")) == found(journal)


@pytest.mark.parametrize("twice", [first_by_the_service, first_after_a_release, second_by_the_service])
def test_a_second_payout_of_one_reference_is_critical_and_the_first_is_kept(
    journal: Journal,
    other: Journal,
    caplog: pytest.LogCaptureFixture,
    twice: Callable[[Journal, Journal], None],
) -> None:
    twice(journal, other)
    assert found(journal).transaction_id == "first"
    (line,) = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert "transaction second" in line.getMessage()
    assert "paid twice" in line.getMessage()
    assert PHONE not in caplog.text


def test_the_same_transaction_again_is_not_critical(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease)
        journal.settle(payout())
        record(journal, lease, ACCEPTED, transaction_id="the-id")
        journal.settle(callback())
    assert caplog.records == []


@pytest.mark.both_databases
def test_unresolved_is_what_needs_a_search_oldest_first(journal: Journal) -> None:
    for number, state in enumerate([*ENDS, UNKNOWN]):
        put(journal, f"r{number}", state)
    execute(journal, "UPDATE momopay_payments SET sent_at = '2020-01-01T00:00:00+00:00' WHERE reference = 'r4'")
    with lease_of(journal) as lease:
        begin(journal, lease, "r9")
        assert [entry.reference for entry in journal.unresolved()] == ["r4", "r1"]


@pytest.mark.both_databases
def test_references_that_look_alike_are_not_the_same(journal: Journal) -> None:
    put(journal, "r", ACCEPTED)
    for reference in ["r ", " r", "R", "\u202er", "😀", "'; --", "\u00e9", "e\u0301", "x" * 2000]:
        assert journal.get(reference) is None
        assert put(journal, reference, NOT_SENT).reference == reference


def test_a_database_that_neither_takes_a_row_nor_shows_one_is_an_error(tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'lossy.db'}") as journal, lease_of(journal) as lease:
        execute(journal, "CREATE TRIGGER lost BEFORE INSERT ON momopay_payments BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(JournalError, match="neither took the row"):
            begin(journal, lease)


def test_a_sender_that_never_reported_is_released_a_minute_after_its_lease(journal: Journal, other: Journal) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease, seconds=-30)
        with pytest.raises(RequestValidationError, match=r"release it in (29|30) s"):
            other.release("r")
    with pytest.raises(RequestValidationError, match="may be frozen"):
        journal.release("r")
    with lease_of(journal) as lease:
        execute(journal, "UPDATE momopay_payments SET lease_until = lease_until - 30")
        assert other.release("r").state is NOT_SENT


@pytest.mark.both_databases
def test_a_call_that_read_another_row_must_decide_anew(journal: Journal, other: Journal) -> None:
    """Its search says nothing about what another call sent since it read the row."""
    read = put(journal, "r", REFUSED)
    with lease_of(other) as lease:
        begin(other, lease)
        record(other, lease, REFUSED)
    with lease_of(journal) as lease:
        assert begin(journal, lease, read=read) == found(journal)
        assert begin(journal, lease, read=None) == found(journal)
        assert begin(journal, lease) is None


@pytest.mark.parametrize("earlier", [None, REFUSED])
def test_a_row_of_a_call_that_gave_up_meanwhile_is_not_sent(journal: Journal, earlier: JournalState | None) -> None:
    if earlier is not None:
        put(journal, "r", earlier)
    attempts = 0 if earlier is None else 1
    with lease_of(journal) as lease:
        statement = "INSERT" if earlier is None else "UPDATE"
        with just_before(statement, journal, lambda: payments_of(journal).leases.end(lease)):
            begin(journal, lease)
        assert (found(journal).state, found(journal).attempts) == (NOT_SENT, attempts)


def test_whether_a_call_still_sends(journal: Journal, other: Journal) -> None:
    payments = payments_of(journal)
    with lease_of(journal) as lease, lease_of(other) as new:
        assert not payments.is_sending(lease, "r")
        begin(journal, lease, seconds=-60)
        assert payments.is_sending(lease, "r")
        other.release("r")
        assert not payments.is_sending(lease, "r")
        begin(other, new)
        assert not payments.is_sending(lease, "r")


@pytest.mark.parametrize("state", [UNKNOWN, REFUSED, NOT_SENT])
def test_a_transaction_belongs_to_one_row(journal: Journal, state: JournalState) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    entry = put(journal, "s", state)
    assert not payments_of(journal).accept("s", Report("the-id"))
    assert journal.settle(payout("s")) == entry == found(journal, "s")
    assert payments_of(journal).accept("s", Report("another"))


@pytest.mark.both_databases
def test_of_two_rows_that_take_one_transaction_at_once_one_gets_it(journal: Journal, other: Journal) -> None:
    put(journal, "r", UNKNOWN)
    put(journal, "s", UNKNOWN)
    race = just_before("UPDATE", journal, lambda: payments_of(other).accept("s", Report("the-id")))
    with race:
        assert not payments_of(journal).accept("r", Report("the-id"))
    assert (found(journal).state, found(journal, "s").state) == (UNKNOWN, ACCEPTED)


def test_what_the_service_reports_is_kept(journal: Journal) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    journal.settle(callback(status="SUCCESS", momo_receipt="RCPT1", transaction_fee=15, result_code="0"))
    ended = found(journal)
    assert (ended.status, ended.receipt, ended.fee, ended.result_code) == ("SUCCESS", "RCPT1", Decimal(15), "0")
    assert ended.ended_at == datetime(2026, 11, 20, 10, tzinfo=UTC)
    journal.settle(payout(status="PENDING"))
    assert found(journal) == ended, "an older page of the list changes nothing"


def test_an_accepted_row_is_in_doubt_once_its_transaction_is_another_payment(journal: Journal) -> None:
    entry = put(journal, "r", ACCEPTED, transaction_id="the-id")
    payments_of(journal).contradict(entry.model_copy(update={"transaction_id": "another"}))
    assert found(journal) == entry
    payments_of(journal).contradict(entry)
    assert found(journal).state is UNKNOWN


@pytest.mark.parametrize("state", ENDS)
def test_a_sighting_puts_in_doubt_what_was_refused_or_not_sent(journal: Journal, state: JournalState) -> None:
    entry = put(journal, "r", state)
    payments_of(journal).sight(entry.model_copy(update={"claim": "another"}))
    assert found(journal) == entry
    payments_of(journal).sight(entry)
    assert found(journal).state is (UNKNOWN if state in MAY_BE_SENT else state)


@pytest.mark.both_databases
def test_the_payouts_to_some_phones_are_found_in_any_state(journal: Journal) -> None:
    put(journal, "r1", UNKNOWN)
    put(journal, "r2", REFUSED, code="INVALID_PHONE")
    rows = payments_of(journal)
    others = [f"2547{number:08}" for number in range(600)]  # more than one statement takes
    assert {entry.reference for entry in rows.to_phones([*others, PHONE])} == {"r1", "r2"}
    assert list(rows.to_phones(others)) == list(rows.to_phones([])) == []
