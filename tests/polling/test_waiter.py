"""What one waiter keeps of what was read, and when it asks for more."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest

from momopay import APIError, Transaction, TransactionStatus
from momopay._polling.waiter import Observation, Waiter
from virtual import transaction


def waiter(deadline: float = 300.0) -> Waiter:
    return Waiter("a", None, every=10.0, deadline=deadline, next_poll_at=15.0)


def full(status: str = "FAILED") -> Observation:
    record = transaction("a", status, resultCode="1032")
    return Observation(Transaction.model_validate(record), is_full=True)


def row(status: str = "FAILED") -> Observation:
    return Observation(Transaction.model_validate(transaction("a", status)), is_full=False)


def test_a_list_row_does_not_replace_a_full_read_of_the_same_status() -> None:
    one, read = waiter(), full()
    one.record(read, 15.0)
    one.record(row(), 25.0)
    assert one.take_observation() is read


@pytest.mark.parametrize(
    ("first", "second"),
    [(full("PENDING"), row("SUCCESS")), (row(), row()), (row(), full()), (full(), full())],
    ids=["another status", "a row", "a full read of a row", "a full read"],
)
def test_the_newest_observation_counts_otherwise(first: Observation, second: Observation) -> None:
    one = waiter()
    one.record(first, 15.0)
    one.record(second, 25.0)
    assert one.take_observation() is second


def test_a_list_row_replaces_a_full_read_that_was_judged() -> None:
    one, later = waiter(), row()
    one.record(full(), 15.0)
    one.take_observation()
    one.record(later, 25.0)
    assert one.take_observation() is later


def test_each_observation_is_taken_once() -> None:
    one = waiter()
    assert one.take_observation() is None
    one.record(row(), 15.0)
    assert one.take_observation() is not None
    assert one.take_observation() is None


def test_a_record_tells_when_it_was_read_and_when_the_transaction_was_created() -> None:
    one = waiter()
    assert one.last_read_at == -inf
    one.record(row(), 15.0)
    assert (one.last_read_at, one.created_at) == (15.0, datetime(2026, 11, 20, 10, tzinfo=UTC))


def test_only_a_full_read_answers_the_request_for_one() -> None:
    one = waiter()
    one.request_full_read(TransactionStatus("FAILED"), None, 15.0)
    one.record(row(), 20.0)
    assert one.needs_full_read
    one.record(full(), 25.0)
    assert not one.needs_full_read


@pytest.mark.parametrize(("deadline", "answers_by"), [(300.0, 45.0), (40.0, 40.0)])
def test_an_end_waits_three_intervals_for_its_result_code_and_never_beyond_the_deadline(
    deadline: float, answers_by: float
) -> None:
    one = waiter(deadline)
    assert one.answers_by == deadline
    one.request_full_read(TransactionStatus("FAILED"), row().transaction, 15.0)
    assert one.answers_by == answers_by


def test_an_abandoned_full_read_ends_a_wait_that_has_an_end_and_may_be_requested_again_otherwise() -> None:
    ended, pending = waiter(), waiter()
    ended.request_full_read(TransactionStatus("FAILED"), row().transaction, 15.0)
    pending.request_full_read(TransactionStatus("FAILED"), None, 15.0)
    for each in (ended, pending):
        each.abandon_full_read(20.0)
        assert not each.needs_full_read
        assert each.full_read_status is None
    assert (ended.answers_by, pending.answers_by) == (20.0, 300.0)


def test_it_is_due_at_its_time_or_when_it_is_notified() -> None:
    one = waiter()
    assert not one.is_due(14.9)
    assert one.is_due(15.0)
    one.notified = True
    assert one.is_due(1.0)


def test_it_is_not_polled_for_while_its_owner_has_something_to_judge_or_has_ended() -> None:
    unjudged, ended, refused = waiter(), waiter(), waiter()
    unjudged.record(row("PENDING"), 5.0)
    ended.request_full_read(TransactionStatus("FAILED"), row().transaction, 5.0)
    refused.failure = APIError("no", code="NO", status_code=400)
    assert not any(each.is_due(100.0) for each in (unjudged, ended, refused))
    unjudged.take_observation()
    assert unjudged.is_due(100.0)
