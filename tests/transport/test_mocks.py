"""Tools that answer in place of httpx's or httpcore's connections see our requests, and may fail them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import respx

import momopay
from drivers import Driver

BASE = "https://api.example/v1"
PAYOUT = f"{BASE}/b2c/payouts"
BALANCE = {"walletId": "w", "availableBalance": 5, "ledgerBalance": 5, "updatedAt": "2026-11-20T10:00:00Z"}
pytestmark = pytest.mark.usefixtures("no_backoff")


def read(client: Any) -> Any:
    return client.wallet.balance()


def pay(client: Any) -> Any:
    return client.payouts.initiate(amount=10, phone="0712345678", reference="r")


@respx.mock
def test_respx_answers(drive: Callable[..., Driver]) -> None:
    route = respx.get(f"{BASE}/wallets/service/balance").mock(
        side_effect=[httpx.ReadTimeout, httpx.Response(200, json={"success": True, "data": BALANCE, "requestId": "r"})]
    )
    assert drive()(read).available_balance == 5
    assert route.call_count == 2


@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.WriteError, httpx.ConnectError])
@respx.mock
def test_a_payment_that_respx_loses_may_have_executed(drive: Callable[..., Driver], error: type[Exception]) -> None:
    # Also ConnectError: only httpcore and the operating system are believed that nothing was sent.
    route = respx.post(PAYOUT).mock(side_effect=error)
    with pytest.raises(momopay.OutcomeUnknownError):
        drive()(pay)
    assert route.call_count == 1


@pytest.mark.parametrize("error", [httpx.ReadTimeout("slow"), None])
def test_what_replaces_httpx_own_transport_is_used(
    drive: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """pytest-httpx and vcrpy replace these two methods."""
    requests = list[httpx.Request]()

    def answer(_transport: object, request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if error is not None:
            raise error
        refusal = {"success": False, "error": {"code": "INVALID_PHONE", "message": "no"}, "requestId": "r"}
        return httpx.Response(400, json=refusal)

    async def answer_async(transport: object, request: httpx.Request) -> httpx.Response:
        return answer(transport, request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", answer)
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", answer_async)
    with pytest.raises(momopay.OutcomeUnknownError if error else momopay.InvalidPhoneError):
        drive()(pay)
    assert [str(request.url) for request in requests] == [PAYOUT]
