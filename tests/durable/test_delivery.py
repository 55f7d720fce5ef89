"""A sweep hands each end to its handler once, among all sweeps and callbacks, and again if the handler failed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from drivers import Driver
from durable.kit import CANCELLING, FAILING, Handler, Service, ago, collect, listed, pay, requests, swept
from journal.forking import forks, in_a_fork
from journal.kit import PHONE, callback, execute, found, payout, put
from momopay import (
    CallbackError,
    CallbackMismatchError,
    Client,
    ConfigurationError,
    Journal,
    MomoPayError,
    SweepReport,
    Transaction,
    parse_callback,
)
from momopay.sandbox import Account, Fault, Sandbox

HOUR = 3600.0
NOBODY = "http://127.0.0.1:9/nobody"
ERRORS = [
    CallbackError("do not act on it"),
    CallbackMismatchError("too early", transaction_id="x", fields=["status"]),
]


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
    sandbox.advance(HOUR)
    assert swept(sdk, journal, handler) == SweepReport(settled=1, handled=1)
    assert handler.ends == [("r", "REVERSED")]
    assert handler.transactions[-1].result_code is not None


def test_a_payouts_failure_is_no_end_if_its_callback_had_no_type(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    put(journal, "r", transaction_id="the-id")
    journal.record(callback(type=None, status="FAILED", updated_at=ago(timedelta(minutes=1))))
    service = Service(read=listed(status="FAILED", transactionId="the-id"))
    handler = Handler()
    assert swept(drive(transport=service.transport), journal, handler) == SweepReport(open=1)
    assert handler.ends == []


def test_a_callback_that_came_first_is_not_delivered_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, callback_url=NOBODY))
    sandbox.advance(HOUR)
    with journal.handling(parse_callback(sandbox.callbacks[0].payload)) as first:
        assert first
    handler = Handler()
    assert swept(sdk, journal, handler) == SweepReport(settled=1)
    assert handler.ends == []


def test_a_sweep_that_came_first_leaves_nothing_to_the_callback(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    sdk(pay(journal, callback_url=NOBODY))
    sandbox.advance(HOUR)
    assert swept(sdk, journal, Handler()).handled == 1
    with journal.handling(parse_callback(sandbox.callbacks[0].payload)) as first:
        assert not first


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


@forks
def test_a_process_that_is_killed_in_its_handler_loses_no_end(
    sdk: Driver, sandbox: Sandbox, key: str, url: str, journal: Journal
) -> None:
    sdk(pay(journal))
    sandbox.advance(HOUR)
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
    sdk: Driver, sandbox: Sandbox, account: Account, key: str, url: str, journal: Journal
) -> None:
    assert account.rate_limit is None
    for number in range(20):
        sdk(pay(journal, f"r{number}"))
    sandbox.advance(HOUR)
    handler = Handler()

    def sweep(_number: int) -> SweepReport:
        with Journal(url) as own, Client(key, base_url=sandbox.base_url, budget=None) as client:
            return client.transactions.sweep(journal=own, handler=handler)

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(sweep, range(4)))
    reports.append(swept(sdk, journal, handler))
    assert sum(report.handled for report in reports) == 20
    assert sorted(handler.ends) == sorted((f"r{number}", "SUCCESS") for number in range(20))


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
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_callback_error_of_the_handler_is_its_own_failure(
    sdk: Driver,
    sandbox: Sandbox,
    journal: Journal,
    kind: str,
    error: CallbackError,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It does not say that another call is handling the end, as the journal's own CallbackError does."""
    sdk(pay(journal))
    sandbox.advance(HOUR)
    handler = Handler(error)

    async def handle(transaction: Transaction) -> None:
        handler(transaction)

    given = handle if kind == "async def" else handler
    assert swept(sdk, journal, given) == SweepReport(settled=1, failed=1)
    assert type(error).__name__ in caplog.text
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
