import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from patience import until
from sandbox.kit import KEY, Receiver, Service, data, transaction_id


def _offsets(sandbox: Sandbox) -> list[float]:
    records = sandbox.callbacks
    return [(record.at - records[0].at).total_seconds() for record in records]


def test_the_payload_of_a_success(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    sent = service.stk(callbackUrl=receiver.url, amount=10.5)
    sandbox.advance(34)
    assert receiver.bodies == []
    sandbox.advance(1)
    (body,) = receiver.bodies
    record = service.read(sent)
    receipt = body["transaction"].pop("momo_receipt")
    assert receipt
    assert body == {
        "event": "transaction.updated",
        "event_type": "transaction.success",
        "transaction": {
            "id": record["transactionId"],
            "tenant_id": record["tenantId"],
            "type": "STK",
            "status": "SUCCESS",
            "amount": 10.5,
            "currency": "KES",
            "phone_number": "254712345678",
            "external_reference": "INV-42",
            "provider": record["provider"],
            "provider_request_id": record["providerRequestId"],
            "provider_checkout_id": record["providerCheckoutId"],
            "transaction_fee": 1,
            "result_code": "0",
            "result_desc": record["resultDesc"],
            "created_at": record["createdAt"],
            "updated_at": record["updatedAt"],
        },
    }


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome.insufficient_funds, ("transaction.failed", "FAILED", "1")),
        (Outcome.cancelled, ("transaction.cancelled", "CANCELLED", "1032")),
        (Outcome.expired, ("transaction.expired", "EXPIRED", "1037")),
    ],
)
def test_the_payload_of_an_end_without_success(
    service: Service,
    sandbox: Sandbox,
    receiver: Receiver,
    outcome: Outcome,
    says: tuple[str, str, str],
) -> None:
    service.stk(callbackUrl=receiver.url, phone=phone_for(outcome))
    sandbox.advance(60)
    (body,) = receiver.bodies
    transaction = body["transaction"]
    assert (body["event_type"], transaction["status"], transaction["result_code"]) == says
    assert transaction["momo_receipt"] is None
    assert transaction["transaction_fee"] == 0


def test_a_failed_payout_calls_back_at_failed_and_by_a_switch_at_reversed(
    service: Service, sandbox: Sandbox, receiver: Receiver
) -> None:
    service.payout(callbackUrl=receiver.url, phone=phone_for(Outcome.reversed))
    sandbox.advance(60)
    assert [body["transaction"]["status"] for body in receiver.bodies] == ["FAILED"]
    assert all(
        isinstance(receiver.bodies[0]["transaction"][f"provider_{name}_id"], str) for name in ("request", "checkout")
    )
    sandbox.account(KEY).switches.callback_on_reversed = True
    service.payout(callbackUrl=receiver.url, phone=phone_for(Outcome.reversed))
    sandbox.advance(60)
    assert [body["transaction"]["status"] for body in receiver.bodies] == ["FAILED", "FAILED", "REVERSED"]
    assert receiver.bodies[-1]["event_type"] == "transaction.failed"


def test_a_refused_callback_is_retried_with_the_stated_delays_and_then_given_up(
    service: Service, sandbox: Sandbox, receiver: Receiver
) -> None:
    receiver.answer = lambda _body: 500
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(35)
    assert len(receiver.bodies) == 1
    sandbox.advance(9)
    assert len(receiver.bodies) == 1
    sandbox.advance(10_000)
    assert _offsets(sandbox) == [0, 10, 40, 100, 220, 520]
    assert [record.attempt for record in sandbox.callbacks] == [0, 1, 2, 3, 4, 5]
    assert {record.status for record in sandbox.callbacks} == {500}
    assert not any(record.acknowledged for record in sandbox.callbacks)
    assert all(body == receiver.bodies[0] for body in receiver.bodies)


def test_five_posts_in_all_is_a_switch(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    sandbox.account(KEY).switches.callback_posts = 5
    receiver.answer = lambda _body: 302
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(10_000)
    assert _offsets(sandbox) == [0, 10, 40, 100, 220]


def test_an_acknowledged_callback_is_not_sent_again(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 500 if len(receiver.bodies) < 3 else 204
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(10_000)
    assert [record.status for record in sandbox.callbacks] == [500, 500, 204]
    assert sandbox.callbacks[-1].acknowledged


def test_nothing_is_sent_to_any_other_host(service: Service, sandbox: Sandbox) -> None:
    service.stk(callbackUrl="https://shop.example/momo")
    sandbox.advance(10_000)
    assert len(sandbox.callbacks) == 6
    assert {record.error for record in sandbox.callbacks} == {"not sent: not loopback"}


def test_a_receiver_that_is_not_there(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.close()
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(35)
    (record,) = sandbox.callbacks
    assert record.status is None
    assert record.error is not None
    assert "ConnectError" in record.error


def test_of_a_long_answer_only_the_beginning_is_kept(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.text = b"x" * 100_000
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(35)
    assert sandbox.callbacks[0].answer == "x" * 500


def test_advance_waits_for_a_callback_that_is_under_way_already(receiver: Receiver) -> None:
    def handle(_body: dict[str, Any]) -> int:
        time.sleep(0.2)
        return 200

    receiver.answer = handle
    with (
        Sandbox(speed=1) as sandbox,
        httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), trust_env=False) as api,
    ):
        sandbox.cancel(transaction_id(Service(api).stk(callbackUrl=receiver.url)))
        time.sleep(0.05)
        sandbox.advance(0)
        assert [record.status for record in sandbox.callbacks] == [200]


def test_no_callback_url_no_callback(service: Service, sandbox: Sandbox) -> None:
    service.stk()
    service.top_up()
    sandbox.advance(100)
    assert sandbox.callbacks == []


def test_lost_by_the_number_or_by_a_fault(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_lost)
    service.stk(callbackUrl=receiver.url)
    lost = service.stk(callbackUrl=receiver.url, phone=phone_for(Outcome.callback_lost))
    sandbox.advance(10_000)
    assert receiver.bodies == []
    assert [record.error for record in sandbox.callbacks] == ["lost on purpose: never sent"] * 2
    assert service.read(lost)["status"] == "SUCCESS"


def test_duplicate_and_late(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_duplicate)
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(36)
    assert len(receiver.bodies) == 2
    assert receiver.bodies[0] == receiver.bodies[1]
    sandbox.fail_next("POST", "/b2c/payouts", Fault.callback_late)
    service.payout(callbackUrl=receiver.url)
    sandbox.advance(334)
    assert len(receiver.bodies) == 2
    sandbox.advance(1)
    assert len(receiver.bodies) == 3


def test_reordered_arrives_after_the_next_one(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    sandbox.fail_next("POST", "/payments/stk", Fault.callback_reordered, times=2)
    first = service.stk(callbackUrl=receiver.url)
    sandbox.advance(1)
    second = service.payout(callbackUrl=receiver.url)
    sandbox.advance(35)
    order = [body["transaction"]["id"] for body in receiver.bodies]
    assert order == [transaction_id(second), transaction_id(first)]
    alone = service.stk(callbackUrl=receiver.url)
    sandbox.advance(94)
    assert len(receiver.bodies) == 2
    sandbox.advance(1)
    assert receiver.bodies[-1]["transaction"]["id"] == transaction_id(alone)


def test_a_handler_may_read_while_time_is_advanced(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    seen: list[str] = []

    def handle(body: dict[str, Any]) -> int:
        url = f"{sandbox.base_url}/transactions/{body['transaction']['id']}"
        seen.append(data(httpx.get(url, auth=(KEY, ""), trust_env=False))["status"])
        assert sandbox.now == datetime.fromisoformat(body["transaction"]["updated_at"])
        return 200

    receiver.answer = handle
    service.stk(callbackUrl=receiver.url)
    sandbox.advance(600)
    assert seen == ["SUCCESS"]


def test_reset_forgets_a_callback_under_way(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def handle(_body: dict[str, Any]) -> int:
        arrived.set()
        go_on.wait(5)
        return 500

    receiver.answer = handle
    service.stk(callbackUrl=receiver.url)
    mover = threading.Thread(target=sandbox.advance, args=(35,))
    mover.start()
    assert arrived.wait(5)
    sandbox.reset()
    go_on.set()
    mover.join()
    sandbox.advance(1000)
    assert sandbox.callbacks == []
    assert len(receiver.bodies) == 1


def test_without_advance_time_runs_by_itself_and_callbacks_go_out(receiver: Receiver) -> None:
    with (
        Sandbox(speed=1000) as sandbox,
        httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), trust_env=False) as api,
    ):
        receiver.answer = lambda _body: 200 if len(receiver.bodies) > 1 else 500
        sent = Service(api).stk(callbackUrl=receiver.url)
        until(lambda: len(sandbox.callbacks) == 2, "it was told twice")
        assert [record.status for record in sandbox.callbacks] == [500, 200]
        assert Service(api).read(sent)["status"] == "SUCCESS"


def test_a_callback_must_be_answered_within_its_limit(receiver: Receiver) -> None:
    go_on = threading.Event()

    def handle(_body: dict[str, Any]) -> int:
        go_on.wait(5)
        return 200

    receiver.answer = handle
    with (
        Sandbox(speed=30) as sandbox,
        httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), trust_env=False) as api,
    ):
        Service(api).stk(callbackUrl=receiver.url)
        started = time.monotonic()
        sandbox.advance(36)
        assert 0.9 < time.monotonic() - started < 4
        (record,) = sandbox.callbacks
        assert record.error == "no answer within 30 seconds"
        # The answer limit and the delay of retry 1 lie between the two attempts.
        go_on.set()
        sandbox.advance(40)
        assert (sandbox.callbacks[1].at - record.at).total_seconds() == 40


def test_closing_does_not_wait_for_a_slow_receiver(receiver: Receiver) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def handle(_body: dict[str, Any]) -> int:
        arrived.set()
        go_on.wait(5)
        return 200

    receiver.answer = handle
    with (
        Sandbox(speed=1) as sandbox,
        httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), trust_env=False) as api,
    ):
        sandbox.cancel(transaction_id(Service(api).stk(callbackUrl=receiver.url)))
        assert arrived.wait(5)
        started = time.monotonic()
    assert time.monotonic() - started < 4
    go_on.set()


@pytest.mark.parametrize("by_route", [False, True])
def test_close_ends_an_advance_that_waits_for_an_answer(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, by_route: bool
) -> None:
    arrived, go_on, told = threading.Event(), threading.Event(), list[object]()

    def handle(_body: dict[str, Any]) -> int:
        arrived.set()
        go_on.wait(5)
        return 200

    def advance() -> None:
        if by_route:
            told.append(
                httpx.post(f"{sandbox.url}/sandbox/advance", json={"seconds": 100}, trust_env=False).status_code
            )
        else:
            with pytest.raises(RuntimeError, match="closed before the time had passed"):
                sandbox.advance(100)
            told.append(503)

    receiver.answer = handle
    with (
        Sandbox(speed=0, state=tmp_path / "state.db") as sandbox,
        httpx.Client(base_url=sandbox.base_url, auth=(KEY, ""), trust_env=False) as api,
    ):
        Service(api).stk(callbackUrl=receiver.url)
        mover = threading.Thread(target=advance)
        mover.start()
        assert arrived.wait(5)
        started = time.monotonic()
    assert time.monotonic() - started < 4
    mover.join(5)
    go_on.set()
    assert told == [503]
    assert caplog.records == []
