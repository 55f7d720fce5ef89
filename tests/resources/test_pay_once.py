"""Nobody is paid twice: both clients against the sandbox at real sockets, whose ledger is the only witness."""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx
import pytest

import momopay
from drivers import LOOPBACK, Driver, hasty
from journal.kit import TESTS, begin, found, put, sender
from momopay import (
    AsyncClient,
    Client,
    DuplicatePayoutError,
    Journal,
    JournalState,
    OutcomeUnknownError,
    Payout,
    RateBudget,
    Transaction,
)
from momopay.journal import JournalEntry
from momopay.journal.journal import payments_of
from momopay.journal.payments import Payments
from momopay.sandbox import Account, Fault, Sandbox
from patience import until
from postgresql import PostgresqlServer
from virtual import envelope

PHONE = "0712345678"
AFTER_COMMIT = [Fault.reset_after_commit, Fault.hang_after_commit, Fault.error_after_commit, Fault.truncated]
BEFORE_COMMIT = [Fault.reset_before_read, Fault.error_before_commit, Fault.html_502]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite, unless a test asks for both; the journal itself is tested on both."""
    if getattr(request, "param", "sqlite") == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        return server.new_database()
    return f"sqlite:///{tmp_path / 'payouts.db'}"


on_both = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def sdk(drive: Callable[..., Driver], sandbox: Sandbox, key: str) -> Driver:
    return drive(api_key=key, base_url=sandbox.base_url, deadline=3.0)


def pay(journal: Journal, **fields: Any) -> Callable[[Any], Any]:
    arguments: dict[str, Any] = {"reference": "r", "amount": Decimal("250.50"), "phone": PHONE, **fields}
    return lambda client: client.payouts.pay_once(journal=journal, **arguments)


def paid(sandbox: Sandbox) -> list[str | None]:
    return [movement.reference for movement in sandbox.ledger if movement.kind == "payout"]


def sent(sandbox: Sandbox) -> int:
    return [request.path for request in sandbox.requests].count("/b2c/payouts")


@on_both
def test_a_reference_is_paid_once_however_often_it_is_called(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    first = sdk(pay(journal))
    again = [sdk(pay(journal)), sdk(pay(journal, phone="+254 712 345 678"))]
    assert isinstance(first, Payout)
    assert [type(each) for each in again] == [Transaction, Transaction]
    assert {each.transaction_id for each in again} == {first.transaction_id}
    assert (found(journal).state, found(journal).transaction_id) == (JournalState.ACCEPTED, first.transaction_id)
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
    assert found(journal).state is JournalState.ACCEPTED
    assert (paid(sandbox), sent(sandbox)) == (["r"], 1)


@pytest.mark.parametrize("fault", BEFORE_COMMIT)
def test_what_may_have_been_paid_is_not_sent_again_without_a_human(
    sdk: Driver, sandbox: Sandbox, journal: Journal, fault: Fault
) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", fault)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            sdk(pay(journal))
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert (caught.value.reference, caught.value.amount) == ("r", Decimal("250.50"))
    assert caught.value.sent_at == found(journal).sent_at
    assert found(journal).state is JournalState.UNKNOWN
    assert paid(sandbox) == []
    assert sent(sandbox) <= 1  # a connection that was reset before it was read is not among the requests
    journal.release("r")
    assert isinstance(sdk(pay(journal)), Payout)
    assert paid(sandbox) == ["r"]


def test_a_payment_that_the_list_shows_late_is_not_sent_again(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    put(journal, "r", JournalState.UNKNOWN)
    sandbox.fail_next("POST", "/b2c/payouts", Fault.list_lag)
    sdk(lambda client: client.payouts.initiate(reference="r", amount=10, phone=PHONE))
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, amount=10))
    sandbox.advance(3600)
    assert isinstance(sdk(pay(journal, amount=10)), Transaction)
    assert paid(sandbox) == ["r"]


def test_an_id_in_a_broken_answer_finds_the_payment_without_the_list(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.truncated)
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    identity = caught.value.transaction_id
    assert found(journal).transaction_id == identity is not None
    assert sdk(pay(journal)).transaction_id == identity
    assert [request.path for request in sandbox.requests] == ["/b2c/payouts", f"/transactions/{identity}"]


def test_what_was_refused_may_be_sent_once_it_is_mended(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.b2c_balance = Decimal(0)
    with pytest.raises(momopay.InsufficientFundsError):
        sdk(pay(journal))
    assert (found(journal).state, found(journal).code) == (JournalState.REFUSED, "INSUFFICIENT_FUNDS")
    account.b2c_balance = Decimal(1000)
    assert isinstance(sdk(pay(journal)), Payout)
    assert paid(sandbox) == ["r"]


def test_what_surely_never_left_may_be_sent(
    drive: Callable[..., Driver], sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    nowhere = drive(base_url=LOOPBACK, max_attempts=1)
    with pytest.raises(momopay.APIConnectionError):
        nowhere(pay(journal))
    assert found(journal).state is JournalState.NOT_SENT
    spent = drive(base_url=LOOPBACK, deadline=0.2, budget=RateBudget(1, 60))
    for error in (momopay.APIConnectionError, momopay.BudgetExhaustedError):
        with pytest.raises(error):
            spent(pay(journal))
    assert found(journal).state is JournalState.NOT_SENT
    assert isinstance(sdk(pay(journal)), Payout)
    assert paid(sandbox) == ["r"]


@pytest.mark.parametrize("other", [{"amount": 11}, {"phone": "0712345679"}])
def test_a_reference_stands_for_one_amount_and_one_phone(
    sdk: Driver, sandbox: Sandbox, journal: Journal, other: dict[str, Any]
) -> None:
    sdk(pay(journal))
    before = len(sandbox.requests)
    with pytest.raises(DuplicatePayoutError) as caught:
        sdk(pay(journal, **other))
    assert caught.value.reference == "r"
    assert not caught.value.may_have_executed
    assert len(sandbox.requests) == before


def test_a_reference_with_another_description_is_the_same_payment(
    sdk: Driver, sandbox: Sandbox, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "momopay")
    first = sdk(pay(journal, description="salary"))
    assert sdk(pay(journal, description="wages")).transaction_id == first.transaction_id
    assert "differs in more than money" in caplog.text


def test_what_is_refused_here_is_not_written_down(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    with pytest.raises(momopay.RequestValidationError):
        sdk(pay(journal, amount=9))
    assert journal.get("r") is None
    assert sandbox.requests == []


def test_several_payments_that_fit_are_shown_to_a_human(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    sdk(lambda client: client.payouts.initiate(reference="r", amount=Decimal("250.5"), phone=PHONE))
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert len(caught.value.matches) == 2
    assert [entry.state for entry in sdk(journal.reconcile_all)] == [JournalState.UNKNOWN]


def test_a_search_that_fails_leaves_it_unknown(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    sandbox.fail_next("GET", "/transactions", Fault.html_502, times=9)
    with pytest.raises(OutcomeUnknownError, match="search failed") as caught:
        sdk(pay(journal))
    assert isinstance(caught.value.__cause__, momopay.MomoPayError)


def test_an_accepted_payment_that_cannot_be_read_says_that_money_moved(
    drive: Callable[..., Driver], sdk: Driver, journal: Journal
) -> None:
    sdk(pay(journal))
    nowhere = drive(base_url=LOOPBACK, max_attempts=1)
    with pytest.raises(momopay.APIConnectionError) as caught:
        nowhere(pay(journal))
    assert caught.value.may_have_executed


@on_both
def test_calls_at_the_same_time_send_once(sandbox: Sandbox, key: str, journal: Journal, colour: str) -> None:
    options: dict[str, Any] = {"api_key": key, "base_url": sandbox.base_url, "budget": None}

    async def tasks() -> list[Any]:
        async with AsyncClient(**options) as client:
            return await asyncio.gather(*(pay(journal)(client) for _ in range(8)))

    def threads() -> list[Any]:
        with Client(**options) as client, ThreadPoolExecutor(8) as pool:
            return list(pool.map(pay(journal), [client] * 8))

    results = asyncio.run(tasks()) if colour == "async" else threads()
    assert sorted(type(each).__name__ for each in results) == ["Payout", *["Transaction"] * 7]
    assert len({each.transaction_id for each in results}) == 1
    assert (paid(sandbox), sent(sandbox)) == (["r"], 1)


def test_a_call_gives_up_waiting_for_another_sender_at_its_deadline(
    sdk: Driver, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    with sender(url) as other:
        assert other.says() == "held"
        impatient = sdk.client.with_options(deadline=0.3)
        with pytest.raises(OutcomeUnknownError, match="another call was still sending"):
            sdk(lambda _: pay(journal, amount=10)(impatient))
    assert sandbox.requests == []


KILLED = """
import sys
from momopay import Client, Journal
with Client(sys.argv[1], base_url=sys.argv[2]) as client:
    client.payouts.pay_once(journal=Journal(sys.argv[3]), reference="r", amount=10, phone="0712345678")
"""


@on_both
def test_a_process_that_was_killed_while_it_paid_is_reconciled(
    sdk: Driver, sandbox: Sandbox, key: str, journal: Journal, url: str
) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.hang_after_commit)
    process = subprocess.Popen([sys.executable, "-c", KILLED, key, sandbox.base_url, url], cwd=TESTS)
    while not paid(sandbox):
        assert process.poll() is None
    assert found(journal).state is JournalState.SENDING
    process.kill()
    process.wait()
    until(journal.unresolved, "the database saw the process go")
    assert [entry.state for entry in journal.unresolved()] == [JournalState.UNKNOWN]
    assert [entry.state for entry in sdk(journal.reconcile_all)] == [JournalState.ACCEPTED]
    assert isinstance(sdk(pay(journal, amount=10)), Transaction)
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
            assert found(journal).state is JournalState.UNKNOWN
            assert isinstance(await pay(journal)(client), Transaction)

    asyncio.run(main())
    assert paid(sandbox) == ["r"]


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016])
def test_a_payment_cancelled_at_any_moment_is_paid_once_in_the_end(
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


@on_both
def test_all_in_doubt_is_reconciled_in_one_walk(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    account.rate_limit = None
    references = [f"r{number}" for number in range(5)]
    for reference in references:
        sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
        with pytest.raises(OutcomeUnknownError):
            sdk(pay(journal, reference=reference))
    put(journal, "never sent", JournalState.UNKNOWN)
    before = len(sandbox.requests)
    settled = sdk(journal.reconcile_all)
    assert len(sandbox.requests) == before + 1
    assert [(entry.reference, entry.state) for entry in settled] == [
        *((reference, JournalState.ACCEPTED) for reference in references),
        ("never sent", JournalState.UNKNOWN),
    ]
    assert [entry.reference for entry in journal.unresolved()] == ["never sent"]


def test_nothing_in_doubt_costs_no_request(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    assert sdk(journal.reconcile_all) == []
    assert sandbox.requests == []


def test_a_confirmed_callback_settles_what_is_in_doubt(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, callback_url="http://127.0.0.1:9/nobody"))
    sandbox.advance(600)
    callback = momopay.parse_callback(sandbox.callbacks[0].payload)
    entry = journal.settle(sdk(lambda client: client.transactions.confirm(callback)))
    assert entry is not None
    assert (entry.state, entry.transaction_id) == (JournalState.ACCEPTED, callback.transaction_id)


def test_without_its_journal_nothing_is_sent(sdk: Driver, sandbox: Sandbox) -> None:
    with Journal("postgresql+psycopg://nobody@127.0.0.1:1/nothing") as away, pytest.raises(momopay.JournalError):
        sdk(pay(away))
    assert sandbox.requests == []


def test_a_journal_that_fails_after_the_payment_leaves_it_to_be_reconciled(
    drive: Callable[..., Driver], sdk: Driver, tmp_path: Path, caplog: pytest.LogCaptureFixture, colour: str
) -> None:
    path = tmp_path / "payouts.db"

    def lock_the_journal(_request: httpx.Request) -> httpx.Response:
        with sqlite3.connect(path) as connection:
            connection.execute("ALTER TABLE momopay_payouts RENAME TO hidden")
        connection.close()
        fields = {"transactionId": "t", "status": "PENDING", "amount": 250.5, "phone": "254712345678"}
        times = {"createdAt": "2026-11-20T10:00:00Z", "updatedAt": "2026-11-20T10:00:00Z"}
        return httpx.Response(200, json=envelope(fields | times))

    with Journal(f"sqlite:///{path}") as journal:
        journal.get("r")
        breaking = drive(transport=httpx.MockTransport(lock_the_journal))
        assert breaking(pay(journal)).transaction_id == "t"
        assert "journal cannot be read or written" in caplog.text
        with sqlite3.connect(path) as connection:
            connection.execute("ALTER TABLE hidden RENAME TO momopay_payouts")
        connection.close()
        assert found(journal).state is JournalState.UNKNOWN


def test_a_call_whose_journal_was_slow_sends_nothing_after_its_deadline(
    sdk: Driver, sandbox: Sandbox, journal: Journal, tmp_path: Path
) -> None:
    journal.get("r")
    impatient = sdk.client.with_options(deadline=0.2)
    with sqlite3.connect(tmp_path / "payouts.db", isolation_level=None, check_same_thread=False) as connection:
        connection.execute("BEGIN IMMEDIATE")
        freed = threading.Timer(0.5, connection.execute, ["COMMIT"])
        freed.start()
        with pytest.raises(momopay.APIConnectionError):
            sdk(lambda _: pay(journal)(impatient))
        freed.join()
    connection.close()
    assert found(journal).state is JournalState.NOT_SENT
    assert sandbox.requests == []


def test_an_interrupted_call_leaves_the_row_unknown(sandbox: Sandbox, key: str, journal: Journal) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(_request: httpx.Request) -> httpx.Response:
        raise Interrupted

    options: dict[str, Any] = {"base_url": sandbox.base_url, "budget": None}
    with Client(key, transport=httpx.MockTransport(interrupt), **options) as client, pytest.raises(Interrupted):
        pay(journal)(client)
    assert found(journal).state is JournalState.UNKNOWN


def test_a_call_that_waits_for_the_budget_says_nothing_of_sending_yet(
    drive: Callable[..., Driver], sandbox: Sandbox, key: str, journal: Journal
) -> None:
    """So a process that is killed in a long queue leaves no reference in doubt."""
    full = RateBudget(1, 1)
    sdk = drive(api_key=key, base_url=sandbox.base_url, budget=full)
    sdk(lambda client: client.wallet.balance())
    states: list[object] = []
    looking = threading.Timer(0.4, lambda: states.append(journal.get("r")))
    looking.start()
    assert isinstance(sdk(pay(journal)), Payout)
    looking.join()
    assert states == [None]
    with pytest.raises(momopay.BudgetExhaustedError):
        sdk(lambda client: pay(journal, reference="s")(client.with_options(deadline=0.1)))
    assert journal.get("s") is None


def test_a_call_that_waited_for_another_waits_for_the_budget_before_it_says_sending(
    drive: Callable[..., Driver], sandbox: Sandbox, key: str, journal: Journal
) -> None:
    full = RateBudget(1, 60)
    sdk = drive(api_key=key, base_url=sandbox.base_url, budget=full, deadline=2.0)
    sdk(lambda client: client.wallet.balance())

    def refused() -> None:
        payments_of(journal).record_outcome(lease, "r", JournalState.REFUSED)

    with payments_of(journal).leases.lease() as lease:
        begin(journal, lease)
        refusal = threading.Timer(0.3, refused)
        refusal.start()
        with pytest.raises(momopay.BudgetExhaustedError):
            sdk(pay(journal, amount=10))
        refusal.join()
    assert found(journal).state is JournalState.REFUSED
    assert sent(sandbox) == 0


def test_a_payout_that_another_call_is_sending_is_in_doubt_when_the_journal_fails(
    sdk: Driver, sandbox: Sandbox, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with payments_of(journal).leases.lease() as lease:
        begin(journal, lease)
        answers = [found(journal)]

        def once(_rows: Payments, _reference: str) -> JournalEntry:
            if answers:
                return answers.pop()
            raise momopay.JournalError("the disk is gone")

        monkeypatch.setattr(Payments, "get", once)
        with pytest.raises(momopay.JournalError) as caught:
            sdk(pay(journal, amount=10))
    assert caught.value.may_have_executed
    assert sent(sandbox) == 0


def test_what_was_paid_is_told_though_the_journal_cannot_be_written(sdk: Driver, journal: Journal, url: str) -> None:
    first = sdk(pay(journal))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")
        assert sdk(pay(journal)).transaction_id == first.transaction_id


def test_a_payment_cancelled_before_it_connected_may_be_sent(key: str, journal: Journal) -> None:
    """Nothing left, so no human is asked."""

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
    assert found(journal).state is JournalState.NOT_SENT


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
