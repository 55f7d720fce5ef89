"""How prompts, payouts and top-ups are accepted: records, checks in their order, money, channels."""

from decimal import Decimal

import httpx
import pytest

from momopay.sandbox import Account, Channel, Credential, MovementKind, Outcome, Sandbox, phone_for
from sandbox.kit import KEY, Routes, client, data, error_of, transaction_id


def test_what_a_prompt_and_a_payout_move_at_once(service: Routes, sandbox: Sandbox, account: Account) -> None:
    assert '"amount":100,' in service.stk().text  # whole shillings without a fraction
    assert data(service.stk())["providerRequestId"] != data(service.stk())["providerRequestId"]
    assert (account.service_balance, {entry.kind for entry in sandbox.ledger}) == (Decimal(9_997), {MovementKind.fee})
    data(service.payout())
    assert account.b2c_balance == Decimal("999749.50")
    assert [(entry.kind, entry.reference, entry.phone) for entry in sandbox.ledger[3:]] == [
        (MovementKind.payout, "SAL-7", "254712345678"),
        (MovementKind.fee, "SAL-7", "254712345678"),
    ]


def test_a_top_up_credits_the_service_wallet(service: Routes, sandbox: Sandbox, api: httpx.Client) -> None:
    sent = service.top_up(amount=500.25)
    data(service.stk())
    sandbox.account(KEY).service_balance = Decimal(0)
    sandbox.advance(64)
    assert data(api.get("/wallets/service/balance"))["availableBalance"] == 0
    sandbox.advance(1)
    balance = data(api.get("/wallets/service/balance"))
    assert balance["availableBalance"] == balance["ledgerBalance"] == 500.25
    read = service.read(sent)
    assert (read["type"], read["status"], read["updatedAt"]) == ("WALLET_TOPUP", "SUCCESS", balance["updatedAt"])
    assert [entry.kind for entry in sandbox.ledger] == [MovementKind.fee, MovementKind.stk, MovementKind.top_up]


def test_a_phone_or_callback_url_that_is_refused(service: Routes, sandbox: Sandbox) -> None:
    for response in (service.stk(phone="0712 345 678"), service.payout(phone=""), service.top_up(phone="712345678")):
        assert error_of(response) == (400, "INVALID_PHONE")
    for response in (service.stk(callbackUrl="http://shop.example/x"), service.payout(callbackUrl="nope")):
        assert error_of(response) == (400, "VALIDATION_ERROR")
    sandbox.account(KEY).switches.strict_callback_urls = True
    assert error_of(service.stk(callbackUrl="http://127.0.0.1:9/x")) == (400, "VALIDATION_ERROR")
    assert error_of(service.payout(callbackUrl="http://127.0.0.1:9/x")) == (400, "VALIDATION_ERROR")


def test_a_payout_is_checked_in_the_order_of_its_rules(service: Routes, sandbox: Sandbox, account: Account) -> None:
    account.kyc_approved, account.b2c_balance, account.service_balance = False, Decimal(0), Decimal(0)
    assert error_of(service.payout(amount=1)) == (400, "VALIDATION_ERROR")
    assert error_of(service.payout(channelId="nope")) == (400, "CHANNEL_NOT_FOUND")
    assert error_of(service.payout()) == (403, "KYC_NOT_VERIFIED")
    account.kyc_approved = True
    assert error_of(service.payout()) == (409, "INSUFFICIENT_FUNDS")
    account.b2c_balance = Decimal("250.50")
    assert (error_of(service.payout()), sandbox.ledger) == ((402, "INSUFFICIENT_SERVICE_BALANCE"), [])
    assert account.b2c_balance == Decimal("250.50")
    account.service_balance = Decimal(1)
    data(service.payout(channelId=account.channels[0].id))
    assert account.b2c_balance == account.service_balance == 0


def test_an_stk_prompt_is_checked_in_order(service: Routes, sandbox: Sandbox) -> None:
    sandbox.account(KEY).service_balance = Decimal("0.99")
    sandbox.ban_stk(KEY)
    assert error_of(service.stk(phone="x", channelId="nope")) == (400, "INVALID_PHONE")
    assert error_of(service.stk(channelId="nope")) == (400, "CHANNEL_NOT_FOUND")
    assert error_of(service.stk()) == (429, "STK_TEMP_BANNED")
    sandbox.advance(3600)
    assert (error_of(service.stk()), sandbox.ledger) == ((402, "INSUFFICIENT_SERVICE_BALANCE"), [])


def test_no_fee_without_a_pricing_rule(service: Routes, sandbox: Sandbox, account: Account) -> None:
    account.fee, account.service_balance = Decimal(0), Decimal(0)
    assert (data(service.stk())["transactionFee"], data(service.payout())["transactionFee"]) == (0, 0)
    assert [entry.kind for entry in sandbox.ledger] == [MovementKind.payout]


def test_which_channel_an_stk_prompt_is_routed_to(service: Routes, account: Account) -> None:
    default = account.channels[0]
    till = data(service.channel())["id"]
    assert (data(service.stk())["channelId"], data(service.stk(channelId=till))["channelId"]) == (default.id, till)
    for unknown in ("nope", "5b0f1c1e-0000-4000-8000-000000000000"):
        assert error_of(service.stk(channelId=unknown)) == (400, "CHANNEL_NOT_FOUND")
    default.is_default = False
    assert error_of(service.stk()) == (400, "NO_DEFAULT_CHANNEL")
    account.channels = []
    assert error_of(service.stk()) == (400, "NO_PAYMENT_CHANNELS")
    account.channels = [Channel(type="TILL_NUMBER", shortcode="1", is_default=True)]
    assert data(service.stk())["channelId"] == account.channels[0].id


def test_a_credential_with_and_without_a_channel(service: Routes, sandbox: Sandbox, control: httpx.Client) -> None:
    def newest() -> tuple[str, str]:
        shown = control.get("/sandbox/state").json()["data"]["transactions"][0]
        return shown["shortcode"], shown["transaction_type"]

    account = sandbox.account(KEY)
    profile, unknown = "5b0f1c1e-0000-4000-8000-000000000001", "5b0f1c1e-0000-4000-8000-000000000002"
    account.credentials = {profile: Credential(shortcode="777", transaction_type="CustomerBuyGoodsOnline")}
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


def test_the_same_idempotency_key_gets_the_original_answer(service: Routes, sandbox: Sandbox) -> None:
    first = service.top_up("attempt-1")
    sandbox.advance(65)
    again = service.top_up("attempt-1", amount=999)
    assert data(again) == data(first)
    assert again.json()["requestId"] != first.json()["requestId"]
    assert data(service.top_up("attempt-2"))["transactionId"] != transaction_id(first)
    assert len(sandbox.ledger) == 1
    # The key alone decides, so that a body which would be refused today is answered as before too.
    for changes in ({"phone": "12"}, {"amount": 0}, {"amount": None, "phone": None}):
        assert data(service.top_up("attempt-1", **changes)) == data(first)
    assert len({transaction_id(service.top_up(key)) for key in (None, None, "", "")}) == 4
    # A refusal uses no key up, and another account has its own.
    assert error_of(service.top_up("k", phone="12")) == (400, "INVALID_PHONE")
    with client(sandbox.base_url, "pk_test_other") as other:
        assert len({transaction_id(each.top_up("k")) for each in (service, Routes(other))}) == 2


@pytest.mark.parametrize("refund", [False, True])
def test_a_failures_fee_is_kept_unless_a_switch_refunds_it(service: Routes, sandbox: Sandbox, *, refund: bool) -> None:
    account = sandbox.account(KEY)
    account.switches.fee_refunded_on_failure = refund
    service.stk(phone=phone_for(Outcome.risk_limit))
    service.stk(phone=phone_for(Outcome.cancelled))
    service.payout(phone=phone_for(Outcome.risk_limit))
    sandbox.advance(44)
    assert account.b2c_balance == Decimal("999749.50")
    sandbox.advance(1)
    assert account.b2c_balance == 1_000_000
    assert account.service_balance == (10_000 if refund else 9_997)
    kinds = [entry.kind for entry in sandbox.ledger]
    assert (kinds.count(MovementKind.fee_refund), kinds.count(MovementKind.reversal)) == (3 if refund else 0, 1)
