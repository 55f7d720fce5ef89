"""What the checkers see: exact signatures of both clients, and the mistakes that they must find.

Read by mypy and pyright, never run. Each ignored line must be an error: both checkers report an ignore that
hides nothing.
"""

import asyncio
from collections.abc import Coroutine
from decimal import Decimal
from typing import Any, assert_type

from momopay import (
    AsyncClient,
    Callback,
    Client,
    Journal,
    JournalEntry,
    OutcomeUnknownError,
    Payment,
    PaymentChannel,
    Payout,
    PollSchedule,
    RateBudget,
    StkTransaction,
    TopUp,
    Transaction,
    TransactionStatus,
    WaitTimeoutError,
    WalletBalance,
    parse_callback,
    settled,
)
from momopay.types import TransactionPage, TransactionSummary


def blocking(client: Client, channel: PaymentChannel, journal: Journal) -> None:
    prompt = client.stk.initiate(amount=100, phone="0712345678", channel_id=channel)
    assert_type(prompt, StkTransaction)
    assert_type(prompt.amount, Decimal)
    assert_type(prompt.status, TransactionStatus)
    assert_type(prompt.response.request_id, str | None)
    assert_type(client.payouts.initiate(amount=Decimal("10.50"), phone="0712345678", reference="A"), Payout)
    paid = client.payouts.pay_once(journal=journal, amount=10, phone="0712345678", reference="A")
    assert_type((paid, paid.is_paid, paid.transaction_id), tuple[Payment, bool | None, str])
    assert_type(client.stk.collect_once(amount=10, phone="0712345678", reference="A"), Payment)
    assert_type(client.payouts.refund(of="A"), Payment)
    for outcome in client.payouts.pay_all([]):
        assert_type(outcome.payment, Payment | None)
    assert_type(client.transactions.wait(paid), Transaction)
    assert_type(client.journal, Journal | None)
    assert_type(journal.reconcile_all(client), list[JournalEntry])
    assert_type(client.wallet.balance(), WalletBalance)
    assert_type(client.request("GET", "/wallets/b2c/balance"), Any)
    assert_type(client.request("GET", "/wallets/b2c/balance", cast_to=WalletBalance), WalletBalance)
    client.request("GET", "/wallets/b2c/balance", cast_to=int)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    assert_type(client.wallet.top_up(amount=1, phone="0712345678"), TopUp)
    assert_type(client.channels.list(), list[PaymentChannel])
    assert_type(client.channels.update(channel, account_number=None), PaymentChannel)
    assert_type(client.transactions.list(limit=5), TransactionPage)
    assert_type(client.transactions.get(prompt), Transaction)
    assert_type(client.transactions.wait(prompt, until=settled, schedule=PollSchedule(limit=5)), Transaction)
    assert_type(client.transactions.confirm(parse_callback(b"")), Transaction)
    for item in client.transactions.iter(status="SUCCESS"):
        assert_type(item, TransactionSummary)
    for page in client.transactions.iter().pages():
        assert_type(page, TransactionPage)
    for ended in client.transactions.wait_all([prompt, "id"]):
        assert_type(ended, Transaction)
    assert_type(client.with_options(timeout=1.0, api_key="pk_test_x", budget=None, default_headers={}), Client)
    assert_type((client.base_url, client.max_attempts, client.is_closed), tuple[str, int, bool])
    with client as same:
        assert_type(same, Client)


async def awaited(client: AsyncClient, callback: Callback, journal: Journal) -> None:
    prompt = await client.stk.initiate(amount=100, phone="0712345678")
    assert_type(prompt, StkTransaction)
    again = await client.payouts.pay_once(journal=journal, amount=10, phone="0712345678", reference="A")
    assert_type(await journal.reconcile_all(client), list[JournalEntry])
    assert_type(journal.settle(await client.transactions.wait(again)), JournalEntry | None)
    assert_type(await client.request("GET", "/wallets/b2c/balance"), Any)
    assert_type(await client.request("GET", "/wallets/b2c/balance", cast_to=WalletBalance), WalletBalance)
    both = await asyncio.gather(client.wallet.balance(), client.transactions.get(callback.transaction))
    assert_type(both, tuple[WalletBalance, Transaction])
    async for item in client.transactions.iter():
        assert_type(item, TransactionSummary)
    async for page in client.transactions.iter().pages():
        assert_type(page, TransactionPage)
        for each in page:
            assert_type(each, TransactionSummary)
    async for ended in client.transactions.wait_all([prompt]):
        assert_type(ended, Transaction)
    assert_type(client.with_options(deadline=1), AsyncClient)
    async with client as same:
        assert_type(same, AsyncClient)


def use(value: object) -> None: ...


def mistakes(client: Client, async_client: AsyncClient) -> None:
    client.stk.initiate(phone="0712345678")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.stk.initiate(amount=1.5, phone="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client.stk.initiate(100, "x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.payouts.initiate(amount=10, phone="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    for each in async_client.transactions.iter():  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        use(each)  # pyright: ignore[reportUnknownArgumentType]
    for ended in async_client.transactions.wait_all([]):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        use(ended)  # pyright: ignore[reportUnknownArgumentType]
    unawaited: Coroutine[Any, Any, Transaction] = async_client.transactions.get("id")
    unawaited.status.upper()  # type: ignore[attr-defined]  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    async_client.transactions.get("id")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


def options() -> None:
    Client("pk_test_x", base_url="https://api.example/v1", budget=None)
    Client(budget=RateBudget(requests=10, window=1.0))
    Client(budget=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def errors(unknown: OutcomeUnknownError, late: WaitTimeoutError) -> None:
    assert_type(unknown.amount, Decimal | None)
    assert_type(unknown.matches, tuple[TransactionSummary, ...])
    assert_type(late.last, Transaction | None)
