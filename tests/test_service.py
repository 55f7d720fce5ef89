"""Both clients against the sandbox at real sockets; its ledger is the only witness of what was paid."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

import momopay
from drivers import Driver, hasty
from momopay import PollSchedule, settled
from momopay.sandbox import Account, Fault, Outcome, Sandbox, phone_for

AT_ONCE = PollSchedule(first=0.0, every=0.05, limit=5.0)
PHONE = "0712345678"


@pytest.fixture
def sdk(drive: Callable[..., Driver], sandbox: Sandbox, key: str) -> Driver:
    return drive(api_key=key, base_url=sandbox.base_url, deadline=3.0)


def prompt(client: Any, **fields: Any) -> Any:
    return client.stk.initiate(**{"amount": 100, "phone": PHONE, "account_reference": "INV-42", **fields})


def pay(client: Any, **fields: Any) -> Any:
    return client.payouts.initiate(**{"amount": Decimal("250.50"), "phone": PHONE, "reference": "PAY-7", **fields})


def top_up(client: Any) -> Any:
    return client.wallet.top_up(amount=500, phone=PHONE)


def read_balances(sdk: Driver, times: int) -> None:
    for _ in range(times):
        sdk(lambda client: client.wallet.balance())


def paid(sandbox: Sandbox, kind: str) -> int:
    return [str(movement.kind) for movement in sandbox.ledger].count(kind)


def pushed(sandbox: Sandbox, path: str) -> int:
    return [request.path for request in sandbox.requests].count(path)


def test_a_collection_from_prompt_to_success(sdk: Driver, sandbox: Sandbox) -> None:
    accepted = sdk(prompt)
    assert (accepted.status, accepted.amount, accepted.phone) == ("PENDING", 100, "254712345678")
    assert accepted.transaction_fee == 1
    sandbox.advance(60)
    ended = sdk(lambda client: client.transactions.wait(accepted, schedule=AT_ONCE))
    assert (ended.status, ended.result_code) == ("SUCCESS", "0")
    assert paid(sandbox, "stk") == 1
    assert sdk(lambda client: client.wallet.balance()).available_balance == 9999


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (Outcome.insufficient_funds, "FAILED", "1"),
        (Outcome.risk_limit, "FAILED", "17"),
        (Outcome.too_many_requests, "FAILED", "20"),
        (Outcome.cancelled, "CANCELLED", "1032"),
        (Outcome.timeout, "FAILED", "1037"),
        (Outcome.expired, "EXPIRED", "1037"),
    ],
)
def test_every_end_of_a_prompt(sdk: Driver, sandbox: Sandbox, outcome: Outcome, status: str, code: str) -> None:
    accepted = sdk(lambda client: prompt(client, phone=phone_for(outcome)))
    sandbox.advance(120)
    ended = sdk(lambda client: client.transactions.wait(accepted, schedule=AT_ONCE))
    assert (ended.status, ended.result_code) == (status, code)
    assert paid(sandbox, "stk") == 0


def test_a_failed_payout_is_reversed(sdk: Driver, sandbox: Sandbox, account: Account) -> None:
    accepted = sdk(lambda client: pay(client, phone=phone_for(Outcome.insufficient_funds)))
    assert account.b2c_balance == Decimal("999749.50")
    sandbox.advance(120)
    ended = sdk(lambda client: client.transactions.wait(accepted, until=settled, schedule=AT_ONCE))
    assert ended.status == "REVERSED"
    assert account.b2c_balance == 1_000_000


@pytest.mark.parametrize(
    ("change", "call", "error"),
    [
        ({"kyc_approved": False}, pay, momopay.KycNotVerifiedError),
        ({"b2c_balance": Decimal(10)}, pay, momopay.InsufficientFundsError),
        ({"service_balance": Decimal(0)}, pay, momopay.InsufficientServiceBalanceError),
        ({"service_balance": Decimal(0)}, prompt, momopay.InsufficientServiceBalanceError),
        ({"channels": []}, prompt, momopay.NoPaymentChannelsError),
    ],
)
def test_every_refusal_is_typed_and_moves_nothing(
    sdk: Driver, sandbox: Sandbox, account: Account, change: dict[str, Any], call: Any, error: type[Exception]
) -> None:
    for name, value in change.items():
        setattr(account, name, value)
    with pytest.raises(error) as caught:
        sdk(call)
    assert isinstance(caught.value, momopay.APIError)
    assert not caught.value.may_have_executed
    assert sandbox.ledger == []


UNCLEAR = [
    (Fault.reset_after_commit, 1),
    (Fault.hang_after_commit, 1),
    (Fault.error_after_commit, 1),
    (Fault.truncated, 1),
    (Fault.slow_drip, 1),
    (Fault.error_before_commit, 0),
    (Fault.html_502, 0),
    (Fault.refuse, 0),
    (Fault.reset_before_read, 0),
]


@pytest.mark.parametrize(("fault", "payments"), UNCLEAR)
@pytest.mark.parametrize(
    ("call", "path", "kind"), [(pay, "/b2c/payouts", "payout"), (prompt, "/payments/stk", "fee")], ids=["payout", "stk"]
)
def test_a_payment_with_an_unclear_end_is_sent_once_and_can_be_found(
    sdk: Driver, sandbox: Sandbox, call: Any, path: str, kind: str, fault: Fault, payments: int
) -> None:
    begun = datetime.now(UTC)
    sandbox.fail_next("POST", path, fault)
    with pytest.raises(momopay.OutcomeUnknownError) as caught:
        sdk(hasty(call))
    error = caught.value
    assert error.may_have_executed
    assert paid(sandbox, kind) == payments
    assert pushed(sandbox, path) <= 1
    assert error.phone == "254712345678"
    assert begun <= error.sent_at <= datetime.now(UTC)
    found = sdk(
        lambda client: client.transactions.find(
            reference=error.reference, amount=error.amount, phone=error.phone, since=error.sent_at
        )
    )
    assert len(found) == payments


@pytest.mark.parametrize(("fault", "_payments"), UNCLEAR)
def test_a_top_up_with_an_unclear_end_is_repeated_under_its_key_and_prompts_once(
    sdk: Driver, sandbox: Sandbox, fault: Fault, _payments: int
) -> None:
    sandbox.fail_next("POST", "/wallets/service/topups", fault)
    try:
        accepted = sdk(hasty(top_up))
    except momopay.OutcomeUnknownError as error:
        assert fault is Fault.truncated or fault is Fault.html_502
        key = error.idempotency_key
        accepted = sdk(lambda client: client.wallet.top_up(amount=500, phone=PHONE, idempotency_key=key))
    sandbox.advance(120)
    ended = sdk(lambda client: client.transactions.wait(accepted, schedule=AT_ONCE))
    assert ended.status == "SUCCESS"
    assert paid(sandbox, "top_up") == 1


@pytest.mark.parametrize(("fault", "_payments"), UNCLEAR)
def test_a_read_survives_what_is_passing(sdk: Driver, sandbox: Sandbox, fault: Fault, _payments: int) -> None:
    sandbox.fail_next("GET", "/wallets/service/balance", fault)
    assert sdk(hasty(lambda client: client.wallet.balance())).currency == "KES"


def test_waits_for_many_share_their_reads(sdk: Driver, sandbox: Sandbox) -> None:
    accepted = [sdk(partial(prompt, account_reference=f"INV-{number}")) for number in range(30)]
    sandbox.advance(60)
    before = len(sandbox.requests)
    ended = sdk.collect(lambda client: client.transactions.wait_all(accepted, schedule=AT_ONCE))
    assert {each.status for each in ended} == {"SUCCESS"}
    assert len(ended) == 30
    assert len(sandbox.requests) - before == 1


def test_the_rate_limit_is_never_met_with_the_default_budget(
    sandbox: Sandbox, drive: Callable[..., Driver], key: str
) -> None:
    sdk = drive(api_key=key, base_url=sandbox.base_url, budget=momopay.RateBudget(), deadline=1.0)
    with pytest.raises(momopay.BudgetExhaustedError) as caught:
        read_balances(sdk, 100)
    assert 50 < caught.value.retry_after <= 61
    assert [request.status for request in sandbox.requests] == [200] * 58


def test_without_a_budget_the_limit_is_met_and_typed(sdk: Driver, sandbox: Sandbox) -> None:
    with pytest.raises(momopay.RateLimitExceededError) as caught:
        read_balances(sdk, 61)
    assert (caught.value.limit, caught.value.remaining) == (60, 0)
    assert caught.value.retry_after == caught.value.reset_in_seconds
    assert len(sandbox.requests) == 61


@pytest.fixture
def listed(sdk: Driver, account: Account) -> list[str]:
    account.rate_limit = None
    made = list[str]()
    for number in range(25):
        made.append(sdk(partial(prompt, amount=number + 1)).transaction_id)
    return made


def test_the_list_is_walked_page_by_page(sdk: Driver, sandbox: Sandbox, listed: list[str]) -> None:
    before = len(sandbox.requests)
    items = sdk.collect(lambda client: client.transactions.iter(page_size=10))
    assert [item.transaction_id for item in items] == listed[::-1]
    assert len(sandbox.requests) - before == 3
    pages = sdk.collect(lambda client: client.transactions.iter(page_size=10).pages())
    assert [len(page.items) for page in pages] == [10, 10, 5]
    assert {page.overview.total for page in pages} == {25}


def test_filters_reach_the_service(sdk: Driver, listed: list[str]) -> None:
    page = sdk(lambda client: client.transactions.list(amount_min=5, amount_max=Decimal(7), type="STK", limit=100))
    assert [item.transaction_id for item in page.items] == listed[4:7][::-1]
    assert page.next_cursor is None
    long_ago = datetime.now(UTC) - timedelta(days=400)
    assert sdk(lambda client: client.transactions.list(to=long_ago)).overview.total == 0


def test_a_search_ends_where_the_payment_cannot_be(sdk: Driver, sandbox: Sandbox, listed: list[str]) -> None:
    sandbox.advance(3600)
    made = sdk(lambda client: prompt(client, account_reference="NEW"))
    before = len(sandbox.requests)
    found = sdk(lambda client: client.transactions.find(reference="NEW", since=made.created_at, type="STK"))
    assert [item.transaction_id for item in found] == [made.transaction_id]
    assert len(sandbox.requests) - before == 1
    assert len(listed) == 25


def test_a_search_passes_over_an_older_payment_of_the_same_reference(sdk: Driver, sandbox: Sandbox) -> None:
    older = sdk(lambda client: prompt(client, account_reference="SAME"))
    sandbox.advance(301)
    made = sdk(lambda client: prompt(client, account_reference="SAME"))
    found = sdk(lambda client: client.transactions.find(reference="SAME", since=made.created_at))
    assert [item.transaction_id for item in found] == [made.transaction_id]
    both = sdk(lambda client: client.transactions.find(reference="SAME", since=made.created_at - timedelta(seconds=2)))
    assert [item.transaction_id for item in both] == [made.transaction_id, older.transaction_id]


def test_a_top_up_can_be_searched_for(sdk: Driver) -> None:
    made = sdk(lambda client: client.wallet.top_up(amount=500, phone=PHONE, account_reference="TOP"))
    wanted = {"reference": "TOP", "since": made.created_at, "type": "WALLET_TOPUP"}
    found = sdk(lambda client: client.transactions.find(**wanted))
    assert [item.transaction_id for item in found] == [made.transaction_id]


def test_channels_are_made_changed_and_deleted(sdk: Driver) -> None:
    made = sdk(lambda client: client.channels.create(name="Till", type="TILL_NUMBER", shortcode="5001"))
    changed = sdk(lambda client: client.channels.update(made, name="New till", is_default=True))
    assert (changed.name, changed.is_default, changed.shortcode) == ("New till", True, "5001")
    assert sdk(lambda client: client.channels.list())[0].id == made.id
    assert sdk(lambda client: client.channels.get(made)).name == "New till"
    assert sdk(lambda client: client.channels.delete(made)) is None
    with pytest.raises(momopay.ChannelNotFoundError):
        sdk(lambda client: client.channels.get(made))


def test_a_channel_in_use_stays(sdk: Driver) -> None:
    (channel,) = sdk(lambda client: client.channels.list())
    sdk(prompt)
    with pytest.raises(momopay.ChannelInUseError):
        sdk(lambda client: client.channels.delete(channel))


def test_a_real_callback_parses_and_is_confirmed(sdk: Driver, sandbox: Sandbox) -> None:
    sdk(lambda client: prompt(client, callback_url="http://127.0.0.1:9/momo"))
    sandbox.advance(60)
    delivery = sandbox.callbacks[0]
    callback = momopay.parse_callback(delivery.payload)
    assert callback.event_type == "transaction.success"
    confirmed = sdk(lambda client: client.transactions.confirm(callback))
    assert confirmed.status == "SUCCESS"
    payload: Any = delivery.payload
    payload["transaction"]["amount"] = 1
    forged = momopay.parse_callback(payload)
    with pytest.raises(momopay.CallbackMismatchError) as caught:
        sdk(lambda client: client.transactions.confirm(forged))
    assert caught.value.fields == ("amount",)


def test_snake_case_reads_alike(sdk: Driver, account: Account) -> None:
    made = sdk(prompt)
    camel = sdk(lambda client: client.transactions.get(made))
    account.switches.naming = "snake_case"
    snake = sdk(lambda client: client.transactions.get(made))
    for name in ("transaction_id", "status", "amount", "phone", "account_reference", "created_at"):
        assert getattr(snake, name) == getattr(camel, name)
    assert snake.transaction_fee == 1


@pytest.mark.parametrize("kind", ["temp_banned", "health"])
def test_a_pause_of_prompts_holds_prompts_alone(sdk: Driver, sandbox: Sandbox, key: str, kind: str) -> None:
    (sandbox.ban_stk if kind == "temp_banned" else sandbox.block_stk)(key)
    expected = momopay.StkTempBannedError if kind == "temp_banned" else momopay.TransactionHealthBlockedError
    for _ in range(3):
        with pytest.raises(expected):
            sdk(prompt)
    assert pushed(sandbox, "/payments/stk") == 1
    assert sdk(pay).status == "PENDING"
