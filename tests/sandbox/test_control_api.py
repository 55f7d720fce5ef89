"""The control routes, for tests in any language."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx

from in_turn import in_turn
from momopay.sandbox import Fault, Outcome, ReceivedRequest, Sandbox, phone_for
from momopay.sandbox._bodies import PayoutBody
from momopay.sandbox._control_api import choices
from momopay.sandbox._payments import Call, initiate_payout
from momopay.sandbox._records import KEPT, RequestLog
from sandbox.kit import KEY, Receiver, Routes, client, data, error_of, transaction_id


def act(control: httpx.Client, name: str, **body: Any) -> Any:
    return data(control.post(f"/sandbox/{name}", json=body))


def test_a_whole_test_without_python(service: Routes, control: httpx.Client, receiver: Receiver) -> None:
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


def test_the_other_two_actions_on_a_prompt(service: Routes, control: httpx.Client) -> None:
    cancelled, ignored = (transaction_id(service.stk(phone=phone_for(Outcome.by_hand))) for _ in range(2))
    assert act(control, "cancel", id=cancelled)["status"] == "CANCELLED"
    assert act(control, "ignore", id=ignored)["next_step_at"] is not None
    assert error_of(control.post("/sandbox/cancel", json={"id": cancelled})) == (409, "NOT_PENDING")
    for seconds in (-1, None, True):
        assert error_of(control.post("/sandbox/advance", json={"seconds": seconds})) == (400, "VALIDATION_ERROR")
    assert error_of(control.post("/sandbox/account", content=b" " * (1 << 21))) == (413, "PAYLOAD_TOO_LARGE")
    act(control, "ban_stk", key=KEY)
    assert error_of(service.stk()) == (429, "STK_TEMP_BANNED")


def test_a_fault_from_any_language(service: Routes, control: httpx.Client) -> None:
    act(control, "fail_next", method="POST", path="/payments/stk", fault=Fault.html_502, times=2)
    assert [service.stk().status_code for _ in range(3)] == [502, 502, 200]
    act(control, "fail_next", method="POST", path="/payments/stk", fault="refused_after_commit", status=499)
    assert error_of(service.stk()) == (499, "REQUEST_CONFLICT")


@in_turn(
    ("path", "body", "field", "reason"),
    [
        ("advance", {"seconds": "1"}, "seconds", "must be a number"),
        ("advance", {}, "seconds", "is required"),
        ("fail_next", {"method": "POST", "path": "/b2c/payouts", "times": 1.5}, "times", "must be a whole number"),
        ("fail_next", {"method": "POST", "path": 5}, "path", "must be a string"),
        ("end_next", {"outcome": "success", "kind": "x"}, "kind", 'must be "prompt" or "payout"'),
        ("account", {"key": KEY, "change": {"kyc_approved": None}}, "kyc_approved", "must not be null"),
        ("account", {"key": KEY, "change": {"kyc_approved": 5}}, "kyc_approved", "must be true or false"),
        ("account", {"key": KEY, "change": {"channels": {}}}, "channels", "must be an array"),
        ("account", {"key": KEY, "change": {"switches": {"x": 1}}}, "switches.x", "is unknown"),
    ],
)
def test_a_refusal_explains_itself_in_words_of_json(
    control: httpx.Client, path: str, body: dict[str, Any], field: str, reason: str
) -> None:
    refused = control.post(f"/sandbox/{path}", json=body)
    assert error_of(refused) == (400, "VALIDATION_ERROR")
    assert refused.json()["error"]["details"]["fields"][field] == reason


def test_outcomes_and_faults_are_shown_until_they_happen_or_go(service: Routes, control: httpx.Client) -> None:
    act(control, "end_next", outcome="cancelled", phone="0712 345 678", kind="prompt", times=2)
    act(control, "fail_next", method="POST", path="/payments/stk", fault="html_502", times=2)
    service.stk()
    shown = data(control.get("/sandbox/state"))
    (fault,), (outcome,) = shown["faults"], shown["outcomes"]
    assert (fault["fault"], fault["path"], fault["times"]) == ("html_502", "/payments/stk", 1)
    assert (outcome["outcome"], outcome["phone"], outcome["times"]) == ("cancelled", "254712345678", 2)
    act(control, "clear_planned", id=fault["id"])
    shown = data(control.get("/sandbox/state"))
    assert (len(shown["faults"]), len(shown["outcomes"])) == (0, 1)
    assert error_of(control.post("/sandbox/clear_planned", json={"id": "x"})) == (400, "VALIDATION_ERROR")
    data(control.post("/sandbox/clear_planned"))
    assert data(control.get("/sandbox/state"))["outcomes"] == []
    assert error_of(control.post("/sandbox/end_next", json={"outcome": "nope"})) == (400, "VALIDATION_ERROR")


def test_a_callback_is_resent(service: Routes, control: httpx.Client, sandbox: Sandbox, receiver: Receiver) -> None:
    service.stk(callbackUrl=receiver.url, phone=phone_for(Outcome.callback_lost))
    sandbox.advance(35)
    assert receiver.bodies == []
    receiver.answer = lambda _body: 500
    act(control, "resend", id=sandbox.callbacks[0].id)
    sandbox.advance(600)
    assert [record.status for record in sandbox.callbacks] == [None, 500]
    sandbox.resend(sandbox.callbacks[0])
    assert receiver.bodies == [sandbox.callbacks[0].payload] * 2
    assert error_of(control.post("/sandbox/resend", json={"id": "x"})) == (404, "NOT_FOUND")


def test_events_show_every_change_and_the_time(control: httpx.Client, service: Routes, sandbox: Sandbox) -> None:
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


def pay_out(sandbox: Sandbox, number: int, url: str | None = None) -> None:
    """Make payouts without HTTP, which takes longer than the rest of a test."""
    engine = sandbox._running

    def act() -> None:
        now = engine.catch_up()
        account = engine.state.account_of(KEY, now)
        for _ in range(number):
            body = {"amount": Decimal(10), "phone": "0712345678", "reference": "ONE", "callbackUrl": url}
            initiate_payout(Call(engine.state, account, now), PayoutBody.model_validate(body))

    sandbox._started.on_loop(act)


def state(control: httpx.Client) -> Any:
    return data(control.get("/sandbox/state"))


def test_only_an_open_prompt_is_a_prompt(service: Routes, control: httpx.Client, sandbox: Sandbox) -> None:
    sent = [service.stk(phone=phone_for(Outcome.by_hand)), service.stk(), service.payout(), service.top_up()]
    newest_first = [transaction_id(one) for one in sent][::-1]
    prompts = [(one["id"], one["prompt"]) for one in state(control)["transactions"]]
    assert prompts == list(zip(newest_first, (True, False, True, True), strict=True))
    sandbox.advance(5)
    assert [one["prompt"] for one in state(control)["transactions"]] == [False, False, False, True]
    pay_out(sandbox, 160)
    shown = state(control)["transactions"]
    assert (len(shown), shown[-1]["id"], shown[-1]["prompt"]) == (101, newest_first[-1], True)


def test_each_account_has_its_newest_100(service: Routes, control: httpx.Client, sandbox: Sandbox) -> None:
    with client(sandbox.base_url, "pk_test_quiet") as api:
        quiet = transaction_id(Routes(api).stk(callbackUrl="https://shop.example/momo"))
        sandbox.advance(35)
    pay_out(sandbox, 101, "https://shop.example/momo")
    for _ in range(101):
        service.api.get("/nope")
    sandbox.advance(35)
    shown = state(control)
    # The quiet account's callback was retried once.
    assert [len(shown[name]) for name in ("transactions", "callbacks", "requests")] == [101, 102, 101]
    assert shown["transactions"][-1]["id"] == shown["callbacks"][-1]["transaction_id"] == quiet
    assert {each["error"] for each in shown["callbacks"]} == {"not sent: not loopback"}
    tenant = sandbox.account("pk_test_quiet").tenant_id
    assert [one["phones"] for one in shown["accounts"] if one["tenant_id"] == tenant] == [["254712345678"]]


def test_the_request_log_masks_keys_and_cuts_bodies(service: Routes, control: httpx.Client, sandbox: Sandbox) -> None:
    service.payout(reference="R" * 5000)
    service.api.get("/transactions", auth=("pk_live_secret", ""))
    shown = state(control)
    newest, before = shown["requests"]
    assert (newest["number"], newest["key"], newest["status"]) == (2, "pk_live_…", 401)
    assert (before["number"], before["key"], before["status"]) == (1, "pk_test_…uite", 200)
    assert (len(before["body"]), [request.json is None for request in sandbox.requests]) == (2000, [False, True])
    assert not any("authorization" in request.headers for request in sandbox.requests)
    for log in (str(shown), repr(sandbox.requests)):
        assert "secret" not in log
        assert KEY not in log


def test_a_search_goes_through_everything(service: Routes, control: httpx.Client, sandbox: Sandbox) -> None:
    first = transaction_id(service.payout(reference="FIRST", phone="0798765432"))
    pay_out(sandbox, 110)
    sandbox.advance(35)
    receipt = data(control.get(f"/sandbox/transactions/{first}"))["receipt"]
    for query in ({"q": "first"}, {"q": first[:8]}, {"q": "0798765"}, {"q": receipt}, {"phone": "254798765432"}):
        assert [one["id"] for one in data(control.get("/sandbox/transactions", params=query))] == [first]
    assert len(data(control.get("/sandbox/transactions"))) == 100
    assert data(control.get("/sandbox/transactions", params={"q": "first", "tenant_id": "other"})) == []


def test_a_transaction_in_detail(service: Routes, control: httpx.Client, sandbox: Sandbox, receiver: Receiver) -> None:
    receiver.answer = lambda _body: 500
    sent = transaction_id(service.payout(callbackUrl=receiver.url))
    sandbox.advance(50)
    detail = data(control.get(f"/sandbox/transactions/{sent}"))
    assert [(one["attempt"], one["status"]) for one in detail["callbacks"]] == [(1, 500), (0, 500)]
    assert detail["callback_due_at"] > detail["updated_at"]
    assert ([one["kind"] for one in detail["ledger"]], detail["callback_url"]) == (["payout", "fee"], receiver.url)
    assert error_of(control.get("/sandbox/transactions/x")) == (404, "TRANSACTION_NOT_FOUND")


def test_every_fault_that_is_offered_for_a_route_can_be_planned_and_would_show(sandbox: Sandbox) -> None:
    offered = {route["value"]: set(route["faults"]) for route in choices()["routes"]}
    for route, faults in offered.items():
        method, path = route.split()
        for fault in faults:
            sandbox.fail_next(method, path, fault)
    assert {each.fault for each in sandbox._running.faults.waiting} == set(Fault)
    assert not any(fault.is_effect or fault.names_another for fault in offered["GET /wallets/service/balance"])
    assert Fault.callback_lost not in offered["POST /wallets/service/topups"]
    assert Fault.list_lag in offered["GET /transactions"]


def test_the_newest_requests_are_kept_oldest_first_and_numbered_from_the_first() -> None:
    one, last = (ReceivedRequest("GET", "/", "", {}, datetime(2026, 1, 1, tzinfo=UTC), each) for each in (b"{}", b"["))
    log = RequestLog()
    for _ in range(KEPT):
        log.add(one)
    log.add(last)
    assert (len(log.entries), log.entries[-1], last.number) == (KEPT, last, KEPT + 1)
    assert (one.json, last.json) == ({}, None)
