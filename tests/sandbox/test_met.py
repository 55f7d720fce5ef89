"""The profile `met`, as merchants' programs that are in production use it: plain HTTP, and no code of ours.

What each of them does is the sign of a kind: a long description, a reference with words in it, a raw key, a receipt of
the provider's name, whatever is not SUCCESS taken for a failure, a top-up of the payout wallet as a deposit.
"""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from momopay.sandbox import Outcome, Sandbox, phone_for
from sandbox.kit import Receiver

KEY = "acme_live_met"


class Books:
    """A merchant's program: it sends its own texts, and books each callback by its status, as simply as they do."""

    def __init__(self, sandbox: Sandbox, receiver: Receiver, authorization: str) -> None:
        headers = {"authorization": authorization}
        self.http = httpx.Client(base_url=sandbox.base_url, headers=headers, trust_env=False, verify=False)
        self.receiver = receiver

    def prompt(self, amount: int, phone: str, reference: str, description: str) -> str:
        body = {"amount": amount, "phone": phone, "accountReference": reference, "transactionDesc": description}
        sent = self.http.post("/payments/stk", json={**body, "callbackUrl": self.receiver.url})
        assert sent.status_code in {200, 201}, sent.text
        assert sent.json()["success"] is True
        return str(sent.json()["data"]["transactionId"])

    @property
    def booked(self) -> dict[str, str]:
        """Return what is booked: the receipt of a sale that was paid; "lost" for any other status that was told."""
        books = dict[str, str]()
        for body in self.receiver.bodies:
            told = body["transaction"]
            is_paid = told["status"] == "SUCCESS" and int(told["result_code"]) == 0
            books[told["id"]] = told["mpesa_receipt"] if is_paid else "lost"
        return books


@pytest.fixture(scope="module")
def met() -> Iterator[Sandbox]:
    with Sandbox(speed=0, profile="met") as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(met: Sandbox) -> Sandbox:
    met.reset()
    return met


@pytest.fixture(params=["raw", "encoded"])
def books(request: pytest.FixtureRequest, sandbox: Sandbox, receiver: Receiver) -> Iterator[Books]:
    encoded = b64encode(f"{KEY}:".encode()).decode()
    books = Books(sandbox, receiver, f"Basic {KEY if request.param == 'raw' else encoded}")
    with books.http:
        yield books


def status_of(books: Books, identity: str) -> str:
    return str(books.http.get(f"/transactions/{identity}").json()["data"]["status"])


def test_a_sale_is_booked_once_with_its_receipt(sandbox: Sandbox, books: Books) -> None:
    sale = books.prompt(100, "0712345678", "INV-42", "Order 42")
    sandbox.advance(6)
    assert (status_of(books, sale), books.booked) == ("PROCESSING", {})  # else it would be booked as lost
    sandbox.advance(60)
    assert status_of(books, sale) == "SUCCESS"
    assert len(books.booked[sale]) == 10
    lost = books.prompt(100, phone_for(Outcome.cancelled), "INV-43", "Order 43")
    sandbox.advance(60)
    assert (status_of(books, lost), books.booked[lost]) == ("CANCELLED", "lost")


@pytest.mark.parametrize(
    ("reference", "description"),
    [
        ("INV-42", "Payment for 42"),
        ("INV-42", "Payment of your order number 42 at the corner shop"),
        ("ORDER-2026-0042", "Order 42"),
        ("DEPOSIT-customer-0042-november", "Deposit"),
        ("x" * 31, "x" * 51),
    ],
)
def test_long_texts_are_accepted_and_the_provider_fails_them(
    sandbox: Sandbox, books: Books, reference: str, description: str
) -> None:
    balance = sandbox.account(KEY).service_balance
    sale = books.prompt(100, "0712345678", reference, description)
    sandbox.advance(9)
    assert (status_of(books, sale), books.booked) == ("PENDING", {})
    sandbox.advance(1)
    assert (status_of(books, sale), books.booked) == ("FAILED", {sale: "lost"})
    assert balance - sandbox.account(KEY).service_balance == 1
    read = books.http.get(f"/transactions/{sale}").json()["data"]
    assert (read["accountReference"], read["transactionDesc"]) == (reference, description)
    assert reference not in read["resultDesc"]


@pytest.mark.parametrize("phone", ["0712345678", "0112345678", "+254712345678", "254712345678"])
def test_a_deposit_is_a_top_up_of_the_payout_wallet(sandbox: Sandbox, books: Books, phone: str) -> None:
    body = {"amount": 300, "phone": phone, "accountReference": "user-7", "transactionDesc": "Deposit to my account"}
    body["callbackUrl"] = books.receiver.url
    before = sandbox.account(KEY).b2c_balance
    first, again = (
        books.http.post("/wallets/b2c/topups", json=body, headers={"Idempotency-Key": "form-1"}) for _ in range(2)
    )
    made = first.json()["data"]
    assert (first.status_code, again.json()["data"]) == (200, made)
    assert (made["type"], made["status"], made["idempotencyKey"]) == ("WALLET_TOPUP_B2C", "PENDING", "form-1")
    other = books.http.post("/wallets/b2c/topups", json={**body, "amount": 301}, headers={"Idempotency-Key": "form-1"})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "DUPLICATE_IDEMPOTENCY_KEY")
    sandbox.advance(70)
    (told,) = books.receiver.bodies
    assert (told["transaction"]["id"], told["transaction"]["type"]) == (made["transactionId"], "WALLET_TOPUP_B2C")
    assert told["transaction"]["external_reference"].endswith("user-7")
    assert list(books.booked.values()) != ["lost"]
    assert sandbox.account(KEY).b2c_balance - before == 300
    assert books.http.get("/wallets/b2c/balance").json()["data"]["availableBalance"] == before + 300


def test_a_deposit_that_is_not_paid_is_told_too(sandbox: Sandbox, books: Books) -> None:
    body = {"amount": 300, "phone": phone_for(Outcome.cancelled), "callbackUrl": books.receiver.url}
    sent = books.http.post("/wallets/b2c/topups", json=body).json()["data"]
    sandbox.advance(70)
    assert books.booked == {sent["transactionId"]: "lost"}


def test_a_payout_calls_back_by_the_name_that_programs_send(sandbox: Sandbox, books: Books) -> None:
    body = {"amount": 50, "phone": "0712345678", "reference": "WITHDRAWAL-of-customer-0042", "description": "Withdraw"}
    sent = books.http.post("/b2c/payouts", json={**body, "callbackUrl": books.receiver.url}).json()["data"]
    assert (sent["type"], sent["reference"]) == ("B2C", body["reference"])
    sandbox.advance(60)
    assert set(books.booked) == {sent["transactionId"]}
    assert books.booked[sent["transactionId"]] != "lost"
    silent = books.http.post("/b2c/payouts", json={**body, "callback_url": books.receiver.url})
    assert silent.status_code == 200
    sandbox.advance(60)
    assert len(books.receiver.bodies) == 1


def test_what_is_read_is_specified(sandbox: Sandbox, books: Books) -> None:
    sale = books.prompt(1, "0712345678", "INV-42", "Order 42")
    answer = books.http.get("/transactions", params={"limit": 1})
    page = answer.json()["data"]
    assert set(page) == {"items", "overview", "nextCursor"}
    assert page["overview"] == {"total": 1, "completed": 0, "failed": 0, "pending": 1}
    fields = ("transactionId", "type", "status", "amount", "phone", "accountReference", "createdAt", "transactionFee")
    assert set(fields) <= set(page["items"][0])
    assert page["items"][0]["transactionId"] == sale
    for name in ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"):
        assert answer.headers[name].isdigit()
    assert books.http.delete("/payment-wallet/channels/5b0f1c1e-0000-4000-8000-000000000001").status_code == 404
    made = books.http.post("/payment-wallet/channels", json={"name": "S", "type": "TILL_NUMBER", "shortcode": "5"})
    gone = books.http.delete(f"/payment-wallet/channels/{made.json()['data']['id']}")
    assert (gone.status_code, gone.content) == (204, b"")


def test_what_is_refused(sandbox: Sandbox, books: Books) -> None:
    wrong = books.http.post("/payments/stk", json={"amount": 0, "phone": 7})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "HTTP_400")
    assert wrong.json()["error"]["message"] == ["amount must be at least 1", "phone must be a string"]
    assert books.http.get("/transactions/nope").json()["error"]["code"] == "INVALID_UUID"
    assert books.http.get("/transactions?cursor=nope").json()["error"]["code"] == "INVALID_CURSOR"
    payout = {"amount": 50, "phone": "0712345678", "reference": "W-1", "currency": "USD"}
    assert books.http.post("/b2c/payouts", json=payout).json()["error"]["code"] == "UNSUPPORTED_CURRENCY"
    sandbox.account(KEY).kyc_approved = False
    for path in ("/payments/stk", "/b2c/payouts"):
        refused = books.http.post(path, json={"amount": 50, "phone": "0712345678"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "KYC_NOT_VERIFIED")
    assert sandbox.ledger == []
    sandbox.account(KEY).switches.prompt_kyc = False
    assert books.http.post("/payments/stk", json={"amount": 50, "phone": "0712345678"}).status_code == 200
    nobody = httpx.get(f"{sandbox.base_url}/transactions", trust_env=False, verify=False)
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, "AUTH_HEADER_INVALID")


def test_the_profile_is_a_program_too(sandbox: Sandbox) -> None:
    """`--profile met` and `Sandbox(profile="met")` are the same, and a fresh account has it."""
    assert sandbox.account("pk_test_new").switches == sandbox.account(KEY).switches
    described = httpx.get(f"{sandbox.url}/openapi.json", trust_env=False, verify=False).json()
    schemas: Any = described["components"]["schemas"]
    assert "mpesa_receipt" in schemas["CallbackTransaction"]["properties"]
    assert "callbackUrl" in schemas["B2cTopUpBody"]["properties"]
    assert "idempotencyKey" in schemas["TopUpInitiated"]["properties"]
