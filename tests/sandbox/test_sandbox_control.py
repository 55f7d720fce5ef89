from decimal import Decimal
from typing import Any

import httpx
import pytest

from momopay.sandbox import Fault, Outcome, Sandbox, phone_for
from sandbox.kit import KEY, Receiver, Service, data, refusal, transaction_id


def _act(control: httpx.Client, name: str, **body: Any) -> Any:
    return data(control.post(f"/sandbox/{name}", json=body))


def test_a_whole_test_without_python(service: Service, control: httpx.Client, receiver: Receiver) -> None:
    sent = transaction_id(service.stk(phone=phone_for(Outcome.by_hand), callbackUrl=receiver.url))
    assert _act(control, "enter_pin", id=sent)["status"] == "PROCESSING"
    state = _act(control, "advance", seconds=30)
    assert [(item["id"], item["status"]) for item in state["transactions"]] == [(sent, "SUCCESS")]
    assert [item["status"] for item in data(control.get("/sandbox/callbacks"))] == [200]
    assert [item["kind"] for item in data(control.get("/sandbox/ledger"))] == ["fee", "stk"]
    requests = data(control.get("/sandbox/requests"))
    assert [(item["method"], item["path"]) for item in requests] == [("POST", "/payments/stk")]
    assert KEY not in str(requests)
    assert _act(control, "reset") == {}
    assert data(control.get("/sandbox/state"))["transactions"] == []


def test_the_other_two_hands(service: Service, control: httpx.Client) -> None:
    cancelled, ignored = (transaction_id(service.stk(phone=phone_for(Outcome.by_hand))) for _ in range(2))
    assert _act(control, "cancel", id=cancelled)["status"] == "CANCELLED"
    assert _act(control, "ignore", id=ignored)["next_step_at"] is not None
    assert refusal(control.post("/sandbox/cancel", json={"id": cancelled})) == (409, "NOT_PENDING")
    assert refusal(control.post("/sandbox/cancel", json={"id": "x"})) == (404, "TRANSACTION_NOT_FOUND")
    assert refusal(control.post("/sandbox/cancel", json={})) == (400, "VALIDATION_ERROR")


def test_a_fault_from_any_language(service: Service, control: httpx.Client) -> None:
    _act(control, "fail_next", method="POST", path="/payments/stk", fault=Fault.html_502, times=2)
    assert [service.stk().status_code for _ in range(3)] == [502, 502, 200]
    for wrong in (
        {"fault": "nope"},
        {"path": "x"},
        {"times": 0},
        {"times": 1.5},
        {"method": 5},
        {"content_length": "no"},
    ):
        body = {"method": "GET", "path": "/x", "fault": "refuse", **wrong}
        assert refusal(control.post("/sandbox/fail_next", json=body)) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize("seconds", [-1, "1", None, True, 1e30])
def test_senseless_seconds_are_refused(control: httpx.Client, seconds: Any) -> None:
    response = control.post("/sandbox/advance", json={"seconds": seconds})
    assert refusal(response) == (400, "VALIDATION_ERROR")


def test_an_account_is_read_and_changed(control: httpx.Client, sandbox: Sandbox) -> None:
    account = _act(control, "account", key="pk_test_new")
    assert (account["label"], account["b2c_balance"], account["kyc_approved"]) == (
        "pk_test_new",
        1_000_000,
        True,
    )
    changed = _act(
        control,
        "account",
        tenant_id=account["tenant_id"],
        change={
            "kyc_approved": False,
            "b2c_balance": 12.5,
            "service_balance": 0,
            "fee": 0,
            "rate_limit": None,
            "switches": {"naming": "snake_case", "created_status": 201},
            "channels": [{"type": "TILL_NUMBER", "shortcode": "1", "name": "Till"}],
        },
    )
    mine = sandbox.account("pk_test_new")
    assert (mine.kyc_approved, mine.b2c_balance, mine.rate_limit) == (False, Decimal("12.5"), None)
    assert mine.switches.naming == "snake_case"
    assert changed["switches"]["created_status"] == 201
    assert [channel.name for channel in mine.channels] == ["Till"]


@pytest.mark.parametrize(
    "order",
    [
        [],
        {},
        {"key": 5},
        {"tenant_id": "nope"},
        {"key": KEY, "change": []},
        {"key": KEY, "change": {"tenant_id": "x"}},
        {"key": KEY, "change": {"kyc_approved": False, "fee": -1}},
        {"key": KEY, "change": {"kyc_approved": False, "switches": {"naming": "kebab"}}},
        {"key": KEY, "change": {"kyc_approved": False, "switches": {"nope": 1}}},
        {"key": KEY, "change": {"kyc_approved": False, "switches": 1}},
        {"key": KEY, "change": {"b2c_balance": 1.001}},
    ],
)
def test_a_wrong_change_changes_nothing(control: httpx.Client, sandbox: Sandbox, order: Any) -> None:
    before = sandbox.account(KEY).model_dump()
    assert refusal(control.post("/sandbox/account", json=order)) == (400, "VALIDATION_ERROR")
    assert sandbox.account(KEY).model_dump() == before


def test_a_live_key_has_no_account(control: httpx.Client, sandbox: Sandbox) -> None:
    response = control.post("/sandbox/account", json={"key": "pk_live_a"})
    assert refusal(response) == (401, "INVALID_API_KEY")
    with pytest.raises(ValueError, match="pk_test_"):
        sandbox.account("pk_live_a")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8787"},
        {"Host": "[oops"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_other_sites_are_kept_out(control: httpx.Client, headers: dict[str, str]) -> None:
    for method, path in (
        ("POST", "/sandbox/reset"),
        ("GET", "/sandbox/state"),
        ("GET", "/sandbox/events"),
    ):
        assert refusal(control.request(method, path, headers=headers)) == (403, "FORBIDDEN")


def test_a_link_may_lead_to_the_page_but_not_under_another_name(control: httpx.Client) -> None:
    for path in ("/", "/docs"):
        assert control.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
        assert refusal(control.get(path, headers={"Host": "evil.example"})) == (403, "FORBIDDEN")


def test_its_own_page_is_let_in(control: httpx.Client) -> None:
    origin = str(control.base_url)
    data(control.post("/sandbox/reset", headers={"Origin": origin, "Sec-Fetch-Site": "same-origin"}))
    port = control.base_url.port
    data(control.get("/sandbox/state", headers={"Host": f"localhost:{port}"}))


def test_pages_may_run_their_own_script_only(control: httpx.Client) -> None:
    for path in ("/", "/docs"):
        response = control.get(path)
        assert response.headers["content-type"].startswith("text/html")
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'sha256-" in policy
        assert "https://" not in response.text
        assert "innerHTML" not in response.text


def test_unknown_paths_and_methods_get_an_envelope(api: httpx.Client, control: httpx.Client) -> None:
    assert refusal(api.get("/nope")) == (404, "NOT_FOUND")
    assert refusal(control.get("/nope")) == (404, "NOT_FOUND")
    assert refusal(control.get("/v1")) == (404, "NOT_FOUND")
    assert refusal(api.get("/transactions/")) == (404, "NOT_FOUND")
    response = api.put("/payments/stk")
    assert refusal(response) == (405, "METHOD_NOT_ALLOWED")
    assert response.headers["allow"] == "POST"
    assert api.head("/transactions").status_code == 405


def test_a_control_body_has_a_limit(control: httpx.Client) -> None:
    response = control.post("/sandbox/account", content=b" " * (1 << 21))
    assert refusal(response) == (413, "PAYLOAD_TOO_LARGE")


def test_events_tell_every_change(control: httpx.Client, service: Service) -> None:
    with control.stream("GET", "/sandbox/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        first = next(lines)
        assert first.startswith("data: {")
        sent = transaction_id(service.stk())
        assert sent not in first
        assert any(sent in line for line in lines)


def test_events_tell_that_time_alone_has_passed(control: httpx.Client, sandbox: Sandbox) -> None:
    with control.stream("GET", "/sandbox/events") as response:
        lines = response.iter_lines()
        next(lines)
        sandbox.advance(300)
        now = sandbox.now.strftime("%Y-%m-%dT%H:%M:%S")
        assert any(f'"now": "{now}' in line for line in lines)
