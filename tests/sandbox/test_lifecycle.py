"""Transactions move through their states; a random walk checks that money adds up and states follow the arrows."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momopay.sandbox import MovementKind, Outcome, Refusal, Sandbox, phone_for
from momopay.sandbox import _lifecycle as lifecycle
from momopay.sandbox._bodies import PayoutBody, StkBody
from momopay.sandbox._payments import Call, initiate_payout, initiate_stk, initiate_top_up
from momopay.sandbox._records import Kind, PostResult, Status, Transaction
from momopay.sandbox._state import AccountState, ServiceState
from sandbox.kit import KEY, Receiver, Routes, transaction_id

START = datetime(2026, 1, 1, tzinfo=UTC)
ARROWS = {
    "PENDING": {"PROCESSING", "CANCELLED", "EXPIRED"},
    "PROCESSING": {"SUCCESS", "FAILED"},
    "FAILED": {"REVERSED"},
}
AMOUNTS = st.decimals(10, 400_000, places=2)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["stk", "payout", "top_up", "enter_pin", "cancel", "ignore"]),
        st.sampled_from(list(Outcome)),
        AMOUNTS,
        st.integers(0, 90),
    ),
    max_size=25,
)


def run_until(state: ServiceState, until: datetime) -> None:
    while entry := state.pop_due(until):
        due, subject = entry
        if isinstance(subject, Transaction):
            lifecycle.take_step(state, subject, due)
        else:
            subject.due = None
            lifecycle.report(state, subject, PostResult(status=500), due, due)


def act(state: ServiceState, account_state: AccountState, step: tuple[str, Outcome, Decimal], now: datetime) -> None:
    name, outcome, amount = step
    body = {"amount": amount, "phone": phone_for(outcome), "callbackUrl": "https://shop.example/momo"}
    call = Call(state, account_state, now)
    match name:
        case "stk":
            initiate_stk(call, StkBody.model_validate(body))
        case "payout":
            initiate_payout(call, PayoutBody.model_validate(body))
        case "top_up":
            initiate_top_up(replace(call, body=json.dumps(body, default=float).encode()), Kind.WALLET_TOPUP)
        case _:
            getattr(lifecycle, name)(state, account_state.history[-1].id if account_state.history else "none", now)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_money_adds_up_and_states_follow_the_arrows(steps: list[tuple[str, Outcome, Decimal, int]]) -> None:
    state, now = ServiceState(), START
    account_state = state.account_of("pk_test_any", now)
    seen: dict[str, str] = {}
    for name, outcome, amount, seconds in steps:
        with suppress(Refusal):
            act(state, account_state, (name, outcome, amount), now)
        for _ in range(seconds):
            now += timedelta(seconds=1)
            run_until(state, now)
            for transaction in account_state.history:
                before = seen.get(transaction.id, "PENDING")
                after = transaction.status.value
                assert after == before or after in ARROWS[before]
                seen[transaction.id] = after
    run_until(state, now + timedelta(days=1))

    moved = dict.fromkeys(MovementKind, Decimal(0))
    for entry in state.ledger:
        moved[entry.kind] += entry.amount
    account = account_state.account
    assert account.b2c_balance == 1_000_000 - moved[MovementKind.payout] + moved[MovementKind.reversal]
    assert account.service_balance == 10_000 - moved[MovementKind.fee] + moved[MovementKind.top_up]
    assert account.b2c_balance >= 0
    reversals = [entry.transaction_id for entry in state.ledger if entry.kind is MovementKind.reversal]
    assert sorted(reversals) == sorted(one.id for one in account_state.history if one.status is Status.REVERSED)
    assert not state.deliveries


def test_a_customer_pays_cancels_or_ignores_the_prompt(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    def prompt() -> httpx.Response:
        return service.stk(phone=phone_for(Outcome.by_hand), callbackUrl=receiver.url)

    paid, cancelled, ignored = prompt(), prompt(), prompt()
    sandbox.enter_pin(transaction_id(paid))
    assert service.read(paid)["status"] == "PROCESSING"
    sandbox.cancel(transaction_id(cancelled))
    assert service.read(cancelled)["status"] == "CANCELLED"
    sandbox.ignore(transaction_id(ignored))
    sandbox.advance(59)
    assert (service.read(paid)["status"], service.read(ignored)["status"]) == ("SUCCESS", "PENDING")
    sandbox.advance(1)
    assert service.read(ignored)["status"] == "EXPIRED"
    called = [(body["event_type"], body["transaction"]["result_code"]) for body in receiver.bodies]
    assert called == [("transaction.cancelled", "1032"), ("transaction.success", "0"), ("transaction.expired", "1037")]


def test_an_action_overrides_the_outcome_of_the_number(service: Routes, sandbox: Sandbox) -> None:
    ordinary = service.stk()
    sandbox.cancel(sandbox.ledger[0])  # any object that has the transaction's id
    poor = service.stk(phone=phone_for(Outcome.insufficient_funds))
    sandbox.enter_pin(transaction_id(poor))
    # The number's own PIN entry, due after 5 s, is void and must not bring the confirmation forward.
    sandbox.advance(29.999)
    assert service.read(poor)["status"] == "PROCESSING"
    sandbox.advance(30)
    assert (service.read(ordinary)["status"], service.read(poor)["status"]) == ("CANCELLED", "SUCCESS")


@pytest.mark.parametrize("outcome", [Outcome.cancelled, Outcome.expired, Outcome.timeout])
def test_a_late_pin_pays_what_has_ended_only_by_a_switch(service: Routes, sandbox: Sandbox, outcome: Outcome) -> None:
    prompt = service.stk(phone=phone_for(outcome))
    sandbox.advance(90)
    with pytest.raises(Refusal, match="NOT_PENDING"):
        sandbox.enter_pin(transaction_id(prompt))
    sandbox.account(KEY).switches.late_pin = True
    with pytest.raises(Refusal, match="NOT_PENDING"):
        sandbox.cancel(transaction_id(prompt))
    sandbox.enter_pin(transaction_id(prompt))
    sandbox.advance(30)
    assert service.read(prompt)["status"] == "SUCCESS"
    with pytest.raises(Refusal, match="NOT_PENDING"):
        sandbox.enter_pin(transaction_id(prompt))
