"""Callbacks: payloads, retries, and what can go wrong with them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from in_turn import in_turn
from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from momopay.sandbox._records import Delivery, PostResult
from sandbox.kit import KEY, Receiver, Routes, client, own_sandbox, transaction_id

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome.insufficient_funds, ("transaction.failed", "FAILED", "1")),
        (Outcome.cancelled, ("transaction.cancelled", "CANCELLED", "1032")),
        (Outcome.expired, ("transaction.expired", "EXPIRED", "1037")),
    ],
)
def test_the_payload_of_an_end_without_success(
    service: Routes, sandbox: Sandbox, receiver: Receiver, outcome: Outcome, says: tuple[str, str, str]
) -> None:
    service.stk(callbackUrl=receiver.url, phone=phone_for(outcome))
    sandbox.advance(60)
    (body,) = receiver.bodies
    transaction = body["transaction"]
    assert (body["event_type"], transaction["status"], transaction["result_code"]) == says
    assert (transaction["momo_receipt"], transaction["transaction_fee"]) == (None, 0)
    # By a switch, cancelled and expired read as FAILED; the callback of an expired one still says so.
    switches = sandbox.account(KEY).switches
    switches.cancel_ends_as, switches.expired_reads_as = "FAILED", "FAILED"
    sent = service.stk(phone=phone_for(outcome), callbackUrl=receiver.url)
    sandbox.advance(60)
    assert service.read(sent)["status"] == "FAILED"
    again = receiver.bodies[-1]
    shown = "EXPIRED" if outcome is Outcome.expired else "FAILED"
    assert (again["event_type"], again["transaction"]["status"]) == (says[0], shown)


def test_when_a_failed_payout_calls_back(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    service.payout(callbackUrl=receiver.url, phone=phone_for(Outcome.reversed))
    sandbox.advance(60)
    assert [body["transaction"]["status"] for body in receiver.bodies] == ["FAILED"]
    for name in ("provider_request_id", "provider_checkout_id"):
        assert isinstance(receiver.bodies[0]["transaction"][name], str)
    sandbox.account(KEY).switches.callback_on_reversed = True
    service.payout(callbackUrl=receiver.url, phone=phone_for(Outcome.reversed))
    sandbox.advance(60)
    assert [body["transaction"]["status"] for body in receiver.bodies] == ["FAILED", "FAILED", "REVERSED"]
    assert receiver.bodies[-1]["event_type"] == "transaction.failed"


@pytest.mark.parametrize(("posts", "expected"), [(6, [0, 10, 40, 100, 220, 520]), (5, [0, 10, 40, 100, 220])])
def test_a_refused_callback_is_retried(
    service: Routes, sandbox: Sandbox, receiver: Receiver, posts: Any, expected: list[float]
) -> None:
    sandbox.account(KEY).switches.callback_posts = posts
    receiver.answer = lambda _body: 500
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(44)
    assert len(receiver.bodies) == 1
    sandbox.advance(10_000)
    first = sandbox.callbacks[0].at
    assert [(record.at - first).total_seconds() for record in sandbox.callbacks] == expected
    assert [record.attempt for record in sandbox.callbacks] == list(range(posts))
    assert {record.status for record in sandbox.callbacks} == {500}
    assert not any(record.acknowledged for record in sandbox.callbacks)
    assert all(body == receiver.bodies[0] for body in receiver.bodies)
    # An acknowledged one is not sent again.
    receiver.bodies.clear()
    receiver.answer = lambda _body: (300, 500, 204)[len(receiver.bodies) - 1]
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(10_000)
    assert [record.status for record in sandbox.callbacks[posts:]] == [300, 500, 204]
    assert sandbox.callbacks[-1].acknowledged


def test_a_callback_to_another_host_is_recorded_and_sent_if_the_host_was_named(receiver: Receiver) -> None:
    """0.0.0.0 leads to this machine, and is no address of its loopback."""
    with own_sandbox(speed=0, callback_hosts=["0.0.0.0"]) as (sandbox, service):
        service.stk(callbackUrl=receiver.url.replace("127.0.0.1", "0.0.0.0"))
        service.stk(callbackUrl="https://shop.example/momo")
        sandbox.advance(10_000)
    assert [body["event_type"] for body in receiver.bodies] == ["transaction.success"]
    assert [record.error for record in sandbox.callbacks[1:]] == ["not sent: not loopback, and no callback host"] * 6


def test_lost_by_the_number_by_a_plan_or_by_a_fault(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_lost)
    service.stk(callbackUrl=receiver.url)
    sandbox.end_next(Outcome.callback_lost)
    service.stk(callbackUrl=receiver.url)
    lost = service.stk(callbackUrl=receiver.url, phone=phone_for(Outcome.callback_lost))
    sandbox.advance(10_000)
    assert (receiver.bodies, service.read(lost)["status"]) == ([], "SUCCESS")
    assert [record.error for record in sandbox.callbacks] == ["lost on purpose: never sent"] * 3


@in_turn(
    ("fault", "seconds"),
    [(Fault.callback_duplicate, [35, 36]), (Fault.callback_late, [335]), (Fault.callback_reordered, [95])],
)
def test_when_a_callback_comes(sandbox: Sandbox, receiver: Receiver, fault: Fault, seconds: list[float]) -> None:
    with client(sandbox.base_url, f"pk_test_{fault}") as api:
        sandbox.fail_next("POST", "/payments/stk", fault)
        sent, begun = Routes(api).stk(callbackUrl=receiver.url), sandbox.now
    sandbox.advance(400)
    posts = [record for record in sandbox.callbacks if record.transaction_id == transaction_id(sent)]
    assert [(record.at - begun).total_seconds() for record in posts] == seconds
    assert {str(record.payload) for record in posts} == {str(posts[0].payload)}


def test_a_reordered_callback_is_held_once(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 500
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_reordered)
    held = transaction_id(service.stk(callbackUrl=receiver.url))
    sandbox.cancel(transaction_id(service.stk(callbackUrl=receiver.url)))
    # Released by the other's next retry, and then on its own schedule, whatever the other does.
    for seconds, attempts in ((40, [0]), (65, [0, 1, 2])):
        sandbox.advance(seconds)
        assert [record.attempt for record in sandbox.callbacks if record.transaction_id == held] == attempts


def test_reordered_arrives_after_the_accounts_next_one(service: Routes, sandbox: Sandbox, receiver: Receiver) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_reordered, times=2)
    first = transaction_id(service.stk(callbackUrl=receiver.url))
    with client(sandbox.base_url, "pk_test_other") as other:
        Routes(other).stk(callbackUrl=receiver.url)
    sandbox.advance(36)
    assert first not in {record.transaction_id for record in sandbox.callbacks}, "another account's releases nothing"
    second = transaction_id(service.payout(callbackUrl=receiver.url))
    sandbox.advance(35)
    assert [body["transaction"]["id"] for body in receiver.bodies[-2:]] == [second, first]


def test_a_missed_answer_limit_comes_before_the_delay() -> None:
    missed, refused = PostResult(error="no answer", timed_out=True), PostResult(status=302)
    delivery = Delivery("tenant", "transaction", "http://localhost/", {}, posts_left=6)
    dues = [delivery.next_attempt(result, START) for result in (missed, refused, missed)]
    assert [due and (due - START).total_seconds() for due in dues] == [40, 30, 90]
