"""The journal's states and who may change them, on both databases."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from journal.kit import PHONE, begin, callback, found, payout, put, sender
from momopay import ConfigurationError, Journal, JournalError, JournalState, RequestValidationError
from momopay.journal.journal import payments_of
from patience import until

OPEN = [JournalState.SENDING, JournalState.UNKNOWN]
MAY_BE_SENT = [JournalState.REFUSED, JournalState.NOT_SENT]
ENDS = [JournalState.ACCEPTED, JournalState.UNKNOWN, *MAY_BE_SENT]


def test_a_reference_that_was_never_paid_is_not_there(journal: Journal) -> None:
    assert journal.get("r") is None
    assert journal.unresolved() == []


def test_a_claim_is_written_down_before_anything_is_sent(journal: Journal, url: str) -> None:
    before = datetime.now(UTC)
    with payments_of(journal).leases.lease() as lease:
        assert begin(journal, lease) is None
        with Journal(url) as elsewhere:
            entry = found(elsewhere)
    assert (entry.reference, entry.amount, entry.phone) == ("r", Decimal(10), PHONE)
    assert (entry.state, entry.transaction_id, entry.code) == (JournalState.SENDING, None, None)
    assert before <= entry.sent_at <= datetime.now(UTC)


@pytest.mark.parametrize("state", ENDS)
def test_an_end_is_kept(journal: Journal, url: str, state: JournalState) -> None:
    put(journal, "r", state, transaction_id="t", code="c")
    with Journal(url) as elsewhere:
        entry = found(elsewhere)
    assert (entry.state, entry.transaction_id, entry.code) == (state, "t", "c")


@pytest.mark.parametrize("state", MAY_BE_SENT)
def test_what_was_refused_or_not_sent_may_be_sent(journal: Journal, state: JournalState) -> None:
    first = put(journal, "r", state, code="c")
    with payments_of(journal).leases.lease() as lease:
        assert begin(journal, lease) is None
        entry = found(journal)
    assert (entry.state, entry.code) == (JournalState.SENDING, None)
    assert entry.sent_at > first.sent_at


@pytest.mark.parametrize("state", [JournalState.ACCEPTED, JournalState.UNKNOWN])
def test_what_was_or_may_have_been_paid_is_not_sent(journal: Journal, state: JournalState) -> None:
    first = put(journal, "r", state)
    with payments_of(journal).leases.lease() as lease:
        assert begin(journal, lease) == first


@pytest.mark.parametrize("state", MAY_BE_SENT)
def test_another_amount_is_not_sent_under_the_same_reference(journal: Journal, state: JournalState) -> None:
    first = put(journal, "r", state)
    with payments_of(journal).leases.lease() as lease:
        assert begin(journal, lease, amount=11) == first


def test_amounts_are_the_same_however_they_are_written(journal: Journal) -> None:
    put(journal, "r", JournalState.NOT_SENT)
    with payments_of(journal).leases.lease() as lease:
        same = payments_of(journal).begin(
            lease, reference="r", amount=Decimal("10.00"), phone=PHONE, body_hash="", seconds=1
        )
    assert same is None


def test_a_claim_that_was_given_up_reads_as_unknown(journal: Journal) -> None:
    with payments_of(journal).leases.lease() as lease:
        begin(journal, lease)
    assert found(journal).state is JournalState.UNKNOWN
    assert journal.unresolved() == [found(journal)]


def test_a_process_that_lives_holds_its_claim(journal: Journal, url: str) -> None:
    with sender(url) as other:
        assert other.says() == "held"
        assert found(journal).state is JournalState.SENDING
        assert journal.unresolved() == []
        with payments_of(journal).leases.lease() as lease:
            assert begin(journal, lease) == found(journal)
        with pytest.raises(RequestValidationError, match="is being sent"):
            journal.release("r")


def test_a_process_that_was_killed_leaves_its_claim_unknown(journal: Journal, url: str) -> None:
    with sender(url) as other:
        assert other.says() == "held"
        other.kill()
    until(lambda: found(journal).state is JournalState.UNKNOWN, "the database saw the process go")
    with payments_of(journal).leases.lease() as lease:
        assert begin(journal, lease) == found(journal)


def test_a_lease_ends_though_the_process_lives(journal: Journal, url: str) -> None:
    with Journal(url) as other, payments_of(other).leases.lease() as lease:
        begin(other, lease, seconds=0)
        assert found(journal).state is JournalState.UNKNOWN
        assert found(other).state is JournalState.SENDING


def test_one_of_many_processes_gets_the_claim(url: str) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(sender(url, kind="race")) for _ in range(6)]
        for other in others:
            other.go()
        said = sorted(other.says() for other in others)
    assert said == ["SENDING"] * 5 + ["held"]


@pytest.mark.parametrize("earlier", [None, *MAY_BE_SENT])
def test_one_of_many_threads_gets_the_claim(journal: Journal, earlier: JournalState | None) -> None:
    if earlier is not None:
        put(journal, "r", earlier)
    claimed: list[bool] = []
    together = threading.Barrier(8)
    done = threading.Barrier(8)

    def race() -> None:
        with payments_of(journal).leases.lease() as lease:
            together.wait()
            claimed.append(begin(journal, lease) is None)
            done.wait()

    in_threads(race, 8)
    assert sorted(claimed) == [False] * 7 + [True]


def in_threads(work: Callable[[], Any], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_only_the_claim_that_stands_ends_it(journal: Journal) -> None:
    with payments_of(journal).leases.lease() as old:
        begin(journal, old)
    journal.release("r")
    with payments_of(journal).leases.lease() as new:
        begin(journal, new)
        payments_of(journal).record_outcome(old, "r", JournalState.NOT_SENT)
        assert found(journal).state is JournalState.SENDING
        payments_of(journal).record_outcome(new, "r", JournalState.ACCEPTED, transaction_id="t")
    assert found(journal).transaction_id == "t"


def test_an_answer_that_comes_late_settles_what_was_held_unknown(journal: Journal, url: str) -> None:
    with Journal(url) as other, payments_of(other).leases.lease() as lease:
        begin(other, lease, seconds=0)
        assert found(journal).state is JournalState.UNKNOWN
        payments_of(other).record_outcome(lease, "r", JournalState.ACCEPTED, transaction_id="t")
    assert found(journal).state is JournalState.ACCEPTED


def test_a_release_lets_an_unknown_payout_be_sent_and_searched_for_from_the_first_time(journal: Journal) -> None:
    first = put(journal, "r", JournalState.UNKNOWN)
    assert journal.release("r").state is JournalState.NOT_SENT
    assert journal.unresolved() == []
    with payments_of(journal).leases.lease() as lease:
        assert begin(journal, lease) is None
        assert found(journal).sent_at == first.sent_at


@pytest.mark.parametrize("state", MAY_BE_SENT)
def test_a_release_of_what_may_be_sent_changes_nothing(journal: Journal, state: JournalState) -> None:
    entry = put(journal, "r", state)
    assert journal.release("r") == entry == found(journal)


def test_what_was_accepted_is_not_released(journal: Journal) -> None:
    entry = put(journal, "r", JournalState.ACCEPTED, transaction_id="t")
    with pytest.raises(RequestValidationError, match="accepted as transaction t"):
        journal.release("r")
    assert found(journal) == entry


def test_what_is_not_there_is_not_released(journal: Journal) -> None:
    with pytest.raises(RequestValidationError, match="not in the journal"):
        journal.release("r")


def test_unresolved_shows_what_needs_a_human_oldest_first(journal: Journal) -> None:
    for number, state in enumerate([*ENDS, JournalState.UNKNOWN]):
        put(journal, f"r{number}", state)
    with payments_of(journal).leases.lease() as lease:
        begin(journal, lease, "r9")
        unresolved = journal.unresolved()
    assert [entry.reference for entry in unresolved] == ["r1", "r4"]


@pytest.mark.parametrize("state", [JournalState.UNKNOWN, *MAY_BE_SENT])
def test_a_record_of_the_service_settles_its_reference(journal: Journal, state: JournalState) -> None:
    put(journal, "r", state, code="c")
    entry = journal.settle(payout())
    assert entry is not None
    assert (entry.state, entry.transaction_id, entry.code) == (JournalState.ACCEPTED, "the-id", None)
    assert found(journal) == entry


def test_a_confirmed_callback_settles_what_is_being_sent(journal: Journal) -> None:
    with payments_of(journal).leases.lease() as lease:
        begin(journal, lease)
        journal.settle(callback(status="FAILED"))
        payments_of(journal).record_outcome(lease, "r", JournalState.UNKNOWN)
    assert found(journal).state is JournalState.ACCEPTED


@pytest.mark.parametrize(
    "other",
    [{"amount": 11}, {"phone": "254712345679"}, {"type": "STK"}, {"accountReference": "s"}, {"accountReference": None}],
)
def test_a_record_of_something_else_settles_nothing(journal: Journal, other: dict[str, Any]) -> None:
    entry = put(journal, "r", JournalState.UNKNOWN)
    assert journal.settle(payout(**other)) is None
    assert found(journal) == entry


def test_a_second_payout_of_one_reference_is_cried_out_and_the_first_kept(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    entry = put(journal, "r", JournalState.ACCEPTED, transaction_id="first")
    assert journal.settle(payout()) == entry
    assert "paid twice" in caplog.text
    assert PHONE not in caplog.text


def test_a_journal_opens_once_for_many_processes_at_once(url: str) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(sender(url, reference=f"r{number}")) for number in range(4)]
        assert [other.says() for other in others] == ["held"] * 4


def test_a_journal_of_a_later_version_is_refused(journal: Journal, url: str) -> None:
    journal.get("r")
    with journal._database.connection() as connection:
        connection.exec_driver_sql("UPDATE momopay_journal SET version = 99")
    with Journal(url) as later, pytest.raises(ConfigurationError, match="version 99"):
        later.get("r")


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true", "mysql://h/d", "payouts.db", ""]
)
def test_a_journal_that_would_not_last_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Journal(url)


def test_a_closed_journal_is_not_used(journal: Journal) -> None:
    journal.close()
    with pytest.raises(ConfigurationError, match="closed"):
        journal.get("r")


def test_an_entry_and_a_journal_show_no_phone_and_no_password(journal: Journal) -> None:
    entry = put(journal, "r", JournalState.UNKNOWN)
    assert PHONE not in f"{entry!r} {entry}"
    assert pickle.loads(pickle.dumps(entry)) == entry
    with Journal("postgresql+psycopg://me:secret@127.0.0.1:1/d") as elsewhere:
        assert "secret" not in repr(elsewhere)


def test_a_database_that_is_away_is_told_without_password_or_phone() -> None:
    with (
        Journal("postgresql+psycopg://me:secret@127.0.0.1:1/d") as journal,
        payments_of(journal).leases.lease() as lease,
        pytest.raises(JournalError, match="OperationalError") as caught,
    ):
        begin(journal, lease)
    shown = f"{caught.value!r} {caught.value.__cause__} {caught.value.__context__}"
    assert "secret" not in shown
    assert PHONE not in shown
    assert not caught.value.may_have_executed
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
