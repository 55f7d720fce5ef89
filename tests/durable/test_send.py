"""What a durable call sends and writes down, whatever fails, dies or is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import partial
from math import inf
from typing import Any

import httpx
import pytest

import momopay
from drivers import LOOPBACK, Driver, hasty
from durable.kit import (
    ORDERS,
    PAYOUTS,
    Calls,
    Service,
    collect,
    listed,
    long_ago,
    of_both_kinds,
    on_both_databases,
    pay,
    record,
    release,
)
from journal.kit import (
    ACCEPTED,
    NOT_SENT,
    REFUSED,
    SENDING,
    TESTS,
    UNKNOWN,
    begin,
    execute,
    found,
    just_before,
    lease_of,
    put,
    state_of,
)
from journal.kit import record as record_outcome
from momopay import AsyncClient, Journal, Lane, OutcomeUnknownError, RateBudget
from momopay.sandbox import Account, Fault, Sandbox
from patience import until

AFTER_COMMIT = [Fault.reset_after_commit, Fault.hang_after_commit, Fault.error_after_commit]
BEFORE_COMMIT = [Fault.reset_before_read, Fault.error_before_commit, Fault.html_502]


class InterruptError(BaseException):
    """As a KeyboardInterrupt, which would end the test run."""


# Answers that are lost, and refusals.


@of_both_kinds
@pytest.mark.parametrize("fault", AFTER_COMMIT)
def test_what_was_made_in_spite_of_a_fault_is_found_and_not_sent_again(
    sdk: Driver, sandbox: Sandbox, journal: Journal, calls: Calls, fault: Fault
) -> None:
    calls.fail_next(sandbox, fault)
    with pytest.raises(OutcomeUnknownError):
        sdk(hasty(calls.once(journal)))
    assert [(entry.kind, entry.reference) for entry in journal.unresolved()] == [(calls.kind, "r")]
    again = sdk(calls.once(journal))
    assert (again.is_new, again.status) == (False, "PENDING")
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, again.transaction_id)
    assert calls.sent(sandbox) == 1


@of_both_kinds
@pytest.mark.parametrize("fault", BEFORE_COMMIT)
def test_what_may_have_been_made_is_not_sent_again_without_a_person(
    sdk: Driver, sandbox: Sandbox, journal: Journal, calls: Calls, fault: Fault
) -> None:
    calls.fail_next(sandbox, fault)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            sdk(calls.once(journal))
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(calls.once(journal))
    assert (caught.value.reference, caught.value.amount) == ("r", Decimal(10))
    assert (caught.value.phone, caught.value.sent_at) == (found(journal).phone, found(journal).sent_at)
    assert state_of(journal) is UNKNOWN
    assert calls.sent(sandbox) <= 1  # a connection that was reset before it was read is not among the requests
    long_ago(journal)
    sdk(release(journal, kind=calls.kind))
    assert sdk(calls.once(journal)).is_new


def test_what_was_not_sent_may_be_sent(
    drive: Callable[..., Driver], sdk: Driver, sandbox: Sandbox, key: str, journal: Journal
) -> None:
    nowhere = {"api_key": key, "base_url": LOOPBACK, "deadline": 5.0, "max_attempts": 1}
    sdk(journal.reconcile_all)
    with pytest.raises(momopay.APIConnectionError) as caught:
        drive(**nowhere)(pay(journal))
    assert not caught.value.may_have_executed
    assert (found(journal).state, found(journal).attempts) == (NOT_SENT, 0)
    assert sdk(pay(journal)).is_new
    assert PAYOUTS.paid(sandbox) == ["r"]


def test_a_first_payment_costs_no_search(drive: Callable[..., Driver], journal: Journal) -> None:
    service = Service(record())
    drive(transport=service.transport)(pay(journal))
    assert service.requests == ["POST /b2c/payouts"]


MISMATCHES: list[dict[str, Any]] = [
    {"amount": 77},
    {"phone": "254712345679"},
    {"reference": "another", "accountReference": "another"},
    {"type": "WALLET_TOPUP"},
    {"transactionId": "t-other"},
]


@of_both_kinds
@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_an_acceptance_of_another_payment_is_not_believed(
    drive: Callable[..., Driver], journal: Journal, calls: Calls, mismatch: dict[str, Any]
) -> None:
    put(journal, "another", ACCEPTED, transaction_id="t-other")
    service = Service(record(**calls.fields | mismatch), pages=[[listed(**calls.fields)]])
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(calls.once(journal))
    assert caught.value.transaction_id == found(journal).transaction_id == mismatch.get("transactionId", "t-1")
    assert (found(journal).state, found(journal).transactions) == (UNKNOWN, ())
    assert sdk(calls.once(journal)).amount == Decimal(10)  # the list shows the payment itself
    assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "t-1")
    assert service.sent == 1


def test_a_response_without_a_reference_is_this_payouts(drive: Callable[..., Driver], journal: Journal) -> None:
    sdk = drive(transport=Service(record(reference="")).transport)
    assert sdk(pay(journal)).transaction_id == "t-1"
    assert state_of(journal) is ACCEPTED


def limit(status: int, **details: Any) -> httpx.Response:
    return httpx.Response(
        status,
        json={"success": False, "error": {"code": "RATE_LIMIT_EXCEEDED", "message": "", "details": details}},
    )


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("status", [200, 409, 429])
def test_a_limit_that_came_after_the_commit_is_searched_for_before_the_next_send(
    drive: Callable[..., Driver], journal: Journal, status: int
) -> None:
    """A proxy answered for the service, which had executed the payout."""
    service = Service(record(), pages=[[listed()]])
    service.refusals = [limit(status)]
    assert not drive(transport=service.transport)(pay(journal)).is_new
    assert state_of(journal) is ACCEPTED
    assert service.requests == ["POST /b2c/payouts", "GET /transactions"]


@pytest.mark.usefixtures("no_backoff")
def test_a_limit_that_did_not_execute_is_repeated_within_the_call(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    service = Service(record())
    service.refusals = [limit(429)]
    assert drive(transport=service.transport)(pay(journal)).is_new
    assert (found(journal).state, found(journal).attempts) == (ACCEPTED, 2)
    assert service.requests == ["POST /b2c/payouts", "GET /transactions", "POST /b2c/payouts"]


def test_a_limit_that_lasts_longer_than_the_call_is_raised(drive: Callable[..., Driver], journal: Journal) -> None:
    service = Service(record())
    service.refusals = [limit(429, limit=60, remaining=0, resetInSeconds=60)]
    with pytest.raises(momopay.RateLimitExceededError) as caught:
        drive(transport=service.transport, deadline=3)(pay(journal))
    assert (caught.value.retry_after, caught.value.may_have_executed) == (60, False)
    assert (found(journal).state, found(journal).code) == (REFUSED, "RATE_LIMIT_EXCEEDED")
    assert service.requests == ["POST /b2c/payouts"]


def test_a_refusal_that_may_mean_anything_leaves_the_outcome_unknown(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    refusal: dict[str, object] = {"success": False, "error": {"code": "ALREADY_PAID", "message": "", "details": {}}}
    service = Service(record(), pages=[[listed()]])
    service.refusals = [httpx.Response(409, json=refusal)]
    sdk = drive(transport=service.transport)
    with pytest.raises(OutcomeUnknownError, match="ALREADY_PAID"):
        sdk(pay(journal))
    assert state_of(journal) is UNKNOWN
    assert not sdk(pay(journal)).is_new
    assert service.sent == 1


def test_a_pause_that_the_service_ordered_sends_nothing_and_leaves_the_order(
    sdk: Driver, sandbox: Sandbox, key: str, journal: Journal
) -> None:
    sandbox.ban_stk(key)
    with pytest.raises(momopay.StkTempBannedError):
        sdk(collect(journal))
    before = found(journal)
    with pytest.raises(momopay.StkTempBannedError) as caught:
        sdk(collect(journal))
    assert not caught.value.may_have_executed
    assert before.state is REFUSED
    assert found(journal) == before
    assert ORDERS.sent(sandbox) == 1


# The lease, and the rate budget.


def test_a_lease_outlasts_the_deadline_of_its_call(drive: Callable[..., Driver], journal: Journal) -> None:
    ends: list[float] = []
    service = Service(record())

    def look_at_the_lease(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            ends.append(execute(journal, "SELECT lease_until FROM momopay_payments")[0][0])
        return service.respond(request)

    deadline = time.time() + 50
    drive(transport=httpx.MockTransport(look_at_the_lease), deadline=50.0)(pay(journal))
    assert deadline < ends[0] < deadline + 120


def test_a_call_that_waits_for_the_budget_writes_nothing_yet(
    drive: Callable[..., Driver], sdk: Driver, sandbox: Sandbox, key: str, journal: Journal
) -> None:
    """So a process that is killed in a long queue leaves nothing unresolved."""
    sdk(journal.reconcile_all)
    waits = drive(api_key=key, base_url=sandbox.base_url, budget=RateBudget(1, 1))
    waits(lambda client: client.wallet.balance())
    states: list[object] = []
    reader = threading.Timer(0.4, lambda: states.append(journal.get("r")))
    reader.start()
    assert waits(pay(journal)).is_new
    reader.join()
    assert states == [None]
    with pytest.raises(momopay.BudgetExhaustedError):
        waits(lambda client: pay(journal, "s")(client.with_options(deadline=0.1)))
    assert journal.get("s") is None


@of_both_kinds
def test_a_second_attempt_that_gets_no_slot_leaves_the_payment(
    drive: Callable[..., Driver],
    sdk: Driver,
    sandbox: Sandbox,
    account: Account,
    key: str,
    journal: Journal,
    calls: Calls,
) -> None:
    account.service_balance, account.fee = Decimal(0), Decimal(1)
    with pytest.raises(momopay.InsufficientServiceBalanceError):
        sdk(calls.once(journal))
    before = found(journal)
    with pytest.raises(momopay.BudgetExhaustedError) as caught:  # the one slot is for the search
        drive(api_key=key, base_url=sandbox.base_url, deadline=3.0, budget=RateBudget(1, 600))(calls.once(journal))
    assert not caught.value.may_have_executed
    assert found(journal) == before
    assert calls.sent(sandbox) == 1


def test_a_call_that_waited_for_another_waits_for_the_budget_before_it_writes(
    drive: Callable[..., Driver], sdk: Driver, sandbox: Sandbox, key: str, journal: Journal
) -> None:
    sdk(journal.reconcile_all)
    waits = drive(api_key=key, base_url=sandbox.base_url, budget=RateBudget(1, 60), deadline=1.0)
    waits(lambda client: client.wallet.balance())
    with lease_of(journal) as lease:
        begin(journal, lease)
        refusal = threading.Timer(0.1, record_outcome, [journal, lease, REFUSED])
        refusal.start()
        with pytest.raises(momopay.BudgetExhaustedError):
            waits(pay(journal))
        refusal.join()
    assert state_of(journal) is REFUSED
    assert PAYOUTS.sent(sandbox) == 0


class ReservesWhile(RateBudget):
    """A budget without a slot, which does something while it is asked."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(1, 60)
        self._work = work

    def reserve(self, now: float, lane: Lane, within: float = inf) -> float:
        self._work()
        return 60.0


def test_a_call_that_waited_for_its_slot_does_not_vouch_for_what_it_read_before(
    drive: Callable[..., Driver], sdk: Driver, sandbox: Sandbox, key: str, journal: Journal
) -> None:
    """While it asks for a slot, another process pays the reference."""
    sdk(journal.reconcile_all)
    for reference, work, moved in (("r", lambda: put(journal, "r", ACCEPTED), True), ("s", lambda: None, False)):
        waits = drive(api_key=key, base_url=sandbox.base_url, deadline=1.0, budget=ReservesWhile(work))
        with pytest.raises(momopay.BudgetExhaustedError) as caught:
            waits(pay(journal, reference))
        assert caught.value.may_have_executed is moved


# Processes that die, and calls that are cancelled or interrupted.

KILLED = """
import sys
from momopay import Client, Journal
with Client(sys.argv[1], base_url=sys.argv[2], journal=Journal(sys.argv[3])) as client:
    client.payouts.pay_once(reference="r", amount=10, phone="0712345678")
"""


@on_both_databases
def test_a_process_that_was_killed_while_it_paid_is_reconciled(
    sdk: Driver, sandbox: Sandbox, key: str, journal: Journal, url: str
) -> None:
    PAYOUTS.fail_next(sandbox, Fault.hang_after_commit)
    process = subprocess.Popen([sys.executable, "-c", KILLED, key, sandbox.base_url, url], cwd=TESTS)
    while not PAYOUTS.paid(sandbox):
        assert process.poll() is None
        time.sleep(0.01)
    assert state_of(journal) is SENDING
    process.kill()
    process.wait()
    until(journal.unresolved, "the database saw the process go")
    assert [entry.state for entry in journal.unresolved()] == [UNKNOWN]
    assert [entry.state for entry in sdk(journal.reconcile_all)] == [ACCEPTED]
    assert not sdk(pay(journal)).is_new
    assert (PAYOUTS.paid(sandbox), PAYOUTS.sent(sandbox)) == (["r"], 1)


@of_both_kinds
def test_a_cancelled_call_stays_cancelled_and_its_payment_is_found(
    sandbox: Sandbox, key: str, journal: Journal, calls: Calls
) -> None:
    async def main() -> None:
        async with AsyncClient(key, base_url=sandbox.base_url, budget=None) as client:
            calls.fail_next(sandbox, Fault.hang_after_commit)
            task = asyncio.create_task(calls.once(journal)(client))
            while not calls.sent(sandbox):  # noqa: ASYNC110  the sandbox has no event of this loop
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert state_of(journal) is UNKNOWN
            assert not (await calls.once(journal)(client)).is_new

    asyncio.run(main())
    assert calls.sent(sandbox) == 1


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.004, 0.016])
def test_a_payment_cancelled_at_any_moment_is_paid_once(
    sandbox: Sandbox, key: str, journal: Journal, delay: float
) -> None:
    async def main() -> None:
        async with AsyncClient(key, base_url=sandbox.base_url, budget=None) as client:
            await journal.reconcile_all(client)
            task = asyncio.create_task(pay(journal)(client))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            try:
                await pay(journal)(client)
            except OutcomeUnknownError:
                long_ago(journal)
                await release(journal)(client)
                await pay(journal)(client)

    asyncio.run(main())
    assert PAYOUTS.paid(sandbox) == ["r"]


@contextmanager
def full_server() -> Generator[str]:
    """Start a server that takes no connection: its queue is full. Yield its URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as queue:
        for _ in range(4):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}/v1"


def test_a_payment_cancelled_before_it_connected_may_be_sent(sandbox: Sandbox, key: str, journal: Journal) -> None:
    """Nothing was sent, so no person is asked."""

    async def main(url: str) -> None:
        async with AsyncClient(key, base_url=sandbox.base_url, budget=None) as client:
            await journal.reconcile_all(client)
        async with AsyncClient(key, base_url=url, budget=None) as client:
            task = asyncio.create_task(pay(journal)(client))
            while journal.get("r") is None:  # noqa: ASYNC110  the journal has no event
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with full_server() as url:
        asyncio.run(main(url))
    assert state_of(journal) is NOT_SENT


def test_an_interrupt_while_it_is_sent_leaves_the_outcome_unknown(
    drive: Callable[..., Driver], journal: Journal
) -> None:
    service = Service(record())

    def interrupt(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            raise InterruptError
        return service.respond(request)

    with pytest.raises(InterruptError):
        drive(transport=httpx.MockTransport(interrupt))(pay(journal))
    assert state_of(journal) is UNKNOWN


RELEASE_AT_ONCE = (
    "CREATE TRIGGER release AFTER INSERT ON momopay_payments BEGIN"
    " UPDATE momopay_payments SET state = 'NOT_SENT' WHERE reference = 'r'; END"
)


def test_a_row_that_changed_while_the_call_was_held_up_is_not_sent(
    sdk: Driver, sandbox: Sandbox, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was frozen after it had written SENDING; meanwhile somebody released the row."""
    monkeypatch.setattr("momopay.durable.send._ROW_IS_FRESH", -1.0)
    sdk(journal.reconcile_all)
    execute(journal, RELEASE_AT_ONCE)
    with pytest.raises(OutcomeUnknownError, match="this call sent nothing"):
        sdk(pay(journal))
    assert PAYOUTS.paid(sandbox) == []
    assert sdk(pay(journal, "s")).is_new


def test_a_row_whose_writing_took_long_is_checked_before_it_is_sent(
    sdk: Driver, sandbox: Sandbox, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was frozen while it wrote SENDING: the age of the row counts from before the statement."""
    monkeypatch.setattr("momopay.durable.send._ROW_IS_FRESH", 0.5)
    sdk(journal.reconcile_all)
    execute(journal, RELEASE_AT_ONCE)
    with (
        just_before("INSERT INTO momopay_payments", journal, partial(time.sleep, 0.6)),
        pytest.raises(OutcomeUnknownError, match="this call sent nothing"),
    ):
        sdk(pay(journal))
    assert PAYOUTS.paid(sandbox) == []
