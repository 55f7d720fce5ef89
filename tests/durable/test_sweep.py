"""A sweep reaches every end, records it, and stays within its requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drivers import Driver
from durable.kit import (
    CANCELLING,
    FAILING,
    ORDERS,
    PAYOUTS,
    Handler,
    Service,
    ago,
    collect,
    initiate,
    listed,
    pay,
    requests,
    swept,
)
from journal.kit import ACCEPTED, COLLECTION, PHONE, UNKNOWN, execute, fill, found, put, state_of
from momopay import Journal, JournalState, OutcomeUnknownError, SweepReport
from momopay.sandbox import Account, Fault, Sandbox

HOUR = 3600.0


def test_an_empty_journal_costs_no_request(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    assert swept(sdk, journal, Handler()) == SweepReport()
    assert requests(sandbox) == []


def test_all_ends_are_recorded_by_one_request(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, "a"))
    sdk(collect(journal, "b", phone=PHONE))
    sdk(collect(journal, "c", phone=CANCELLING))
    assert swept(sdk, journal) == SweepReport(open=3)
    sandbox.advance(600)
    before = len(sandbox.requests)
    assert swept(sdk, journal) == SweepReport(settled=3)
    # A page does not show why the prompt was cancelled.
    cancelled = f"GET /transactions/{found(journal, 'c').transaction_id}"
    assert requests(sandbox)[before - len(sandbox.requests) :] == ["GET /transactions", cancelled]
    assert [found(journal, each).status for each in "abc"] == ["SUCCESS", "SUCCESS", "CANCELLED"]
    entry = found(journal, "c")
    assert (entry.result_code, entry.has_settled, entry.ended_at is not None) == ("1032", True, True)
    assert journal.open() == []


def test_a_lost_answer_and_a_lost_callback_are_found(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    long = "ORDER-1 of a long name"
    for calls, call in ((PAYOUTS, pay(journal)), (ORDERS, collect(journal, long, phone=PHONE))):
        calls.fail_next(sandbox, Fault.error_after_commit)
        with pytest.raises(OutcomeUnknownError):
            sdk(call)
    put(journal, "never made", UNKNOWN)
    sandbox.advance(HOUR)
    assert swept(sdk, journal) == SweepReport(settled=2, unknown=1)
    assert [found(journal, each).state for each in ("r", long, "never made")] == [ACCEPTED, ACCEPTED, UNKNOWN]
    assert [found(journal, each).status for each in ("r", long)] == ["SUCCESS", "SUCCESS"]


def test_a_payout_that_failed_is_open_until_it_is_reversed(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, phone=FAILING))
    sandbox.advance(40)  # it fails after 35 seconds, and is reversed 10 seconds later
    assert swept(sdk, journal) == SweepReport(open=1)
    assert (found(journal).status, found(journal).result_code) == ("FAILED", "1")
    sandbox.advance(HOUR)
    assert swept(sdk, journal) == SweepReport(settled=1)
    assert found(journal).status == "REVERSED"


# How many requests a pass makes.


def put_many(journal: Journal, count: int) -> list[dict[str, Any]]:
    """Put so many open payouts into the journal; return the service's records of them."""
    fill(journal, count)
    execute(journal, "UPDATE momopay_transactions SET status = 'PENDING'")
    ids = ["first", *(f"p-{number}" for number in range(1, count + 1))]
    known = {each.reference: each.transaction_id for each in journal.entries()}
    return [listed(each, transactionId=known[each]) for each in ids if each in known]


@pytest.mark.parametrize("other", [0, 200])
def test_a_thousand_open_payments_cost_a_page_for_each_hundred(
    drive: Callable[..., Driver], journal: Journal, other: int
) -> None:
    """Also if they are not the newest of the list, unless a page shows too little of them."""
    rows = put_many(journal, 999)
    others = [listed(f"other {each}", transactionId=f"o{each}") for each in range(other)]
    rows = [*rows[:2], *others, *rows[2:]] if other < 100 else [*rows[:300], *others, *rows[300:]]
    service = Service(pages=[rows[start : start + 100] for start in range(0, len(rows), 100)], read=rows[-1])
    assert swept(drive(transport=service.transport), journal).open == 1000
    assert len(service.requests) <= 14
    assert service.requests.count("GET /transactions") == (4 if other else 10)


def test_what_lies_deep_in_the_list_is_read_by_id_in_some_passes(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    for number in range(30):
        sdk(pay(journal, f"r{number}"))
    sandbox.advance(HOUR)
    for number in range(150):
        sdk(initiate(f"o{number}"))
        sandbox.advance(10)
    before = len(sandbox.requests)
    reports = [swept(sdk, journal) for _ in range(3)]
    assert sum(report.settled for report in reports) == 30
    assert journal.open() == []
    assert len(sandbox.requests) - before <= 45


def test_pages_that_show_less_than_they_cost_are_not_read(drive: Callable[..., Driver], journal: Journal) -> None:
    """Two payouts of yesterday are not on any of the newest pages."""
    for reference in ("r", "s"):
        put(journal, reference, ACCEPTED, transaction_id=reference)
    others = [
        [listed("other", transactionId=f"o{each}", age=timedelta(seconds=each)) for each in range(start, start + 100)]
        for start in range(0, 1200, 100)
    ]
    service = Service(pages=others, read=listed(status="SUCCESS", transactionId="r"))
    assert swept(drive(transport=service.transport), journal).settled == 1
    assert sorted(service.requests) == ["GET /transactions", "GET /transactions/r", "GET /transactions/s"]


@pytest.mark.parametrize(
    ("age", "state", "pages"),
    [(timedelta(days=1), UNKNOWN, 12), (timedelta(minutes=14.4), ACCEPTED, 12), (timedelta(minutes=1), UNKNOWN, 4)],
)
def test_what_is_unresolved_is_searched_for_as_far_as_a_pass_reaches(
    drive: Callable[..., Driver], journal: Journal, age: timedelta, state: JournalState, pages: int
) -> None:
    """A page shows a minute and a half, so twelve pages show eighteen minutes. Clocks differ by up to five minutes."""
    put(journal, "r", UNKNOWN, clock_offset=0.0)
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{ago(age)}'")
    rows = [listed("other", transactionId=f"o{each}", age=timedelta(seconds=each)) for each in range(1300)]
    rows[900] = listed("r", transactionId="r-1", age=timedelta(minutes=15))
    service = Service(pages=[rows[start : start + 100] for start in range(0, 1300, 100)])
    swept(drive(transport=service.transport), journal)
    assert state_of(journal) is state
    assert service.requests == ["GET /transactions"] * pages


def test_one_that_is_open_is_read_by_its_id(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    payment = sdk(pay(journal))
    swept(sdk, journal)
    assert requests(sandbox)[-1] == f"GET /transactions/{payment.transaction_id}"


# Records that are not what they seem.


def test_the_record_of_another_payment_is_not_this_ones_end(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    other = sdk(initiate("other"))
    put(journal, "r", ACCEPTED, transaction_id=other.transaction_id)
    sandbox.advance(HOUR)
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(unknown=1)
    assert (handler.ends, found(journal).state) == ([], UNKNOWN)
    assert "the service's record has another reference" in caplog.text


def test_what_a_page_shows_with_the_fee_in_its_amount_is_read_by_id(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.switches.list_amount = "with_fee"
    sdk(pay(journal))
    sdk(collect(journal, "s", phone=PHONE))
    sandbox.advance(HOUR)
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=2, handled=2)
    assert (found(journal).status, found(journal, "s").status) == ("SUCCESS", "SUCCESS")
    assert [each.amount for each in handler.transactions] == [10, 10]


def test_what_the_service_does_not_know_stops_nothing(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    put(journal, "lost", ACCEPTED, transaction_id="no-such-id")
    sdk(pay(journal))
    sandbox.advance(HOUR)
    with caplog.at_level(logging.WARNING):
        assert swept(sdk, journal) == SweepReport(settled=1, open=1)
    assert "no-such-id" in caplog.text


def test_a_status_that_is_new_stays_open(drive: Callable[..., Driver], journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1")
    now = datetime.now(UTC).isoformat()
    service = Service(read=listed(type="STK", status="ON_HOLD", updatedAt=now))
    assert swept(drive(transport=service.transport), journal) == SweepReport(open=1)
    assert found(journal).status == "ON_HOLD"


def test_the_id_that_a_broken_response_showed_is_read(drive: Callable[..., Driver], journal: Journal) -> None:
    service = Service({"transactionId": "queued"}, read=listed(transactionId="queued", status="SUCCESS"))
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert swept(sdk, journal) == SweepReport(settled=1)
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "queued")
