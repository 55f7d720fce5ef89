"""What `on_event` receives, in which order, and that nothing which it does changes a payment."""

import asyncio
import dataclasses
import json
import pickle
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import momopay
from core.kit import NOT_SENT, SUCCESS, reach
from drivers import LOOPBACK, Driver
from durable.kit import long_ago
from events_kit import Watcher
from in_turn import in_turn
from momopay import Journal, MomoPayError, OutcomeUnknownError, PollSchedule, events, parse_callback
from momopay.events import AttemptEnded, CallEnded, CallStarted, JournalChanged, SweepEnded, WaitEnded
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from resources.kit import AT_ONCE, LOCAL_PHONE, pay, prompt

PHONE = "254712345678"
BY_HAND = phone_for(Outcome.by_hand)
READ_OF_THE_TENANT = "AttemptEnded GET /wallets/service/balance 1 200"
"""The first durable call with a key that the journal does not know asks whose key it is."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'payouts.db'}"


@pytest.fixture
def seen() -> Watcher:
    return Watcher()


@pytest.fixture
def sdk(drive: Callable[..., Driver], sandbox: Sandbox, key: str, seen: Watcher) -> Driver:
    return drive(api_key=key, base_url=sandbox.base_url, deadline=3.0, on_event=seen)


def pay_once(journal: Journal, **fields: Any) -> Callable[[Any], Any]:
    arguments: dict[str, Any] = {"reference": "PAY-7", "amount": 100, "phone": PHONE, **fields}
    return lambda client: client.payouts.pay_once(journal=journal, **arguments)


def collect(journal: Journal, **fields: Any) -> Callable[[Any], Any]:
    arguments: dict[str, Any] = {"reference": "INV-42", "amount": 100, "phone": BY_HAND, **fields}
    return lambda client: client.stk.collect_once(journal=journal, **arguments)


def test_a_success(sdk: Driver, seen: Watcher) -> None:
    paid = sdk(prompt)
    started, attempt, ended = seen.events
    assert isinstance(started, CallStarted)
    assert isinstance(attempt, AttemptEnded)
    assert isinstance(ended, CallEnded)
    assert {each.operation for each in seen.events} == {"stk.initiate"}
    assert len({each.call_id for each in seen.events}) == 1
    assert started.reference == ended.reference == "INV-42"
    assert (attempt.method, attempt.route, attempt.attempt, attempt.status) == ("POST", "/payments/stk", 1, 200)
    assert (attempt.error, attempt.is_sent) == (None, True)
    assert attempt.request_id == ended.request_id == paid.response.request_id
    assert 0 < attempt.seconds <= ended.seconds
    assert started.at <= attempt.at <= ended.at
    assert (ended.error, ended.may_have_executed, ended.attempts, ended.status) == (None, False, 1, 200)
    paid_as = (ended.transaction_id, ended.transaction_type, ended.transaction_status)
    assert paid_as == (paid.transaction_id, "STK", "PENDING")


def test_an_attempt_that_is_not_sent(drive: Callable[..., Driver], seen: Watcher) -> None:
    unreachable = drive(base_url=LOOPBACK, max_attempts=1, on_event=seen)
    with pytest.raises(MomoPayError):
        unreachable(prompt)
    (attempt,) = seen.of(AttemptEnded)
    assert (attempt.status, attempt.is_sent, attempt.error.__name__) == (None, False, "APIConnectionError")
    assert not seen.of(CallEnded)[0].may_have_executed


def test_an_unknown_outcome(sdk: Driver, sandbox: Sandbox, seen: Watcher) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError) as raised:
        sdk(prompt)
    assert f"request {seen.of(AttemptEnded)[0].request_id})" in str(raised.value)
    assert seen.of(CallEnded)[0].may_have_executed
    assert seen.take() == [
        "CallStarted stk.initiate",
        "AttemptEnded POST /payments/stk 1 500 ServerError",
        "CallEnded stk.initiate OutcomeUnknownError",
    ]


def test_pay_once_and_its_replay(sdk: Driver, journal: Journal, seen: Watcher) -> None:
    sdk(pay_once(journal))
    assert seen.take() == [
        "CallStarted payouts.pay_once",
        READ_OF_THE_TENANT,
        "JournalChanged -> SENDING",
        "AttemptEnded POST /b2c/payouts 1 200",
        "JournalChanged SENDING -> ACCEPTED PENDING",
        "CallEnded payouts.pay_once",
    ]
    sdk(pay_once(journal))
    assert seen.take() == [
        "CallStarted payouts.pay_once",
        "AttemptEnded GET /transactions/{id} 1 200",
        "CallEnded payouts.pay_once",
    ]


def test_a_payout_in_doubt_that_a_search_finds(sdk: Driver, sandbox: Sandbox, journal: Journal, seen: Watcher) -> None:
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay_once(journal))
    assert seen.take()[1:] == [
        READ_OF_THE_TENANT,
        "JournalChanged -> SENDING",
        "AttemptEnded POST /b2c/payouts 1 500 ServerError",
        "JournalChanged SENDING -> UNKNOWN",
        "CallEnded payouts.pay_once OutcomeUnknownError",
    ]
    sdk(pay_once(journal))
    changes = seen.of(JournalChanged)
    assert [(each.old_state, each.new_state) for each in changes] == [("UNKNOWN", "ACCEPTED")]
    assert {each.operation for each in seen.events} == {"payouts.pay_once"}
    assert (changes[0].kind, changes[0].reference) == ("PAYOUT", "PAY-7")


@pytest.mark.usefixtures("no_backoff")
def test_a_durable_call_that_repeats(journal: Journal, seen: Watcher) -> None:
    client, _ = reach(SUCCESS, NOT_SENT, on_event=seen, max_attempts=2)
    with pytest.raises(MomoPayError):
        pay_once(journal)(client)
    assert seen.take() == [
        "CallStarted payouts.pay_once",
        READ_OF_THE_TENANT,
        "JournalChanged -> SENDING",
        "AttemptEnded POST /b2c/payouts 1 APIConnectionError",
        "RetryScheduled POST /b2c/payouts 1 APIConnectionError",
        "AttemptEnded POST /b2c/payouts 2 APIConnectionError",
        "JournalChanged SENDING -> NOT_SENT",
        "CallEnded payouts.pay_once APIConnectionError",
    ]
    seen.troubles["RetryScheduled"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        pay_once(journal, reference="PAY-8")(client)
    entry = journal.get("PAY-8")
    assert entry is not None
    assert entry.state is momopay.JournalState.NOT_SENT
    assert "JournalChanged SENDING -> NOT_SENT" in seen.take()


def test_collect_once_from_a_cancelled_prompt_to_a_paid_one(
    sdk: Driver, sandbox: Sandbox, journal: Journal, seen: Watcher
) -> None:
    first = sdk(collect(journal))
    sandbox.cancel(first)
    seen.take()
    second = sdk(collect(journal))
    assert seen.take() == [
        "CallStarted stk.collect_once",
        "AttemptEnded GET /transactions/{id} 1 200",
        "JournalChanged ACCEPTED -> ACCEPTED CANCELLED",
        "JournalChanged ACCEPTED -> SENDING",
        "AttemptEnded POST /payments/stk 1 200",
        "JournalChanged SENDING -> ACCEPTED PENDING",
        "CallEnded stk.collect_once",
    ]
    sandbox.enter_pin(second)
    sandbox.advance(60)
    sdk(collect(journal))
    assert seen.of(CallEnded)[0].transaction_status == "SUCCESS"
    (change,) = seen.of(JournalChanged)
    changed = (change.kind, change.transaction_id, change.transaction_status)
    assert changed == ("COLLECTION", second.transaction_id, "SUCCESS")


def test_a_sweep(sdk: Driver, sandbox: Sandbox, journal: Journal, seen: Watcher) -> None:
    for number in range(2):
        sdk(pay_once(journal, reference=f"PAY-{number}"))
    sdk(pay_once(journal, reference="PAY-F", phone=phone_for(Outcome.insufficient_funds)))
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_before_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay_once(journal, reference="PAY-L"))
    sandbox.advance(3600)
    seen.take()
    report = sdk(lambda client: client.transactions.sweep(journal=journal))
    (swept,) = seen.of(SweepEnded)
    assert (swept.settled, swept.open, swept.unknown) == (report.settled, report.open, report.unknown) == (3, 0, 1)
    changes = {each.reference: each.transaction_status for each in seen.of(JournalChanged)}
    assert changes == {"PAY-0": "SUCCESS", "PAY-1": "SUCCESS", "PAY-F": "REVERSED"}
    assert {each.operation for each in seen.events} == {"transactions.sweep"}
    assert seen.take()[-2:] == ["SweepEnded", "CallEnded transactions.sweep"]


def test_releases_and_reconciliations(sdk: Driver, sandbox: Sandbox, journal: Journal, seen: Watcher) -> None:
    for reference, fault in (("PAY-L", Fault.error_before_commit), ("PAY-M", Fault.error_after_commit)):
        sandbox.fail_next("POST", "/b2c/payouts", fault)
        with pytest.raises(OutcomeUnknownError):
            sdk(pay_once(journal, reference=reference))
    seen.take()
    sdk(journal.reconcile_all)
    assert {each.operation for each in seen.events} == {"payouts.reconcile_all"}
    assert [each for each in seen.take() if "Journal" in each] == ["JournalChanged UNKNOWN -> ACCEPTED PENDING"]
    long_ago(journal)
    sdk(lambda client: client.payouts.release(journal=journal, reference="PAY-L", by="Wanjiku"))
    assert [each for each in seen.take() if "Journal" in each] == ["JournalChanged UNKNOWN -> NOT_SENT"]


def test_a_payroll_reports_each_payout(sdk: Driver, journal: Journal, seen: Watcher) -> None:
    payroll = [{"reference": f"PAY-{number}", "amount": 100, "phone": PHONE} for number in range(2)]
    payroll.append({"reference": "PAY-X", "amount": 1, "phone": PHONE})
    outcomes = sdk.collect(lambda client: client.payouts.pay_all(payroll, journal=journal))
    assert [outcome.state for outcome in outcomes] == ["ACCEPTED", "ACCEPTED", "NOT_SENT"]
    ended = seen.of(CallEnded)
    assert {each.operation for each in ended} == {"payouts.pay_all"}
    assert [each.reference for each in ended] == ["PAY-0", "PAY-1", "PAY-X"]
    assert [each.transaction_id for each in ended[:2]] == [outcome.payment.transaction_id for outcome in outcomes[:2]]
    assert ended[2].error.__name__ == "RequestValidationError"
    assert len({each.call_id for each in ended}) == 3


def test_a_wait(sdk: Driver, sandbox: Sandbox, seen: Watcher) -> None:
    paid = sdk(partial(prompt, phone=BY_HAND))
    seen.take()
    with pytest.raises(momopay.WaitTimeoutError):
        sdk(lambda client: client.transactions.wait(paid, schedule=PollSchedule(first=0, every=0.05, limit=0.08)))
    (timeout,) = seen.of(WaitEnded)
    assert (timeout.error, timeout.transaction_status) == (momopay.WaitTimeoutError, "PENDING")
    assert timeout.polls >= 1
    sandbox.enter_pin(paid)
    sandbox.advance(60)
    seen.take()
    sdk(lambda client: client.transactions.wait(paid, schedule=AT_ONCE))
    (waited,) = seen.of(WaitEnded)
    waited_for = (waited.transaction_id, waited.transaction_type, waited.polls, waited.error)
    assert waited_for == (paid.transaction_id, "STK", 1, None)
    assert seen.take() == [
        "CallStarted transactions.wait",
        "AttemptEnded GET /transactions/{id} 1 200",
        "WaitEnded SUCCESS",
        "CallEnded transactions.wait",
    ]


def test_waits_for_many_are_a_call_for_each_end(sdk: Driver, sandbox: Sandbox, seen: Watcher) -> None:
    prompts = [sdk(partial(prompt, amount=number + 1)) for number in range(3)]
    sandbox.advance(600)
    seen.take()
    ends = sdk.collect(lambda client: client.transactions.wait_all(prompts, schedule=AT_ONCE))
    assert [each.transaction_id for each in seen.of(WaitEnded)] == [each.transaction_id for each in ends]
    assert [each.transaction_id for each in seen.of(CallEnded)] == [each.transaction_id for each in ends]
    assert seen.take() == [
        "CallStarted transactions.wait_all",
        "AttemptEnded GET /transactions 1 200",
        *["WaitEnded SUCCESS", "CallEnded transactions.wait_all", "CallStarted transactions.wait_all"] * 2,
        "WaitEnded SUCCESS",
        "CallEnded transactions.wait_all",
    ]


def test_confirmations(sdk: Driver, sandbox: Sandbox, seen: Watcher) -> None:
    paid = sdk(prompt)
    sandbox.advance(600)
    body = {"id": paid.transaction_id, "status": "SUCCESS", "type": "STK", "external_reference": "INV-42"}

    def confirm(**fields: Any) -> Callable[[Any], Any]:
        content = {"event_type": "stk.success", "transaction": body | fields}
        return lambda client: client.transactions.confirm(parse_callback(json.dumps(content)))

    sdk(confirm())
    with pytest.raises(momopay.CallbackMismatchError):
        sdk(confirm(amount=7))
    with pytest.raises(MomoPayError):
        sdk(confirm(id="254712345678"))
    received = seen.of(events.CallbackReceived)
    assert {(each.operation, each.status) for each in received} == {("transactions.confirm", None)}
    assert [each.outcome for each in received] == ["accepted", "mismatch", "mismatch"]
    assert [(each.transaction_id, each.transaction_status) for each in received] == [
        (paid.transaction_id, "SUCCESS"),
        (paid.transaction_id, None),
        ("2547*****678", None),
    ]


def test_no_event_shows_a_key_or_a_whole_phone(
    sdk: Driver, sandbox: Sandbox, journal: Journal, key: str, seen: Watcher
) -> None:
    """Where a phone can be given, it is: as the reference, in a search and in a callback."""
    reference = f"for {PHONE}"
    sdk(partial(prompt, account_reference=LOCAL_PHONE))
    sdk(partial(pay, reference=PHONE))
    sdk(pay_once(journal, reference=reference))
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay_once(journal, reference=PHONE))
    sdk(collect(journal, reference=PHONE))
    sdk(lambda client: client.transactions.list(q=PHONE))
    with pytest.raises(MomoPayError):
        sdk(lambda client: client.transactions.get(PHONE))
    with pytest.raises(MomoPayError):
        sdk(lambda client: client.transactions.wait(PHONE, schedule=AT_ONCE))
    sandbox.advance(600)
    sdk(lambda client: client.transactions.sweep(journal=journal))
    shown = seen.texts()
    for secret in (key, PHONE, PHONE[3:], LOCAL_PHONE):
        assert secret not in shown
    assert len(seen.events) > 30
    assert {type(each) for each in seen.events} >= {CallStarted, AttemptEnded, JournalChanged, SweepEnded, WaitEnded}


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


@in_turn("name", sorted(set(events.__all__) - {"CallbackOutcome", "Event"}))
def test_events_are_frozen_and_their_hints_resolve(name: str) -> None:
    kind: Any = getattr(events, name)
    assert set(typing.get_type_hints(kind)) >= {"operation", "call_id", "at"}
    event = kind(**dict.fromkeys((field.name for field in dataclasses.fields(kind)), 1))
    assert not hasattr(event, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.operation = "another"
    assert pickle.loads(pickle.dumps(event)) == event
    assert name == "BaseEvent" or kind in typing.get_args(events.Event)
