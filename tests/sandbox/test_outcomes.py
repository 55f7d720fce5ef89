"""Outcomes, by phone number and as planned."""

import pytest

from in_turn import in_turn
from momopay.sandbox import Account, Outcome, Sandbox, phone_for
from momopay.sandbox._outcomes import outcome_of, plan
from momopay.sandbox._records import Kind
from sandbox.kit import Routes, error_of

PENDING_FOR_EVER = list[str]()
TAKEN = ["PROCESSING+5"]
TABLE = {
    Outcome.success: (["PROCESSING+5", "SUCCESS+30 0"], ["PROCESSING+5", "SUCCESS+30 0"]),
    Outcome.insufficient_funds: (["PROCESSING+5", "FAILED+30 1"], ["PROCESSING+5", "FAILED+30 1", "REVERSED+10 1"]),
    Outcome.risk_limit: (["PROCESSING+5", "FAILED+30 17"], ["PROCESSING+5", "FAILED+30 17", "REVERSED+10 17"]),
    Outcome.too_many_requests: (["PROCESSING+5", "FAILED+30 20"], ["PROCESSING+5", "FAILED+30 20", "REVERSED+10 20"]),
    Outcome.cancelled: (["CANCELLED+5 1032"], ["PROCESSING+5", "FAILED+30 1032", "REVERSED+10 1032"]),
    Outcome.timeout: (["PROCESSING+5", "FAILED+60 1037"], ["PROCESSING+5", "FAILED+60 1037", "REVERSED+10 1037"]),
    Outcome.expired: (["EXPIRED+60 1037"], ["PROCESSING+5", "FAILED+60 1037", "REVERSED+10 1037"]),
    Outcome.never_answers: (PENDING_FOR_EVER, TAKEN),
    Outcome.reversed: (["PROCESSING+5", "FAILED+30 1"], ["PROCESSING+5", "FAILED+30 1", "REVERSED+10 1"]),
    Outcome.callback_lost: (["PROCESSING+5", "SUCCESS+30 0"], ["PROCESSING+5", "SUCCESS+30 0"]),
    Outcome.late_success: (["PROCESSING+5", "SUCCESS+355 0"], ["PROCESSING+5", "SUCCESS+355 0"]),
    Outcome.by_hand: (PENDING_FOR_EVER, ["PROCESSING+5", "SUCCESS+30 0"]),
    Outcome.never_confirmed: (TAKEN, TAKEN),
}


def steps(kind: Kind, outcome: Outcome) -> list[str]:
    return [f"{step.status}+{step.after:g} {step.code or ''}".strip() for step in plan(kind, outcome)]


@in_turn("outcome", Outcome)
def test_the_steps_of_each_outcome(outcome: Outcome) -> None:
    prompt, payout = TABLE[outcome]
    assert (steps(Kind.STK, outcome), steps(Kind.B2C, outcome)) == (prompt, payout)
    assert (outcome_of(phone_for(outcome)), len(phone_for(outcome))) == (outcome, 12)
    # A top-up is a prompt whose confirmation takes longer.
    assert steps(Kind.WALLET_TOPUP, outcome) == [step.replace("SUCCESS+30", "SUCCESS+60") for step in prompt]


def test_a_plan_is_for_the_next_payments_of_a_kind_and_no_others(service: Routes, sandbox: Sandbox) -> None:
    sandbox.end_next("reversed", kind="payout")
    sandbox.end_next(Outcome.cancelled)
    sent = [service.top_up(), service.payout(), service.payout(), service.stk()]
    sent.append(service.stk(phone=phone_for(Outcome.insufficient_funds)))
    sandbox.advance(100)
    assert [service.read(each)["status"] for each in sent] == ["CANCELLED", "REVERSED", "SUCCESS", "SUCCESS", "FAILED"]


def test_a_plan_may_be_for_one_phone_and_for_several_payments(service: Routes, sandbox: Sandbox) -> None:
    sandbox.end_next("insufficient_funds", phone="0722 000 001", times=2)
    sent = [service.stk(phone=phone) for phone in ("0712345678", "0722000001", "+254722000001", "0722000001")]
    sandbox.advance(40)
    assert [service.read(each)["status"] for each in sent] == ["SUCCESS", "FAILED", "FAILED", "SUCCESS"]


def test_a_refused_payment_uses_up_nothing(service: Routes, sandbox: Sandbox, account: Account) -> None:
    sandbox.end_next(Outcome.by_hand)
    account.service_balance = 0  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue] - converted
    assert error_of(service.stk()) == (402, "INSUFFICIENT_SERVICE_BALANCE")
    account.service_balance = 10  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue] - converted
    sent = service.stk()
    sandbox.advance(60)
    assert service.read(sent)["status"] == "PENDING"


@in_turn(
    ("plan", "message"),
    [
        ({"outcome": "nope"}, "outcome must be one of: success, "),
        ({"outcome": "success", "kind": "refund"}, "kind must be one of: prompt, payout"),
        ({"outcome": "success", "times": 0}, "times"),
        ({"outcome": "success", "phone": "12345"}, "phone number"),
    ],
)
def test_an_impossible_plan_is_refused(sandbox: Sandbox, plan: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sandbox.end_next(**plan)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - what is tested
