"""The journal as a call uses it: no longer than its deadline, and what its failures mean."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager

import httpx
import pytest

from drivers import Driver
from durable.kit import (
    PAYOUTS,
    Calls,
    Service,
    of_both_kinds,
    pay,
    record,
    requests,
)
from journal.kit import (
    ACCEPTED,
    NOT_SENT,
    UNKNOWN,
    execute,
    found,
    state_of,
)
from momopay import AsyncClient, Journal, JournalError
from momopay.sandbox import Sandbox
from patience import until


@of_both_kinds
def test_without_its_journal_nothing_is_sent(sdk: Driver, sandbox: Sandbox, calls: Calls) -> None:
    with Journal("postgresql+psycopg://nobody@127.0.0.1:1/nothing") as away, pytest.raises(JournalError) as caught:
        sdk(calls.once(away))
    assert caught.value.may_have_executed, "an earlier call may have sent it"
    assert sandbox.requests == []


@contextmanager
def locked(url: str, kind: str = "EXCLUSIVE") -> Generator[sqlite3.Connection]:
    """Lock the database against everybody else, or against other writers only."""
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute(f"BEGIN {kind}")
        yield other


def test_a_call_whose_journal_was_slow_sends_nothing_after_its_deadline(
    sdk: Driver, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    sdk(pay(journal, "first"))
    with locked(url, "IMMEDIATE") as other:
        freed = threading.Timer(0.5, other.execute, ["COMMIT"])
        freed.start()
        with pytest.raises(JournalError) as caught:
            sdk(lambda client: pay(journal)(client.with_options(deadline=0.2)))
        freed.join()
    assert not caught.value.may_have_executed
    assert journal.get("r") is None
    assert PAYOUTS.paid(sandbox) == ["first"]


def test_a_locked_journal_holds_a_call_until_its_deadline(
    drive: Callable[..., Driver], key: str, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    sdk = drive(api_key=key, base_url=sandbox.base_url, deadline=1.0)
    sdk(journal.reconcile_all)
    with locked(url):
        began = time.monotonic()
        with pytest.raises(JournalError) as caught:
            sdk(pay(journal))
        assert time.monotonic() - began < 4
    assert not caught.value.may_have_executed
    assert (journal.get("r"), PAYOUTS.paid(sandbox)) == (None, [])
    assert sdk(pay(journal)).is_new


def test_many_tasks_end_in_time_though_the_journal_is_locked(
    key: str, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    """There are fewer threads than tasks, so most wait for one before they can wait for the lock."""

    async def main() -> float:
        async with AsyncClient(key, base_url=sandbox.base_url, deadline=1.0) as client:
            await journal.reconcile_all(client)
            with locked(url):
                began = time.monotonic()
                calls = (pay(journal, f"r{number}")(client) for number in range(45))
                errors = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(error) for error in errors} == {JournalError}
                return time.monotonic() - began

    assert asyncio.run(main()) < 8
    assert PAYOUTS.paid(sandbox) == []


def test_a_cancelled_task_does_not_wait_for_a_locked_journal_and_leaves_nothing_unresolved(
    key: str, sandbox: Sandbox, journal: Journal, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momopay._transport.threads.CANCELLED_WAIT", 0.2)

    async def main() -> float:
        async with AsyncClient(key, base_url=sandbox.base_url, deadline=20) as client:
            await journal.reconcile_all(client)
            with locked(url):
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await pay(journal)(client)
                return time.monotonic() - began

    assert asyncio.run(main()) < 4
    # The statement that waited comes through, finds that its call is over, and undoes itself.
    until(lambda: (entry := journal.get("r")) is None or entry.state is NOT_SENT, "the row is free")
    assert PAYOUTS.paid(sandbox) == []


@of_both_kinds
def test_a_payment_is_returned_though_its_outcome_cannot_be_written(
    sdk: Driver, journal: Journal, sandbox: Sandbox, caplog: pytest.LogCaptureFixture, calls: Calls
) -> None:
    sdk(journal.reconcile_all)
    execute(
        journal,
        "CREATE TRIGGER full BEFORE INSERT ON momopay_transactions BEGIN SELECT RAISE(ABORT, 'disk full'); END",
    )
    first = sdk(calls.once(journal))
    assert (first.is_new, found(journal).state) == (True, UNKNOWN)
    assert sdk(calls.once(journal)).transaction_id == first.transaction_id
    assert caplog.text.count("disk full") == 2
    execute(journal, "DROP TRIGGER full")
    assert not sdk(calls.once(journal)).is_new
    assert (found(journal).state, calls.sent(sandbox)) == (ACCEPTED, 1)


def test_a_journal_that_is_closed_during_a_payment_hides_nothing(
    drive: Callable[..., Driver], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(record())
    journal = Journal(url)

    def close_it(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            journal.close()
        return service.respond(request)

    assert drive(transport=httpx.MockTransport(close_it))(pay(journal)).is_new
    assert "this journal is closed" in caplog.text
    with Journal(url) as later:
        assert state_of(later) is UNKNOWN


def test_a_journal_that_cannot_be_read_says_that_money_may_have_moved(sdk: Driver, journal: Journal) -> None:
    sdk(pay(journal))
    execute(journal, "ALTER TABLE momopay_payments RENAME TO gone")
    with pytest.raises(JournalError) as caught:
        sdk(pay(journal))
    assert caught.value.may_have_executed


def test_a_journal_that_cannot_be_written_says_that_nothing_moved(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    sdk(journal.reconcile_all)
    execute(
        journal, "CREATE TRIGGER full BEFORE INSERT ON momopay_payments BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    )
    with pytest.raises(JournalError, match="disk full") as caught:
        sdk(pay(journal))
    assert not caught.value.may_have_executed
    assert requests(sandbox) == []
