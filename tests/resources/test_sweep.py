"""A sweep reaches every end, delivers it once, and stays within its requests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drivers import Driver
from journal.forking import forks, in_a_fork
from journal.kit import PHONE, callback, execute, found, payout, put
from momopay import (
    Client,
    ConfigurationError,
    EntryKind,
    Journal,
    JournalState,
    MomoPayError,
    OutcomeUnknownError,
    SweepReport,
    Transaction,
    parse_callback,
)
from momopay.journal.evidence import Report
from momopay.journal.journal import collections_of
from momopay.journal.lease import Lease
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for
from resources.payout_service import PayoutService, listed, pay
from resources.sandbox_kit import AT_ONCE

UNKNOWN, ACCEPTED = JournalState.UNKNOWN, JournalState.ACCEPTED
FAILING, CANCELLED = phone_for(Outcome.insufficient_funds), phone_for(Outcome.cancelled)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'payouts.db'}"


@pytest.fixture(autouse=True)
def _unlimited(account: Account) -> None:
    account.rate_limit = None


class Handler:
    """Remembers what it was called with, and raises what it is given."""

    def __init__(self, *troubles: BaseException) -> None:
        self.ends: list[tuple[str | None, str]] = []
        self.transactions: list[Transaction] = []
        self._troubles = list(troubles)

    def __call__(self, transaction: Transaction) -> None:
        if self._troubles:
            raise self._troubles.pop(0)
        self.transactions.append(transaction)
        self.ends.append((transaction.account_reference, str(transaction.status)))


def swept(sdk: Driver, journal: Journal, handler: Any = None) -> SweepReport:
    report: SweepReport = sdk(lambda client: client.transactions.sweep(journal=journal, handler=handler))
    return report


def test_an_empty_journal_costs_no_request(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    assert swept(sdk, journal, Handler()) == SweepReport()
    assert sandbox.requests == []


def test_each_end_is_recorded_and_delivered_once(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for number in range(3):
        sdk(pay(journal, reference=f"r{number}"))
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(open=3)
    sandbox.advance(3600)
    before = len(sandbox.requests)
    assert swept(sdk, journal, handler) == SweepReport(settled=3, handled=3)
    assert len(sandbox.requests) == before + 1
    assert sorted(handler.ends) == [(f"r{number}", "SUCCESS") for number in range(3)]
    assert swept(sdk, journal, handler) == SweepReport()
    assert len(sandbox.requests) == before + 1
    entry = found(journal, "r0")
    assert (entry.status, entry.has_settled, entry.ended_at is not None) == ("SUCCESS", True, True)


def test_a_lost_answer_and_a_lost_callback_are_found(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    put(journal, "never made", UNKNOWN)
    sandbox.advance(3600)
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=1, unknown=1, handled=1)
    assert handler.ends == [("r", "SUCCESS")]
    assert (found(journal).state, found(journal, "never made").state) == (ACCEPTED, UNKNOWN)


def test_a_payouts_failure_is_delivered_once_it_is_reversed(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, phone=FAILING))
    sdk(pay(journal, reference="s"))
    sandbox.advance(40)  # it fails after 35 seconds, and is reversed 10 seconds later
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=1, open=1, handled=1)
    assert (found(journal).status, found(journal).result_code) == ("FAILED", "1")
    assert handler.ends == [("s", "SUCCESS")]
    sandbox.advance(3600)
    assert swept(sdk, journal, handler) == SweepReport(settled=1, handled=1)
    assert handler.ends[1:] == [("r", "REVERSED")]
    assert handler.transactions[-1].result_code is not None


def test_a_callback_that_came_first_is_not_delivered_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, callback_url="http://127.0.0.1:9/nobody"))
    sandbox.advance(3600)
    came = parse_callback(sandbox.callbacks[0].payload)
    with journal.handling(came) as first:
        assert first
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=1)
    assert handler.ends == []


def test_a_sweep_that_came_first_leaves_nothing_to_the_callback(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    sdk(pay(journal, callback_url="http://127.0.0.1:9/nobody"))
    sandbox.advance(3600)
    assert swept(sdk, journal, Handler()).handled == 1
    with journal.handling(parse_callback(sandbox.callbacks[0].payload)) as first:
        assert not first


def test_a_handler_that_fails_gets_the_end_again_and_stops_no_other(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    for reference in ("r", "s"):
        sdk(pay(journal, reference=reference))
    sandbox.advance(3600)
    handler = Handler(RuntimeError(f"no such order for {PHONE}"))
    assert swept(sdk, journal, handler) == SweepReport(settled=2, handled=1, failed=1)
    assert "RuntimeError" in caplog.text
    assert PHONE not in caplog.text
    assert swept(sdk, journal, handler) == SweepReport(handled=1)
    assert sorted(handler.ends) == [("r", "SUCCESS"), ("s", "SUCCESS")]
    assert swept(sdk, journal, handler) == SweepReport()


@pytest.mark.parametrize("recorded_by", ["sweep", "pay_once", "wait"])
def test_what_was_recorded_without_a_handler_is_delivered_later(
    sdk: Driver, sandbox: Sandbox, journal: Journal, recorded_by: str
) -> None:
    paid = sdk(pay(journal))
    sandbox.advance(3600)
    if recorded_by == "sweep":
        assert swept(sdk, journal) == SweepReport(settled=1)
    elif recorded_by == "pay_once":
        sdk(pay(journal))
    else:
        journal.settle(sdk(lambda client: client.transactions.wait(paid, schedule=AT_ONCE)))
    assert found(journal).has_settled
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(handled=1)
    assert handler.ends == [("r", "SUCCESS")]


def test_the_first_sweep_with_a_handler_delivers_no_history(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    for reference in ("old", "yesterday's", "today's"):
        sdk(pay(journal, reference=reference))
    sandbox.advance(3600)
    swept(sdk, journal)
    for reference, days in (("old", 400.0), ("yesterday's", 1.1)):
        then = (datetime.now(UTC) - timedelta(days=days)).isoformat()
        quoted = reference.replace("'", "''")
        execute(journal, f"UPDATE momopay_payments SET unhandled_since = '{then}' WHERE reference = '{quoted}'")
    handler = Handler()
    assert swept(sdk, journal, handler).handled == 1
    assert handler.ends == [("today's", "SUCCESS")]


def test_what_fails_for_weeks_is_delivered_at_last(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    swept(sdk, journal, Handler())
    sdk(pay(journal))
    sandbox.advance(3600)
    then = (datetime.now(UTC) - timedelta(days=30)).isoformat()
    assert swept(sdk, journal, Handler(RuntimeError())).failed == 1
    execute(journal, f"UPDATE momopay_accounts SET handled_since = '{then}'")
    execute(journal, f"UPDATE momopay_payments SET unhandled_since = '{then}'")
    assert swept(sdk, journal, Handler()).handled == 1


def test_what_another_process_is_handling_is_left_alone(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    paid = sdk(pay(journal))
    sandbox.advance(3600)
    handler = Handler()
    with journal.handling(payout("r", transactionId=paid.transaction_id)):
        assert swept(sdk, journal, handler) == SweepReport(settled=1)
    assert handler.ends == []
    assert swept(sdk, journal, handler) == SweepReport()


@forks
def test_a_process_that_is_killed_in_its_handler_loses_no_end(
    sdk: Driver, sandbox: Sandbox, key: str, url: str, journal: Journal
) -> None:
    sdk(pay(journal))
    sandbox.advance(3600)
    assert in_a_fork(partial(_sweep_and_die, url, key, sandbox.base_url)) == -signal.SIGKILL
    assert found(journal).status == "SUCCESS", "recorded before it was handled"
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(handled=1)
    assert handler.ends == [("r", "SUCCESS")]


def _die(_transaction: Transaction) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _sweep_and_die(url: str, key: str, base_url: str) -> None:
    with Journal(url) as journal, Client(key, base_url=base_url, budget=None) as client:
        client.transactions.sweep(journal=journal, handler=_die)


def test_several_sweeps_at_once_deliver_each_end_once(
    sandbox: Sandbox, account: Account, key: str, url: str, journal: Journal
) -> None:
    del account
    with Client(key, base_url=sandbox.base_url, budget=None) as client:
        for number in range(20):
            pay(journal, reference=f"r{number}")(client)
        sandbox.advance(3600)
        handler = Handler()

        def sweep(_number: int) -> SweepReport:
            with Journal(url) as own:
                return client.transactions.sweep(journal=own, handler=handler)

        with ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(sweep, range(4)))
        last = client.transactions.sweep(journal=journal, handler=handler)
    assert sum(report.handled for report in [*reports, last]) == 20
    assert sorted(handler.ends) == sorted((f"r{number}", "SUCCESS") for number in range(20))


THOUSAND = """
    WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 999)
    INSERT INTO momopay_payments (account, kind, reference, amount, phone, body_hash, state, transaction_id, status,
        attempts, created_at, sent_at, clock_offset, claim, sender, lease_until)
    SELECT 'default', 'PAYOUT', 'r' || n, '10', '{phone}', 'hash', 'ACCEPTED', 't' || n, 'PENDING',
        1, '{now}', '{now}', 0, '', '0', 0
    FROM numbers
"""


@pytest.mark.parametrize("client_kind", ["blocking"], indirect=True)
@pytest.mark.parametrize("other", [0, 200])
def test_a_thousand_open_entries_cost_fifteen_requests(
    drive: Callable[..., Driver], journal: Journal, other: int
) -> None:
    """Also if they are not the newest of the list."""
    journal.get("r")
    execute(journal, THOUSAND.format(phone=PHONE, now=datetime.now(UTC).isoformat()))

    rows = [listed(f"other {each}", transactionId=f"o{each}") for each in range(other)]
    rows += [listed(f"r{each}", transactionId=f"t{each}", status="PENDING", phone=PHONE) for each in range(1000)]
    service = PayoutService(pages=[rows[start : start + 100] for start in range(0, len(rows), 100)])
    assert swept(drive(transport=service.transport), journal) == SweepReport(open=1000)
    assert service.requests == ["GET /transactions"] * (10 + other // 100)


def test_what_lies_deep_in_the_list_is_read_by_id_in_some_passes(
    sandbox: Sandbox, account: Account, key: str, url: str
) -> None:
    del account
    with Client(key, base_url=sandbox.base_url, budget=None) as client, Journal(url) as journal:
        for number in range(30):
            pay(journal, reference=f"r{number}")(client)
        sandbox.advance(3600)
        for number in range(150):
            client.payouts.initiate(reference=f"other {number}", amount=10, phone=PHONE)
            sandbox.advance(10)
        before = len(sandbox.requests)
        reports = [client.transactions.sweep(journal=journal) for _ in range(3)]
        assert sum(report.settled for report in reports) == 30
        assert journal.open() == []
        assert len(sandbox.requests) - before <= 45


def test_pages_that_show_less_than_they_cost_are_not_read(drive: Callable[..., Driver], journal: Journal) -> None:
    """Two payouts of yesterday are not on any of the newest pages."""
    for reference in ("r", "s"):
        put(journal, reference, ACCEPTED, transaction_id=reference)
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{_ago(days=1)}'")
    others = [
        [
            listed("other", transactionId=f"o{page * 100 + each}", age=timedelta(seconds=page * 100 + each))
            for each in range(100)
        ]
        for page in range(12)
    ]
    service = PayoutService(pages=others, read=listed(status="SUCCESS", transactionId="r"))
    assert swept(drive(transport=service.transport), journal).settled == 1
    assert sorted(service.requests) == ["GET /transactions", "GET /transactions/r", "GET /transactions/s"]


@pytest.mark.parametrize(("days", "state", "requests"), [(1, UNKNOWN, 1), (0.01, ACCEPTED, 10)])
def test_what_is_in_doubt_is_searched_for_as_far_as_a_pass_reaches(
    drive: Callable[..., Driver], journal: Journal, days: float, state: JournalState, requests: int
) -> None:
    """The page shows a minute and a half. So a payout of a quarter of an hour ago is within twelve pages."""
    put(journal, "r", UNKNOWN)
    execute(journal, f"UPDATE momopay_payments SET clock_offset = 0, sent_at = '{_ago(days=days)}'")
    rows = [
        listed("other", transactionId=f"o{each}", age=timedelta(seconds=each))
        if each != 900
        else listed("r", transactionId="r-1", age=timedelta(seconds=each))
        for each in range(1300)
    ]
    service = PayoutService(pages=[rows[start : start + 100] for start in range(0, 1300, 100)])
    swept(drive(transport=service.transport), journal)
    assert found(journal).state is state
    assert service.requests[:requests] == ["GET /transactions"] * requests
    assert len(service.requests) <= 15


def test_an_order_whose_prompts_answer_was_lost_is_found(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(
            lambda client: client.stk.collect_once(
                journal=journal, reference="ORDER-1 of a long name", amount=10, phone=PHONE
            )
        )
    sandbox.advance(3600)
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=1, handled=1)
    entry = order(journal, "ORDER-1 of a long name")
    assert (entry.status, entry.state) == ("SUCCESS", ACCEPTED)
    assert handler.ends == [(entry.wire_reference, "SUCCESS")]


def test_a_payouts_failure_is_no_end_if_its_callback_had_no_type(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    put(journal, "r", ACCEPTED, transaction_id="the-id")
    journal.record(callback(type=None, status="FAILED", updated_at=_ago(minutes=1)))
    service = PayoutService(read=listed(status="FAILED", transactionId="the-id"))
    handler = Handler()
    assert swept(drive(transport=service.transport), journal, handler) == SweepReport(open=1)
    assert handler.ends == []


def begin_order(journal: Journal, lease: Lease, reference: str = "ORDER-1", phone: str = PHONE) -> None:
    """Put an order into the journal, of which a prompt is about to be sent."""
    begun = collections_of(journal).begin(
        lease,
        reference=reference,
        amount=Decimal(10),
        phone=phone,
        body_hash="hash",
        seconds=60,
        wire_reference=reference,
        clock_offset=0.0,
    )
    assert begun is None


def prompted(sdk: Driver, journal: Journal, reference: str = "ORDER-1", phone: str = PHONE) -> None:
    """Put an order with one prompt into the journal."""
    orders = collections_of(journal)
    with orders.leases.lease() as lease:
        begin_order(journal, lease, reference, phone)
        made = sdk(lambda client: client.stk.initiate(amount=10, phone=phone, account_reference=reference))
        orders.accept(reference, Report(made.transaction_id), lease=lease)


def order(journal: Journal, reference: str = "ORDER-1") -> Any:
    return journal.get(reference, EntryKind.COLLECTION)


def test_the_prompts_of_orders_are_followed_and_delivered(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    prompted(sdk, journal)
    prompted(sdk, journal, "ORDER-2", CANCELLED)
    assert len(journal.open()) == 2
    sandbox.advance(600)
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=2, handled=2)
    assert {reference: status == "SUCCESS" for reference, status in handler.ends} == {"ORDER-1": True, "ORDER-2": False}
    assert (order(journal).status, order(journal, "ORDER-2").result_code) == ("SUCCESS", "1032")
    assert journal.open() == []


def test_a_late_pin_is_seen_ten_minutes_after_the_end(drive: Callable[..., Driver], journal: Journal) -> None:
    """The customer pays a prompt that the service had given up."""
    ended = listed("ORDER-1", age=timedelta(minutes=9), type="STK", status="EXPIRED")
    orders = collections_of(journal)
    with orders.leases.lease() as lease:
        begin_order(journal, lease)
        orders.accept("ORDER-1", Report("t-1"), lease=lease)
    service = PayoutService(read=ended)
    sdk = drive(transport=service.transport)
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=1, handled=1)
    assert service.requests == ["GET /transactions/t-1"]
    paid = PayoutService(read=ended | {"status": "SUCCESS", "updatedAt": datetime.now(UTC).isoformat()})
    sdk = drive(transport=paid.transport)
    assert swept(sdk, journal, handler) == SweepReport()
    assert paid.requests == ["GET /transactions"], "ten minutes have not passed"
    execute(journal, f"UPDATE momopay_prompts SET ended_at = '{_ago(minutes=11)}'")
    assert swept(sdk, journal, handler) == SweepReport(settled=1, handled=1)
    assert [status for _, status in handler.ends] == ["EXPIRED", "SUCCESS"]
    assert order(journal).status == "SUCCESS"
    assert swept(sdk, journal, handler) == SweepReport()
    assert paid.requests == ["GET /transactions", "GET /transactions", "GET /transactions/t-1"]


def _ago(**age: float) -> str:
    return (datetime.now(UTC) - timedelta(**age)).isoformat()


def test_a_prompt_that_stays_unpaid_is_looked_at_once_more_only(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    prompted(sdk, journal, phone=CANCELLED)
    sandbox.advance(60)
    swept(sdk, journal)
    sandbox.advance(700)
    before = len(sandbox.requests)
    assert [swept(sdk, journal) for _ in range(3)] == [SweepReport()] * 3
    assert len(sandbox.requests) == before + 1


def test_the_record_of_another_payment_is_not_this_ones_end(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    other = sdk(lambda client: client.payouts.initiate(reference="other", amount=10, phone=PHONE))
    put(journal, "r", ACCEPTED, transaction_id=other.transaction_id)
    sandbox.advance(3600)
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(unknown=1)
    assert (handler.ends, found(journal).state) == ([], UNKNOWN)
    assert "the service's record has another reference" in caplog.text


def test_what_a_page_shows_with_another_amount_is_read_by_id(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.switches.list_amount = "with_fee"
    sdk(pay(journal))
    prompted(sdk, journal)
    sandbox.advance(3600)
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=2, handled=2)
    assert (found(journal).status, order(journal).status) == ("SUCCESS", "SUCCESS")
    assert [each.amount for each in handler.transactions] == [10, 10]


def test_what_the_service_does_not_know_stops_nothing(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    put(journal, "lost", ACCEPTED, transaction_id="no-such-id")
    sdk(pay(journal))
    sandbox.advance(3600)
    assert swept(sdk, journal, Handler()) == SweepReport(settled=1, open=1, handled=1)


@pytest.mark.usefixtures("no_backoff")
def test_what_was_read_before_a_failure_is_delivered(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal))
    sdk(pay(journal, reference="s", phone=FAILING))
    sandbox.advance(3600)
    for _ in range(4):
        sandbox.fail_next("GET", "/transactions/{id}", Fault.error_before_commit)
    handler = Handler()
    with pytest.raises(MomoPayError):
        swept(sdk, journal, handler)
    assert sorted(handler.ends) == [("r", "SUCCESS"), ("s", "REVERSED")]


def test_an_async_handler_is_awaited_by_an_async_client_only(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal))
    sdk(pay(journal, reference="s"))
    sandbox.advance(3600)
    handler = Handler(RuntimeError("once"))

    async def handle(transaction: Transaction) -> None:
        handler(transaction)

    if sdk.client_kind == "blocking":
        with pytest.raises(ConfigurationError, match="async def"):
            swept(sdk, journal, handle)
        return
    assert swept(sdk, journal, handle) == SweepReport(settled=2, handled=1, failed=1)
    assert swept(sdk, journal, handle) == SweepReport(handled=1)


def test_what_is_no_handler_or_no_journal_is_refused(sdk: Driver, journal: Journal) -> None:
    with pytest.raises(ConfigurationError, match="handler"):
        swept(sdk, journal, "handler")
    with pytest.raises(ConfigurationError, match="journal"):
        sdk(lambda client: client.transactions.sweep(journal="journal"))
