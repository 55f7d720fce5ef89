"""The profile `contract`, as a client that the operator publishes uses it: plain HTTP, and no code of ours."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from in_turn import in_turn
from momopay.sandbox import Credential, Outcome, Refusal, Sandbox, phone_for
from sandbox.kit import Receiver

KEY = "acme_test_contract"
UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}").fullmatch
UNKNOWN = "5b0f1c1e-0000-4000-8000-000000000001"
PHONE = "0712345678"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z").fullmatch
RATE_HEADERS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")


class ServiceError(Exception):
    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{status} {error['code']}")
        self.status, self.code, self.message = status, error["code"], error["message"]


class Operator:
    """A client as the operator's: it checks each envelope, and raises what is refused."""

    def __init__(self, url: str, key: str = KEY) -> None:
        self.http = httpx.Client(base_url=url, auth=(key, ""), trust_env=False, verify=False)
        self.last: httpx.Response = httpx.Response(0)

    def call(self, method: str, path: str, body: object = None, key: str | None = None, **query: Any) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        self.last = answer = self.http.request(method, path, json=body, headers=headers, params=query)
        for name in RATE_HEADERS:
            assert answer.headers[name].isdigit(), (path, name)
        if answer.status_code == 204:
            assert answer.content == b""
            return None
        envelope = answer.json()
        assert UUID(envelope["requestId"])
        assert envelope["success"] is answer.is_success
        if not answer.is_success:
            assert isinstance(envelope["error"]["details"], dict)
            raise ServiceError(answer.status_code, envelope["error"])
        return envelope["data"]

    def refused(self, *call: Any, **query: Any) -> tuple[int, str]:
        with pytest.raises(ServiceError) as refused:
            self.call(*call, **query)
        return refused.value.status, refused.value.code

    def stk(self, **more: Any) -> Any:
        return self.call("POST", "/payments/stk", {"amount": 100, "phone": PHONE, **more})

    def payout(self, key: str | None = None, **more: Any) -> Any:
        body = {"amount": 250, "phone": PHONE, "reference": "SAL-7", "description": "Salary", "currency": "KES", **more}
        return self.call("POST", "/b2c/payouts", body, key)

    def top_up(self, wallet: str = "service", key: str | None = None, **more: Any) -> Any:
        return self.call("POST", f"/wallets/{wallet}/topups", {"amount": 500, "phone": PHONE, **more}, key)

    def items(self, **query: Any) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.call("GET", "/transactions", **query)["items"]
        return items


@pytest.fixture(scope="module")
def contract() -> Iterator[Sandbox]:
    with Sandbox(speed=0, profile="contract") as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(contract: Sandbox) -> Sandbox:
    contract.reset()
    contract.account(KEY).rate_limit = 10_000  # without a limit, no answer has headers about it
    return contract


@pytest.fixture
def operator(sandbox: Sandbox) -> Iterator[Operator]:
    operator = Operator(sandbox.base_url)
    with operator.http:
        yield operator


def test_a_prompt_from_its_answer_to_its_end(sandbox: Sandbox, operator: Operator, receiver: Receiver) -> None:
    more = {"accountReference": "INV-42", "transactionDesc": "Order 42", "callbackUrl": receiver.url}
    sent = operator.stk(**more)
    assert {"type": "STK", "status": "PENDING", "amount": 100, "currency": "KES"}.items() <= sent.items()
    assert (sent["phone"], sent["transactionFee"], sent["resultCode"]) == ("254712345678", 1, "0")
    assert (sent["accountReference"], sent["transactionDesc"]) == ("INV-42", "Order 42")
    assert all(UUID(sent[name]) for name in ("transactionId", "tenantId", "channelId"))
    assert sent["providerRequestId"]
    assert sent["providerCheckoutId"]
    assert TIME(sent["createdAt"])
    identity = sent["transactionId"]
    assert operator.call("GET", f"/transactions/{identity}")["status"] == "PENDING"
    sandbox.advance(6)
    assert operator.call("GET", f"/transactions/{identity}")["status"] == "PROCESSING"
    assert receiver.bodies == []  # callbacks come for ends only
    sandbox.advance(30)
    read = operator.call("GET", f"/transactions/{identity}")
    assert (read["transaction_id"], read["status"], read["result_code"]) == (identity, "SUCCESS", "0")
    assert (read["phone_number"], read["external_reference"]) == ("254712345678", "INV-42")
    assert (read["type"], read["transaction_fee"], read["callback_url"]) == ("STK", 1, receiver.url)
    (told,) = receiver.bodies
    assert (told["event"], told["event_type"]) == ("transaction.updated", "transaction.success")
    assert told["transaction"]["mpesa_receipt"] == read["mpesa_receipt"]
    assert re.fullmatch("[A-Z0-9]{10}", read["mpesa_receipt"])
    assert (told["transaction"]["id"], told["transaction"]["external_reference"]) == (identity, "INV-42")
    assert operator.call("POST", "/payments/stk/initiate", {"amount": 1, "phone": PHONE})["type"] == "STK"


@in_turn(
    ("outcome", "status", "event", "code"),
    [
        (Outcome.insufficient_funds, "FAILED", "transaction.failed", "1"),
        (Outcome.cancelled, "CANCELLED", "transaction.cancelled", "1032"),
        (Outcome.expired, "EXPIRED", "transaction.expired", "1037"),
    ],
)
def test_an_end_without_success(
    sandbox: Sandbox, operator: Operator, receiver: Receiver, outcome: Outcome, status: str, event: str, code: str
) -> None:
    identity = operator.stk(phone=phone_for(outcome), callbackUrl=receiver.url)["transactionId"]
    sandbox.advance(120)
    told, read = receiver.bodies[-1], operator.call("GET", f"/transactions/{identity}")
    assert (told["transaction"]["status"], told["event_type"]) == (status, event)
    assert (read["status"], read["result_code"], read["mpesa_receipt"]) == (status, code, None)
    assert (read["transaction_fee"], told["transaction"]["transaction_fee"]) == (0, 0)
    assert identity in {item["transaction_id"] for item in operator.items(status=status)}
    assert all(item["status"] == status for item in operator.items(status=status))


def test_texts_that_no_phone_shows_fail_later(sandbox: Sandbox, operator: Operator, receiver: Receiver) -> None:
    for more in ({"accountReference": "x" * 120}, {"transactionDesc": "x" * 255}, {"accountReference": "x" * 13}):
        before = sandbox.account(KEY).service_balance
        sent = operator.stk(callbackUrl=receiver.url, **more)
        assert (sent["status"], sent["transactionFee"]) == ("PENDING", 1)
        assert before - sandbox.account(KEY).service_balance == 1
        with pytest.raises(Refusal, match="NOT_PENDING"):
            sandbox.enter_pin(sent["transactionId"])  # no phone shows it
        sandbox.advance(9)
        assert operator.call("GET", f"/transactions/{sent['transactionId']}")["status"] == "PENDING"
        sandbox.advance(1)
        read = operator.call("GET", f"/transactions/{sent['transactionId']}")
        assert (read["status"], receiver.bodies[-1]["event_type"]) == ("FAILED", "transaction.failed")
        assert read["result_code"] not in {None, "", "0"}
        assert before - sandbox.account(KEY).service_balance == 1
    for more in ({"accountReference": "x" * 121}, {"transactionDesc": "x" * 256}, {"callbackUrl": URL_OF_501}):
        with pytest.raises(ServiceError) as refused:
            operator.stk(**more)
        assert (refused.value.status, refused.value.code) == (400, "HTTP_400")
    operator.stk(accountReference="x" * 12, transactionDesc="x" * 13)
    sandbox.advance(40)
    assert operator.items()[0]["status"] == "SUCCESS"


URL_OF_501 = f"https://shop.example/{'x' * 480}"


def test_a_payout_and_its_key(sandbox: Sandbox, operator: Operator, receiver: Receiver) -> None:
    sent = operator.payout("payout-1", callback_url=receiver.url)
    assert {"type": "B2C", "status": "PENDING", "amount": 250, "currency": "KES"}.items() <= sent.items()
    assert (sent["reference"], sent["description"], sent["idempotencyKey"]) == ("SAL-7", "Salary", "payout-1")
    assert (sent["phone"], sent["transactionFee"], sent["channelId"]) == ("254712345678", 1, None)
    assert operator.payout("payout-1", callback_url=receiver.url) == sent
    others: list[dict[str, Any]] = [{"amount": 251}, {"phone": "0712345679"}, {"reference": "SAL-8"}]
    for other in (*others, {"description": "x"}, {"channelId": sandbox.account(KEY).channels[0].id}):
        with pytest.raises(ServiceError, match="409 DUPLICATE_IDEMPOTENCY_KEY"):
            operator.payout(key="payout-1", **dict[str, Any](callback_url=receiver.url), **other)
    with pytest.raises(ServiceError, match="400 INVALID_IDEMPOTENCY_KEY"):
        operator.payout("k" * 121)
    assert operator.payout("k" * 120)["idempotencyKey"] == "k" * 120
    assert operator.payout()["transactionId"] != operator.payout()["transactionId"]
    sandbox.advance(40)
    assert [each["event_type"] for each in receiver.bodies] == ["transaction.success"]
    other_name = operator.payout(callbackUrl=receiver.url)["transactionId"]
    sandbox.advance(40)
    assert receiver.bodies[-1]["transaction"]["id"] == other_name
    assert operator.call("GET", f"/transactions/{other_name}")["callback_url"] == receiver.url


def test_payouts_that_are_refused(sandbox: Sandbox, operator: Operator) -> None:
    account = sandbox.account(KEY)
    for more, error in (
        ({"currency": "USD"}, "400 UNSUPPORTED_CURRENCY"),
        ({"amount": 9}, "400 HTTP_400"),
        ({"phone": "12"}, "400 INVALID_PHONE"),
        ({"reference": "x" * 121}, "400 HTTP_400"),
        ({"description": "x" * 256}, "400 HTTP_400"),
        ({"callback_url": URL_OF_501}, "400 HTTP_400"),
        ({"callback_url": "http://shop.example"}, "400 HTTP_400"),
        ({"channelId": UNKNOWN}, "400 CHANNEL_NOT_FOUND"),
        ({"credential_id": UNKNOWN}, "404 CREDENTIAL_NOT_FOUND"),
        ({"amount": 1_000_001}, "409 INSUFFICIENT_FUNDS"),
    ):
        changes: dict[str, Any] = {**more}
        with pytest.raises(ServiceError, match=error):
            operator.payout(**changes)
    for name, value, error in (
        ("kyc_approved", False, "403 KYC_NOT_VERIFIED"),
        ("service_balance", 0, "402 INSUFFICIENT_SERVICE_BALANCE"),
        ("b2c_wallet", "inactive", "409 WALLET_INACTIVE"),
        ("b2c_wallet", "missing", "404 WALLET_NOT_FOUND"),
        ("tenant_active", False, "401 TENANT_INACTIVE"),
        ("account_active", False, "403 ACCOUNT_INACTIVE"),
        ("may_write", False, "403 INSUFFICIENT_SCOPE"),
    ):
        before = getattr(account, name)
        setattr(account, name, value)
        answer = operator.http.post("/b2c/payouts", json={"amount": 10, "phone": PHONE})
        assert f"{answer.status_code} {answer.json()['error']['code']}" == error
        setattr(account, name, before)
    assert sandbox.ledger == []
    assert operator.payout()["status"] == "PENDING"


def test_credentials_of_prompts_and_payouts(sandbox: Sandbox, operator: Operator) -> None:
    account = sandbox.account(KEY)
    account.credentials = {UNKNOWN: Credential(shortcode="777")}
    account.channels = []
    assert operator.stk(credential_id=UNKNOWN)["channelId"] is None
    assert operator.payout(credential_id=UNKNOWN)["status"] == "PENDING"
    state = sandbox._running.state.transactions.values()
    assert [each.shortcode for each in state] == ["777", "777"]
    account.credentials[UNKNOWN].active = False
    for send in (operator.stk, operator.payout):
        with pytest.raises(ServiceError, match="409 CREDENTIAL_INACTIVE"):
            send(credential_id=UNKNOWN)
        with pytest.raises(ServiceError, match="404 CREDENTIAL_NOT_FOUND"):
            send(credential_id=UNKNOWN[:-1] + "2")


@pytest.mark.parametrize(("wallet", "kind"), [("service", "WALLET_TOPUP_SERVICE_TOKENS"), ("b2c", "WALLET_TOPUP_B2C")])
def test_a_top_up_and_its_key(sandbox: Sandbox, operator: Operator, receiver: Receiver, wallet: str, kind: str) -> None:
    before = operator.call("GET", f"/wallets/{wallet}/balance")
    more = {"accountReference": "FLOAT", "transactionDesc": "Top up", "callbackUrl": receiver.url}
    sent = operator.top_up(wallet, "float-1", **more)
    assert (sent["type"], sent["status"], sent["idempotencyKey"]) == (kind, "PENDING", "float-1")
    assert (sent["amount"], sent["phone"], sent["transactionFee"]) == (500, "254712345678", 0)
    assert (sent["accountReference"].endswith("FLOAT"), sent["transactionDesc"]) == (True, "Top up")
    assert operator.top_up(wallet, "float-1", **more) == sent
    with pytest.raises(ServiceError, match="409 DUPLICATE_IDEMPOTENCY_KEY"):
        operator.top_up(wallet, "float-1", **{**more, "amount": 501})
    with pytest.raises(ServiceError, match="400 INVALID_IDEMPOTENCY_KEY"):
        operator.top_up(wallet, "k" * 121)
    assert operator.top_up(wallet)["idempotencyKey"] is None
    sandbox.advance(70)
    after = operator.call("GET", f"/wallets/{wallet}/balance")
    assert (after["availableBalance"] - before["availableBalance"], after["currency"]) == (1000, "KES")
    listed = [item for item in operator.items(type=kind) if item["transaction_id"] == sent["transactionId"]]
    assert [(item["type"], item["status"]) for item in listed] == [(kind, "SUCCESS")]
    told = [(each["transaction"]["id"], each["transaction"]["type"]) for each in receiver.bodies]
    assert told == ([(sent["transactionId"], kind)] if wallet == "b2c" else [])


def test_pages_and_filters_of_the_list(sandbox: Sandbox, operator: Operator) -> None:
    sent = [operator.stk(amount=amount)["transactionId"] for amount in range(1, 6)]
    payout = operator.payout()["transactionId"]
    first = operator.call("GET", "/transactions", limit=4)
    assert set(first) == {"items", "next_cursor"}
    second = operator.call("GET", "/transactions", limit=4, cursor=first["next_cursor"])
    walked = [item["transaction_id"] for item in (*first["items"], *second["items"])]
    assert (walked, second["next_cursor"]) == ([payout, *reversed(sent)], None)
    assert {"transaction_id", "type", "status", "amount", "phone_number", "created_at", "updated_at"} <= set(
        first["items"][0]
    )
    assert [item["transaction_id"] for item in operator.items(type="B2C")] == [payout]
    assert len(operator.items(status="PENDING", type="STK")) == 5
    assert (operator.items(status="EXPIRED"), operator.items(status="REVERSED")) == ([], [])
    assert operator.refused("GET", "/transactions", cursor="nonsense") == (400, "INVALID_CURSOR")
    for query in ({"limit": 0}, {"limit": 101}, {"limit": "x"}, {"status": "NOPE"}, {"type": "NOPE"}):
        assert operator.refused("GET", "/transactions", **query) == (400, "HTTP_400")
        assert isinstance(operator.last.json()["error"]["message"], list)


def test_channels(operator: Operator) -> None:
    path, till = "/payment-wallet/channels", {"name": "Shop", "type": "TILL", "shortcode": "512345"}
    made = operator.call("POST", path, till)
    assert (made["type"], made["shortcode"], made["isDefault"]) == ("TILL", "512345", False)
    assert operator.refused("POST", path, {**till, "name": "Other"}) == (409, "DUPLICATE_SHORTCODE")
    paybill = operator.call("POST", path, {**till, "type": "PAYBILL", "accountNumber": "A1"})
    for kind in ("TILL_NUMBER", "SHORTCODE", "SEND_MONEY"):
        assert operator.call("POST", path, {**till, "type": kind, "shortcode": kind})["type"] == kind
    assert operator.refused("POST", path, {**till, "type": "NOPE"}) == (400, "HTTP_400")
    assert operator.refused("POST", path, {**till, "name": "x" * 121}) == (400, "HTTP_400")
    one = f"{path}/{made['id']}"
    assert operator.call("PATCH", one, {"name": "Till 2"})["name"] == "Till 2"
    assert operator.call("PATCH", one, {"isDefault": True})["isDefault"] is True
    assert operator.call("PATCH", f"{path}/{paybill['id']}", {"accountNumber": "A2"})["accountNumber"] == "A2"
    assert operator.refused("PATCH", one, {}) == (400, "EMPTY_UPDATE")
    assert operator.refused("PATCH", one, {"nope": 1}) == (400, "EMPTY_UPDATE")
    assert operator.refused("PATCH", f"{path}/{UNKNOWN}", {"name": "x"}) == (404, "CHANNEL_NOT_FOUND")
    assert operator.refused("PATCH", f"{path}/nope", {"name": "x"}) == (400, "INVALID_UUID")
    sent = operator.stk(channelId=paybill["id"])
    assert sent["channelId"] == paybill["id"]
    assert operator.refused("DELETE", f"{path}/{paybill['id']}") == (409, "CHANNEL_IN_USE")
    assert operator.call("DELETE", one) is None
    assert operator.last.status_code == 204
    assert operator.refused("DELETE", one) == (404, "CHANNEL_NOT_FOUND")
    assert operator.call("POST", path, till)["id"] != made["id"]  # the shortcode is free again


def test_errors_and_limits(sandbox: Sandbox, operator: Operator) -> None:
    with pytest.raises(ServiceError) as refused:
        operator.stk(amount="ten", phone=5)
    assert refused.value.message == ["amount must be a number", "phone must be a string"]
    with pytest.raises(ServiceError, match="400 INVALID_PHONE") as phone:
        operator.stk(phone="12")
    assert isinstance(phone.value.message, str)
    assert operator.refused("GET", f"/transactions/{UNKNOWN}") == (404, "TRANSACTION_NOT_FOUND")
    assert operator.refused("GET", "/transactions/nope") == (400, "INVALID_UUID")
    sandbox.account(KEY).rate_limit = 60
    sandbox.advance(60)
    operator.items()
    assert [operator.last.headers[name] for name in RATE_HEADERS[:2]] == ["60", "59"]
    assert 59 <= int(operator.last.headers["x-ratelimit-reset"]) - sandbox.now.timestamp() <= 61
    for _ in range(59):
        operator.items()
    assert operator.last.headers["x-ratelimit-remaining"] == "0"
    assert operator.refused("GET", "/transactions") == (429, "RATE_LIMIT_EXCEEDED")
    assert 1 <= int(operator.last.headers["retry-after"]) <= 60


@in_turn(
    ("authorization", "code"),
    [
        *((f"Basic {KEY}", ""), (f"Basic {b64encode(f'{KEY}:'.encode()).decode()}", "")),
        *((f"basic {b64encode(f'{KEY}:secret'.encode()).decode()}", ""), ("Basic acme_live_x", "")),
        *((text, "AUTH_HEADER_INVALID") for text in (None, f"Bearer {KEY}", "Basic ???", "Basic sk_test_x")),
        (f"Basic {b64encode(b'nope:').decode()}", "INVALID_API_KEY"),
    ],
)
def test_both_forms_of_the_key(sandbox: Sandbox, authorization: str | None, code: str) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    answer = httpx.get(f"{sandbox.base_url}/wallets/b2c/balance", headers=headers, trust_env=False, verify=False)
    assert (answer.status_code, code) == (401, answer.json()["error"]["code"]) if code else (200, "")
    assert authorization is None or KEY not in json.dumps([each.key for each in sandbox.requests])


def test_the_raw_form_is_refused_where_it_is_not_specified() -> None:
    with Sandbox(speed=0) as plain:
        headers = {"authorization": "Basic pk_test_a"}
        answer = httpx.get(f"{plain.base_url}/transactions", headers=headers, trust_env=False, verify=False)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "INVALID_API_KEY")
        assert plain._running.state.accounts == {}
