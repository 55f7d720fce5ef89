"""The records on the wire, whole and under each switch of the operator's second contract.

`python -m sandbox.test_serializers`, in tests, writes anew what wire.txt has.
"""

import difflib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from in_turn import in_turn
from momopay.sandbox import Fault, Sandbox, Switches
from momopay.sandbox._accounts import CONTRACT, MET
from momopay.sandbox._refusals import STATUS_BY_CODE
from sandbox.kit import KEY, LISTS, Routes, client, data, error_of, own_sandbox, payouts, set_switches, transaction_id

PAYOUT = ("POST", "/b2c/payouts")
UNKNOWN_ID = "5b0f1c1e-0000-4000-8000-000000000001"


def pay(api: httpx.Client, key: str | None = "k", **changes: Any) -> httpx.Response:
    body = {"amount": 10, "phone": "0712345678", "reference": "SAL-7", **changes}
    return api.post("/b2c/payouts", json=body, headers={} if key is None else {"Idempotency-Key": key})


WIRE = Path(__file__).with_name("wire.txt")
URL = "https://shop.example/momo"
PROFILES: dict[str, dict[str, Any]] = {
    "default": {},
    "default, but snake_case": {"naming": "snake_case"},
    "lists": {
        **LISTS,
        "receipt_field": "acmeReceipt",
        "receipt_in_reads": True,
        "topup_type": "WALLET_TOPUP_SERVICE_TOKENS",
    },
    "minimal": {"minimal_answers": True, "payout_keys": "honoured", "topup_answer": "own"},
    "contract": CONTRACT.model_dump(),
    "met": MET.model_dump(),
}
CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        *("POST", "/payments/stk"),
        {"amount": 99.95, "phone": "0712345678", "accountReference": "INV-42", "transactionDesc": "Order 42"},
    ),
    ("POST", "/payments/stk/initiate", {"amount": 1, "phone": "0712349932"}),
    ("POST", "/b2c/payouts", {"amount": 250, "phone": "+254712349942", "reference": "SAL-7", "description": "Salary"}),
    ("POST", "/wallets/service/topups", {"amount": 500, "phone": "0712349940", "accountReference": "FLOAT"}),
    ("POST", "/wallets/b2c/topups", {"amount": 500, "phone": "0712345678", "accountReference": "FLOAT"}),
    ("POST", "/payment-wallet/channels", {"name": "Shop", "type": "TILL_NUMBER", "shortcode": "512345"}),
    *(("GET", path, {}) for path in ("/payment-wallet/channels", "/wallets/service/balance", "/wallets/b2c/balance")),
)
CALLED_BACK = {"/payments/stk", "/b2c/payouts", "/wallets/b2c/topups"}
VARYING = re.compile(r"[0-9a-f]{8}-[-0-9a-f]{27}|(?:mr|co)-[0-9a-f]{16}|(?<=eceipt\": \")\w{10}")
TIMES = re.compile(r"20\d\d-\d\d-\d\dT[\d:.]{12}Z?")


def on_the_wire(switches: dict[str, Any]) -> Iterator[str]:
    """Yield each answer and each callback, with its ids by a number and its times as seconds from the beginning."""
    names = dict[str, str]()

    def plain(what: str, value: object) -> str:
        def since(found: re.Match[str]) -> str:
            seconds = (datetime.fromisoformat(found[0]).replace(tzinfo=start.tzinfo) - start).total_seconds()
            return f"{seconds:+g} s{'' if found[0].endswith('Z') else ' local'}"

        text = VARYING.sub(
            lambda found: names.setdefault(found[0], f"#{len(names) + 1}"), json.dumps(value, sort_keys=True)
        )
        return f"{what} {TIMES.sub(since, text)}"

    with own_sandbox(speed=0) as (sandbox, service):
        set_switches(sandbox, **switches)
        start = sandbox.now
        for method, path, body in CALLS:
            more = {"callbackUrl": URL, "callback_url": URL} if path in CALLED_BACK else {}
            answer = service.api.request(method, path, json={**body, **more} or None)
            yield plain(f"{method} {path} {answer.status_code}", answer.json().get("data") or answer.json()["error"])
        for seconds in (0, 6, 29, 30):
            sandbox.advance(seconds)
            yield plain("GET /transactions", data(service.api.get("/transactions")))
        for made in sandbox._running.state.transactions:
            yield plain("GET /transactions/{id}", data(service.api.get(f"/transactions/{made}")))
        firsts = {json.dumps(each.payload): each.payload for each in sandbox.callbacks}
        yield from (plain("callback", payload) for payload in firsts.values())


def made() -> str:
    return "".join(f"\n{name}\n" + "\n".join(on_the_wire(each)) + "\n" for name, each in PROFILES.items())


def test_what_is_on_the_wire_is_what_was_reviewed() -> None:
    difference = difflib.unified_diff(WIRE.read_text().splitlines(), made().splitlines(), lineterm="", n=0)
    assert "\n".join(difference) == "", "review it, then run python -m sandbox.test_serializers in tests"


@pytest.mark.parametrize(
    ("name", "profile", "specified"),
    [
        ("contract", CONTRACT, {"minimal_answers", "rate_limit_code", "prompt_kyc"}),
        (
            *("met", MET),
            {
                *("minimal_answers", "rate_limit_code", "cursor_field", "item_naming", "overview", "receipt_in_reads"),
                *("customer_in_reads", "payout_keys", "payout_callback_field", "field_limits", "channel_types"),
                "more_filters",
            },
        ),
    ],
)
def test_a_profile_differs_in_every_other_switch_of_a_shape(name: str, profile: Switches, specified: set[str]) -> None:
    shapes = [name for name in Switches.model_fields if list(Switches.model_fields).index(name) > 22]
    same = {name for name in shapes if getattr(profile, name) == getattr(Switches(), name)}
    never = {"channel_reads", "time_filters", "callback_on_processing"}
    assert (shapes[0], same) == ("key_prefixes", specified | never)
    with own_sandbox(speed=0, profile=name) as (sandbox, _):
        assert sandbox.account("ab_test_x").switches == profile


@in_turn("name", ["pesa receipt", "receipt_number", "", "reçuReceipt"])
def test_a_receipt_is_named_as_one(name: str) -> None:
    for good in ("receipt", "PesaReceipt", "PESA_RECEIPT"):
        assert Switches(receipt_field=good).receipt_field == good
    with pytest.raises(ValueError, match="receipt_field"):
        Switches(receipt_field=name)


def test_a_payout_under_the_key_of_an_earlier_one(sandbox: Sandbox, api: httpx.Client) -> None:
    assert transaction_id(pay(api)) != transaction_id(pay(api))  # ignored
    for switch, forgets in (("honoured", False), ("forgotten", True)):
        sandbox.reset()
        set_switches(sandbox, payout_keys=switch)
        first = data(pay(api, phone="0712345678"))
        assert first["idempotencyKey"] == "k"
        sandbox.advance(599)
        assert data(pay(api, phone="+254712345678")) == first
        others: list[dict[str, Any]] = [{"amount": 11}, {"reference": "SAL-8"}, {"phone": "0712345679"}]
        for other in others:
            assert error_of(pay(api, **other)) == (409, "DUPLICATE_IDEMPOTENCY_KEY")
        sandbox.advance(1)
        again = transaction_id(pay(api))
        assert ((again != first["transactionId"]), payouts(sandbox)) == (forgets, 2 if forgets else 1)
        # A key with a top-up, none at all, and one that was refused are others.
        assert Routes(api).top_up("k").status_code == 200
        assert transaction_id(pay(api, None)) != transaction_id(pay(api, ""))
        assert error_of(pay(api, "new", amount=1)) == (400, "VALIDATION_ERROR")
        assert transaction_id(pay(api, "new")) not in {again, first["transactionId"]}
        assert pay(api, "k" * 120).status_code == 200
        assert error_of(pay(api, "k" * 121)) == (400, "INVALID_IDEMPOTENCY_KEY")


def test_errors_as_the_contract_has_them(sandbox: Sandbox, service: Routes, api: httpx.Client) -> None:
    assert error_of(api.get("/transactions/nope")) == (404, "TRANSACTION_NOT_FOUND")
    set_switches(sandbox, error_messages="array", invalid_uuid=True)
    wrong = service.stk(amount="ten", accountReference=None, phone=5)
    assert error_of(wrong) == (400, "HTTP_400")
    assert wrong.json()["error"]["message"] == ["amount must be a number", "phone must be a string"]
    assert error_of(api.get("/transactions/nope")) == (400, "INVALID_UUID")
    assert error_of(api.get(f"/transactions/{UNKNOWN_ID}")) == (404, "TRANSACTION_NOT_FOUND")
    assert isinstance(service.stk(phone="1").json()["error"]["message"], str)


def test_the_headers_count_the_requests_that_are_left(sandbox: Sandbox, api: httpx.Client) -> None:
    set_switches(sandbox, rate_limit_headers=True)
    sandbox.account(KEY).rate_limit = 2
    start = sandbox.now.timestamp()
    answers = [api.get("/transactions"), api.get("/transactions/nope"), api.get("/transactions")]
    assert [answer.status_code for answer in answers] == [200, 404, 429]
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["1", "0", "0"]
    for answer in answers:
        assert 0 <= int(answer.headers["x-ratelimit-reset"]) - start - 60 < 2
    sandbox.account(KEY).rate_limit = None
    assert "x-ratelimit-limit" not in api.get("/transactions").headers


def test_what_requests_are_called_and_how_long_they_may_be(sandbox: Sandbox, service: Routes) -> None:
    url = "https://shop.example/"
    data(service.payout(reference="x" * 500, callbackUrl=url + "x" * 600, callback_url=5))
    set_switches(sandbox, payout_callback_field="callback_url", field_limits="contract", channel_types="TILL")
    for changes in ({"reference": "x" * 121}, {"description": "x" * 256}, {"callback_url": url + "x" * 480}):
        assert error_of(service.payout(**changes)) == (400, "VALIDATION_ERROR")
    sent = transaction_id(service.payout(reference="x" * 120, description="x" * 255, callbackUrl=5, callback_url=url))
    state = sandbox._running.state
    assert state.transactions[sent].callback_url == url
    assert service.channel(type="TILL", name="x" * 120, shortcode="1" * 50).status_code == 200
    for wrong in ({"name": "x" * 121}, {"shortcode": "1" * 51}, {"accountNumber": "1" * 51}):
        assert error_of(service.channel(type="TILL", **wrong)) == (400, "VALIDATION_ERROR")
    for kind in ("TILL_NUMBER", "SHORTCODE", "x"):
        assert error_of(service.channel(type=kind)) == (400, "VALIDATION_ERROR")
    set_switches(sandbox, channel_types="any", channel_reads=False)
    for kind in ("TILL_NUMBER", "TILL", "SHORTCODE"):
        assert service.channel(type=kind).status_code == 200
    assert error_of(service.api.get("/payment-wallet/channels")) == (404, "NOT_FOUND")


def test_the_payout_wallet_is_read_and_topped_up(sandbox: Sandbox, service: Routes, api: httpx.Client) -> None:
    body = {"amount": 500, "phone": "0712345678", "accountReference": "FLOAT"}
    assert error_of(api.post("/wallets/b2c/topups", json=body)) == (404, "NOT_FOUND")
    set_switches(sandbox, more_endpoints=True)
    topped_up = data(api.post("/wallets/b2c/topups", json=body, headers={"Idempotency-Key": "k"}))
    assert data(api.post("/wallets/b2c/topups", json=body, headers={"Idempotency-Key": "k"})) == topped_up
    sandbox.advance(65)
    assert data(api.get("/wallets/b2c/balance"))["availableBalance"] == 1_000_500


def test_keys_with_other_letters_are_accounts_under_their_switch() -> None:
    with own_sandbox(speed=0, profile="contract") as (sandbox, _):
        for key in ("pk_test_a", "ab_test_a", "acme_live_a"):
            with client(sandbox.base_url, key) as api:
                assert api.get("/transactions").status_code == 200
        assert [request.key for request in sandbox.requests] == ["pk_test_a", "ab_test_a", "acme_live_…"]
        for key in ("sk_test_a", "a_test_a", "ab_prod_a", "ab_test_", "4b_test_a"):
            with client(sandbox.base_url, key) as api:
                assert error_of(api.get("/transactions")) == (401, "INVALID_API_KEY")


def test_any_code_is_planned_with_the_status_that_it_has(sandbox: Sandbox, service: Routes) -> None:
    for code, status in STATUS_BY_CODE.items():
        sandbox.fail_next(*PAYOUT, code=code)
        answer = service.payout()
        assert error_of(answer) == (400 if code == "CHANNEL_NOT_FOUND" else status, code)
        assert ("retry-after" in answer.headers) == (status == 429)
    assert payouts(sandbox) == 0
    sandbox.fail_next(*PAYOUT, Fault.refused_after_commit, code="WALLET_INACTIVE", status=418)
    sandbox.fail_next(*PAYOUT, code="SOMETHING_NEW")
    answers = [error_of(service.payout()) for _ in range(2)]
    assert (answers, payouts(sandbox)) == ([(418, "WALLET_INACTIVE"), (409, "SOMETHING_NEW")], 1)


@pytest.mark.parametrize("item_naming", ["camelCase", "snake_case"])
def test_one_item_of_a_list_is_bad(
    sandbox: Sandbox, service: Routes, api: httpx.Client, control: httpx.Client, item_naming: str
) -> None:
    set_switches(sandbox, item_naming=item_naming)
    bad, good = transaction_id(service.payout()), transaction_id(service.payout())
    _, whole = data(api.get("/transactions"))["items"]
    read = data(api.get(f"/transactions/{bad}"))
    sandbox.spoil(bad, "phone")
    sandbox.spoil(bad, "created_at", missing=True)
    data(control.post("/sandbox/spoil", content=json.dumps({"id": bad, "field": "amount", "value": "ten"})))
    other, item = data(api.get("/transactions"))["items"]
    changed = {name: item.get(name, "missing") for name in whole if item.get(name, "missing") != whole[name]}
    phone, created = ("phone", "createdAt") if item_naming == "camelCase" else ("phone_number", "created_at")
    assert changed == {phone: None, created: "missing", "amount": "ten"}
    assert (good in other.values(), data(api.get(f"/transactions/{bad}"))) == (True, read)
    assert error_of(control.post("/sandbox/spoil", json={"id": bad, "field": "x"})) == (400, "VALIDATION_ERROR")


if __name__ == "__main__":
    WIRE.write_text(made())
