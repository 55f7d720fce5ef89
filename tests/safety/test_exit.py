"""What an error says on the way out: whether money may have moved, what was reached, and which `for` to use."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from drivers import Driver, unique_key
from momopay import (
    APIConnectionError,
    AsyncClient,
    BudgetExhaustedError,
    CallbackSigner,
    Client,
    ConfigurationError,
    Journal,
    MomoPayError,
    OutcomeUnknownError,
    PollSchedule,
    RateBudget,
)
from momopay.sandbox import Account, Sandbox
from safety.kit import PHONE, Call, Shop, collect, moved, pay, sweep


def test_an_order_with_an_open_prompt_and_no_budget_may_be_paid(
    drive: Callable[..., Driver], sandbox: Sandbox, key: str, account: Account, journal: Journal
) -> None:
    """No slot for a read: nothing was sent now, and the prompt of an hour ago may be paid at any moment."""
    unlimited = drive(api_key=key, base_url=sandbox.base_url)
    unlimited(collect(journal))
    unlimited(pay(journal))
    budget = RateBudget(requests=1, window=600.0)
    poor = drive(api_key=key, base_url=sandbox.base_url, budget=budget, deadline=1.0)
    poor(lambda client: client.wallet.balance())  # the only slot
    for call in (collect(journal), pay(journal)):
        with pytest.raises(BudgetExhaustedError) as caught:
            poor(call)
        assert caught.value.may_have_executed
    with pytest.raises(BudgetExhaustedError) as caught:  # the control: of a new reference nothing was ever sent
        poor(pay(journal, "NEW"))
    assert not caught.value.may_have_executed
    assert moved(sandbox, "payout") == {"PAY-1": 100}


def test_an_order_whose_abandoned_prompt_is_still_open_may_be_paid(shop: Shop, drive: Callable[..., Driver]) -> None:
    """The slot for the read was the last one: no new prompt goes out, and the old one may be paid at any moment."""
    prompt = shop(collect(shop.journal))
    shop.later(600)
    budget = RateBudget(requests=1, window=600.0)
    poor = drive(api_key=shop.key, base_url=shop.sandbox.base_url, budget=budget, deadline=1.0)
    with pytest.raises(BudgetExhaustedError) as caught:
        poor(collect(shop.journal, abandon_after=60))
    assert caught.value.may_have_executed
    shop.settle(prompt)
    assert shop.paid_in == {"O-1": 100}
    assert shop.prompts == 1


def initiate_payout(_journal: Journal) -> Call:
    return lambda client: client.payouts.initiate(reference="PAY-1", amount=100, phone=PHONE)


def initiate_prompt(_journal: Journal) -> Call:
    return lambda client: client.stk.initiate(account_reference="O-1", amount=100, phone=PHONE)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("call", [pay, collect, initiate_payout, initiate_prompt])
def test_an_unknown_outcome_is_dated_by_the_first_attempt(shop: Shop, call: Callable[[Journal], Call]) -> None:
    """What a transport calls not sent may have been sent: a search for the payment begins there."""
    attempts: list[datetime] = []

    def fail(method: str, _path: str) -> None:
        if method == "POST":
            attempts.append(datetime.now(UTC))
            raise (httpx.ConnectError if len(attempts) == 1 else httpx.ReadTimeout)("the network is in trouble")

    shop.between.first = fail
    begun = datetime.now(UTC)
    with pytest.raises(OutcomeUnknownError) as caught:
        shop(call(shop.journal))
    assert len(attempts) == 2
    assert begun <= caught.value.sent_at <= attempts[0]


@pytest.mark.parametrize("call", [pay, collect, sweep])
def test_a_journal_that_cannot_be_opened_names_the_path_that_was_given(
    drive: Callable[..., Driver], sandbox: Sandbox, call: Callable[[Journal], Any]
) -> None:
    sdk = drive(api_key=unique_key(), base_url=sandbox.base_url)
    with pytest.raises(ConfigurationError) as caught, Journal("sqlite:////nowhere/at/all/x.db") as journal:
        sdk(call(journal))
    assert not caught.value.may_have_executed
    text = str(caught.value)
    assert "/nowhere/at/all/x.db" in text
    assert "lock" not in text
    assert "-senders" not in text
    assert [each.path for each in sandbox.requests if each.method == "POST"] == []


@pytest.mark.parametrize("secrets", ["abc", "fifteen letters", ["a secret that is long enough", "abc"], b"abc"])
def test_a_callback_secret_that_can_be_guessed_is_refused(secrets: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CallbackSigner(secrets)
    assert "abc" not in str(caught.value)
    CallbackSigner("sixteen letters!")  # the control


NAMES = ["iter", "iter.pages", "pay_all", "wait_all"]


@pytest.mark.parametrize("name", NAMES)
def test_a_blocking_loop_over_what_is_asynchronous_names_the_other(name: str, url: str) -> None:
    client = AsyncClient("pk_test_x", base_url="https://api.example/v1", transport=_unreachable())
    with Journal(url) as journal:
        made = _made(client, name, journal)
        with pytest.raises(TypeError, match="async for"):
            for _each in made:
                pass


@pytest.mark.parametrize("name", NAMES)
def test_an_asynchronous_loop_over_what_is_blocking_names_the_other(name: str, url: str) -> None:
    client = Client("pk_test_x", base_url="https://api.example/v1", transport=_unreachable())
    with Journal(url) as journal:
        made = _made(client, name, journal)

        async def loop() -> None:
            async for _each in made:
                pass

        with pytest.raises(TypeError, match=r"(?<!async )\bfor\b"):
            asyncio.run(loop())


def _made(client: Any, name: str, journal: Journal) -> Any:
    match name:
        case "iter":
            return client.transactions.iter()
        case "iter.pages":
            return client.transactions.iter().pages()
        case "pay_all":
            return client.payouts.pay_all([{"reference": "r", "amount": 10, "phone": "0712345678"}], journal=journal)
        case _:
            return client.transactions.wait_all(["t-1"], schedule=PollSchedule(first=0.0))


def _unreachable() -> httpx.MockTransport:
    def respond(_request: httpx.Request) -> httpx.Response:
        raise AssertionError("nothing is sent")

    return httpx.MockTransport(respond)


def test_an_unreachable_host_is_named_with_its_port(drive: Callable[..., Driver], no_backoff: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sdk = drive(base_url=f"http://127.0.0.1:{port}/v1", deadline=2.0)
    with pytest.raises(APIConnectionError) as caught:
        sdk(lambda client: client.wallet.balance())
    assert f"127.0.0.1:{port}" in str(caught.value)


def test_an_answer_that_is_not_the_services_names_the_address(drive: Callable[..., Driver]) -> None:
    """The URL without its query, which may hold a phone, and the question whether base_url is right."""

    def respond(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, html="<html>Welcome to nginx</html>")

    sdk = drive(base_url="https://shop.example/v1", transport=httpx.MockTransport(respond))
    with pytest.raises(MomoPayError) as caught:
        sdk(lambda client: client.transactions.list(q="254712345678"))
    text = str(caught.value)
    assert "https://shop.example/v1/transactions" in text
    assert "base_url" in text
    assert "712345678" not in text
