"""The control routes, for tests in any language."""

from typing import Any

import httpx
import pytest

from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from sandbox.kit import KEY, Receiver, Service, data, refusal, transaction_id


def act(control: httpx.Client, name: str, **body: Any) -> Any:
    return data(control.post(f"/sandbox/{name}", json=body))


def test_a_whole_test_without_python(service: Service, control: httpx.Client, receiver: Receiver) -> None:
    sent = transaction_id(service.stk(phone=phone_for(Outcome.by_hand), callbackUrl=receiver.url))
    assert act(control, "enter_pin", id=sent)["status"] == "PROCESSING"
    state = act(control, "advance", seconds=30)
    assert [(item["id"], item["status"]) for item in state["transactions"]] == [(sent, "SUCCESS")]
    assert [item["status"] for item in data(control.get("/sandbox/callbacks"))] == [200]
    assert [item["kind"] for item in data(control.get("/sandbox/ledger"))] == ["fee", "stk"]
    requests = data(control.get("/sandbox/requests"))
    assert [(item["method"], item["path"]) for item in requests] == [("POST", "/payments/stk")]
    assert KEY not in str(requests)
    assert act(control, "reset") == {}
    assert data(control.get("/sandbox/state"))["transactions"] == []


def test_the_other_two_actions_on_a_prompt(service: Service, control: httpx.Client) -> None:
    cancelled, ignored = (transaction_id(service.stk(phone=phone_for(Outcome.by_hand))) for _ in range(2))
    assert act(control, "cancel", id=cancelled)["status"] == "CANCELLED"
    assert act(control, "ignore", id=ignored)["next_step_at"] is not None
    assert refusal(control.post("/sandbox/cancel", json={"id": cancelled})) == (409, "NOT_PENDING")
    assert refusal(control.post("/sandbox/cancel", json={"id": "x"})) == (404, "TRANSACTION_NOT_FOUND")
    assert refusal(control.post("/sandbox/cancel", json={})) == (400, "VALIDATION_ERROR")


def test_a_fault_from_any_language(service: Service, control: httpx.Client) -> None:
    act(control, "fail_next", method="POST", path="/payments/stk", fault=Fault.html_502, times=2)
    assert [service.stk().status_code for _ in range(3)] == [502, 502, 200]
    act(control, "fail_next", method="POST", path="/payments/stk", fault="refused_after_commit", status=499)
    assert refusal(service.stk()) == (499, "REQUEST_CONFLICT")
    valid = {"method": "GET", "path": "/transactions", "fault": "refuse"}
    for wrong in ({"status": 204}, {"fault": "nope"}, {"path": "x"}, {"times": 0}, {"times": 1.5}, {"method": 5}):
        body = {**valid, **wrong}
        assert refusal(control.post("/sandbox/fail_next", json=body)) == (400, "VALIDATION_ERROR")


def test_outcomes_and_faults_are_shown_until_they_happen_or_are_cleared(
    service: Service, control: httpx.Client
) -> None:
    act(control, "end_next", outcome="cancelled", phone="0712 345 678", kind="prompt", times=2)
    act(control, "fail_next", method="POST", path="/payments/stk", fault="html_502", times=2)
    service.stk()
    shown = data(control.get("/sandbox/state"))
    assert [(each["fault"], each["path"], each["times"]) for each in shown["faults"]] == [
        ("html_502", "/payments/stk", 1)
    ]
    assert [(each["outcome"], each["phone"], each["times"]) for each in shown["outcomes"]] == [
        ("cancelled", "254712345678", 2)
    ]
    act(control, "clear_planned", id=shown["faults"][0]["id"])
    shown = data(control.get("/sandbox/state"))
    assert (len(shown["faults"]), len(shown["outcomes"])) == (0, 1)
    assert refusal(control.post("/sandbox/clear_planned", json={"id": "x"})) == (400, "VALIDATION_ERROR")
    data(control.post("/sandbox/clear_planned"))
    assert data(control.get("/sandbox/state"))["outcomes"] == []
    assert refusal(control.post("/sandbox/end_next", json={"outcome": "nope"})) == (400, "VALIDATION_ERROR")


def test_a_callback_is_sent_again_once(
    service: Service, control: httpx.Client, sandbox: Sandbox, receiver: Receiver
) -> None:
    service.stk(callbackUrl=receiver.url, phone=phone_for(Outcome.callback_lost))
    sandbox.advance(35)
    assert receiver.bodies == []
    receiver.answer = lambda _body: 500
    act(control, "resend", id=sandbox.callbacks[0].id)
    sandbox.advance(600)
    assert [record.status for record in sandbox.callbacks] == [None, 500]
    sandbox.resend(sandbox.callbacks[0])
    assert receiver.bodies == [sandbox.callbacks[0].payload] * 2
    assert refusal(control.post("/sandbox/resend", json={"id": "x"})) == (404, "NOT_FOUND")


def test_health_and_choices(control: httpx.Client) -> None:
    assert set(data(control.get("/sandbox/health"))) == {"now"}
    assert set(data(control.get("/sandbox/choices"))) == {"outcomes", "routes", "faults", "switches"}


@pytest.mark.parametrize("seconds", [-1, "1", None, True, 1e30])
def test_impossible_seconds_are_refused(control: httpx.Client, seconds: Any) -> None:
    response = control.post("/sandbox/advance", json={"seconds": seconds})
    assert refusal(response) == (400, "VALIDATION_ERROR")


def test_a_control_body_has_a_limit(control: httpx.Client) -> None:
    response = control.post("/sandbox/account", content=b" " * (1 << 21))
    assert refusal(response) == (413, "PAYLOAD_TOO_LARGE")


def test_control_routes_are_not_part_of_the_described_service(control: httpx.Client) -> None:
    assert all(path.startswith("/v1/") for path in control.get("/openapi.json").json()["paths"])


def test_events_show_every_change_and_the_passing_of_time(
    control: httpx.Client, service: Service, sandbox: Sandbox
) -> None:
    with control.stream("GET", "/sandbox/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        first = next(lines)
        assert first.startswith("data: {")
        sent = transaction_id(service.stk())
        assert sent not in first
        assert any(sent in line for line in lines)
        sandbox.advance(300)
        now = sandbox.now.strftime("%Y-%m-%dT%H:%M:%S")
        assert any(f'"now": "{now}' in line for line in lines)
        sandbox.fail_next("GET", "/transactions", Fault.html_502)
        assert any('"html_502"' in line for line in lines)
