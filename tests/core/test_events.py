"""What `on_event` receives, in which order, and that nothing which it does changes a payment."""

import asyncio
import json
import sys
import traceback
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

import momopay
from core import kit
from core.kit import NOT_SENT, SUCCESS, Answer, error_answer, initiate_stk, limited, lost, reach, read_balance, top_up
from drivers import KEY, LOOPBACK, Drive, Driver, learn_key, session_of
from durable.kit import BY_HAND, FAILING, Service, collect, pay, payout_record, sweep
from events_kit import Watcher
from in_turn import in_turn
from journal.constants import ACCEPTED, PHONE
from journal.constants import NOT_SENT as UNSENT
from journal.kit import state_of
from models.kit import ID, callback_with
from momopay import AsyncClient, CallbackError, Client, ConfigurationError, Journal, OutcomeUnknownError
from momopay._core.events import Observer, outcome_of
from momopay._core.operation import run_sync
from momopay._core.reads import read_tenant
from momopay.events import AttemptEnded, BudgetWaited, CallEnded, CallStarted, Event, JournalChanged, SweepEnded
from momopay.sandbox import Fault, Sandbox
from resources.kit import AT_ONCE

LOCAL_PHONE = "0712345678"
READ_OF_THE_TENANT = "AttemptEnded GET /wallets/service/balance 1 200"
"""The first durable call with a key that the journal does not know asks whose key it is."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The journal of these tests: what an observer does concerns no database."""
    return f"sqlite:///{tmp_path / 'payments.db'}"


@pytest.fixture
def seen() -> Watcher:
    return Watcher()


@pytest.fixture
def sdk(drive: Drive, sandbox: Sandbox, key: str, seen: Watcher) -> Driver:
    return drive(api_key=key, base_url=sandbox.base_url, deadline=3.0, on_event=seen)


@pytest.mark.parametrize("raised", [ValueError("a bug"), OutcomeUnknownError("not ours", sent_at=datetime.now(UTC))])
def test_an_exception_in_on_event_changes_nothing(
    drive: Drive, sandbox: Sandbox, journal: Journal, key: str, raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    sdk = drive(api_key=key, base_url=sandbox.base_url, deadline=3.0, on_event=(seen := Watcher(every=raised)))
    paid = sdk(initiate_stk)
    assert sdk(pay(journal)).reference == "r"
    assert state_of(journal) is ACCEPTED
    sandbox.advance(600)
    assert sdk(lambda client: client.transactions.wait(paid, schedule=AT_ONCE)).status == "SUCCESS"
    routes = ["/payments/stk", "/wallets/service/balance", "/b2c/payouts", "/transactions/{id}"]
    assert [each.route for each in seen.of(AttemptEnded)] == routes
    failures = [(each.levelname, "Traceback" in each.message) for each in caplog.records if "on_event" in each.message]
    assert Counter(failures) == {("ERROR", True): 5, ("ERROR", False): 8}, "a traceback once for each kind of event"


@pytest.mark.parametrize("kind", ["CallStarted", "JournalChanged", "AttemptEnded", "CallEnded"])
def test_an_interrupt_in_on_event_loses_no_outcome(drive: Drive, journal: Journal, kind: str) -> None:
    learn_key(journal, "https://api.example/v1")
    service, seen = Service(payout_record()), Watcher(**{kind: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        drive(transport=service.transport, on_event=seen)(pay(journal))
    begun = kind != "CallStarted"
    assert [each.state for each in journal.entries()] == [ACCEPTED] * begun
    assert service.sent == begun
    assert type(seen.events[-1]) is (CallEnded if begun else CallStarted)
    assert [each.may_have_executed for each in seen.of(CallEnded)] == [kind != "CallEnded"] * begun


async def later(_event: object) -> None: ...


@in_turn("on_event", ["text", 7, object(), later, partial(later), type("Later", (), {"__call__": later})()])
def test_what_cannot_be_called_or_is_async_is_refused(on_event: Any) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(ConfigurationError, match="on_event"):
            client(KEY, base_url=LOOPBACK, on_event=on_event)


def test_an_awaitable_is_not_awaited_and_no_trace_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """The default run turns the warning of a coroutine that is never awaited into an error."""
    returned = [later(None), type("Later", (), {"__await__": later})()]

    def on_event(_event: object) -> object:
        if not returned:
            raise ValueError(f"{KEY} {PHONE}")
        return returned.pop()

    for _ in range(3):
        Observer(on_event)(CallStarted(operation="stk.initiate", call_id=1, at=0.0))
    failures = [record.message.partition("\n")[0] for record in caplog.records]
    kinds = ("TypeError", "TypeError", "ValueError")
    assert failures == [f"on_event failed on CallStarted: {each}" for each in kinds]
    assert not [secret for secret in (KEY, PHONE) if secret in caplog.text]


@in_turn("outcome", ["accepted", "duplicate", "forged", "invalid", "mismatch", "busy", "failed"])
def test_of_a_callback_that_anybody_may_have_sent_only_its_id_is_reported(outcome: Any) -> None:
    seen = list[Any]()
    operation = Observer(seen.append).start("callbacks.receive", iter([10.0, 12.5]).__next__)
    operation.callback_received(callback_with(), None, 403, outcome)
    stated = "SUCCESS" if outcome in {"accepted", "duplicate"} else None
    (received,) = seen
    assert (received.transaction_id, received.transaction_status) == (ID, stated)
    assert (received.seconds, received.status) == (2.5, 403)


def test_events_that_were_held_back_come_in_their_order() -> None:
    seen = list[Any]()
    operation = Observer(seen.append).start("payouts.pay_once", lambda: 0.0)
    with operation.held():
        operation.call_started()
        assert seen == []
        operation.retry_scheduled(method="POST", route="/b2c/payouts", attempt=1, seconds=0.5, error=None)
        assert len(seen) == 2  # nothing is in flight
        operation.call_ended(None, None)
        assert len(seen) == 2
    assert [type(each) for each in seen] == [CallStarted, momopay.events.RetryScheduled, CallEnded]
    assert abs(seen[0].at - datetime.now(UTC).timestamp()) < 60


def test_what_the_service_calls_error_or_payment_is_that_of_no_call() -> None:
    seen = list[Any]()
    record = callback_with(error="of the service", payment=7).transaction
    Observer(seen.append).start("transactions.get", lambda: 0.0).call_ended(None, record)
    assert [(each.error, each.transaction_id, each.transaction_status) for each in seen] == [(None, ID, "SUCCESS")]


def test_a_phone_in_the_callers_text_is_masked() -> None:
    seen = list[Any]()
    operation = Observer(seen.append).start("transactions.wait", lambda: 0.0)
    operation.wait_ended(PHONE, 1.0, 0, None, None)  # it read nothing
    operation.journal_changed("PAYOUT", PHONE, None, "SENDING")
    operation.callback_received(callback_with(external_reference=PHONE))
    assert [seen[0].transaction_id, seen[1].reference, seen[2].reference] == ["2547*****678"] * 3
    assert (seen[1].old_state, seen[1].new_state) == (None, "SENDING")


@in_turn(
    ("error", "outcome"),
    [
        (momopay.CallbackMismatchError("no", transaction_id="x", fields=[]), "mismatch"),
        (momopay.TransactionNotFoundError("no", code="TRANSACTION_NOT_FOUND", status_code=404), "mismatch"),
        *((momopay.ForgedCallbackError("no"), "forged"), (momopay.InvalidCallbackError("no"), "invalid")),
        *((CallbackError("no"), "busy"), (ValueError("no"), "failed"), (KeyboardInterrupt(), "failed")),
    ],
)
def test_an_error_of_a_callback_is_one_of_these_outcomes(error: BaseException, outcome: str) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.usefixtures("no_backoff")
def test_a_second_attempt_and_a_wait_for_the_budget_are_reported() -> None:
    seen = Watcher()
    client, _ = reach(error_answer(500, "INTERNAL"), SUCCESS, budget=momopay.RateBudget(1, 5.0), on_event=seen)
    read_balance(client)
    ended = seen.of(CallEnded)[0]
    assert (ended.attempts, ended.seconds, ended.status, ended.request_id) == (2, 5.0, 200, "9f1c")
    assert (ended.may_have_executed, ended.reference) == (False, None)
    assert [each.seconds for each in seen.of(momopay.events.RetryScheduled)] == [0.0]
    assert [(each.request_id, each.seconds) for each in seen.of(AttemptEnded)] == [("9f1c", 0.0)] * 2
    (waited,) = seen.of(BudgetWaited)
    assert (waited.lane, waited.seconds, waited.error, waited.operation) == ("read", 5.0, None, "wallet.balance")
    route = "GET /wallets/service/balance"
    assert seen.take() == [
        "CallStarted wallet.balance",
        f"AttemptEnded {route} 1 500 ServerError",
        f"RetryScheduled {route} 1 500 ServerError",
        "BudgetWaited read",
        f"AttemptEnded {route} 2 200",
        "CallEnded wallet.balance",
    ]
    budget = momopay.RateBudget(2, 5.0)
    client, _ = reach(error_answer(500, "INTERNAL"), lost(), budget=budget, deadline=4.0, on_event=seen)
    for raised in (momopay.APIConnectionError, momopay.BudgetExhaustedError):
        with pytest.raises(raised):
            read_balance(client)
        assert [(each.status, each.request_id) for each in seen.of(CallEnded)] == [(None, None)]
        assert seen.of(BudgetWaited)[-1].seconds == 0.0  # it was refused at once
        ended = f"CallEnded wallet.balance {raised.__name__}"
        assert seen.take()[-2:] == ["BudgetWaited read BudgetExhaustedError", ended]


def confirm(callback: momopay.Callback, client: Any) -> Any:
    return client.transactions.confirm(callback)


@pytest.mark.parametrize(
    "call", [partial(initiate_stk, account_reference=LOCAL_PHONE), partial(confirm, callback_with(id=LOCAL_PHONE))]
)
def test_the_error_that_an_observer_could_report_shows_no_phone(drive: Drive, call: Any) -> None:
    """As a crash reporter does that an observer calls: it shows the locals of each frame of the current error."""
    shown = list[str]()

    def on_event(_event: object) -> None:
        error = sys.exception()
        if error is not None:
            shown.extend(repr(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__))

    with pytest.raises(momopay.MomoPayError) as raised:
        drive(base_url=LOOPBACK, max_attempts=1, on_event=on_event)(call)
    frames = [frame for frame, _ in traceback.walk_tb(raised.tb) if frame.f_globals["__name__"].startswith("momopay")]
    shown.extend(repr(frame.f_locals) for frame in frames)
    assert len(shown) > 2
    assert not any(PHONE[3:] in each or LOCAL_PHONE in each for each in shown)


def test_a_call_that_an_observer_makes_is_reported_as_its_own(sandbox: Sandbox, key: str) -> None:
    seen = list[Event]()

    def on_event(event: Event) -> None:
        seen.append(event)
        if len(seen) == 1:
            client.wallet.balance()

    with Client(key, base_url=sandbox.base_url, on_event=on_event) as client:
        client.wallet.balance()
    first, second = dict.fromkeys(each.call_id for each in seen)
    assert [each.call_id for each in seen] == [first, second, second, second, first, first]


def test_an_interrupt_in_on_event_names_the_payment_that_has_no_journal(
    drive: Drive, sandbox: Sandbox, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Watcher(AttemptEnded=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        drive(api_key=key, base_url=sandbox.base_url, on_event=seen)(
            partial(initiate_stk, account_reference=LOCAL_PHONE)
        )
    assert "(POST /payments/stk) was interrupted: its outcome is unknown, reference '0712*****678'" in caplog.text
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert seen.of(CallStarted)[0].reference == "0712*****678"


def test_an_interrupt_in_on_event_forgets_no_pause() -> None:
    client, service = reach(error_answer(429, "STK_TEMP_BANNED"), on_event=Watcher(AttemptEnded=KeyboardInterrupt()))
    for raised in (KeyboardInterrupt, momopay.StkTempBannedError):
        with pytest.raises(raised):
            initiate_stk(client)
    assert len(service.sent) == 1


def test_the_callers_reference_is_reported_and_not_that_of_the_wire() -> None:
    order: dict[str, Any] = {"reference": "INV-42", "account_reference": "METER-7", "amount": 100, "phone": PHONE}
    client, _ = reach(SUCCESS, on_event=(seen := Watcher()))
    with pytest.raises(ConfigurationError, match="journal"):
        client.stk.collect_once(**order)
    assert {event.reference for event in seen.of(CallStarted)} == {"INV-42"}


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize("call", [kit.initiate_payout, kit.update_channel, pay], ids=["initiate", "update", "pay_once"])
def test_an_interrupt_of_a_request_that_was_sent_says_that_it_may_have_executed(
    drive: Drive, journal: Journal, call: Any
) -> None:
    seen = Watcher()
    learn_key(journal, "https://api.example/v1")
    with pytest.raises(KeyboardInterrupt):
        drive(transport=httpx.MockTransport(interrupt), on_event=seen)(pay(journal) if call is pay else call)
    assert seen.of(CallEnded)[0].may_have_executed


@in_turn(
    ("call", "answer", "says"), [(top_up, lost(), True), (top_up, limited(5), False), (read_balance, lost(), False)]
)
def test_an_interrupt_of_a_backoff_says_what_the_attempt_did(call: Any, answer: Answer, *, says: bool) -> None:
    client, service = reach(answer, on_event=(seen := Watcher()))
    service.at(0.0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        call(client)
    assert (seen.of(AttemptEnded)[0].is_sent, seen.of(CallEnded)[0].may_have_executed) == (True, says)


@in_turn("is_durable", [False, True])
def test_an_interrupt_while_it_connects_comes_before_anything_was_sent(journal: Journal, *, is_durable: bool) -> None:
    client, service = reach(SUCCESS, on_event=(seen := Watcher()))
    journal.reconcile_all(client)  # asks whose key it is
    seen.take()

    async def connect(*_arguments: object, progress: Any, **_options: object) -> NoReturn:
        progress.connecting = True
        raise KeyboardInterrupt

    vars(service)["send"] = connect
    with pytest.raises(KeyboardInterrupt):
        (pay(journal) if is_durable else top_up)(client)
    assert (seen.of(AttemptEnded)[0].is_sent, seen.of(CallEnded)[0].may_have_executed) == (False, False)
    assert [each.state for each in journal.entries()] == [UNSENT] * is_durable


def test_what_an_earlier_request_of_a_call_did_is_not_forgotten() -> None:
    client, _ = reach(lost(), SUCCESS)
    session = session_of(client)
    session.events = Observer(print).start("stk.collect_once", lambda: 0.0)
    with pytest.raises(OutcomeUnknownError):
        type(client.stk)(session).initiate(amount=100, phone=PHONE)
    run_sync(read_tenant(session))
    assert session.events.may_have_executed


# What is reported, and in which order.


def test_a_success_and_an_unknown_outcome(sdk: Driver, sandbox: Sandbox, seen: Watcher) -> None:
    paid = sdk(initiate_stk)
    (started,), (attempt,), (ended,) = map(seen.of, (CallStarted, AttemptEnded, CallEnded))
    assert seen.events == [started, attempt, ended]
    assert {(each.operation, each.call_id) for each in seen.events} == {("stk.initiate", started.call_id)}
    assert 0 < attempt.seconds <= ended.seconds
    assert started.at <= attempt.at <= ended.at
    of_request: dict[str, Any] = {"request_id": paid.response.request_id, "status": 200, "error": None}
    known = {"method": "POST", "route": "/payments/stk", "attempt": 1, "is_sent": True}
    assert asdict(attempt).items() >= (known | of_request).items()
    of_payment = {"transaction_id": paid.transaction_id, "transaction_type": "STK", "transaction_status": "PENDING"}
    known = {"reference": started.reference, "may_have_executed": False, "attempts": 1}
    assert asdict(ended).items() >= (known | of_request | of_payment).items()
    seen.take()
    sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError) as raised:
        sdk(initiate_stk)
    assert f"request {seen.of(AttemptEnded)[0].request_id})" in str(raised.value)
    assert seen.of(CallEnded)[0].may_have_executed
    assert seen.take() == [
        "CallStarted stk.initiate",
        "AttemptEnded POST /payments/stk 1 500 ServerError",
        "CallEnded stk.initiate OutcomeUnknownError",
    ]


def test_pay_once_and_its_replay(sdk: Driver, journal: Journal, seen: Watcher) -> None:
    sdk(pay(journal))
    assert {each.operation for each in seen.events} == {"payouts.pay_once"}
    assert seen.take() == [
        "CallStarted payouts.pay_once",
        READ_OF_THE_TENANT,
        "JournalChanged -> SENDING",
        "AttemptEnded POST /b2c/payouts 1 200",
        "JournalChanged SENDING -> ACCEPTED PENDING",
        "CallEnded payouts.pay_once",
    ]
    sdk(pay(journal))
    assert seen.take()[1] == "AttemptEnded GET /transactions/{id} 1 200"


@pytest.mark.usefixtures("no_backoff")
def test_a_durable_call_that_repeats(journal: Journal, seen: Watcher) -> None:
    client, _ = reach(SUCCESS, NOT_SENT, on_event=seen, max_attempts=2)
    with pytest.raises(momopay.MomoPayError):
        pay(journal)(client)
    assert [each.is_sent for each in seen.of(AttemptEnded)] == [True, False, False]
    assert not seen.of(CallEnded)[0].may_have_executed
    assert seen.take()[2:] == [
        "JournalChanged -> SENDING",
        "AttemptEnded POST /b2c/payouts 1 APIConnectionError",
        "RetryScheduled POST /b2c/payouts 1 APIConnectionError",
        "AttemptEnded POST /b2c/payouts 2 APIConnectionError",
        "JournalChanged SENDING -> NOT_SENT",
        "CallEnded payouts.pay_once APIConnectionError",
    ]
    seen.troubles["RetryScheduled"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        pay(journal, "s")(client)
    assert state_of(journal, "s") is UNSENT
    assert seen.changes() == ["-> SENDING", "SENDING -> NOT_SENT"]


def test_collect_once_after_a_cancelled_prompt(sdk: Driver, sandbox: Sandbox, journal: Journal, seen: Watcher) -> None:
    first = sdk(collect(journal))
    sandbox.cancel(first)
    seen.take()
    sdk(collect(journal))
    change = seen.of(JournalChanged)[0]
    known = {"kind": "COLLECTION", "reference": "r", "transaction_id": first.transaction_id}
    assert asdict(change).items() >= known.items()
    assert seen.take() == [
        "CallStarted stk.collect_once",
        "AttemptEnded GET /transactions/{id} 1 200",
        "JournalChanged ACCEPTED -> ACCEPTED CANCELLED",
        "JournalChanged ACCEPTED -> SENDING",
        "AttemptEnded POST /payments/stk 1 200",
        "JournalChanged SENDING -> ACCEPTED PENDING",
        "CallEnded stk.collect_once",
    ]


def test_a_sweep(sdk: Driver, sandbox: Sandbox, journal: Journal, seen: Watcher) -> None:
    for reference, phone in (("a", PHONE), ("b", FAILING)):
        sdk(pay(journal, reference, phone=phone))
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, "lost"))
    sandbox.advance(3600)
    seen.take()
    report = sdk(sweep(journal))
    (swept,) = seen.of(SweepEnded)
    counts = {"settled": 2, "open": 0, "unknown": 1, "handled": 0, "failed": 0}
    assert asdict(swept).items() >= counts.items()
    assert {name: getattr(report, name) for name in counts} == counts
    changes = {each.reference: each.transaction_status for each in seen.of(JournalChanged)}
    assert changes == {"a": "SUCCESS", "b": "REVERSED"}
    assert {each.operation for each in seen.events} == {"transactions.sweep"}
    assert seen.take()[-2:] == ["SweepEnded", "CallEnded transactions.sweep"]


def test_a_payroll_reports_each_payout(sdk: Driver, journal: Journal, seen: Watcher) -> None:
    payroll = [{"reference": each, "amount": 10, "phone": PHONE} for each in "ab"]
    outcomes = sdk.collect(lambda client: client.payouts.pay_all([*payroll, {"reference": "c"}], journal=journal))
    ended = seen.of(CallEnded)
    assert [each.call_id for each in ended] == [each.call_id for each in seen.of(CallStarted)]
    assert [(each.operation, each.reference) for each in ended] == [("payouts.pay_all", each) for each in "abc"]
    assert [each.transaction_id for each in ended[:2]] == [each.payment.transaction_id for each in outcomes[:2]]
    assert [each.error for each in ended] == [None, None, momopay.RequestValidationError]


def test_a_wait(sdk: Driver, sandbox: Sandbox, seen: Watcher) -> None:
    paid, briefly = sdk(partial(initiate_stk, phone=BY_HAND)), momopay.PollSchedule(first=0, every=0.05, limit=0.08)
    with pytest.raises(momopay.WaitTimeoutError):
        sdk(lambda client: client.transactions.wait(paid, schedule=briefly))
    sandbox.enter_pin(paid)
    sandbox.advance(60)
    begun = len(seen.events)
    sdk(lambda client: client.transactions.wait(paid, schedule=AT_ONCE))
    timeout, ended = seen.of(momopay.events.WaitEnded)
    assert (timeout.error, timeout.transaction_status) == (momopay.WaitTimeoutError, "PENDING")
    assert timeout.polls >= 1
    known = {"transaction_id": paid.transaction_id, "transaction_type": "STK", "polls": 1, "error": None}
    assert asdict(ended).items() >= known.items()
    assert seen.take()[begun:] == [
        "CallStarted transactions.wait",
        "AttemptEnded GET /transactions/{id} 1 200",
        "WaitEnded SUCCESS",
        "CallEnded transactions.wait",
    ]


def test_waits_for_many_are_a_call_for_each_end(sdk: Driver, sandbox: Sandbox, seen: Watcher) -> None:
    prompts = [sdk(partial(initiate_stk, amount=number + 1)) for number in range(3)]
    sandbox.advance(600)
    seen.take()
    ends = sdk.collect(lambda client: client.transactions.wait_all(prompts, schedule=AT_ONCE))
    assert [each.transaction_id for each in seen.of(momopay.events.WaitEnded)] == [each.transaction_id for each in ends]
    assert [each.transaction_id for each in seen.of(CallEnded)] == [each.transaction_id for each in ends]
    assert seen.take() == [
        "CallStarted transactions.wait_all",
        "AttemptEnded GET /transactions 1 200",
        *["WaitEnded SUCCESS", "CallEnded transactions.wait_all", "CallStarted transactions.wait_all"] * 2,
        "WaitEnded SUCCESS",
        "CallEnded transactions.wait_all",
    ]


def test_confirmations(sdk: Driver, sandbox: Sandbox, seen: Watcher) -> None:
    paid = sdk(initiate_stk)
    sandbox.advance(600)
    stated = {"id": paid.transaction_id, "status": "SUCCESS", "type": "STK", "external_reference": "INV-42"}
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, None),
        ({"amount": 7}, momopay.CallbackMismatchError),
        ({"id": PHONE}, momopay.TransactionNotFoundError),
    ]
    for fields, error in cases:
        callback = momopay.parse_callback(json.dumps({"event_type": "stk.success", "transaction": stated | fields}))
        with nullcontext() if error is None else pytest.raises(error):
            sdk(partial(confirm, callback))
    received = seen.of(momopay.events.CallbackReceived)
    assert {(each.operation, each.status) for each in received} == {("transactions.confirm", None)}
    assert [(each.outcome, each.error, each.transaction_id, each.transaction_status) for each in received] == [
        ("accepted", None, paid.transaction_id, "SUCCESS"),
        ("mismatch", momopay.CallbackMismatchError, paid.transaction_id, None),
        ("mismatch", momopay.TransactionNotFoundError, "2547*****678", None),
    ]


def test_no_event_shows_a_key_or_a_whole_phone(
    sdk: Driver, sandbox: Sandbox, journal: Journal, key: str, seen: Watcher
) -> None:
    """Where a phone can be given, it is: as the reference, in a search and in a callback."""
    sdk(partial(initiate_stk, account_reference=LOCAL_PHONE))
    sdk(kit.initiate_payout)
    sdk(pay(journal, f"for {PHONE}"))
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal, PHONE))
    sdk(collect(journal, PHONE))
    sdk(lambda client: client.transactions.list(q=PHONE))
    with pytest.raises(momopay.MomoPayError):
        sdk(lambda client: client.transactions.get(PHONE))
    with pytest.raises(momopay.MomoPayError):
        sdk(lambda client: client.transactions.wait(PHONE, schedule=AT_ONCE))
    sandbox.advance(600)
    sdk(sweep(journal))
    shown = seen.texts()
    assert not [secret for secret in (key, PHONE[3:], LOCAL_PHONE) if secret in shown]
    kinds = {CallStarted, AttemptEnded, JournalChanged, SweepEnded, momopay.events.WaitEnded}
    assert {type(each) for each in seen.events} >= kinds


def test_a_cancelled_call_is_reported(sandbox: Sandbox, key: str, seen: Watcher) -> None:
    sandbox.fail_next("GET", "/wallets/service/balance", Fault.hang_after_commit)

    async def main() -> None:
        async with momopay.AsyncClient(key, base_url=sandbox.base_url, on_event=seen) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.wallet.balance(), 0.2)

    asyncio.run(main())
    assert not seen.of(CallEnded)[0].may_have_executed
    assert seen.take() == [
        "CallStarted wallet.balance",
        "AttemptEnded GET /wallets/service/balance 1 CancelledError",
        "CallEnded wallet.balance CancelledError",
    ]
