"""One coroutine, two forms: blocking on `Client` and awaitable on `AsyncClient`, whatever loop is running."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
from typing import Any

import httpx
import pytest

from drivers import KEY
from momopay import AsyncClient, Client
from momopay._core.operation import run_sync
from momopay.resources.stk import Stk
from momopay.resources.wallet import Wallet
from test_client import balance

BASE = "https://api.example/v1"


def test_the_form_comes_from_the_client_even_where_a_loop_is_running() -> None:
    async def main() -> Any:
        with Client(KEY, base_url=BASE, transport=httpx.MockTransport(balance)) as client:
            return client.wallet.balance().currency

    assert asyncio.run(main()) == "KES"


def test_the_class_shows_signatures_and_can_call_them() -> None:
    initiate: Any = Stk.initiate
    read_balance: Any = Wallet.balance
    assert list(inspect.signature(initiate).parameters)[:3] == ["self", "amount", "phone"]
    shown = re.sub(r"[\s|]", "", pydoc.plain(pydoc.render_doc(Stk)))  # Python 3.13 gives each parameter a line
    assert "initiate(self,*,amount:" in shown
    with Client(KEY, base_url=BASE, transport=httpx.MockTransport(balance)) as client:
        assert read_balance(client.wallet).currency == "KES"


def test_an_operation_has_its_signature_and_documentation() -> None:
    client = Client(KEY, base_url=BASE)
    async_client = AsyncClient(KEY, base_url=BASE)
    names = ["amount", "phone", "account_reference", "transaction_desc", "callback_url", "channel_id", "credential_id"]
    for bound in (client.stk.initiate, async_client.stk.initiate):
        assert list(inspect.signature(bound).parameters) == names
        assert "at most once" in (inspect.getdoc(bound) or "")
    assert not inspect.iscoroutinefunction(client.stk.initiate)
    assert inspect.iscoroutinefunction(async_client.stk.initiate)
    assert "at most once" in (Stk.initiate.__doc__ or "")


def test_every_operation_says_what_it_raises_and_what_it_rests_on() -> None:
    client: Any = Client(KEY, base_url=BASE)
    resources: list[Any] = [client.stk, client.payouts, client.wallet, client.channels, client.transactions]
    for resource in resources:
        for name in dir(resource):
            if not name.startswith("_") and callable(getattr(resource, name)):
                documentation = inspect.getdoc(getattr(resource, name)) or ""
                assert "Raises:" in documentation, name


def test_a_coroutine_that_suspends_is_no_blocking_call() -> None:
    async def suspending() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="suspend"):
        run_sync(suspending())
