"""The steps that a phone number leads to."""

import pytest

from momopay.sandbox import Outcome, phone_for
from momopay.sandbox._outcomes import outcome_of, plan
from momopay.sandbox._transactions import Kind

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


@pytest.mark.parametrize("outcome", Outcome)
def test_the_steps_of_each_outcome(outcome: Outcome) -> None:
    prompt, payout = TABLE[outcome]
    assert steps(Kind.STK, outcome) == prompt
    assert steps(Kind.B2C, outcome) == payout
    # A top-up is a prompt whose confirmation takes longer.
    assert steps(Kind.WALLET_TOPUP, outcome) == [step.replace("SUCCESS+30", "SUCCESS+60") for step in prompt]


@pytest.mark.parametrize("outcome", Outcome)
def test_a_number_for_each_outcome(outcome: Outcome) -> None:
    assert outcome_of(phone_for(outcome)) is outcome
    assert len(phone_for(outcome)) == 12
