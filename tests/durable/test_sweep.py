"""A sweep reaches every end, records it, and stays within its requests."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drivers import Drive, Driver
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
    over_both_clients,
    pay,
    requests,
    swept,
)
from journal.kit import ACCEPTED, COLLECTION, PHONE, UNKNOWN, callback, execute, fill, found, payout, put, state_of
from momopay import (
    CallbackError,
    CallbackMismatchError,
    Client,
    ConfigurationError,
    Journal,
    JournalState,
    MomoPayError,
    OutcomeUnknownError,
    Transaction,
    parse_callback,
)
from momopay.sandbox import Account, Fault, Sandbox
from momopay.types import SweepReport

HOUR = 3600.0


def test_an_empty_journal_costs_no_request(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    assert swept(sdk, journal, Handler()) == SweepReport()
    assert requests(sandbox) == []


@over_both_clients
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


# How many requests a pass makes.


def put_many(journal: Journal, count: int) -> list[dict[str, Any]]:
    """Put so many open payouts into the journal; return the service's records of them."""
    fill(journal, count)
    execute(journal, "UPDATE momopay_transactions SET status = 'PENDING'")
    ids = ["first", *(f"p-{number}" for number in range(1, count + 1))]
    known = {each.reference: each.transaction_id for each in journal.entries()}
    return [listed(each, transactionId=known[each]) for each in ids if each in known]


@pytest.mark.parametrize("other", [0, 200])
def test_a_thousand_open_payments_cost_a_page_for_each_hundred(drive: Drive, journal: Journal, other: int) -> None:
    """Also if they are not the newest of the list, unless a page shows too little of them."""
    rows = put_many(journal, 999)
    others = [listed(f"other {each}", transactionId=f"o{each}") for each in range(other)]
    rows = [*rows[:2], *others, *rows[2:]] if other < 100 else [*rows[:300], *others, *rows[300:]]
    service = Service(pages=[rows[start : start + 100] for start in range(0, len(rows), 100)], read=rows[-1])
    assert swept(drive(transport=service.transport), journal).open == 1000
    assert len(service.requests) <= 14
    assert service.requests.count("GET /transactions") == (4 if other else 10)


def test_pages_that_show_less_than_they_cost_are_not_read(drive: Drive, journal: Journal) -> None:
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
    drive: Drive, journal: Journal, age: timedelta, state: JournalState, pages: int
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


def test_a_prompt_that_ended_is_read_once_more_and_not_for_ever(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    sdk(collect(journal, phone=CANCELLING))
    made: list[int] = []
    for _ in range(3):  # its end, the second look, and nothing
        sandbox.advance(HOUR)
        before = len(sandbox.requests)
        swept(sdk, journal)
        made.append(len(sandbox.requests) - before)
    assert made[1] > 0
    assert made[2] == 0


def test_a_status_that_is_new_stays_open(drive: Drive, journal: Journal) -> None:
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1")
    now = datetime.now(UTC).isoformat()
    service = Service(read=listed(type="STK", status="ON_HOLD", updatedAt=now))
    assert swept(drive(transport=service.transport), journal) == SweepReport(open=1)
    assert found(journal).status == "ON_HOLD"


def test_the_id_that_a_broken_response_showed_is_read(drive: Drive, journal: Journal) -> None:
    service = Service({"transactionId": "queued"}, read=listed(transactionId="queued", status="SUCCESS"))
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert swept(sdk, journal) == SweepReport(settled=1)
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "queued")


# Handlers: each end once, among all sweeps and callbacks, and again if the handler failed.

NOBODY = "http://127.0.0.1:9/nobody"


@over_both_clients
def test_each_end_is_delivered_once(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for number in range(3):
        sdk(pay(journal, f"r{number}"))
    sdk(collect(journal, "o", phone=CANCELLING))
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(open=4)
    sandbox.advance(HOUR)
    assert swept(sdk, journal, handler) == SweepReport(settled=4, handled=4)
    assert sorted(handler.ends) == [("o", "CANCELLED"), *((f"r{number}", "SUCCESS") for number in range(3))]
    assert swept(sdk, journal, handler).handled == 0


def test_a_payouts_failure_is_delivered_once_it_is_reversed(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, phone=FAILING))
    sandbox.advance(40)  # it fails after 35 seconds, and is reversed 10 seconds later
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(open=1)
    assert (found(journal).status, found(journal).result_code) == ("FAILED", "1")
    sandbox.advance(HOUR)
    assert swept(sdk, journal, handler) == SweepReport(settled=1, handled=1)
    assert handler.ends == [("r", "REVERSED")]
    assert handler.transactions[-1].result_code is not None


def test_a_payouts_failure_is_no_end_if_its_callback_had_no_type(drive: Drive, journal: Journal) -> None:
    put(journal, "r", transaction_id="the-id")
    journal.record(callback(type=None, status="FAILED", updated_at=ago(timedelta(minutes=1))))
    service = Service(read=listed(status="FAILED", transactionId="the-id"))
    handler = Handler()
    assert swept(drive(transport=service.transport), journal, handler) == SweepReport(open=1)
    assert handler.ends == []


@pytest.mark.parametrize("first", ["callback", "sweep"])
def test_of_a_callback_and_a_sweep_the_first_delivers(
    sdk: Driver, sandbox: Sandbox, journal: Journal, first: str
) -> None:
    sdk(pay(journal, callback_url=NOBODY))
    sandbox.advance(HOUR)
    handler = Handler()
    if first == "sweep":
        assert swept(sdk, journal, handler) == SweepReport(settled=1, handled=1)
    with journal.handling(parse_callback(sandbox.callbacks[0].payload)) as is_new:
        assert is_new is (first == "callback")
    if first == "callback":
        assert swept(sdk, journal, handler) == SweepReport(settled=1)
    assert len(handler.ends) == (first == "sweep")


def test_a_handler_that_fails_gets_the_end_again_and_stops_no_other(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    for reference in ("r", "s"):
        sdk(pay(journal, reference))
    sandbox.advance(HOUR)
    handler = Handler(RuntimeError(f"no such order for {PHONE}"))
    assert swept(sdk, journal, handler) == SweepReport(settled=2, handled=1, failed=1)
    assert "RuntimeError" in caplog.text
    assert PHONE not in caplog.text
    assert swept(sdk, journal, handler) == SweepReport(handled=1)
    assert sorted(handler.ends) == [("r", "SUCCESS"), ("s", "SUCCESS")]
    assert swept(sdk, journal, handler) == SweepReport()


@pytest.mark.parametrize("recorded_by", ["sweep", "pay_once", "settle"])
def test_what_was_recorded_without_a_handler_is_delivered_later(
    sdk: Driver, sandbox: Sandbox, journal: Journal, recorded_by: str
) -> None:
    paid = sdk(pay(journal))
    sandbox.advance(HOUR)
    if recorded_by == "sweep":
        assert swept(sdk, journal) == SweepReport(settled=1)
    elif recorded_by == "pay_once":
        sdk(pay(journal))
    else:
        journal.settle(sdk(lambda client: client.transactions.get(paid)))
    assert found(journal).has_settled
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(handled=1)
    assert handler.ends == [("r", "SUCCESS")]


def test_the_first_sweep_with_a_handler_delivers_no_history(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for reference in ("old", "yesterday", "today"):
        sdk(pay(journal, reference))
    sandbox.advance(HOUR)
    swept(sdk, journal)
    for reference, days in (("old", 400.0), ("yesterday", 1.1)):
        then = ago(timedelta(days=days))
        execute(journal, f"UPDATE momopay_transactions SET unhandled_since = '{then}' WHERE reference = '{reference}'")
    handler = Handler()
    assert swept(sdk, journal, handler).handled == 1
    assert handler.ends == [("today", "SUCCESS")]


def test_what_fails_for_weeks_is_delivered_at_last(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    swept(sdk, journal, Handler())
    sdk(pay(journal))
    sandbox.advance(HOUR)
    then = ago(timedelta(days=30))
    assert swept(sdk, journal, Handler(RuntimeError())).failed == 1
    execute(journal, f"UPDATE momopay_accounts SET handled_since = '{then}'")
    execute(journal, f"UPDATE momopay_transactions SET unhandled_since = '{then}'")
    assert swept(sdk, journal, Handler()).handled == 1


def test_what_another_process_is_handling_is_left_alone(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    paid = sdk(pay(journal))
    sandbox.advance(HOUR)
    handler = Handler()
    with journal.handling(payout("r", transactionId=paid.transaction_id)):
        assert swept(sdk, journal, handler) == SweepReport(settled=1)
    assert handler.ends == []
    assert swept(sdk, journal, handler) == SweepReport()


def test_several_sweeps_at_once_deliver_each_end_once(
    sdk: Driver, sandbox: Sandbox, account: Account, key: str, url: str, journal: Journal
) -> None:
    assert account.rate_limit is None
    for number in range(10):
        sdk(pay(journal, f"r{number}"))
    sandbox.advance(HOUR)
    handler = Handler()

    def sweep(_number: int) -> SweepReport:
        with Journal(url) as own, Client(key, base_url=sandbox.base_url, budget=None) as client:
            return client.transactions.sweep(journal=own, handler=handler)

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(sweep, range(4)))
    reports.append(swept(sdk, journal, handler))
    assert sum(report.handled for report in reports) == 10
    assert sorted(handler.ends) == sorted((f"r{number}", "SUCCESS") for number in range(10))


@pytest.mark.usefixtures("no_backoff")
def test_what_was_read_before_a_failure_is_delivered(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal))
    sdk(pay(journal, "s", phone=FAILING))
    sandbox.advance(HOUR)
    sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit, times=4)
    handler = Handler()
    with pytest.raises(MomoPayError):
        swept(sdk, journal, handler)
    assert sorted(handler.ends) == [("r", "SUCCESS"), ("s", "REVERSED")]


@over_both_clients
def test_an_async_handler_is_awaited_by_an_async_client_only(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal))
    sdk(pay(journal, "s"))
    sandbox.advance(HOUR)
    handler = Handler(RuntimeError("once"))

    async def handle(transaction: Transaction) -> None:
        handler(transaction)

    if sdk.client_kind == "blocking":
        with pytest.raises(ConfigurationError, match="async def"):
            swept(sdk, journal, handle)
        return
    assert swept(sdk, journal, handle) == SweepReport(settled=2, handled=1, failed=1)
    assert swept(sdk, journal, handle) == SweepReport(handled=1)


@pytest.mark.parametrize(("client_kind", "kind"), [("blocking", "plain"), ("async", "plain"), ("async", "async def")])
def test_a_callback_error_of_the_handler_is_its_own_failure(
    sdk: Driver, sandbox: Sandbox, journal: Journal, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not say that another call is handling the end, as the journal's own CallbackError does."""
    sdk(pay(journal))
    sandbox.advance(HOUR)
    mismatch = CallbackMismatchError("too early", transaction_id="x", fields=["status"])
    handler = Handler(CallbackError("do not act on it"), mismatch)

    async def handle(transaction: Transaction) -> None:
        handler(transaction)

    given = handle if kind == "async def" else handler
    assert swept(sdk, journal, given) == SweepReport(settled=1, failed=1)
    assert swept(sdk, journal, given) == SweepReport(failed=1)
    assert "CallbackError" in caplog.text
    assert "CallbackMismatchError" in caplog.text
    assert swept(sdk, journal, given) == SweepReport(handled=1)
    assert handler.ends == [("r", "SUCCESS")]


def test_what_is_no_handler_or_no_journal_is_refused(
    sdk: Driver, sandbox: Sandbox, journal: Journal, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="handler"):
        swept(sdk, journal, "handler")
    with pytest.raises(ConfigurationError, match="journal"):
        sdk(lambda client: client.transactions.sweep(journal=str(tmp_path)))
    assert requests(sandbox) == []
