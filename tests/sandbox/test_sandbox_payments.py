from decimal import Decimal
from typing import Any

import httpx
import pytest

from momopay.sandbox import Channel, Credential, MovementKind, Outcome, Sandbox, phone_for
from sandbox.kit import KEY, Receiver, Service, data, refusal, transaction_id

STK_FIELDS = {
    "transactionId",
    "tenantId",
    "channelId",
    "type",
    "status",
    "amount",
    "currency",
    "phone",
    "accountReference",
    "transactionDesc",
    "providerRequestId",
    "providerCheckoutId",
    "transactionFee",
    "resultCode",
    "resultDescription",
    "createdAt",
    "updatedAt",
}
ANSWERS = {
    Outcome.insufficient_funds: ("FAILED", "1"),
    Outcome.risk_limit: ("FAILED", "17"),
    Outcome.too_many_requests: ("FAILED", "20"),
    Outcome.timeout: ("FAILED", "1037"),
    Outcome.reversed: ("FAILED", "1"),
}


def test_an_stk_prompt_as_it_is_answered(service: Service, sandbox: Sandbox) -> None:
    record = data(service.stk(amount=99.95))
    assert set(record) == STK_FIELDS
    assert record["type"] == "STK"
    assert record["status"] == "PENDING"
    assert record["amount"] == 99.95
    assert record["currency"] == "KES"
    assert record["phone"] == "254712345678"
    assert record["accountReference"] == "INV-42"
    assert record["transactionFee"] == 1
    assert record["resultCode"] == "0"
    assert sandbox.account(KEY).service_balance == 9_999


def test_an_stk_payment_takes_its_time(service: Service, sandbox: Sandbox) -> None:
    sent = service.stk()
    seen: list[str] = []
    for seconds in (4.999, 0.001, 29.999, 0.001):
        sandbox.advance(seconds)
        seen.append(service.read(sent)["status"])
    assert seen == ["PENDING", "PROCESSING", "PROCESSING", "SUCCESS"]
    record = service.read(sent)
    assert record["resultCode"] == "0"
    assert record["resultDesc"]
    assert [(entry.kind, entry.amount) for entry in sandbox.ledger] == [
        (MovementKind.fee, Decimal(1)),
        (MovementKind.stk, Decimal(100)),
    ]


@pytest.mark.parametrize("outcome", list(ANSWERS))
def test_a_provider_that_declines(service: Service, sandbox: Sandbox, outcome: Outcome) -> None:
    sent = service.stk(phone=phone_for(outcome))
    sandbox.advance(5)
    assert service.read(sent)["status"] == "PROCESSING"
    sandbox.advance(60)
    record = service.read(sent)
    assert (record["status"], record["resultCode"]) == ANSWERS[outcome]
    assert sandbox.account(KEY).service_balance == 9_999
    assert [entry.kind for entry in sandbox.ledger] == [MovementKind.fee]


@pytest.mark.parametrize(
    ("outcome", "at", "status"),
    [
        (Outcome.cancelled, 5, "CANCELLED"),
        (Outcome.expired, 60, "EXPIRED"),
        (Outcome.never_answers, 86_400, "PENDING"),
        (Outcome.by_hand, 86_400, "PENDING"),
        (Outcome.never_confirmed, 86_400, "PROCESSING"),
        (Outcome.late_success, 359, "PROCESSING"),
        (Outcome.late_success, 360, "SUCCESS"),
        (Outcome.callback_lost, 35, "SUCCESS"),
        (Outcome.success, 35, "SUCCESS"),
    ],
)
def test_how_a_number_ends_a_prompt(
    service: Service, sandbox: Sandbox, outcome: Outcome, at: float, status: str
) -> None:
    sent = service.stk(phone=phone_for(outcome))
    sandbox.advance(at)
    assert service.read(sent)["status"] == status


@pytest.mark.parametrize(
    ("outcome", "at", "status"),
    [
        (Outcome.success, 4, "PENDING"),
        (Outcome.success, 5, "PROCESSING"),
        (Outcome.success, 35, "SUCCESS"),
        (Outcome.by_hand, 35, "SUCCESS"),
        (Outcome.reversed, 35, "FAILED"),
        (Outcome.reversed, 45, "REVERSED"),
        (Outcome.timeout, 65, "FAILED"),
        (Outcome.expired, 75, "REVERSED"),
        (Outcome.never_answers, 86_400, "PROCESSING"),
        (Outcome.never_confirmed, 86_400, "PROCESSING"),
        (Outcome.late_success, 360, "SUCCESS"),
    ],
)
def test_how_a_number_ends_a_payout(
    service: Service, sandbox: Sandbox, outcome: Outcome, at: float, status: str
) -> None:
    sent = service.payout(phone=phone_for(outcome))
    sandbox.advance(at)
    assert service.read(sent)["status"] == status


def test_a_payout_as_it_is_answered(service: Service, sandbox: Sandbox) -> None:
    record = data(service.payout())
    assert set(record) == {
        "transactionId",
        "tenantId",
        "channelId",
        "type",
        "status",
        "amount",
        "currency",
        "phone",
        "reference",
        "description",
        "transactionFee",
        "resultDescription",
        "createdAt",
        "updatedAt",
    }
    assert (record["type"], record["status"], record["channelId"]) == ("B2C", "PENDING", None)
    assert sandbox.account(KEY).b2c_balance == Decimal("999749.50")
    assert [(entry.kind, entry.reference, entry.phone) for entry in sandbox.ledger] == [
        (MovementKind.payout, "SAL-7", "254712345678"),
        (MovementKind.fee, "SAL-7", "254712345678"),
    ]


def test_a_failed_payout_is_credited_back_but_its_fee_is_kept(service: Service, sandbox: Sandbox) -> None:
    service.payout(phone=phone_for(Outcome.reversed))
    sandbox.advance(44)
    assert sandbox.account(KEY).b2c_balance == Decimal("999749.50")
    sandbox.advance(1)
    assert sandbox.account(KEY).b2c_balance == 1_000_000
    assert sandbox.account(KEY).service_balance == 9_999
    assert [entry.kind for entry in sandbox.ledger] == ["payout", "fee", "reversal"]


def test_a_switch_refunds_the_fee_of_a_failure(service: Service, sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    account.switches.fee_refunded_on_failure = True
    service.stk(phone=phone_for(Outcome.risk_limit))
    service.stk(phone=phone_for(Outcome.cancelled))
    service.payout(phone=phone_for(Outcome.risk_limit))
    sandbox.advance(60)
    assert account.service_balance == 10_000
    assert [entry.kind for entry in sandbox.ledger].count(MovementKind.fee_refund) == 3


def test_a_payout_is_checked_in_the_order_of_its_rules(service: Service, sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    account.kyc_approved, account.b2c_balance, account.service_balance = False, Decimal(0), Decimal(0)
    assert refusal(service.payout(amount=1)) == (400, "VALIDATION_ERROR")
    assert refusal(service.payout()) == (403, "KYC_NOT_VERIFIED")
    account.kyc_approved = True
    assert refusal(service.payout()) == (409, "INSUFFICIENT_FUNDS")
    account.b2c_balance = Decimal("250.50")
    assert refusal(service.payout()) == (402, "INSUFFICIENT_SERVICE_BALANCE")
    assert refusal(service.payout(channelId="nope")) == (400, "CHANNEL_NOT_FOUND")
    account.service_balance = Decimal(1)
    data(service.payout(channelId=account.channels[0].id))
    assert account.b2c_balance == account.service_balance == 0


def test_no_fee_without_a_pricing_rule(service: Service, sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    account.fee, account.service_balance = Decimal(0), Decimal(0)
    assert data(service.stk())["transactionFee"] == 0
    assert data(service.payout())["transactionFee"] == 0
    assert [entry.kind for entry in sandbox.ledger] == [MovementKind.payout]


def test_stk_needs_the_fee_in_the_service_wallet(service: Service, sandbox: Sandbox) -> None:
    sandbox.account(KEY).service_balance = Decimal("0.99")
    assert refusal(service.stk()) == (402, "INSUFFICIENT_SERVICE_BALANCE")
    assert sandbox.ledger == []


def test_which_channel_an_stk_takes(service: Service, sandbox: Sandbox) -> None:
    account = sandbox.account(KEY)
    default = account.channels[0]
    till = data(service.channel())["id"]
    assert data(service.stk())["channelId"] == default.id
    assert data(service.stk(channelId=till))["channelId"] == till
    for unknown in ("nope", "5b0f1c1e-0000-4000-8000-000000000000"):
        assert refusal(service.stk(channelId=unknown)) == (400, "CHANNEL_NOT_FOUND")
    default.is_default = False
    assert refusal(service.stk()) == (400, "NO_DEFAULT_CHANNEL")
    account.channels = []
    assert refusal(service.stk()) == (400, "NO_PAYMENT_CHANNELS")
    account.channels = [Channel(type="TILL_NUMBER", shortcode="1", is_default=True)]
    assert data(service.stk())["channelId"] == account.channels[0].id


def test_a_credential_profile_with_and_without_a_channel(
    service: Service, sandbox: Sandbox, control: httpx.Client
) -> None:
    def newest() -> tuple[str, str]:
        shown = control.get("/sandbox/state").json()["data"]["transactions"][0]
        return shown["shortcode"], shown["transaction_type"]

    account = sandbox.account(KEY)
    profile, unknown = "5b0f1c1e-0000-4000-8000-000000000001", "5b0f1c1e-0000-4000-8000-000000000002"
    account.credentials = {
        profile: Credential(shortcode="777", transaction_type="CustomerBuyGoodsOnline"),
    }
    till = data(service.channel(shortcode="888"))["id"]
    assert data(service.stk(credential_id=profile, channelId=till))["channelId"] == till
    assert newest() == ("888", "CustomerBuyGoodsOnline")
    service.stk(credential_id=profile)
    assert newest() == ("600100", "CustomerPayBillOnline")
    account.channels = []
    assert data(service.stk(credential_id=profile))["channelId"] is None
    assert newest() == ("777", "CustomerBuyGoodsOnline")
    service.stk(credential_id=unknown)
    assert newest() == ("600999", "CustomerPayBillOnline")


def test_each_stk_is_a_prompt_of_its_own(service: Service) -> None:
    first, second = data(service.stk()), data(service.stk())
    for field in ("transactionId", "providerRequestId", "providerCheckoutId"):
        assert first[field] != second[field]


def test_a_top_up_credits_the_service_wallet(service: Service, sandbox: Sandbox, api: httpx.Client) -> None:
    sent = service.top_up(amount=500.25)
    record = data(sent)
    assert set(record) == STK_FIELDS
    assert (record["type"], record["status"], record["transactionFee"]) == ("STK", "PENDING", 0)
    sandbox.advance(64)
    assert data(api.get("/wallets/service/balance"))["availableBalance"] == 10_000
    sandbox.advance(1)
    balance = data(api.get("/wallets/service/balance"))
    assert set(balance) == {
        "walletId",
        "tenantId",
        "currency",
        "availableBalance",
        "ledgerBalance",
        "updatedAt",
    }
    assert balance["availableBalance"] == balance["ledgerBalance"] == 10_500.25
    assert service.read(sent)["type"] == "WALLET_TOPUP"
    assert service.read(sent)["status"] == "SUCCESS"
    assert balance["updatedAt"] == service.read(sent)["updatedAt"]
    assert [entry.kind for entry in sandbox.ledger] == [MovementKind.top_up]


def test_a_top_up_works_when_the_service_wallet_is_empty(service: Service, sandbox: Sandbox) -> None:
    sandbox.account(KEY).service_balance = Decimal(0)
    data(service.top_up())


def test_the_same_idempotency_key_gets_the_original_answer(service: Service, sandbox: Sandbox) -> None:
    first = service.top_up("attempt-1")
    sandbox.advance(65)
    again = service.top_up("attempt-1", amount=999)
    assert data(again) == data(first)
    assert again.json()["requestId"] != first.json()["requestId"]
    assert data(service.top_up("attempt-2"))["transactionId"] != transaction_id(first)
    assert len(sandbox.ledger) == 1
    # The first response is returned, without an exception for a body that would be refused today.
    for changes in ({"phone": "12"}, {"amount": 0}, {"amount": None, "phone": None}):
        assert data(service.top_up("attempt-1", **changes)) == data(first)
    unkeyed = {transaction_id(service.top_up(key)) for key in (None, None, "", "")}
    assert len(unkeyed) == 4


def test_a_refused_top_up_does_not_use_its_key_up(service: Service) -> None:
    assert refusal(service.top_up("k", phone="12")) == (400, "INVALID_PHONE")
    data(service.top_up("k"))


def test_created_status_is_a_switch(service: Service, sandbox: Sandbox) -> None:
    sandbox.account(KEY).switches.created_status = 201
    for response in (service.stk(), service.payout(), service.top_up(), service.channel()):
        assert response.status_code == 201


def test_by_hand(service: Service, sandbox: Sandbox, receiver: Receiver) -> None:
    def prompt(**changes: Any) -> tuple[str, httpx.Response]:
        sent = service.stk(phone=phone_for(Outcome.by_hand), callbackUrl=receiver.url, **changes)
        return transaction_id(sent), sent

    paid, paid_read = prompt()
    sandbox.enter_pin(paid)
    assert service.read(paid_read)["status"] == "PROCESSING"
    cancelled, cancelled_read = prompt()
    sandbox.cancel(cancelled)
    assert service.read(cancelled_read)["status"] == "CANCELLED"
    ignored, ignored_read = prompt()
    sandbox.ignore(ignored)
    sandbox.advance(59)
    assert service.read(paid_read)["status"] == "SUCCESS"
    assert service.read(ignored_read)["status"] == "PENDING"
    sandbox.advance(1)
    assert service.read(ignored_read)["status"] == "EXPIRED"
    told = [(body["event_type"], body["transaction"]["result_code"]) for body in receiver.bodies]
    assert told == [
        ("transaction.cancelled", "1032"),
        ("transaction.success", "0"),
        ("transaction.expired", "1037"),
    ]


class Named:
    def __init__(self, transaction_id: str) -> None:
        self.transaction_id = transaction_id


def test_a_hand_overrides_what_the_number_stands_for(service: Service, sandbox: Sandbox) -> None:
    ordinary = service.stk()
    sandbox.cancel(Named(transaction_id(ordinary)))
    sandbox.advance(60)
    assert service.read(ordinary)["status"] == "CANCELLED"
    poor = service.stk(phone=phone_for(Outcome.insufficient_funds))
    sandbox.enter_pin(transaction_id(poor))
    sandbox.advance(30)
    assert service.read(poor)["status"] == "SUCCESS"


def test_a_hand_needs_an_open_prompt(service: Service, sandbox: Sandbox) -> None:
    payout, paid = service.payout(), service.stk()
    sandbox.enter_pin(transaction_id(paid))
    for identifier in (transaction_id(payout), transaction_id(paid)):
        with pytest.raises(Exception, match="NOT_PENDING"):
            sandbox.enter_pin(identifier)
    with pytest.raises(Exception, match="TRANSACTION_NOT_FOUND"):
        sandbox.ignore("nope")


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome.cancelled, ("transaction.cancelled", "FAILED")),
        (Outcome.expired, ("transaction.expired", "EXPIRED")),
    ],
)
def test_cancelled_and_expired_may_read_as_failed(
    service: Service,
    sandbox: Sandbox,
    receiver: Receiver,
    outcome: Outcome,
    says: tuple[str, str],
) -> None:
    switches = sandbox.account(KEY).switches
    switches.cancel_ends_as, switches.expired_reads_as = "FAILED", "FAILED"
    sent = service.stk(phone=phone_for(outcome), callbackUrl=receiver.url)
    sandbox.advance(60)
    assert service.read(sent)["status"] == "FAILED"
    (body,) = receiver.bodies
    assert (body["event_type"], body["transaction"]["status"]) == says
