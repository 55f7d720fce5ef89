"""The service wallet: its balance, and top-ups with their idempotency key."""

from __future__ import annotations

from collections.abc import Callable

from drivers import Driver
from models.kit import BALANCE, PHONE, TOP_UP
from resources.kit import Recorder, assert_came_with_its_response, assert_sent, refused


def test_the_balance_is_read(drive: Callable[..., Driver]) -> None:
    service = Recorder(BALANCE.camel)
    balance = drive(transport=service.transport)(lambda client: client.wallet.balance())
    assert_sent(service.requests[0], "GET", "/v1/wallets/service/balance")
    assert type(balance) is BALANCE.kind
    assert_came_with_its_response(balance)


def test_a_top_up_is_sent_as_the_service_states(drive: Callable[..., Driver]) -> None:
    service = Recorder(TOP_UP.camel)
    top_up = drive(transport=service.transport)(
        lambda client: client.wallet.top_up(
            amount=1, phone=PHONE, account_reference="A", transaction_desc="D", idempotency_key="attempt-2025/7"
        )
    )
    (request,) = service.requests
    body = {"amount": 1, "phone": PHONE, "accountReference": "A", "transactionDesc": "D"}
    assert_sent(request, "POST", "/v1/wallets/service/topups", body)
    assert request.headers["idempotency-key"] == "attempt-2025/7"
    assert type(top_up) is TOP_UP.kind
    assert_came_with_its_response(top_up)


def test_each_top_up_makes_an_idempotency_key_of_its_own(drive: Callable[..., Driver]) -> None:
    service = Recorder(TOP_UP.camel)
    driver = drive(transport=service.transport)
    for _ in range(5):
        driver(lambda client: client.wallet.top_up(amount=1, phone=PHONE))
    keys = [request.headers["idempotency-key"] for request in service.requests]
    assert len(set(keys)) == 5
    assert all(len(key) >= 16 for key in keys)


def test_wrong_arguments_are_refused_together_and_nothing_is_sent(drive: Callable[..., Driver]) -> None:
    service = Recorder(TOP_UP.camel)
    wrong = {"amount": 0, "phone": PHONE + "9", "idempotency_key": "a\r\nX-Evil: 1"}
    driver = drive(transport=service.transport)
    assert refused(driver, lambda client: client.wallet.top_up(**wrong)) == set(wrong)
    assert service.requests == []
