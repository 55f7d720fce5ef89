"""Searching for payments against the sandbox, over both clients."""

from __future__ import annotations

from datetime import timedelta

from drivers import Driver
from momopay.sandbox import Sandbox
from resources.sandbox_kit import LOCAL_PHONE, prompt


def test_a_search_ends_where_the_payment_cannot_be(sdk: Driver, sandbox: Sandbox, listed: list[str]) -> None:
    sandbox.advance(3600)
    made = sdk(lambda client: prompt(client, account_reference="NEW"))
    before = len(sandbox.requests)
    found = sdk(lambda client: client.transactions.find(reference="NEW", since=made.created_at, type="STK"))
    assert [item.transaction_id for item in found] == [made.transaction_id]
    assert len(sandbox.requests) - before == 1
    assert len(listed) == 25


def test_a_search_skips_an_older_payment_of_the_same_reference(sdk: Driver, sandbox: Sandbox) -> None:
    older = sdk(lambda client: prompt(client, account_reference="SAME"))
    sandbox.advance(301)
    made = sdk(lambda client: prompt(client, account_reference="SAME"))
    found = sdk(lambda client: client.transactions.find(reference="SAME", since=made.created_at))
    assert [item.transaction_id for item in found] == [made.transaction_id]
    both = sdk(lambda client: client.transactions.find(reference="SAME", since=made.created_at - timedelta(seconds=2)))
    assert [item.transaction_id for item in both] == [made.transaction_id, older.transaction_id]


def test_a_top_up_can_be_searched_for(sdk: Driver) -> None:
    made = sdk(lambda client: client.wallet.top_up(amount=500, phone=LOCAL_PHONE, account_reference="TOP"))
    wanted = {"reference": "TOP", "since": made.created_at, "type": "WALLET_TOPUP"}
    found = sdk(lambda client: client.transactions.find(**wanted))
    assert [item.transaction_id for item in found] == [made.transaction_id]
