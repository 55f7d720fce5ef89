"""One coroutine, two forms: blocking on `Client` and awaitable on `AsyncClient`, whatever loop is running."""

import asyncio
import gc
import inspect
import pydoc
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from bodies import balance
from drivers import KEY, Driver, session_of
from momopay import APIConnectionError, AsyncClient, Client, ConfigurationError, Journal, RateBudget
from momopay._core.operation import OperationIterator, run_sync
from momopay._transport.attempt import NoReplyError
from momopay.resources.stk import Stk
from momopay.resources.wallet import Wallet
from test_redaction import PHONE, failing, shown

BASE = "https://api.example/v1"


def test_the_form_comes_from_the_client_even_where_a_loop_is_running() -> None:
    async def main() -> Any:
        with Client(KEY, base_url=BASE, transport=httpx.MockTransport(balance)) as client:
            return client.wallet.balance().currency

    assert asyncio.run(main()) == "KES"


def test_an_operation_has_its_signature_and_documentation() -> None:
    client = Client(KEY, base_url=BASE, transport=httpx.MockTransport(balance))
    async_client = AsyncClient(KEY, base_url=BASE)
    names = ["amount", "phone", "account_reference", "transaction_desc", "callback_url", "channel_id", "credential_id"]
    for bound in (client.stk.initiate, async_client.stk.initiate):
        assert list(inspect.signature(bound).parameters) == names
        assert "at most once" in (inspect.getdoc(bound) or "")
    assert not inspect.iscoroutinefunction(client.stk.initiate)
    kind: Any = AsyncClient
    assert all(inspect.iscoroutinefunction(each.stk.initiate) for each in (async_client, kind))
    shown = re.sub(r"[\s|]", "", pydoc.plain(pydoc.render_doc(Stk)))  # Python 3.13 gives each parameter a line
    assert "initiate(self,*,amount:" in shown
    read_balance: Any = Wallet.balance
    assert read_balance(client.wallet).currency == "KES"


def test_a_coroutine_that_suspends_is_no_blocking_call() -> None:
    async def suspending() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="suspend"):
        run_sync(suspending())


def iterables(client: Any, journal: Journal) -> list[Any]:
    """Everything in the SDK that is iterated over, with something in it."""
    payouts = [{"reference": "A", "amount": 10, "phone": "0712345678"}]
    transactions = client.transactions
    return [
        transactions.iter(),
        transactions.iter().pages(),
        transactions.wait_all(["7d9a4a0e"]),
        client.payouts.pay_all(payouts, journal=journal),
    ]


def test_the_wrong_kind_of_loop_names_the_right_one(tmp_path: Path) -> None:
    async def over(iterable: Any) -> None:
        async for _ in iterable:
            pass

    with Journal(f"sqlite:///{tmp_path / 'payments.db'}") as journal:
        for iterable in iterables(Client(KEY, base_url=BASE, transport=httpx.MockTransport(balance)), journal):
            with pytest.raises(TypeError, match="with `for`, not with `async for`"):
                asyncio.run(over(iterable))
        for iterable in iterables(AsyncClient(KEY, base_url=BASE, transport=httpx.MockTransport(balance)), journal):
            with pytest.raises(TypeError, match="with `async for`, not with `for`"):
                list(iterable)


def test_a_call_that_is_driven_outside_a_loop_says_so_and_sends_nothing() -> None:
    requests = list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return balance(request)

    budget = RateBudget()
    client = AsyncClient(KEY, base_url=BASE, budget=budget, transport=httpx.MockTransport(answer))
    calls: list[Callable[[], Any]] = [
        client.wallet.balance,
        lambda: client.stk.initiate(amount=100, phone="0712345678"),
        lambda: aiter(client.transactions.iter()),
    ]
    for begin in calls:
        with pytest.raises(TypeError, match=r"running event loop.*asyncio\.run"):
            begin().send(None)
    assert requests == []
    assert asyncio.run(client.wallet.balance()).currency == "KES"
    with pytest.raises(ConfigurationError, match="another event loop"):
        asyncio.run(client.wallet.balance())
    assert len(requests) == len(budget._log.slots) == 1


def test_the_error_of_a_step_shows_no_argument(drive: Callable[..., Driver]) -> None:
    driver = drive(transport=httpx.MockTransport(failing(httpx.ReadTimeout("late"))), max_attempts=1)
    with pytest.raises(APIConnectionError) as caught:
        driver.collect(lambda client: client.transactions.iter(q=PHONE))
    assert isinstance(caught.value.__cause__, NoReplyError)
    assert PHONE not in shown(caught.value)


class Numbers:
    """Steps that count to three."""

    def __init__(self, ends: list[int]) -> None:
        self._number = 0
        weakref.finalize(self, lambda: ends.append(1))

    async def next(self) -> list[int] | None:
        self._number += 1
        if self._number == 3:
            raise ValueError("three")
        return [1, 2] if self._number > 1 else []  # as of a page with nothing new


def test_steps_are_dropped_however_their_loop_ends(drive: Callable[..., Driver]) -> None:
    driver, ends = drive(), list[int]()
    numbers: OperationIterator[Any, int] = OperationIterator(session_of(driver.client), lambda: Numbers(ends))
    with pytest.raises(ValueError, match="three"):
        driver.collect(lambda _client: numbers)
    gc.collect()
    assert len(ends) == 1

    async def leave_early() -> None:
        async for number in numbers:
            if number == 2:
                break

    if driver.client_kind == "async":
        driver(lambda _client: leave_early())
    else:
        for number in numbers:
            if number == 2:
                break
    gc.collect()
    assert len(ends) == 2
