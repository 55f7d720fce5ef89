"""Configuration: what is taken from where, what is refused, and what copies share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from drivers import KEY, Driver
from momopay import AsyncClient, Client, ConfigurationError, Lane, RateBudget

BASE = "https://api.example/v1"


def balance(_request: httpx.Request) -> httpx.Response:
    data = {"walletId": "w", "availableBalance": 5, "ledgerBalance": 5, "updatedAt": "2026-11-20T10:00:00Z"}
    return httpx.Response(200, json={"success": True, "data": data, "requestId": "r"})


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_key_and_address_come_from_the_environment(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOMOPAY_API_KEY", KEY)
    monkeypatch.setenv("MOMOPAY_BASE_URL", BASE + "/")
    assert repr(kind()) == f"{kind.__name__}(base_url='{BASE}')"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_without_key_or_address_there_is_no_client(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOMOPAY_API_KEY", raising=False)
    monkeypatch.delenv("MOMOPAY_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="MOMOPAY_API_KEY"):
        kind(base_url=BASE)
    with pytest.raises(ConfigurationError, match="MOMOPAY_BASE_URL"):
        kind(KEY)


@pytest.mark.parametrize(
    ("key", "url"),
    [
        (KEY, "http://api.example/v1"),
        (KEY, "http://10.0.0.1/v1"),
        (KEY, "ftp://api.example/v1"),
        (KEY, "api.example/v1"),
        (KEY, "https:///v1"),
        (KEY, "https://user@api.example/v1"),
        (KEY, "https://api.example/v1?x=1"),
        (KEY, "https://api.example/v1#x"),
        (KEY, "https://api.example/v1\r\nX: y"),
        (KEY, "https://api.example:99999/v1"),
        ("pk_live_abc", "http://127.0.0.1:8787/v1"),
        ("pk_live_abc", "http://localhost:8787/v1"),
        ("pk_live_abc", "https://[::1]:8787/v1"),
        ("", BASE),
        ("pk test", BASE),
        ("pk_test_é", BASE),
        ("pk_test_x\r\nX: y", BASE),
        ("pk_test:x", BASE),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_unsafe_configuration_is_refused(kind: Any, key: str, url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        kind(key, base_url=url)
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://localhost:1/v1", "http://[::1]:1/v1", BASE])
def test_plain_http_is_for_loopback(url: str) -> None:
    assert Client(KEY, base_url=url)._session.account.base_url == url


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": None},
        {"timeout": True},
        {"deadline": 0.0},
        {"deadline": "90"},
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"max_attempts": True},
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_senseless_options_are_refused(kind: Any, options: dict[str, Any]) -> None:
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
    driver(lambda _: copy.close() if driver.colour == "blocking" else copy.aclose())
    assert driver(lambda _: copy.wallet.balance()).available_balance == 5
    assert driver(lambda client: client.wallet.balance()).available_balance == 5


def test_the_default_budget_is_shared_by_key_and_address() -> None:
    first, second = Client("pk_test_shared", base_url=BASE), AsyncClient("pk_test_shared", base_url=BASE + "/")
    other = Client("pk_test_other", base_url=BASE)
    assert first._session.budget is second._session.budget
    assert first._session.budget is not other._session.budget
    assert first.with_options(timeout=1)._session.budget is first._session.budget


def test_a_budget_of_ones_own_and_none_at_all() -> None:
    budget = RateBudget(requests=1)
    assert Client(KEY, base_url=BASE, budget=budget)._session.budget is budget
    assert Client(KEY, base_url=BASE, budget=None)._session.budget is None


def test_every_call_takes_a_slot_in_its_lane(drive: Callable[..., Driver]) -> None:
    lanes = list[Lane]()

    class Watched(RateBudget):
        def reserve(self, now: float, lane: Lane, within: float = 0.0) -> float:
            lanes.append(lane)
            return super().reserve(now, lane, within)

    driver = drive(transport=httpx.MockTransport(balance), budget=Watched())
    driver(lambda client: client.wallet.balance())
    assert lanes == [Lane.READ]


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
