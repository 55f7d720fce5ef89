"""Nobody is paid twice: `pay_once` against the sandbox at real sockets, whose ledger is the only witness."""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx
import pytest
from sqlalchemy import Engine

import momopay
from drivers import LOOPBACK, Driver, hasty, unique_key
from journal.kit import PHONE, TESTS, begin, execute, found, lease_of, put, record, sender
from momopay import (
    AsyncClient,
    Client,
    ConfigurationError,
    DuplicatePayoutError,
    Journal,
    JournalError,
    JournalState,
    Lane,
    OutcomeUnknownError,
    Payout,
    RateBudget,
    Transaction,
)
from momopay._core.call import Call
from momopay.journal.prepared import Prepared, Result
from momopay.journal.statements import INSERT_ROW
from momopay.sandbox import Account, Fault, Sandbox
from patience import until
from postgresql import PostgresqlServer
from resources.payout_service import PayoutService, listed, pay
from resources.payout_service import record as answer

AFTER_COMMIT = [Fault.reset_after_commit, Fault.hang_after_commit, Fault.error_after_commit]
BEFORE_COMMIT = [Fault.reset_before_read, Fault.error_before_commit, Fault.html_502]
ACCEPTED, UNKNOWN, NOT_SENT, REFUSED, SENDING = (
    JournalState.ACCEPTED,
    JournalState.UNKNOWN,
    JournalState.NOT_SENT,
    JournalState.REFUSED,
    JournalState.SENDING,
)


@pytest.fixture
def client_kind(request: pytest.FixtureRequest) -> str:
    """The blocking client, unless a test asks for both."""
    return str(getattr(request, "param", "blocking"))


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, unless a test asks for both."""
    if getattr(request, "param", "sqlite") == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        return server.new_schema()
    return f"sqlite:///{tmp_path / 'payouts.db'}"


on_both_clients = pytest.mark.parametrize("client_kind", ["blocking", "async"], indirect=True)
on_both_databases = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


def paid(sandbox: Sandbox) -> list[str | None]:
    return [movement.reference for movement in sandbox.ledger if movement.kind == "payout"]


def sent(sandbox: Sandbox) -> int:
    return [request.path for request in sandbox.requests].count("/b2c/payouts")


@on_both_clients
@on_both_databases
def test_a_reference_is_paid_once_however_often_it_is_called(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(pay(journal))
    again = [sdk(pay(journal)), sdk(pay(journal, phone="+254 712 345 678"))]
    assert isinstance(first, Payout)
    assert [type(each) for each in again] == [Transaction, Transaction]
    assert {each.transaction_id for each in again} == {first.transaction_id}
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, first.transaction_id)
    assert (paid(sandbox), sent(sandbox)) == (["r"], 1)


@pytest.mark.parametrize("fault", AFTER_COMMIT)
def test_what_was_paid_in_spite_of_a_fault_is_found_and_not_paid_again(
    sdk: Driver, sandbox: Sandbox, journal: Journal, fault: Fault
) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", fault)
    with pytest.raises(OutcomeUnknownError):
        sdk(hasty(pay(journal)))
    assert [entry.reference for entry in journal.unresolved()] == ["r"]
    assert isinstance(sdk(pay(journal)), Transaction)
    assert found(journal).state is ACCEPTED
    assert (paid(sandbox), sent(sandbox)) == (["r"], 1)


@pytest.mark.parametrize("fault", BEFORE_COMMIT)
def test_what_may_have_been_paid_is_not_sent_again_without_a_human(
    sdk: Driver, sandbox: Sandbox, journal: Journal, fault: Fault
) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", fault)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert (caught.value.reference, caught.value.amount, caught.value.phone) == ("r", Decimal(10), PHONE)
    assert caught.value.sent_at == found(journal).sent_at
    assert found(journal).state is UNKNOWN
    assert paid(sandbox) == []
    assert sent(sandbox) <= 1  # a connection that was reset before it was read is not among the requests
    journal.release("r")
    assert isinstance(sdk(pay(journal)), Payout)
    assert paid(sandbox) == ["r"]


def test_what_was_refused_may_be_sent_again(sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal) -> None:
    account.b2c_balance = Decimal(0)
    with pytest.raises(momopay.InsufficientFundsError):
        sdk(pay(journal))
    assert (found(journal).state, found(journal).code) == (REFUSED, "INSUFFICIENT_FUNDS")
    account.b2c_balance = Decimal(1000)
    assert isinstance(sdk(pay(journal)), Payout)
    assert paid(sandbox) == ["r"]


def test_what_was_not_sent_may_be_sent(
    drive: Callable[..., Driver], sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    spent = drive(base_url=LOOPBACK, deadline=0.2, max_attempts=1, budget=RateBudget(1, 60))
    for error in (momopay.APIConnectionError, momopay.BudgetExhaustedError):
        with pytest.raises(error):
            spent(pay(journal))
        assert found(journal).state is NOT_SENT
    assert isinstance(sdk(pay(journal)), Payout)
    assert paid(sandbox) == ["r"]


@pytest.mark.parametrize("other", [{"amount": 11}, {"phone": "0712345679"}])
@pytest.mark.parametrize("state", [ACCEPTED, REFUSED])
def test_a_reference_belongs_to_one_amount_and_one_phone(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal, other: dict[str, Any], state: JournalState
) -> None:
    if state is REFUSED:
        account.kyc_approved = False
        with pytest.raises(momopay.KycNotVerifiedError):
            sdk(pay(journal))
    else:
        sdk(pay(journal))
    before = len(sandbox.requests)
    with pytest.raises(DuplicatePayoutError) as caught:
        sdk(pay(journal, **other))
    assert caught.value.reference == "r"
    assert not caught.value.may_have_executed
    assert len(sandbox.requests) == before
    assert found(journal).state is state


def test_a_reference_with_another_description_is_the_same_payment(
    sdk: Driver, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "momopay")
    first = sdk(pay(journal, description="salary"))
    assert sdk(pay(journal, description="wages")).transaction_id == first.transaction_id
    assert "differs in more than money" in caplog.text


def test_what_is_refused_locally_is_not_written(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    with pytest.raises(momopay.RequestValidationError):
        sdk(pay(journal, amount=9))
    assert journal.get("r") is None
    assert sandbox.requests == []


def test_what_is_no_journal_is_refused(drive: Callable[..., Driver]) -> None:
    service = PayoutService(answer())
    nothing: Any = None
    with pytest.raises(ConfigurationError):
        drive(transport=service.transport)(pay(nothing))
    assert service.requests == []


def test_an_accepted_payment_that_cannot_be_read_says_that_money_moved(
    drive: Callable[..., Driver], sdk: Driver, journal: Journal
) -> None:
    sdk(pay(journal))
    nowhere = drive(base_url=LOOPBACK, max_attempts=1)
    with pytest.raises(momopay.APIConnectionError) as caught:
        nowhere(pay(journal))
    assert caught.value.may_have_executed


# Several calls at once.


@on_both_clients
@on_both_databases
def test_calls_at_the_same_time_send_once(sandbox: Sandbox, key: str, journal: Journal, client_kind: str) -> None:
    options: dict[str, Any] = {"api_key": key, "base_url": sandbox.base_url, "budget": None}

    async def tasks() -> list[Any]:
        async with AsyncClient(**options) as client:
            return await asyncio.gather(*(pay(journal)(client) for _ in range(8)))

    def threads() -> list[Any]:
        with Client(**options) as client, ThreadPoolExecutor(8) as pool:
            return list(pool.map(pay(journal), [client] * 8))

    results = asyncio.run(tasks()) if client_kind == "async" else threads()
    assert sorted(type(each).__name__ for each in results) == ["Payout", *["Transaction"] * 7]
    assert len({each.transaction_id for each in results}) == 1
    assert (paid(sandbox), sent(sandbox)) == (["r"], 1)


def test_payments_from_all_of_anyios_threads_do_not_wait_for_each_other(
    sandbox: Sandbox, key: str, account: Account, journal: Journal
) -> None:
    account.rate_limit = None

    async def main() -> None:
        async def in_a_thread(number: int) -> None:
            await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(pay(journal, reference=f"r{number}"), client))

        options: dict[str, Any] = {"base_url": sandbox.base_url, "budget": None}
        async with AsyncClient(key, **options) as client, anyio.create_task_group() as group:
            for number in range(45):
                group.start_soon(in_a_thread, number)

    asyncio.run(main())
    assert len(set(paid(sandbox))) == len(paid(sandbox)) == 45


def test_a_call_gives_up_waiting_for_another_sender_at_its_deadline(
    sdk: Driver, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    with sender(url) as other:
        assert other.says() == "held"
        with pytest.raises(OutcomeUnknownError, match="another call was still sending"):
            sdk(lambda client: pay(journal)(client.with_options(deadline=0.3)))
    assert sandbox.requests == []


def test_a_call_is_in_doubt_if_the_journal_fails_while_another_is_sending(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    with lease_of(journal) as lease:
        begin(journal, lease)
        fails = threading.Timer(0.1, execute, [journal, "ALTER TABLE momopay_payments RENAME TO hidden"])
        fails.start()
        with pytest.raises(momopay.JournalError) as caught:
            sdk(pay(journal))
        fails.join()
    assert caught.value.may_have_executed
    assert sent(sandbox) == 0


# What a lease and the rate budget have to do with each other.


def test_a_lease_outlasts_the_deadline_of_its_call(drive: Callable[..., Driver], journal: Journal) -> None:
    ends: list[float] = []

    def look_at_the_lease(_request: httpx.Request) -> httpx.Response:
        with journal._database.connection() as connection:
            ends.append(float(str(connection.exec_driver_sql("SELECT lease_until FROM momopay_payments").scalar())))
        return httpx.Response(400)

    deadline = time.time() + 50
    sdk = drive(transport=httpx.MockTransport(look_at_the_lease), deadline=50.0)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert deadline < ends[0] < deadline + 120


def test_a_call_that_waits_for_the_budget_writes_nothing_yet(
    drive: Callable[..., Driver], sandbox: Sandbox, key: str, journal: Journal
) -> None:
    """So a process that is killed in a long queue leaves no reference in doubt."""
    sdk = drive(api_key=key, base_url=sandbox.base_url, budget=RateBudget(1, 1))
    sdk(lambda client: client.wallet.balance())
    states: list[object] = []
    reader = threading.Timer(0.4, lambda: states.append(journal.get("r")))
    reader.start()
    assert isinstance(sdk(pay(journal)), Payout)
    reader.join()
    assert states == [None]
    with pytest.raises(momopay.BudgetExhaustedError):
        sdk(lambda client: pay(journal, reference="s")(client.with_options(deadline=0.1)))
    assert journal.get("s") is None


def test_a_call_that_waited_for_another_waits_for_the_budget_before_it_writes(
    drive: Callable[..., Driver], sandbox: Sandbox, key: str, journal: Journal
) -> None:
    sdk = drive(api_key=key, base_url=sandbox.base_url, budget=RateBudget(1, 60), deadline=1.0)
    sdk(lambda client: client.wallet.balance())
    with lease_of(journal) as lease:
        begin(journal, lease)
        refusal = threading.Timer(0.1, record, [journal, lease, REFUSED])
        refusal.start()
        with pytest.raises(momopay.BudgetExhaustedError):
            sdk(pay(journal))
        refusal.join()
    assert found(journal).state is REFUSED
    assert sent(sandbox) == 0


# Processes that die, and calls that are cancelled or interrupted.

KILLED = """
import sys
from momopay import Client, Journal
with Client(sys.argv[1], base_url=sys.argv[2]) as client:
    client.payouts.pay_once(journal=Journal(sys.argv[3]), reference="r", amount=10, phone="0712345678")
"""


@on_both_databases
def test_a_process_that_was_killed_while_it_paid_is_reconciled(
    sdk: Driver, sandbox: Sandbox, key: str, journal: Journal, url: str
) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.hang_after_commit)
    process = subprocess.Popen([sys.executable, "-c", KILLED, key, sandbox.base_url, url], cwd=TESTS)
    while not paid(sandbox):
        assert process.poll() is None
        time.sleep(0.01)
    assert found(journal).state is SENDING
    process.kill()
    process.wait()
    until(journal.unresolved, "the database saw the process go")
    assert [entry.state for entry in journal.unresolved()] == [UNKNOWN]
    assert [entry.state for entry in sdk(journal.reconcile_all)] == [ACCEPTED]
    assert isinstance(sdk(pay(journal)), Transaction)
    assert (paid(sandbox), sent(sandbox)) == (["r"], 1)


def test_a_cancelled_payment_stays_cancelled_and_is_found(sandbox: Sandbox, key: str, journal: Journal) -> None:
    async def main() -> None:
        async with AsyncClient(key, base_url=sandbox.base_url, budget=None) as client:
            sandbox.fail_next("POST", "/b2c/payouts", Fault.hang_after_commit)
            task = asyncio.create_task(pay(journal)(client))
            while not paid(sandbox):  # noqa: ASYNC110  the sandbox has no event of this loop
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert found(journal).state is UNKNOWN
            assert isinstance(await pay(journal)(client), Transaction)

    asyncio.run(main())
    assert paid(sandbox) == ["r"]


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.004, 0.016])
def test_a_payment_cancelled_at_any_moment_is_paid_once(
    sandbox: Sandbox, key: str, journal: Journal, delay: float
) -> None:
    async def main() -> None:
        async with AsyncClient(key, base_url=sandbox.base_url, budget=None) as client:
            task = asyncio.create_task(pay(journal)(client))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            try:
                await pay(journal)(client)
            except OutcomeUnknownError:
                journal.release("r") if not paid(sandbox) else None
                await pay(journal)(client)

    asyncio.run(main())
    assert paid(sandbox) == ["r"]


def test_a_payment_cancelled_before_it_connected_may_be_sent(key: str, journal: Journal) -> None:
    """Nothing was sent, so no human is asked."""

    async def main() -> None:
        # A server that takes no connection: its queue is full.
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as queue:
            for _ in range(4):
                waiting = queue.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
            async with AsyncClient(key, base_url=url, budget=None) as client:
                task = asyncio.create_task(pay(journal)(client))
                while journal.get("r") is None:  # noqa: ASYNC110  the journal has no event
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(main())
    assert found(journal).state is NOT_SENT


class InterruptError(BaseException):
    """As a KeyboardInterrupt, which would end the test run."""


def test_an_interrupt_while_it_is_sent_leaves_the_row_unknown(drive: Callable[..., Driver], journal: Journal) -> None:
    def interrupt(_request: httpx.Request) -> httpx.Response:
        raise InterruptError

    with pytest.raises(InterruptError):
        drive(transport=httpx.MockTransport(interrupt))(pay(journal))
    assert found(journal).state is UNKNOWN


@pytest.mark.parametrize("response", [(500, b""), (201, b"{"), (302, b"")])
def test_an_interrupt_just_after_an_ambiguous_response_leaves_the_row_unknown(
    drive: Callable[..., Driver], journal: Journal, monkeypatch: pytest.MonkeyPatch, response: tuple[int, bytes]
) -> None:
    async def interrupted(_call: object, _failed: object) -> None:
        raise InterruptError

    monkeypatch.setattr(Call, "_apply_pauses", interrupted)
    sdk = drive(transport=httpx.MockTransport(lambda _request: httpx.Response(response[0], content=response[1])))
    with pytest.raises(InterruptError):
        sdk(pay(journal))
    assert found(journal).state is UNKNOWN


def test_an_interrupt_between_the_row_and_the_request_leaves_it_unsent(
    drive: Callable[..., Driver], journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Prepared.execute

    def interrupted(statement: Prepared, engine: Engine, *arguments: Any) -> Result:
        result = execute(statement, engine, *arguments)
        if statement is INSERT_ROW:
            raise InterruptError
        return result

    service = PayoutService(answer())
    journal.get("r")
    monkeypatch.setattr(Prepared, "execute", interrupted)
    with pytest.raises(InterruptError):
        drive(transport=service.transport)(pay(journal))
    assert service.requests == []
    assert found(journal).state is NOT_SENT


# A journal that fails.


def test_without_its_journal_nothing_is_sent(sdk: Driver, sandbox: Sandbox) -> None:
    with Journal("postgresql+psycopg://nobody@127.0.0.1:1/nothing") as away, pytest.raises(momopay.JournalError):
        sdk(pay(away))
    assert sandbox.requests == []


def test_a_call_whose_journal_was_slow_sends_nothing_after_its_deadline(
    sdk: Driver, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    sdk(pay(journal, reference="first"))
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        freed = threading.Timer(0.5, other.execute, ["COMMIT"])
        freed.start()
        with pytest.raises(JournalError) as caught:
            sdk(lambda client: pay(journal)(client.with_options(deadline=0.2)))
        freed.join()
    assert not caught.value.may_have_executed
    assert journal.get("r") is None
    assert paid(sandbox) == ["first"]


@on_both_clients
def test_a_payout_is_returned_though_its_outcome_cannot_be_written(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    execute(
        journal, "CREATE TRIGGER full BEFORE UPDATE ON momopay_payments BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    )
    first = sdk(pay(journal))
    assert isinstance(first, Payout)
    assert found(journal).state is UNKNOWN
    assert sdk(pay(journal)).transaction_id == first.transaction_id
    assert caplog.text.count("disk full") == 2
    execute(journal, "DROP TRIGGER full")
    assert isinstance(sdk(pay(journal)), Transaction)
    assert found(journal).state is ACCEPTED
    assert paid(sandbox) == ["r"]


def test_what_was_paid_is_returned_though_the_journal_cannot_be_written(
    sdk: Driver, journal: Journal, url: str
) -> None:
    first = sdk(pay(journal))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")
        assert sdk(pay(journal)).transaction_id == first.transaction_id


def test_a_journal_that_is_closed_during_a_payment_hides_nothing(
    drive: Callable[..., Driver], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = PayoutService(answer())
    journal = Journal(url)

    def close_it(request: httpx.Request) -> httpx.Response:
        journal.close()
        return service.transport.handle_request(request)

    assert isinstance(drive(transport=httpx.MockTransport(close_it))(pay(journal)), Payout)
    assert "this journal is closed" in caplog.text
    with Journal(url) as later:
        assert found(later).state is UNKNOWN


def test_what_was_refused_is_searched_for_before_it_is_sent_again(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    """The refusal was a proxy's: the payout was made."""
    put(journal, "r", REFUSED, code="NO")
    sdk(lambda client: client.payouts.initiate(reference="r", amount=10, phone=PHONE))
    assert isinstance(sdk(pay(journal)), Transaction)
    assert found(journal).state is ACCEPTED
    assert paid(sandbox) == ["r"]


NEAR_MATCHES: list[dict[str, Any]] = [
    {"amount": 25},
    {"phone": "07*****678"},
    {"type": "STK"},
    {"createdAt": "2020-01-01T00:00:00Z"},
    {"accountReference": "r\u00a0"},
]


@on_both_clients
@pytest.mark.parametrize("near", NEAR_MATCHES)
def test_a_near_match_keeps_what_was_refused_from_being_sent_again(
    drive: Callable[..., Driver], journal: Journal, near: dict[str, Any]
) -> None:
    put(journal, "r", REFUSED)
    service = PayoutService(answer(), pages=[[listed(**near)]])
    with pytest.raises(OutcomeUnknownError, match="has its reference") as caught:
        drive(transport=service.transport)(pay(journal))
    assert [each.transaction_id for each in caught.value.near_matches] == ["t-1"]
    assert found(journal).state is UNKNOWN
    assert service.initiations == 0


def test_a_first_payout_costs_no_search(drive: Callable[..., Driver], journal: Journal) -> None:
    service = PayoutService(answer())
    drive(transport=service.transport)(pay(journal))
    assert service.requests == ["POST /b2c/payouts"]


MISMATCHES: list[dict[str, Any]] = [
    {"amount": 77},
    {"phone": "254712345679"},
    {"reference": "another"},
    {"type": "STK"},
    {"transactionId": "t-other"},
]


@on_both_clients
@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_an_acceptance_of_another_payment_is_not_believed(
    drive: Callable[..., Driver], journal: Journal, mismatch: dict[str, Any]
) -> None:
    put(journal, "another", ACCEPTED, transaction_id="t-other")
    service = PayoutService(answer(**mismatch), pages=[[listed()]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert caught.value.transaction_id == mismatch.get("transactionId", "t-1")
    assert found(journal).state is UNKNOWN
    assert sdk(pay(journal)).amount == Decimal(10)  # the list shows the payout itself
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "t-1")
    assert service.initiations == 1


@pytest.mark.parametrize("mismatch", [{"amount": 77}, {"phone": "254712345679"}, {"accountReference": "another"}])
def test_a_later_read_of_another_payment_puts_it_in_doubt(
    drive: Callable[..., Driver], journal: Journal, mismatch: dict[str, Any]
) -> None:
    put(journal, "r", ACCEPTED, transaction_id="t-1")
    service = PayoutService(read=listed(**mismatch))
    with pytest.raises(OutcomeUnknownError, match="the service's record of transaction t-1 has another"):
        drive(transport=service.transport)(pay(journal))
    assert found(journal).state is UNKNOWN


def test_a_transaction_that_fits_is_not_shared_by_two_references(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    put(journal, "another", ACCEPTED, transaction_id="t-1")
    put(journal, "r", UNKNOWN)
    with pytest.raises(OutcomeUnknownError, match="already that of another reference"):
        drive(transport=PayoutService(pages=[[listed()]]).transport)(pay(journal))
    assert found(journal).state is UNKNOWN


class _AheadOfTheService(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls.fromtimestamp(datetime.now(tz).timestamp() + 360, tz)


@on_both_clients
def test_a_payers_clock_that_is_ahead_hides_nothing(
    sdk: Driver, sandbox: Sandbox, journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("journal.payments", "_core.session", "_core.call"):
        monkeypatch.setattr(f"momopay.{module}.datetime", _AheadOfTheService)
    sdk.client._session.clock._may_warn = True  # as of another host than a sandbox's
    sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert isinstance(sdk(pay(journal)), Transaction)
    assert found(journal).clock_offset is None, "measured by the search only: the answer of the payout was lost"
    sdk(pay(journal, reference="s"))
    assert found(journal, "s").clock_offset == pytest.approx(360, abs=5)
    assert caplog.text.count("clock is 3") == 1
    assert sorted(paid(sandbox), key=str) == ["r", "s"]


def test_without_a_date_a_clock_that_is_ahead_leaves_a_near_match(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    put(journal, "r", UNKNOWN)
    service = PayoutService(pages=[[listed(age=timedelta(minutes=6))]])
    with pytest.raises(OutcomeUnknownError) as caught:
        drive(transport=service.transport)(pay(journal))
    assert [each.transaction_id for each in caught.value.near_matches] == ["t-1"]


@on_both_clients
def test_a_row_that_changed_while_the_call_was_held_up_is_not_sent(
    sdk: Driver, sandbox: Sandbox, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was frozen after it had written SENDING; meanwhile somebody released the row."""
    monkeypatch.setattr("momopay.resources.send_once._ROW_IS_FRESH", -1.0)
    execute(
        journal,
        "CREATE TRIGGER release AFTER INSERT ON momopay_payments BEGIN"
        " UPDATE momopay_payments SET state = 'NOT_SENT' WHERE reference = 'r'; END",
    )
    with pytest.raises(OutcomeUnknownError, match="this call sent nothing"):
        sdk(pay(journal))
    assert paid(sandbox) == []
    assert isinstance(sdk(pay(journal, reference="s")), Payout)


def test_a_journal_that_cannot_be_read_says_that_money_may_have_moved(sdk: Driver, journal: Journal) -> None:
    sdk(pay(journal))
    execute(journal, "ALTER TABLE momopay_payments RENAME TO gone")
    with pytest.raises(JournalError) as caught:
        sdk(pay(journal))
    assert caught.value.may_have_executed


def test_a_journal_that_cannot_be_written_says_that_nothing_moved(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    assert journal.get("r") is None
    execute(
        journal, "CREATE TRIGGER full BEFORE INSERT ON momopay_payments BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    )
    with pytest.raises(JournalError, match="disk full") as caught:
        sdk(pay(journal))
    assert not caught.value.may_have_executed
    assert paid(sandbox) == []


def test_metadata_is_kept_and_never_sent(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sdk(pay(journal, metadata={"employee": 7, "tags": ["a"]}))
    assert found(journal).metadata == {"employee": 7, "tags": ["a"]}
    assert "employee" not in str(sandbox.requests)
    for wrong in ({"at": datetime.now(UTC)}, {"n": float("nan")}, ["a"], {1: 2}):
        with pytest.raises(momopay.RequestValidationError, match="metadata"):
            sdk(pay(journal, reference="s", metadata=wrong))


@on_both_clients
def test_a_journal_serves_one_account(
    drive: Callable[..., Driver], sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    sdk(pay(journal))
    other_host = drive(base_url="https://api.example/v1", transport=PayoutService(answer()).transport)
    for refused in (pay(journal, reference="s"), journal.reconcile_all):
        with pytest.raises(ConfigurationError, match="belongs to the host"):
            other_host(refused)
    stranger = drive(api_key=unique_key(), base_url=sandbox.base_url, deadline=3.0)
    assert isinstance(stranger(pay(journal, reference="s")), Payout), "its tenant shows only in the answer"
    assert found(journal, "s").state is ACCEPTED
    with pytest.raises(ConfigurationError, match="tenant"):
        stranger(pay(journal, reference="t"))
    assert isinstance(sdk(pay(journal, reference="t")), Payout)
    assert sent(sandbox) == 3


@contextmanager
def locked(url: str) -> Generator[None]:
    """Lock the whole database against everybody else."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.rollback()


@on_both_clients
def test_a_locked_journal_holds_a_call_until_its_deadline(
    drive: Callable[..., Driver], key: str, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    sdk = drive(api_key=key, base_url=sandbox.base_url, deadline=1.0)
    assert journal.get("r") is None
    with locked(url):
        began = time.monotonic()
        with pytest.raises(JournalError) as caught:
            sdk(pay(journal))
        assert time.monotonic() - began < 4
    assert not caught.value.may_have_executed
    assert (journal.get("r"), paid(sandbox)) == (None, [])
    assert isinstance(sdk(pay(journal)), Payout)


def test_a_cancelled_task_does_not_wait_for_a_locked_journal_and_leaves_nothing_in_doubt(
    sdk: Driver, key: str, sandbox: Sandbox, journal: Journal, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momopay._transport.threads.CANCELLED_WAIT", 0.2)
    sdk(pay(journal, reference="first"))  # binds the journal, so that the next call waits where it writes its row

    async def main() -> float:
        async with AsyncClient(key, base_url=sandbox.base_url, deadline=20) as client:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.payouts.pay_once(journal=journal, reference="r", amount=10, phone=PHONE)
            return time.monotonic() - began

    with locked(url):
        assert asyncio.run(main()) < 4
    # The statement that waited comes through, finds that its call is over, and undoes itself.
    until(lambda: (entry := journal.get("r")) is None or entry.state is NOT_SENT, "the row is free")
    assert paid(sandbox) == ["first"]


LIMIT: dict[str, Any] = {
    "success": False,
    "error": {"code": "RATE_LIMIT_EXCEEDED", "message": "", "details": {}},
}


@on_both_clients
@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("status", [200, 409, 429])
def test_a_limit_that_came_after_the_commit_is_searched_for_before_the_next_send(
    drive: Callable[..., Driver], journal: Journal, status: int
) -> None:
    """A proxy answered for the service, which had executed the payout."""
    service = PayoutService(answer(), pages=[[listed()]])
    service.refusals = [httpx.Response(status, json=LIMIT)]
    assert isinstance(drive(transport=service.transport)(pay(journal)), Transaction)
    assert found(journal).state is ACCEPTED
    assert service.requests == ["POST /b2c/payouts", "GET /transactions"]


@pytest.mark.usefixtures("no_backoff")
def test_a_limit_that_did_not_execute_is_repeated_within_the_call(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    service = PayoutService(answer())
    service.refusals = [httpx.Response(429, json=LIMIT)]
    assert isinstance(drive(transport=service.transport)(pay(journal)), Payout)
    assert (found(journal).state, found(journal).attempts) == (ACCEPTED, 2)
    assert service.requests == ["POST /b2c/payouts", "GET /transactions", "POST /b2c/payouts"]


@on_both_clients
def test_a_refusal_that_may_mean_anything_leaves_the_outcome_unknown(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    refusal: dict[str, object] = {
        "success": False,
        "error": {"code": "ALREADY_PAID", "message": "", "details": {}},
    }
    service = PayoutService(answer(), pages=[[listed()]])
    service.refusals = [httpx.Response(409, json=refusal)]
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError, match="ALREADY_PAID"):
        sdk(pay(journal))
    assert found(journal).state is UNKNOWN
    assert isinstance(sdk(pay(journal)), Transaction)
    assert service.initiations == 1


def test_a_limit_that_lasts_longer_than_the_call_is_raised(drive: Callable[..., Driver], journal: Journal) -> None:
    details = {"limit": 60, "remaining": 0, "resetInSeconds": 60}
    limit = {"success": False, "error": {"code": "RATE_LIMIT_EXCEEDED", "message": "", "details": details}}
    service = PayoutService(answer())
    service.refusals = [httpx.Response(429, json=limit)]
    with pytest.raises(momopay.RateLimitExceededError) as caught:
        drive(transport=service.transport, deadline=3)(pay(journal))
    assert (caught.value.retry_after, caught.value.may_have_executed) == (60, False)
    assert (found(journal).state, found(journal).code) == (REFUSED, "RATE_LIMIT_EXCEEDED")
    assert service.requests == ["POST /b2c/payouts"]


@on_both_clients
def test_a_key_of_another_tenant_sends_nothing_that_has_a_row(
    drive: Callable[..., Driver], sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    """Its list shows other payments, so it would find nothing."""
    sdk(pay(journal, reference="first"))
    put(journal, "r", REFUSED)
    put(journal, "s", UNKNOWN)
    stranger = drive(api_key=unique_key(), base_url=sandbox.base_url, deadline=3.0)

    def release(client: Any) -> Any:
        return client.payouts.release(journal=journal, reference="s", by="Njeri")

    for refused in (pay(journal), release):
        with pytest.raises(ConfigurationError, match="tenant"):
            stranger(refused)
    assert (found(journal).state, found(journal, "s").state) == (REFUSED, UNKNOWN)
    assert paid(sandbox) == ["first"]


def test_many_tasks_end_in_time_though_the_journal_is_locked(
    sdk: Driver, key: str, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    """There are fewer threads than tasks, so most wait for one before they can wait for the lock."""
    sdk(pay(journal, reference="first"))

    async def main() -> float:
        async with AsyncClient(key, base_url=sandbox.base_url, deadline=1.0) as client:
            began = time.monotonic()
            calls = (
                client.payouts.pay_once(journal=journal, reference=f"r{number}", amount=10, phone=PHONE)
                for number in range(45)
            )
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in errors} == {JournalError}
            return time.monotonic() - began

    with locked(url):
        assert asyncio.run(main()) < 8
    assert paid(sandbox) == ["first"]


class _ReservesWhile(RateBudget):
    """A budget without a slot, which does something while it is asked."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(1, 60)
        self._work = work

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        del now, lane, within
        self._work()
        return 60.0


def test_a_call_that_waited_for_its_slot_does_not_vouch_for_what_it_read_before(
    drive: Callable[..., Driver], sandbox: Sandbox, journal: Journal
) -> None:
    """While it asks for a slot, another process pays the reference."""
    for reference, work, moved in (("r", lambda: put(journal, "r", ACCEPTED), True), ("s", lambda: None, False)):
        sdk = drive(base_url=sandbox.base_url, deadline=1.0, budget=_ReservesWhile(work))
        with pytest.raises(momopay.BudgetExhaustedError) as caught:
            sdk(pay(journal, reference=reference))
        assert caught.value.may_have_executed is moved


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=2)])
def test_a_time_in_the_services_future_proves_that_a_clock_was_ahead(
    drive: Callable[..., Driver], journal: Journal, ahead: timedelta
) -> None:
    """By the time of the search the clock is right again."""
    put(journal, "r", UNKNOWN)
    future = (datetime.now(UTC) + ahead).isoformat()
    execute(journal, f"UPDATE momopay_payments SET sent_at = '{future}'")
    others = [listed(f"o{number}", age=timedelta(minutes=1), transactionId=f"o{number}") for number in range(3)]
    service = PayoutService(pages=[others, [listed(age=timedelta(minutes=2))]])
    assert isinstance(drive(transport=service.transport)(pay(journal)), Transaction)


def test_a_reference_that_version_1_accepted_is_not_paid_again_corrected(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    put(journal, "SP ", ACCEPTED)
    execute(journal, "INSERT INTO momopay_look_alikes VALUES ('default', 'SP', 'SP ')")
    with pytest.raises(momopay.RequestValidationError, match="remove it"):
        sdk(pay(journal, reference="SP "))
    with pytest.raises(DuplicatePayoutError, match=r"looks like 'SP ', .* ACCEPTED, KES 10"):
        sdk(pay(journal, reference="SP"))
    assert paid(sandbox) == []


def test_an_anonymised_payout_is_not_sent_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(pay(journal))
    sandbox.advance(600)
    sdk(pay(journal))  # reads its end
    assert journal.anonymise(before=sandbox.now + timedelta(days=1)) == 1
    again = sdk(pay(journal))
    assert (again.transaction_id, again.status) == (first.transaction_id, "SUCCESS")
    for other in (pay(journal, phone="0712345679"), pay(journal, amount=11)):
        with pytest.raises(DuplicatePayoutError):
            sdk(other)
    assert (found(journal).state, found(journal).phone) == (ACCEPTED, "")
    assert paid(sandbox) == ["r"]


def test_what_was_refused_and_anonymised_needs_another_reference(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    put(journal, "r", REFUSED)
    journal.anonymise(before=datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(DuplicatePayoutError, match="anonymised"):
        sdk(pay(journal))
    assert sent(sandbox) == 0
