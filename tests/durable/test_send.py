"""What a durable call sends and writes down, whatever fails, dies or is cancelled meanwhile."""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from functools import partial
from typing import Any, NoReturn

import httpx
import pytest

import momopay
from bodies import envelope, refusal, wallet
from campaign.clocks import MachineClock, own_time
from drivers import KEY, LOOPBACK, Drive, Driver, hasty, session_of
from durable.kit import (
    KEY_CHECK,
    ORDERS,
    PAYOUTS,
    Call,
    Calls,
    Handler,
    Lanes,
    Serve,
    Service,
    Shop,
    collect,
    initiate,
    listed,
    long_ago,
    of_both_kinds,
    over_both_clients,
    pay,
    pay_all,
    payout_record,
    refund,
    release,
    requests,
    sweep,
)
from events_kit import Watcher
from journal.constants import ACCEPTED, COLLECTION, NOT_SENT, PHONE, REFUSED, UNKNOWN
from journal.database_kit import before_each, execute, just_before, locked
from journal.kit import found, put, put_collection, state_of
from momopay import (
    AsyncClient,
    ConfigurationError,
    Journal,
    JournalError,
    JournalState,
    OutcomeUnknownError,
    RateBudget,
    Transaction,
)
from momopay._core.config import Hooks
from momopay._core.operation import run_sync
from momopay._core.retry import BASE_BACKOFF
from momopay._transport.clock import now
from momopay.durable.access import JournalAccess, check_client
from momopay.events import RetryScheduled
from momopay.sandbox import Fault, Sandbox
from momopay.types import Lane
from patience import until
from virtual import virtual_client


class InterruptError(BaseException):
    """As a KeyboardInterrupt, which would end the test run."""


# Answers that are lost, and refusals.


@pytest.mark.parametrize(("client_kind", "calls"), [("blocking", PAYOUTS), ("async", ORDERS)])
def test_what_was_made_in_spite_of_a_fault_is_found_and_not_sent_again(shop: Shop, calls: Calls) -> None:
    for number, fault in enumerate((Fault.reset_after_commit, Fault.hang_after_commit, Fault.error_after_commit)):
        reference = f"r{number}"
        calls.fail_next(shop.sandbox, fault)
        with pytest.raises(OutcomeUnknownError):
            shop(hasty(calls.once(shop.journal, reference)))
        assert [(entry.kind, entry.reference) for entry in shop.journal.unresolved()] == [(calls.kind, reference)]
        again = shop(calls.once(shop.journal, reference))
        assert (again.is_new, again.status) == (False, "PENDING")
        entry = shop.entry(reference)
        assert (entry.state, entry.transaction_id) == (ACCEPTED, again.transaction_id)
        assert calls.sent(shop.sandbox) == number + 1


@of_both_kinds
def test_what_may_have_been_made_is_not_sent_again_without_a_person(shop: Shop, calls: Calls) -> None:
    for number, fault in enumerate((Fault.reset_before_read, Fault.error_before_commit, Fault.html_502)):
        reference, before = f"r{number}", calls.sent(shop.sandbox)
        calls.fail_next(shop.sandbox, fault)
        for number_of_call in range(3):
            with pytest.raises(OutcomeUnknownError) as caught:
                shop(calls.once(shop.journal, reference))
            entry, error = shop.entry(reference), caught.value
            assert (error.reference, error.amount, error.phone) == (reference, Decimal(10), entry.phone)
            assert entry.state is UNKNOWN
            assert number_of_call == 0 or error.sent_at == entry.sent_at
        assert calls.sent(shop.sandbox) - before <= 1  # one whose connection was reset before it was read is not seen
        long_ago(shop.journal)
        shop.release(reference, kind=calls.kind)
        assert shop(calls.once(shop.journal, reference)).is_new


@of_both_kinds
@over_both_clients
def test_an_answer_with_little_more_than_an_id_is_an_acceptance(serve: Serve, calls: Calls) -> None:
    shop = serve({"transaction_id": "t-1", "status": "PENDING"})
    made = shop(calls.once(shop.journal))
    assert (made.is_new, made.transaction_id, made.amount, made.reference) == (True, "t-1", 10, "r")
    assert getattr(made.transaction, "description", None) is None, "what the answer lacks stays unknown"
    assert (shop.state(), shop.requests) == (ACCEPTED, [f"POST {calls.path}"])


@of_both_kinds
def test_an_acceptance_of_another_payment_is_not_believed(drive: Drive, url: str, calls: Calls) -> None:
    mismatches: list[dict[str, Any]] = [
        {"amount": 77, "phone": "254712345679"},
        {"reference": "another", "accountReference": "another"},
        {"type": "WALLET_TOPUP"},
        {"transactionId": "t-other"},
    ]
    for number, mismatch in enumerate(mismatches):
        with Journal(url, account=f"shop {number}") as journal:
            put(journal, "another", ACCEPTED, transaction_id="t-other")
            service = Service(payout_record(**calls.fields | mismatch), pages=[[listed(**calls.fields)]])
            sdk, begun = drive(transport=service.transport), datetime.now(UTC)
            with pytest.raises(OutcomeUnknownError) as caught:
                sdk(calls.once(journal))
            assert "phone" not in mismatch or "answered with another amount, phone" in str(caught.value)
            error, entry = caught.value, found(journal)
            assert error.sent_at >= begun, "and not when the service made the other one"
            assert (error.reference, error.amount, error.phone) == (entry.reference, entry.amount, entry.phone)
            assert caught.value.transaction_id == found(journal).transaction_id == mismatch.get("transactionId", "t-1")
            assert (found(journal).state, found(journal).transactions) == (UNKNOWN, ()), mismatch
            assert sdk(calls.once(journal)).amount == Decimal(10)  # the list shows the payment itself
            assert (found(journal).state, found(journal).transaction_id) == (ACCEPTED, "t-1")
            assert service.sent == 1


@over_both_clients
@pytest.mark.parametrize("status", ["CANCELLED", "PENDING"])
@pytest.mark.parametrize("answered", ["t-1", "t-2"])
def test_an_answer_with_the_transaction_of_an_earlier_prompt_is_not_believed(
    serve: Serve, journal: Journal, status: str, answered: str
) -> None:
    """Also if that one is open, and abandoned. A new one that a read showed before the answer came is believed."""
    put(journal, "r", ACCEPTED, COLLECTION, transaction_id="t-1", status=status)

    def record_it() -> None:
        if answered == "t-2":
            journal.settle(Transaction.model_validate(listed(transactionId="t-2", type="STK")))

    answer = payout_record(transactionId=answered, type="STK")
    shop = serve(answer, read=listed(type="STK", status=status), on_post=record_it)
    if answered == "t-2":
        assert shop.collect(phone=PHONE, abandon_after=0).transaction_id == "t-2"
        assert (shop.state(), shop.entry().transaction_ids) == (ACCEPTED, ("t-1", "t-2"))
        return
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError) as caught:
            shop.collect(phone=PHONE, abandon_after=0)
        assert caught.value.transaction_id == "t-1"
    assert (shop.state(), shop.entry().transaction_ids, shop.service.sent) == (UNKNOWN, ("t-1",), 1)


def initiate_without(_: Journal) -> Call:
    return initiate("r")


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("call", [pay, collect, initiate_without])
def test_an_unknown_outcome_is_dated_by_the_first_attempt(
    serve: Serve, journal: Journal, call: Callable[[Journal], Call]
) -> None:
    """What a transport calls not sent may have been sent: a search for the payment begins there."""
    attempts: list[datetime] = []

    def fail() -> NoReturn:
        attempts.append(datetime.now(UTC))
        raise (httpx.ConnectError if len(attempts) == 1 else httpx.ReadTimeout)("the network is in trouble")

    begun = datetime.now(UTC)
    with pytest.raises(OutcomeUnknownError) as caught:
        serve(on_post=fail)(call(journal))
    assert len(attempts) == 2
    assert begun <= caught.value.sent_at <= attempts[0]


def limit(status: int, **details: Any) -> Callable[[], httpx.Response | None]:
    """Answer the first payment alone with this refusal."""
    refusals = [httpx.Response(status, json=refusal("RATE_LIMIT_EXCEEDED", **details))]
    return lambda: refusals.pop() if refusals else None


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize(("status", "executed"), [(200, True), (409, True), (429, True), (429, False)])
def test_a_limit_that_came_after_the_commit_is_searched_for_before_the_next_send(
    serve: Serve, status: int, executed: bool
) -> None:
    """A proxy answered for the service, which had executed the payout, or not; then it is sent within the call."""
    shop = serve(payout_record(), pages=[[listed()] if executed else []], on_post=limit(status))
    assert shop.pay().is_new is not executed
    assert (shop.state(), shop.entry().attempts) == (ACCEPTED, 1 if executed else 2)
    assert all(each.seconds <= BASE_BACKOFF for each in shop.seen.of(RetryScheduled))
    assert shop.requests == ["POST /b2c/payouts", "GET /transactions"] + ["POST /b2c/payouts"] * (not executed)


@pytest.mark.parametrize(
    ("pause", "attempts", "max_wait", "is_sent"),
    [(60, 4, None, False), (1, 1, None, False), (1, 4, 0.0, False), (1, 2, None, True), (1, 2, 1.0, True)],
)
def test_a_limit_is_waited_for_if_it_ends_within_the_call(
    serve: Serve, pause: int, attempts: int, max_wait: float | None, is_sent: bool
) -> None:
    refused = limit(429, limit=60, remaining=0, resetInSeconds=pause)
    options, begun = {"deadline": 10, "max_attempts": attempts, "max_wait": max_wait}, time.monotonic()
    shop = serve(payout_record(), on_post=refused, ahead=timedelta(0), options=options)
    if is_sent:
        paid = shop.pay()
        assert paid.is_new
        assert isinstance(paid.transaction, momopay.Payout)
        assert pause <= paid.transaction.response.elapsed <= time.monotonic() - begun < 9
        (retry,) = shop.seen.of(RetryScheduled)
        assert (retry.seconds, retry.status, retry.error) == (pause, 429, momopay.RateLimitExceededError)
        assert shop.requests == ["POST /b2c/payouts", "GET /transactions", "POST /b2c/payouts"]
        return
    with pytest.raises(momopay.RateLimitExceededError) as caught:
        shop.pay()
    assert (caught.value.retry_after, caught.value.may_have_executed) == (pause, False)
    assert (shop.state(), shop.entry().code) == (REFUSED, "RATE_LIMIT_EXCEEDED")
    assert shop.entry().clock_offset is not None, "its answer shows the service's clock"
    assert shop.requests == ["POST /b2c/payouts"]


def test_a_pause_that_the_service_ordered_sends_nothing_and_leaves_the_order(shop: Shop) -> None:
    shop.sandbox.ban_stk(shop.key)
    with pytest.raises(momopay.StkTempBannedError):
        shop.collect()
    before = shop.entry()
    with pytest.raises(momopay.StkTempBannedError) as caught:
        shop.collect()
    assert not caught.value.may_have_executed
    assert before.state is REFUSED
    assert shop.entry() == before
    assert ORDERS.sent(shop.sandbox) == 1


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("state", [None, REFUSED])
@pytest.mark.parametrize(("status", "is_sent"), [(403, True), (404, True), (401, False), (500, False)])
def test_a_key_that_may_not_read_the_wallet_may_pay(
    serve: Serve, journal: Journal, caplog: pytest.LogCaptureFixture, status: int, is_sent: bool, state: Any
) -> None:
    """Its first payment shows whose it is."""
    if state is not None:  # tried before, with another key
        put(journal, "r", state)

    def refuse(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(status, json=refusal("NO")) if request.url.path.endswith("balance") else None

    with nullcontext() if is_sent else pytest.raises(momopay.APIError):
        serve(payout_record(tenantId="ours"), instead=refuse).pay()
    assert execute(journal, "SELECT tenant_id FROM momopay_accounts") == [("ours" if is_sent else None,)]
    assert "does not belong" not in caplog.text
    if is_sent:
        record, options = payout_record(tenantId="theirs", transactionId="t-2"), {"api_key": "pk_test_of_another"}
        serve(record, instead=refuse, options=options).pay("s")
        assert "'s' was sent by tenant theirs, to which the journal does not belong" in caplog.text


# The lease, and the rate budget.


def test_the_history_of_a_payment_has_the_services_time_once_an_answer_has_shown_it(serve: Serve) -> None:
    ids = ["t-2", "t-1"]

    def accept() -> httpx.Response:
        return httpx.Response(201, json=envelope(payout_record(transactionId=ids.pop())))

    shop = serve(on_post=accept, ahead=timedelta(hours=2))
    for reference in ("first", "r"):
        shop.pay(reference)
    history: Any = shop.journal.history("r")
    assert {each.to for each in history} == {"SENDING", "ACCEPTED", "PENDING"}
    assert all(each.service_time - each.at > timedelta(hours=1) for each in history)


def test_a_lease_outlasts_the_deadline_of_its_call(serve: Serve, journal: Journal) -> None:
    ends: list[float] = []

    def look_at_the_lease() -> None:
        ends.append(execute(journal, "SELECT lease_until FROM momopay_payments")[0][0])

    deadline = now() + 50
    serve(payout_record(), on_post=look_at_the_lease, options={"deadline": 50.0}).pay()
    assert deadline + 20 < ends[0] < deadline + 120


@over_both_clients
def test_the_offset_is_that_of_the_clock_that_dated_the_attempt(drive: Drive, journal: Journal) -> None:
    """Although it was set before the response showed the service's time."""
    clocks = MachineClock(3600.0)

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(200, json=envelope(wallet()))
        clocks.ahead = 0.0
        return httpx.Response(500, headers={"date": format_datetime(datetime.now(UTC), usegmt=True)})

    with own_time(clocks, hastened=False), pytest.raises(OutcomeUnknownError):
        drive(transport=httpx.MockTransport(respond))(pay(journal))
    assert found(journal).clock_offset == pytest.approx(3600, abs=2)


def test_a_call_that_waits_for_the_budget_writes_nothing_yet(journal: Journal) -> None:
    """So a process that is killed in a long queue leaves nothing unresolved."""

    def answer(method: str, _path: str) -> tuple[int, Any]:
        return (201, envelope(payout_record())) if method == "POST" else (200, envelope(wallet()))

    client, port = virtual_client(answer, budget=RateBudget(1, 5.0))
    journal.reconcile_all(client)  # learns whose key it is
    states: list[object] = []
    for seconds in (1, 4):
        port.at(seconds, lambda: states.append(journal.get("r")))
    assert pay(journal)(client).is_new
    assert [seconds for seconds, method, _ in port.requests if method == "POST"] == [5.0]
    assert states == [None, None]
    with pytest.raises(momopay.BudgetExhaustedError):
        pay(journal, "s")(client.with_options(deadline=4.0))
    assert journal.get("s") is None


@pytest.mark.parametrize("was_refused", [False, True])
def test_a_refund_has_one_deadline(journal: Journal, was_refused: bool) -> None:
    """There is a slot every 5 s: the second one reads the order. None is left for the payout or its search."""
    put_collection(journal, statuses=["PENDING"])
    if was_refused:
        put(journal, "o-R1", REFUSED, amount=100)
        execute(journal, "UPDATE momopay_payments SET refund_of = 'o' WHERE reference = 'o-R1'")
    paid = envelope(listed("o", transactionId="o-0", type="STK", amount=100, status="SUCCESS"))

    def answer(_method: str, path: str) -> tuple[int, Any]:
        return 200, envelope(wallet()) if path in KEY_CHECK else paid

    client, port = virtual_client(answer, budget=RateBudget(1, 5.0), deadline=8.0)
    with pytest.raises(momopay.BudgetExhaustedError):
        refund(journal)(client)
    assert [f"{method} {path}" for _, method, path in port.requests] == [KEY_CHECK, "GET /transactions/o-0"]


@over_both_clients
@pytest.mark.parametrize("moment", ["committed", "connecting", "answered"])
def test_a_call_that_has_begun_records_its_outcome_in_a_journal_that_was_closed(
    serve: Serve, journal: Journal, url: str, moment: str
) -> None:
    is_sent = moment == "answered"

    def close() -> None:
        journal.close()
        if not is_sent:
            raise httpx.ConnectError("it is not there")

    shop = serve(payout_record(), on_post=close, options={"max_attempts": 1})
    shop.reconcile_all()
    with (
        just_before("COMMIT", journal, close, "after") if moment == "committed" else nullcontext(),
        nullcontext() if is_sent else pytest.raises((httpx.ConnectError, momopay.APIConnectionError)),
    ):
        shop.pay()
    with pytest.raises(momopay.ConfigurationError, match="closed"):
        journal.get("r")
    with Journal(url) as reopened:
        assert state_of(reopened) is (ACCEPTED if is_sent else NOT_SENT)


def test_a_slot_is_not_kept_while_a_row_that_has_changed_is_searched_for(serve: Serve, journal: Journal) -> None:
    shop = serve(payout_record(), options={"budget": (lanes := Lanes())})
    shop.reconcile_all()
    lanes.taken.clear()
    with just_before("BEGIN", journal, lambda: put(journal, "r", REFUSED)):
        assert shop.pay().is_new
    assert lanes.taken == [Lane.PAYMENT, Lane.READ, Lane.PAYMENT]
    assert shop.seen.changes() == ["REFUSED -> SENDING", "SENDING -> ACCEPTED PENDING"]


def test_nor_is_one_kept_that_a_payroll_took(serve: Serve, journal: Journal) -> None:
    shop = serve(payout_record(), options={"budget": (lanes := Lanes())})
    shop.reconcile_all()
    lanes.taken.clear()
    row = {"reference": "r", "amount": 10, "phone": PHONE}
    with just_before("BEGIN", journal, lambda: put(journal, "r", REFUSED)):
        (outcome,) = shop.sdk.collect(lambda client: client.payouts.pay_all([row], journal=journal))
    assert outcome.state is ACCEPTED
    assert lanes.taken == [Lane.PAYMENT, Lane.READ, Lane.PAYMENT]


# Processes that die, and calls that are cancelled or interrupted.


@of_both_kinds
def test_a_cancelled_call_stays_cancelled_and_its_payment_is_found(shop: Shop, calls: Calls) -> None:
    async def main() -> None:
        async with AsyncClient(shop.key, base_url=shop.sandbox.base_url, budget=None) as client:
            calls.fail_next(shop.sandbox, Fault.hang_after_commit)
            task = asyncio.create_task(calls.once(shop.journal)(client))
            while not calls.sent(shop.sandbox):  # noqa: ASYNC110  the sandbox has no event of this loop
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert shop.state() is UNKNOWN
            assert not (await calls.once(shop.journal)(client)).is_new

    asyncio.run(main())
    assert calls.sent(shop.sandbox) == 1


def test_a_coroutine_that_is_discarded_while_it_is_sent_leaves_the_outcome_unknown(journal: Journal) -> None:
    """As one whose event loop has ended: it cannot await any more."""
    service, sent, seen = Service(payout_record()), list[httpx.Request](), Watcher()

    async def hang(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            sent.append(request)
            await asyncio.Event().wait()
        return service.respond(request)

    async def main() -> None:
        transport = httpx.MockTransport(hang)
        async with AsyncClient(KEY, base_url=LOOPBACK, transport=transport, on_event=seen) as client:
            coroutine = pay(journal)(client)
            while not sent:
                future = coroutine.send(None)
                if future is None or sent:
                    await asyncio.sleep(0)
                else:
                    future._asyncio_future_blocking = False
                    await asyncio.wait([future])
            coroutine.close()

    asyncio.run(main())
    assert (state_of(journal), seen.changes()) == (UNKNOWN, ["-> SENDING"])


@over_both_clients
@pytest.mark.parametrize(
    ("change", "undo"),
    [
        ("UPDATE momopay_journal SET version = version", None),
        ("UPDATE momopay_payments SET claim = 'another'", None),
        ("ALTER TABLE momopay_payments RENAME TO gone", "ALTER TABLE gone RENAME TO momopay_payments"),
    ],
    ids=["nothing", "taken over", "away"],
)
def test_an_interrupt_while_it_is_sent_leaves_the_outcome_unknown(
    serve: Serve, journal: Journal, change: str, undo: str | None
) -> None:
    """And reports that, unless another call has the row by now, or the journal cannot be written."""

    def interrupt() -> NoReturn:
        execute(journal, change)
        raise InterruptError

    shop = serve(on_post=interrupt)
    with pytest.raises(InterruptError):
        shop.pay()
    if undo is not None:
        execute(journal, undo)
    assert (shop.state(), shop.entry().code) == (UNKNOWN, None)
    assert shop.seen.changes() == ["-> SENDING"] + ["SENDING -> UNKNOWN"] * ("version" in change)


def test_an_answer_that_was_lost_is_reported_though_the_journal_is_away(serve: Serve, journal: Journal) -> None:
    def lose() -> NoReturn:
        execute(journal, "ALTER TABLE momopay_payments RENAME TO gone")
        raise httpx.ReadTimeout("lost")

    with pytest.raises(OutcomeUnknownError):
        serve(on_post=lose).pay()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_strikes_while_an_outcome_is_written_loses_no_payment(shop: Shop, moment: str) -> None:
    """As Celery's soft time limit."""
    strikes = [ZeroDivisionError()]

    def strike(statement: str) -> None:
        if strikes and statement.startswith("INSERT INTO momopay_transactions"):
            raise strikes.pop()

    with before_each(strike, shop.journal, moment), pytest.raises(ZeroDivisionError):
        shop.pay()
    assert shop.state() is UNKNOWN
    assert (shop.pay().is_new, shop.state(), PAYOUTS.sent(shop.sandbox)) == (False, ACCEPTED, 1)


CHANGE_AT_ONCE = (
    "CREATE TRIGGER change AFTER INSERT ON momopay_history WHEN NEW.what = 'begun' BEGIN"
    " UPDATE momopay_payments SET {change} WHERE reference = 'r'; END"
)


@pytest.mark.parametrize(
    ("fresh_for", "held_up", "change"),
    [(-1.0, 0.0, "state = 'NOT_SENT'"), (0.3, 0.4, "state = 'NOT_SENT'"), (-1.0, 0.0, "claim = 'of another call'")],
)
def test_a_row_that_changed_while_the_call_was_held_up_is_not_sent(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, fresh_for: float, held_up: float, change: str
) -> None:
    """The process was frozen after it had written SENDING, or while it did; meanwhile somebody released the row.

    Another call may have written SENDING since. The age of the row counts from before the statement.
    """
    monkeypatch.setattr("momopay.durable.send._ROW_IS_FRESH", fresh_for)
    shop.reconcile_all()
    execute(shop.journal, CHANGE_AT_ONCE.format(change=change))
    with (
        just_before("INSERT INTO momopay_payments", shop.journal, partial(time.sleep, held_up)),
        pytest.raises(OutcomeUnknownError, match="this call sent nothing") as caught,
    ):
        shop.pay()
    assert caught.value.may_have_executed, "whoever changed the row may have sent it"
    assert PAYOUTS.paid(shop.sandbox) == []
    assert shop.pay("s").is_new


def test_a_call_that_cannot_read_its_row_again_sends_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momopay.durable.send._ROW_IS_FRESH", -1.0)
    shop.reconcile_all()
    statements: list[str] = []

    def strike(statement: str) -> None:
        if statement.startswith("SELECT") and statements[-1:] == ["COMMIT"] and statements.count("COMMIT") == 1:
            raise JournalError("the database is away")
        statements.append(statement)

    with pytest.raises(JournalError, match="is away") as caught, before_each(strike, shop.journal):
        shop.pay()
    assert (caught.value.may_have_executed, shop.state(), PAYOUTS.paid(shop.sandbox)) == (False, NOT_SENT, [])


def test_a_call_whose_row_was_taken_over_does_not_vouch_for_its_successor(shop: Shop, drive: Drive) -> None:
    shop.reconcile_all()
    execute(shop.journal, CHANGE_AT_ONCE.format(change="claim = 'another'"))
    with pytest.raises(momopay.APIConnectionError) as caught:
        drive(api_key=shop.key, base_url=LOOPBACK, max_attempts=1)(pay(shop.journal))
    assert caught.value.may_have_executed


# The journal as a call uses it: no longer than its deadline, and what its failures mean.


def test_what_fails_while_an_interrupted_call_is_recorded_is_logged_without_its_values(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    access = JournalAccess(session_of(virtual_client(lambda _method, _path: (200, b""))[0]), journal, "r")

    def fail() -> None:
        raise ValueError(PHONE)

    for cause in (KeyboardInterrupt(), GeneratorExit()):
        assert run_sync(access.finish(cause, fail)) is False
    assert [each.message for each in caplog.records] == ["reference 'r': not recorded: ValueError"]


@pytest.mark.parametrize("state", [None, ACCEPTED, UNKNOWN])
def test_what_a_call_asks_before_it_sends_ends_with_the_call(journal: Journal, state: JournalState | None) -> None:
    """It asks whose the key is, reads what was accepted, or searches for what is unresolved."""
    client, port = virtual_client(
        lambda _method, _path: (200, envelope(wallet())), budget=RateBudget(1, 9.0), deadline=90.0
    )
    if state is not None:
        client.wallet.balance()
        journal.reconcile_all(client)  # asks whose the key is
        put(journal, "r", state)

    def take_time(_reference: str) -> None:
        port.clock += 85.0
        client.wallet.balance()  # takes the next slot
        port.requests.clear()

    session_of(client).hooks = Hooks(before_payment=take_time)
    with pytest.raises(momopay.MomoPayError):
        pay(journal)(client)
    assert port.requests == []


@of_both_kinds
def test_without_its_journal_nothing_is_sent(sdk: Driver, sandbox: Sandbox, calls: Calls) -> None:
    with (
        Journal("postgresql+psycopg://nobody@127.0.0.1:1/nothing") as away,
        pytest.raises(ConfigurationError) as caught,
    ):
        sdk(calls.once(away))
    assert not caught.value.may_have_executed, "this process has never seen it"
    assert sandbox.requests == []


def test_a_locked_journal_holds_a_call_until_its_deadline(
    drive: Drive, key: str, sandbox: Sandbox, journal: Journal, url: str
) -> None:
    sdk = drive(api_key=key, base_url=sandbox.base_url)
    sdk(journal.reconcile_all)
    with locked(url):
        began = time.monotonic()
        with pytest.raises(JournalError) as caught:
            sdk(lambda client: pay(journal)(client.with_options(deadline=0.5)))
        assert time.monotonic() - began < 4
    assert not caught.value.may_have_executed
    assert (journal.get("r"), PAYOUTS.paid(sandbox)) == (None, [])
    assert sdk(pay(journal)).is_new


@pytest.mark.parametrize("client_kind", ["async"])
def test_no_call_uses_the_database_on_the_event_loop(shop: Shop) -> None:
    threads = set[threading.Thread]()
    with before_each(lambda _: threads.add(threading.current_thread())):
        shop.settle(shop.collect("o"))
        shop.refund()
        for fault in (Fault.reset_after_commit, Fault.reset_before_read):
            PAYOUTS.fail_next(shop.sandbox, fault)
            (outcome,) = shop.sdk.collect(pay_all(shop.journal, str(fault)))
        shop.later(600)
        shop.sweep(Handler())
        with pytest.raises(momopay.RequestValidationError, match=r"^reference: its last attempt may still"):
            shop.release(outcome.reference)
        day = shop.sandbox.now.date()
        shop(lambda client: client.transactions.reconcile(journal=shop.journal, day=day))
        assert [each.state for each in shop.reconcile_all()] == [UNKNOWN]
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("call", [pay, collect, refund, release, sweep])
def test_a_journal_that_went_back_in_time_is_refused_before_anything_is_sent(shop: Shop, url: str, call: Any) -> None:
    shop.pay("before")
    execute(shop.journal, "UPDATE momopay_accounts SET sequence = 0")
    shop.sandbox.reset()
    with pytest.raises(momopay.ConfigurationError, match="went back in time"):
        shop(call(shop.journal))
    with Journal(url) as journal:  # whoever only asks whose it is may go on, also with a key that is new to it
        execute(journal, "DELETE FROM momopay_keys")
        check_client(shop.sdk.client, journal)
    (outcome,) = shop.sdk.collect(pay_all(shop.journal, "r", "s"))
    assert isinstance(outcome.error, momopay.ConfigurationError)
    assert requests(shop.sandbox) == []


def test_many_tasks_end_in_time_though_the_journal_is_locked(shop: Shop, url: str) -> None:
    """There are fewer threads than tasks, so most wait for one before they can wait for the lock."""

    async def main() -> float:
        async with AsyncClient(shop.key, base_url=shop.sandbox.base_url, deadline=0.4) as client:
            await shop.journal.reconcile_all(client)
            with locked(url):
                began = time.monotonic()
                calls = (pay(shop.journal, f"r{number}")(client) for number in range(45))
                errors = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(error) for error in errors} == {JournalError}
                return time.monotonic() - began

    assert asyncio.run(main()) < 8
    assert PAYOUTS.paid(shop.sandbox) == []


def test_a_cancelled_task_does_not_wait_for_a_locked_journal_and_leaves_nothing_unresolved(
    shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momopay._transport.threads.CANCELLED_WAIT", 0.2)

    async def main() -> float:
        async with AsyncClient(shop.key, base_url=shop.sandbox.base_url, deadline=20) as client:
            await shop.journal.reconcile_all(client)
            with locked(url):
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await pay(shop.journal)(client)
                return time.monotonic() - began

    assert asyncio.run(main()) < 4
    # The statement that waited comes through, finds that its call is over, and undoes itself.
    until(lambda: (entry := shop.journal.get("r")) is None or entry.state is NOT_SENT, "the row is free")
    assert PAYOUTS.paid(shop.sandbox) == []


def test_a_row_that_a_cancelled_call_still_writes_is_not_sent(shop: Shop) -> None:
    """The outcome is recorded first, and finds no row. Then the statement that waited comes through."""
    waiting, tried, undone = threading.Lock(), threading.Event(), threading.Event()

    def look(statement: str) -> None:
        if statement.startswith("SELECT momopay_payments.account"):  # in the transaction that records it
            (undone if tried.is_set() else tried).set()
            undone.wait(0.5)

    async def main() -> None:
        async with AsyncClient(shop.key, base_url=shop.sandbox.base_url) as client:
            await shop.journal.reconcile_all(client)
            held = just_before("BEGIN", shop.journal, lambda: waiting.acquire() and tried.wait(30))
            with before_each(look, shop.journal, "after"), held:
                task = asyncio.create_task(pay(shop.journal)(client))
                while not waiting.locked():  # noqa: ASYNC110  the journal has no event
                    await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    asyncio.run(main())
    until(lambda: shop.journal.get("r") is not None and shop.state() is NOT_SENT, "the row is free")


@of_both_kinds
def test_a_payment_is_returned_though_its_outcome_cannot_be_written(
    shop: Shop, drive: Drive, caplog: pytest.LogCaptureFixture, calls: Calls
) -> None:
    shop.reconcile_all()
    sdk = drive(api_key=shop.key, base_url=shop.sandbox.base_url, on_event=(seen := Watcher()))
    execute(
        shop.journal,
        "CREATE TRIGGER full BEFORE INSERT ON momopay_transactions BEGIN SELECT RAISE(ABORT, 'disk full'); END",
    )
    first = sdk(calls.once(shop.journal))
    assert (first.is_new, shop.entry().state, seen.changes()) == (True, UNKNOWN, ["-> SENDING"])
    assert shop(calls.once(shop.journal)).transaction_id == first.transaction_id
    assert len(re.findall("reference 'r': .*disk full", caplog.text)) == 2
    execute(shop.journal, "DROP TRIGGER full")
    assert not shop(calls.once(shop.journal)).is_new
    assert (shop.entry().state, calls.sent(shop.sandbox)) == (ACCEPTED, 1)


def test_a_journal_that_cannot_be_written_says_that_nothing_moved_and_one_that_cannot_be_read_does_not(
    shop: Shop,
) -> None:
    shop.reconcile_all()
    full = "CREATE TRIGGER full BEFORE INSERT ON momopay_payments BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    for statement, may_have_executed in ((full, False), ("ALTER TABLE momopay_payments RENAME TO gone", True)):
        execute(shop.journal, statement)
        with pytest.raises(JournalError) as caught:
            shop.pay()
        assert caught.value.may_have_executed is may_have_executed
    assert requests(shop.sandbox) == []
