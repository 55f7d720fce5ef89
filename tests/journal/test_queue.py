"""What a sweep reads, searches for and delivers."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from in_turn import some_by_default
from journal.constants import ACCEPTED, COLLECTION, ENDED_AT, PAYOUT, REFUSED, UNKNOWN
from journal.database_kit import execute, store_of
from journal.kit import entry_of, found, names, put, put_collection
from journal.records import callback, payout, report
from momopay import EntryKind, Journal, JournalState, MomoPayError
from momopay.journal.journal import internals
from momopay.journal.queue import Followed, Queue

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW = datetime.now(UTC)
TEN = timedelta(minutes=10)


def queue_of(journal: Journal) -> Queue:
    return internals(journal).queue


@pytest.mark.parametrize(
    ("kind", "earlier", "is_searched"), [(PAYOUT, UNKNOWN, True), (PAYOUT, None, False), (COLLECTION, UNKNOWN, False)]
)
def test_a_payout_that_is_found_is_searched_for_again_if_another_attempt_may_have_been_made(
    journal: Journal, kind: EntryKind, earlier: JournalState | None, is_searched: bool
) -> None:
    if earlier is not None:
        put(journal, "r", earlier, kind)
        execute(journal, "UPDATE momopay_payments SET state = 'NOT_SENT'")
    entry = put(journal, "r", UNKNOWN, kind)
    assert store_of(journal).record(entry, report("t-1", "SUCCESS"))
    execute(journal, "UPDATE momopay_payments SET search_after = search_after - 600")
    assert bool(queue_of(journal).due().searched) is is_searched


@pytest.mark.both_databases
@pytest.mark.parametrize("status", some_by_default(["SUCCESS", "FAILED", "REVERSED"]))
def test_an_end_is_for_a_handler_for_30_days_from_when_the_journal_learned_of_it(journal: Journal, status: str) -> None:
    """Whatever the service's times say: this one says that it ended in 2020."""
    settled(journal, "r", status, ended=datetime(2020, 1, 1, tzinfo=UTC))
    queue = queue_of(journal)
    assert (ids(queue.due(has_handler=True).undelivered), queue.skipped()) == ({"t-r"}, (0, []))
    assert queue.due().undelivered == []
    for days, is_due in ((29.99, True), (0.02, False), (400, False)):
        execute(journal, f"UPDATE momopay_transactions SET learned_at = learned_at - 86400 * {days}")
        assert bool(queue.due(has_handler=True).undelivered) is is_due
        assert queue.skipped() == ((0, []) if is_due else (1, ["r"]))
    assert journal.check().skipped == 0, "no handler ever got an end"
    with journal.handling(callback(identity="another")):
        pass
    assert (journal.check().skipped, journal.check().needs_attention) == (1, False)
    with journal.handling(callback(identity="t-r", status=status)):
        pass
    assert (queue.skipped(), journal.check().skipped) == ((0, []), 0)


@pytest.mark.both_databases
def test_a_reversal_has_its_own_30_days(journal: Journal) -> None:
    settled(journal, "r", "FAILED")
    execute(journal, "UPDATE momopay_transactions SET learned_at = learned_at - 86400 * 31")
    journal.settle(payout("r", transactionId="t-r", status="REVERSED"))
    assert ids(queue_of(journal).due(has_handler=True).undelivered) == {"t-r"}


@pytest.mark.both_databases
def test_a_success_of_which_an_earlier_version_wrote_no_time_goes_by_the_services(journal: Journal) -> None:
    queue = queue_of(journal)
    for days, is_due in ((29, True), (31, False)):
        settled(journal, f"r{days}", "SUCCESS", ended=datetime.now(UTC) - timedelta(days=days))
        execute(journal, "UPDATE momopay_transactions SET learned_at = NULL")
        assert (f"t-r{days}" in ids(queue.due(has_handler=True).undelivered)) is is_due


def settled(journal: Journal, reference: str, status: str, *, ended: datetime = NOW) -> None:
    put(journal, reference, transaction_id=f"t-{reference}")
    journal.settle(payout(reference, transactionId=f"t-{reference}", status=status, updatedAt=ended.isoformat()))


def ids(followed: Iterable[Followed]) -> set[str]:
    return {each.transaction.transaction_id for each in followed}


@pytest.mark.both_databases
def test_what_has_not_settled_is_open_and_counted(journal: Journal) -> None:
    queue = queue_of(journal)
    assert store_of(journal).unfinished() == (0, [])
    for status in ("PENDING", "FAILED", "SUCCESS", "REVERSED", "CANCELLED", "NEWS"):
        settled(journal, status, status)
    put(journal, "new")
    put(journal, "unknown", UNKNOWN, seen_id="t-unknown")
    put(journal, "refused", REFUSED)
    put_collection(journal, "PENDING", statuses=["CANCELLED", "PROCESSING"])  # also the reference of a payout
    put_collection(journal, "paid", statuses=["PENDING", "SUCCESS"])
    put_collection(journal, "over", statuses=["EXPIRED", "FAILED"])
    expected = {"t-PENDING", "t-FAILED", "t-NEWS", "t-new", "PENDING-1", "paid-0"}
    assert ids(queue.due().not_settled) == expected
    assert [entry.reference for entry in journal.open()] == ["PENDING", "paid", "PENDING", "FAILED", "NEWS", "new"]
    assert store_of(journal).unfinished() == (6, [found(journal, "unknown")])
    for each in queue.due().not_settled:
        assert each.transaction in each.entry.transactions


def test_a_prompt_that_ended_without_success_is_read_once_more(journal: Journal) -> None:
    put_collection(journal, statuses=["CANCELLED", "FAILED", "PENDING", "CANCELLED"])
    put(journal, "p", status="FAILED")
    queue = queue_of(journal)
    assert ids(queue.due().ended_prompts) == {"o-0", "o-1", "o-3"}
    first = queue.due().ended_prompts[0]
    assert (first.entry.reference, first.transaction.transaction_id) == ("o", "o-0")
    assert (first.transaction.ended_at, first.learned_at_service) == (datetime.fromisoformat(ENDED_AT), None)
    assert first.known_for is not None
    assert -1 <= first.known_for < 60
    assert not first.is_due(None)
    execute(journal, "UPDATE momopay_transactions SET learned_at = learned_at - 600")
    assert store_of(journal).record(first.entry, report("o-0", "FAILED", learned_at_service=ENDED_AT))
    first = queue.due().ended_prompts[0]
    assert (first.is_due(None), first.learned_at_service) == (True, ENDED_AT), "known of for ten minutes"
    queue.mark_checked(["o-0", "o-3"])
    assert ids(queue.due().ended_prompts) == {"o-1"}


@pytest.mark.both_databases
def test_two_sweeps_that_mark_the_same_prompts_do_not_wait_for_each_other(journal: Journal) -> None:
    """Whatever order their pages had; nor does one that records what has changed."""
    entry = put_collection(journal, statuses=["CANCELLED"] * 9)
    marks, failures = [f"o-{number}" for number in range(9)], list[Exception]()

    def repeat(work: Callable[[], object]) -> None:
        try:
            for _ in range(20):
                work()
        except MomoPayError as error:
            failures.append(error)

    def read() -> None:
        store_of(journal).record_reads([(entry, report(each, "FAILED")) for each in reversed(marks)])

    works = [partial(queue_of(journal).mark_checked, ids) for ids in (marks, marks[::-1])]
    threads = [Thread(target=repeat, args=(work,)) for work in (*works, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize(
    ("ended", "learned", "known_for", "now", "due"),
    [
        (NOON, NOON, 0.0, NOON + TEN, True),
        (NOON, NOON, 9999.0, NOON + TEN - timedelta(seconds=1), False),  # the service's clock counts where it is known
        (NOON, NOON + TEN, 0.0, NOON + TEN, False),  # the journal learned of it late
        (NOON + TEN, NOON, 0.0, NOON + TEN, False),
        (None, NOON, 0.0, NOON + TEN, True),
        (NOON, None, 600.0, NOON + TEN, True),
        (NOON, None, 600.0, NOON, False),
        (NOON, None, 599.0, NOON + TEN, False),
        (NOON, NOON, 600.0, None, True),
        (NOON, NOON, 599.0, None, False),
        (NOON, None, None, None, False),
    ],
)
def test_a_second_look_comes_ten_minutes_later_by_the_clock_that_is_known(
    ended: datetime | None, learned: datetime | None, known_for: float | None, now: datetime | None, due: bool
) -> None:
    entry = entry_of("CANCELLED")
    prompt = entry.transactions[0].model_copy(update={"ended_at": ended})
    assert Followed(entry, prompt, None if learned is None else learned.isoformat(), known_for).is_due(now) is due


def test_what_was_released_is_searched_for_once_ten_minutes_later(journal: Journal) -> None:
    queue, store, begun = queue_of(journal), store_of(journal), time.time()
    for reference in ("r", "s"):
        assert store.release(put(journal, reference, UNKNOWN), "Njeri")
    assert queue.due().searched == []
    ((after,), _) = execute(journal, "SELECT search_after FROM momopay_payments")
    assert begun - 1 < after - 600 < time.time() + 1  # by the database's clock, which is this machine's
    execute(journal, "UPDATE momopay_payments SET search_after = search_after - 599 WHERE reference = 's'")
    assert queue.due().searched == []
    execute(journal, "UPDATE momopay_payments SET search_after = search_after - 601 WHERE reference = 'r'")
    (released,) = queue.due().searched
    assert released == found(journal)
    put(journal, "r", REFUSED)
    queue.mark_searched(released)
    assert names(queue.due().searched) == ["r"], "it was sent again since it was read"
    queue.mark_searched(found(journal))
    assert queue.due().searched == []


@pytest.mark.both_databases
def test_an_end_is_for_a_handler_until_it_was_delivered(journal: Journal) -> None:
    for reference, status in (("r", "CANCELLED"), ("s", "REVERSED"), ("t", "FAILED"), ("u", "PENDING")):
        settled(journal, reference, status)
    for number, status in enumerate(("EXPIRED", "SUCCESS", "FAILED")):
        put(journal, "o", ACCEPTED, COLLECTION, transaction_id=f"p-{number}")
        prompt = payout("o", type="STK", transactionId=f"p-{number}", status=status, updatedAt=NOW.isoformat())
        assert journal.settle(prompt)
    queue = queue_of(journal)
    assert ids(queue.due(has_handler=True).undelivered) == {"t-r", "t-s", "t-t", "p-0", "p-1", "p-2"}
    for identity, status in (("t-r", "EXPIRED"), ("t-s", "FAILED"), ("p-0", "CANCELLED"), ("p-2", "SUCCESS")):
        with journal.handling(callback(identity=identity, status=status)):
            pass
    assert ids(queue.due(has_handler=True).undelivered) == {"t-s", "t-t", "p-1"}, "its reversal is another end"
    with suppress(KeyError), journal.handling(callback(identity="p-1")):
        assert ids(queue.due(has_handler=True).undelivered) == {"t-s", "t-t", "p-1"}, "not before it ended"
        raise KeyError
    assert ids(queue.due(has_handler=True).undelivered) == {"t-s", "t-t", "p-1"}
    with journal.handling(callback(identity="p-1")):
        pass
    assert ids(queue.due(has_handler=True).undelivered) == {"t-s", "t-t"}


def test_an_end_has_what_was_refunded_of_its_order(journal: Journal) -> None:
    for order in ("o", "p"):
        put_collection(journal, order)
    for reference, amount, status in (("o-R1", 40, "SUCCESS"), ("o-R2", 20, "REVERSED"), ("o-R3", 1, "PENDING")):
        put(journal, reference, refund_of="o", amount=amount, transaction_id=reference, status=status)
    put(journal, "salary", transaction_id="salary", status="SUCCESS")
    refunded = {each.transaction.transaction_id: amount for each, amount in queue_of(journal).undelivered()}
    assert refunded == {"o-0": 41, "o-R1": 41, "o-R2": 41, "p-0": 0, "salary": 0}


@pytest.mark.both_databases
def test_an_id_that_cannot_be_kept_hides_no_stranger(journal: Journal) -> None:
    put(journal, "r", transaction_id="t-r")
    shown = [payout("r", transactionId=each) for each in ("a\0b", "t-r", "new")] + [payout("s\0")]
    assert [each.transaction_id for each in queue_of(journal).strangers(shown)] == ["a\0b", "new"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_several_prompts_that_were_read_again_are_marked_at_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """On PostgreSQL in the journal's own schema, which nothing but its transactions looks into."""
    is_sqlite = kind == "sqlite"
    url = f"sqlite:///{tmp_path}/j.db" if is_sqlite else request.getfixturevalue("postgresql").new_database()
    with Journal(url) as journal:
        put_collection(journal, statuses=("CANCELLED", "CANCELLED", "CANCELLED"))
        queue_of(journal).mark_checked(["o-2", "o-0"])
        with store_of(journal).database.transaction() as connection:
            rows = connection.exec_driver_sql("SELECT transaction_id, checked_at FROM momopay_transactions").all()
    assert {name for name, checked_at in rows if checked_at is not None} == {"o-0", "o-2"}
