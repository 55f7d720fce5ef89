"""Clients: their options, what copies share, and how they close."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from drivers import KEY, Driver
from momopay import AsyncClient, Client, ConfigurationError, RateBudget

BASE = "https://api.example/v1"


def balance(_request: httpx.Request) -> httpx.Response:
    data = {"walletId": "w", "availableBalance": 5, "ledgerBalance": 5, "updatedAt": "2026-11-20T10:00:00Z"}
    return httpx.Response(200, json={"success": True, "data": data, "requestId": "r"})


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_key_and_address_come_from_the_environment(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOMOPAY_API_KEY", KEY)
    monkeypatch.setenv("MOMOPAY_BASE_URL", BASE + "/")
    assert repr(kind()) == f"{kind.__name__}(base_url='{BASE}')"


@pytest.mark.parametrize("options", [{"timeout": 0}, {"deadline": 0.0}, {"max_attempts": 0}])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_options_out_of_range_are_refused(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        kind(KEY, base_url=BASE, **options)
    with pytest.raises(ConfigurationError):
        kind(KEY, base_url=BASE).with_options(**options)


def test_copies_share_connections_and_close_nothing(drive: Callable[..., Driver]) -> None:
    driver = drive(transport=httpx.MockTransport(balance))
    copy = driver.client.with_options(timeout=1.0, max_attempts=1, deadline=2.0)
    assert copy._session.backend is driver.client._session.backend
    assert (copy._session.limits.timeout, copy._session.limits.deadline) == (1.0, 2.0)
    assert copy.with_options(timeout=3.0)._session.limits.max_attempts == 1
    driver(lambda _: copy.close() if driver.client_kind == "blocking" else copy.aclose())
    assert driver(lambda _: copy.wallet.balance()).available_balance == 5
    assert driver(lambda client: client.wallet.balance()).available_balance == 5


def test_the_default_budget_is_shared_by_key_and_address() -> None:
    first, second = Client("pk_test_shared", base_url=BASE), AsyncClient("pk_test_shared", base_url=BASE + "/")
    other = Client("pk_test_other", base_url=BASE)
    assert first._session.budget is second._session.budget
    assert first._session.budget is not other._session.budget
    assert first.with_options(timeout=1)._session.budget is first._session.budget


def test_a_given_budget_is_used_and_none_is_none() -> None:
    budget = RateBudget(requests=1)
    assert Client(KEY, base_url=BASE, budget=budget)._session.budget is budget
    assert Client(KEY, base_url=BASE, budget=None)._session.budget is None


def test_clients_are_contexts() -> None:
    with Client(KEY, base_url=BASE, transport=httpx.MockTransport(balance)) as client:
        assert client.wallet.balance().ledger_balance == 5
    with pytest.raises(ConfigurationError, match="closed"):
        client.wallet.balance()


def test_one_client_serves_many_threads() -> None:
    results = list[Any]()
    with Client(KEY, base_url=BASE, budget=None, transport=httpx.MockTransport(balance)) as client:
        threads = [
            threading.Thread(target=lambda: results.append(client.wallet.balance().available_balance))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [5] * 20


@pytest.mark.parametrize(
    ("kind", "transport"), [(Client, httpx.AsyncHTTPTransport()), (AsyncClient, httpx.HTTPTransport())]
)
def test_a_transport_of_the_other_client_is_refused(kind: Any, transport: Any) -> None:
    with pytest.raises(ConfigurationError, match="handle_"):
        kind(KEY, base_url=BASE, transport=transport)
