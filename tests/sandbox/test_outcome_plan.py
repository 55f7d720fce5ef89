"""Outcomes on demand."""

import httpx
import pytest

from momopay.sandbox import Outcome, Sandbox, phone_for
from sandbox.kit import KEY, Receiver, Service, refusal, transaction_id


def test_the_next_prompt_ends_as_planned_and_the_one_after_it_by_its_number(service: Service, sandbox: Sandbox) -> None:
    sandbox.end_next(Outcome.cancelled)
    planned, plain = service.stk(), service.stk()
    by_number = service.stk(phone=phone_for(Outcome.insufficient_funds))
    sandbox.advance(40)
    ends = [(service.read(each)["status"], service.read(each)["resultCode"]) for each in (planned, plain, by_number)]
    assert ends == [("CANCELLED", "1032"), ("SUCCESS", "0"), ("FAILED", "1")]


def test_a_plan_may_be_for_one_phone_and_for_several_payments(service: Service, sandbox: Sandbox) -> None:
    sandbox.end_next("insufficient_funds", phone="0722 000 001", times=2)
    sent = [service.stk(phone=phone) for phone in ("0712345678", "0722000001", "+254722000001", "0722000001")]
    sandbox.advance(40)
    assert [service.read(each)["status"] for each in sent] == ["SUCCESS", "FAILED", "FAILED", "SUCCESS"]


def test_payouts_and_prompts_have_plans_of_their_own(service: Service, sandbox: Sandbox) -> None:
    sandbox.end_next("reversed", kind="payout")
    sandbox.end_next("insufficient_funds")
    topped_up, first, second = service.top_up(), service.payout(), service.payout()
    sandbox.advance(100)
    assert [service.read(each)["status"] for each in (topped_up, first, second)] == ["FAILED", "REVERSED", "SUCCESS"]


def test_a_planned_outcome_decides_about_the_callback_too(
    service: Service, sandbox: Sandbox, receiver: Receiver
) -> None:
    sandbox.end_next(Outcome.callback_lost)
    lost, sent = (transaction_id(service.stk(callbackUrl=receiver.url)) for _ in range(2))
    sandbox.advance(40)
    assert [body["transaction"]["id"] for body in receiver.bodies] == [sent]
    assert [record.error for record in sandbox.callbacks if record.transaction_id == lost] == [
        "lost on purpose: never sent"
    ]


def test_a_refused_payment_uses_up_nothing(service: Service, sandbox: Sandbox) -> None:
    sandbox.end_next(Outcome.by_hand)
    account = sandbox.account(KEY)
    account.service_balance = 0  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue] - converted
    assert refusal(service.stk()) == (402, "INSUFFICIENT_SERVICE_BALANCE")
    account.service_balance = 10  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue] - converted
    sent = service.stk()
    sandbox.advance(60)
    assert service.read(sent)["status"] == "PENDING"


def test_what_is_planned_can_be_forgotten(service: Service, sandbox: Sandbox, api: httpx.Client) -> None:
    for forget in (sandbox.clear_planned, sandbox.reset):
        sandbox.end_next("cancelled")
        sandbox.fail_next("POST", "/payments/stk", "html_502")
        forget()
        sent = service.stk()
        sandbox.advance(40)
        assert service.read(sent)["status"] == "SUCCESS"


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"outcome": "nope"}, "nope"),
        ({"outcome": "success", "kind": "refund"}, "kind must be one of: prompt, payout"),
        ({"outcome": "success", "times": 0}, "times"),
        ({"outcome": "success", "phone": "12345"}, "phone number"),
    ],
)
def test_an_impossible_plan_is_refused(sandbox: Sandbox, plan: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sandbox.end_next(**plan)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - what is tested
