"""Callbacks that are confirmed by the service's own record. Waits are tested in `polling`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import httpx
import pytest

import momopay
from drivers import Driver
from models.kit import ID, READ
from models.test_callbacks import callback
from momopay.sandbox import Account, Sandbox
from resources.kit import Recorder, assert_came_with_its_response, assert_sent
from resources.sandbox_kit import AT_ONCE, prompt


def test_a_callback_is_confirmed_by_one_read(drive: Callable[..., Driver]) -> None:
    service = Recorder(READ.camel)
    transaction = drive(transport=service.transport)(lambda client: client.transactions.confirm(callback()))
    assert len(service.requests) == 1
    assert_sent(service.requests[0], "GET", f"/v1/transactions/{ID}")
    assert type(transaction) is momopay.Transaction
    assert_came_with_its_response(transaction)


def test_a_callback_that_differs_from_the_record_is_a_mismatch(drive: Callable[..., Driver]) -> None:
    service = Recorder({**READ.camel, "amount": 1, "status": "FAILED"})
    with pytest.raises(momopay.CallbackMismatchError) as caught:
        drive(transport=service.transport)(lambda client: client.transactions.confirm(callback()))
    assert caught.value.fields == ("status", "amount")
    assert caught.value.transaction_id == ID


def test_a_callback_for_an_unknown_transaction_is_reported_as_such(drive: Callable[..., Driver]) -> None:
    error: dict[str, Any] = {"message": "No such transaction", "code": "TRANSACTION_NOT_FOUND", "details": {}}
    body: dict[str, Any] = {"success": False, "error": error, "requestId": "r-1"}
    driver = drive(transport=httpx.MockTransport(lambda _request: httpx.Response(404, json=body)))
    with pytest.raises(momopay.TransactionNotFoundError):
        driver(lambda client: client.transactions.confirm(callback()))


def test_the_id_of_a_callback_stays_one_segment_of_the_path(drive: Callable[..., Driver]) -> None:
    service = Recorder({**READ.camel, "transactionId": "../wallets?x=1"})
    told = callback(id="../wallets?x=1")
    drive(transport=service.transport)(lambda client: client.transactions.confirm(told))
    assert_sent(service.requests[0], "GET", "/v1/transactions/..%2Fwallets%3Fx%3D1")


@pytest.mark.parametrize("call", ["notify", "wait_all"])
def test_what_names_no_transaction_is_refused_at_once(drive: Callable[..., Driver], call: str) -> None:
    service = Recorder(READ.camel)
    with pytest.raises(momopay.RequestValidationError) as caught:
        getattr(drive(transport=service.transport).client.transactions, call)([".."])
    assert set(caught.value.fields) == {"transaction_id"}
    assert service.requests == []


# Against the sandbox, whose ledger is the only witness of what was paid.


def test_waits_for_many_share_their_reads(sdk: Driver, sandbox: Sandbox) -> None:
    accepted = [sdk(partial(prompt, account_reference=f"INV-{number}")) for number in range(30)]
    sandbox.advance(60)
    before = len(sandbox.requests)
    ended = sdk.collect(lambda client: client.transactions.wait_all(accepted, schedule=AT_ONCE))
    assert {each.status for each in ended} == {"SUCCESS"}
    assert len(ended) == 30
    assert len(sandbox.requests) - before == 1


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


@pytest.fixture
def told(sandbox: Sandbox, account: Account, key: str) -> list[momopay.Callback]:
    """60 callbacks that came at the same time."""
    account.rate_limit = None
    with momopay.Client(key, base_url=sandbox.base_url, budget=None) as client:
        for number in range(60):
            prompt(client, account_reference=f"INV-{number}", callback_url="http://127.0.0.1:9/momo")
    sandbox.advance(60)
    return list({each.transaction_id: momopay.parse_callback(each.payload) for each in sandbox.callbacks}.values())


def test_sixty_confirmations_in_threads_cost_few_requests(
    told: list[momopay.Callback], sandbox: Sandbox, key: str
) -> None:
    before, together = len(sandbox.requests), Barrier(60)
    with momopay.Client(key, base_url=sandbox.base_url, budget=None) as client, ThreadPoolExecutor(60) as threads:

        def confirm(each: momopay.Callback) -> momopay.Transaction:
            together.wait()
            return client.transactions.confirm(each)

        confirmed = list(threads.map(confirm, told))
    assert [each.transaction_id for each in confirmed] == [each.transaction_id for each in told]
    assert {each.status for each in confirmed} == {"SUCCESS"}
    assert len(sandbox.requests) - before <= 12


def test_sixty_confirmations_in_tasks_cost_two_requests(
    told: list[momopay.Callback], sandbox: Sandbox, key: str
) -> None:
    before = len(sandbox.requests)

    async def confirm_all() -> list[momopay.Transaction]:
        async with momopay.AsyncClient(key, base_url=sandbox.base_url, budget=None) as client:
            return await asyncio.gather(*map(client.transactions.confirm, told))

    confirmed = asyncio.run(confirm_all())
    assert [each.transaction_id for each in confirmed] == [each.transaction_id for each in told]
    assert len(sandbox.requests) - before == 2
