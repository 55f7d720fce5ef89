"""Clients: their options, what copies share, and how they close."""

import asyncio
import copy
import inspect
import pickle
from base64 import b64decode
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import create_autospec

import httpx
import pytest

import momopay
from bodies import balance
from drivers import KEY, Driver, session_of
from in_turn import in_turn
from momopay import AsyncClient, Client, ConfigurationError, FileRateBudget, Journal, MomoPayError, RateBudget
from momopay._core.operation import Resource
from momopay.types import SHARED_BUDGET

BASE = "https://api.example/v1"


KINDS = in_turn("kind", [Client, AsyncClient])


@KINDS
def test_options_that_no_call_can_work_with_are_refused(kind: Any) -> None:
    limits: dict[str, Any] = {"timeout": 0, "deadline": 0.0, "max_attempts": 0, "max_wait": -1}
    for name, value in {**limits, "default_headers": {"Host": "x"}}.items():
        for use in (partial(kind, KEY, base_url=BASE), kind(KEY, base_url=BASE).with_options):
            with pytest.raises(ConfigurationError, match=name):
                use(**{name: value})
    of_the_other, method = (httpx.HTTPTransport(), "async") if kind is AsyncClient else (httpx.AsyncHTTPTransport(), "")
    only_here: list[tuple[str, Any, str]] = [("app_info", "shop\r\nX: 1", "app_info")]
    only_here += [("transport", each, f"transport must .* handle_{method}") for each in (of_the_other, 7)]
    for name, value, problem in only_here:
        with pytest.raises(ConfigurationError, match=problem):
            kind(KEY, base_url=BASE, **{name: value})


@KINDS
def test_a_budget_of_another_class_is_refused_and_the_defaults_are_those_of_the_documentation(kind: Any) -> None:
    for foreign in (object(), RateBudget, 58, "58"):
        with pytest.raises(ConfigurationError, match="budget must be"):
            kind(KEY, base_url=BASE, budget=foreign)
    defaults = {name: each.default for name, each in inspect.signature(kind).parameters.items()}
    limits = ("timeout", "deadline", "max_attempts", "max_wait", "budget")
    assert [defaults[name] for name in limits] == [30.0, 90.0, 4, None, SHARED_BUDGET]


def test_copies_share_connections_and_close_nothing(drive: Callable[..., Driver]) -> None:
    driver = drive(transport=httpx.MockTransport(balance))
    copy = driver.client.with_options(timeout=1.0, max_attempts=1, deadline=2.0)
    assert session_of(copy).backend is session_of(driver.client).backend
    assert (session_of(copy).limits.timeout, session_of(copy).limits.deadline) == (1.0, 2.0)
    assert session_of(copy.with_options(timeout=3.0)).limits.max_attempts == 1
    driver(lambda _: copy.close() if driver.client_kind == "blocking" else copy.aclose())
    assert driver(lambda _: copy.wallet.balance()).available_balance == 5
    assert driver(lambda client: client.wallet.balance()).available_balance == 5
    assert (driver.client.is_closed, copy.is_closed) == (False, False)
    driver(lambda client: client.close() if driver.client_kind == "blocking" else client.aclose())
    assert (driver.client.is_closed, copy.is_closed) == (True, True)
    with pytest.raises(ConfigurationError, match="closed"):
        driver(lambda _: copy.wallet.balance())


@KINDS
def test_options_can_be_read(kind: Any) -> None:
    client = kind(KEY, base_url=BASE + "/", timeout=3, deadline=40.5, max_attempts=2)
    assert (client.base_url, client.timeout, client.deadline, client.max_attempts) == (BASE, 3, 40.5, 2)
    assert repr(client) == f"{kind.__name__}(base_url='{BASE}')"
    copy = client.with_options(timeout=4.0)
    assert (copy.base_url, copy.timeout, copy.deadline, copy.max_attempts) == (BASE, 4.0, 40.5, 2)
    assert client.max_wait is None
    waiting = client.with_options(max_wait=2.5)
    assert (waiting.max_wait, waiting.with_options(timeout=1).max_wait) == (2.5, 2.5)
    assert waiting.with_options(max_wait=None).max_wait is None
    for name in ("base_url", "timeout", "max_wait", "journal", "is_closed"):
        with pytest.raises(AttributeError):
            setattr(client, name, None)


def test_headers_and_program_are_sent(drive: Callable[..., Driver]) -> None:
    requests = list[httpx.Request]()

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return balance(request)

    service = httpx.MockTransport(answer)
    driver = drive(transport=service, app_info="shop/1.2", default_headers={"X-Gateway": "a b", "X-Shop": "1"})
    driver(lambda client: client.wallet.balance())
    changed = {"default_headers": {"x-shop": "2", "X-Day": ""}, "api_key": "pk_test_merchant"}
    driver(lambda client: client.with_options(**changed).wallet.balance())
    first, second = (request.headers for request in requests)
    sent = [b64decode(each["authorization"].removeprefix("Basic ")).decode() for each in (first, second)]
    assert sent == [f"{KEY}:", "pk_test_merchant:"]
    assert (first["cache-control"], first["accept-encoding"]) == ("no-cache, no-store", "identity")
    assert first["user-agent"] == f"momopay/{momopay.__version__} shop/1.2"
    assert (first["x-gateway"], first["x-shop"]) == ("a b", "1")
    assert (second["user-agent"], second["x-gateway"]) == (first["user-agent"], "a b")
    assert (second.get_list("x-shop"), second["x-day"]) == (["2"], "")


def test_a_copy_for_another_key_has_that_keys_own_budget_pause_and_waits() -> None:
    client = Client("pk_test_platform", base_url=BASE)
    merchant = client.with_options(api_key="pk_test_merchant")
    assert session_of(merchant).budget is session_of(AsyncClient("pk_test_merchant", base_url=BASE + "/")).budget
    assert session_of(merchant).budget is not session_of(client).budget
    assert session_of(merchant).stk_pause is not session_of(client).stk_pause
    assert session_of(merchant).backend is session_of(client).backend
    assert merchant._poll_loops is not client._poll_loops
    assert session_of(merchant.with_options(api_key="pk_test_platform")).budget is session_of(client).budget
    same = client.with_options(api_key="pk_test_platform", timeout=1)
    assert (session_of(same).budget, same._poll_loops) == (session_of(client).budget, client._poll_loops)


def test_whose_budget_a_copy_for_another_key_has(tmp_path: Path) -> None:
    own, given = RateBudget(requests=5), RateBudget(requests=6)
    with_own = Client("pk_test_platform", base_url=BASE, budget=own)
    assert session_of(with_own).budget is own
    assert session_of(with_own.with_options(timeout=1.0)).budget is own
    merchant = with_own.with_options(api_key="pk_test_merchant")
    assert session_of(merchant).budget is session_of(Client("pk_test_merchant", base_url=BASE)).budget
    assert session_of(with_own.with_options(api_key="pk_test_merchant", budget=given)).budget is given
    assert session_of(with_own.with_options(budget=None)).budget is None
    without = Client("pk_test_platform", base_url=BASE, budget=None)
    assert session_of(without.with_options(api_key="pk_test_merchant")).budget is None
    shared = with_own.with_options(budget=SHARED_BUDGET)
    assert session_of(shared).budget is session_of(Client("pk_test_platform", base_url=BASE)).budget
    files = FileRateBudget(tmp_path)  # it keeps keys apart by itself
    assert session_of(Client(KEY, base_url=BASE, budget=files).with_options(api_key="pk_test_merchant")).budget is files
    with pytest.raises(ConfigurationError, match="budget"):
        with_own.with_options(budget=cast("Any", 58))


@pytest.mark.parametrize("key", ["", "a b", "pk_live_real", None, 5])
def test_a_copy_for_a_key_that_is_none_or_unsafe_is_refused(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOMOPAY_API_KEY", KEY)
    with pytest.raises(ConfigurationError, match="key"):
        Client(KEY, base_url="http://127.0.0.1:1/v1").with_options(api_key=key)


@KINDS
def test_a_copy_of_a_subclass_keeps_its_attributes(kind: Any) -> None:
    class Shop(kind):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            super().__init__(KEY, base_url=BASE)  # pyright: ignore[reportUnknownMemberType]
            self.name = name
            self.sold = list[int]()

        @cached_property
        def label(self) -> str:
            return self.name.upper()

    shop = Shop("duka")
    assert shop.label == "DUKA"
    copy = shop.with_options(timeout=1.0)
    assert type(copy) is Shop
    assert (copy.name, copy.label, copy.timeout) == ("duka", "DUKA", 1.0)
    assert copy.sold is shop.sold
    copy.name = "soko"
    assert shop.name == "duka"
    assert copy.stk is not shop.stk


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
@KINDS
def test_a_client_says_why_it_is_not_copied(kind: Any, attempt: Any) -> None:
    with pytest.raises(TypeError, match=r"connections and the key; make one in each process, or call with_options"):
        attempt([kind(KEY, base_url=BASE)] if attempt is not copy.copy else kind(KEY, base_url=BASE))


def test_a_mock_of_a_client_has_the_operations() -> None:
    client = create_autospec(Client)(KEY)
    client.stk.initiate(amount=100, phone="0712345678")
    client.transactions.iter(status="SUCCESS")
    with pytest.raises(TypeError, match="amuont"):
        client.stk.initiate(amuont=100, amount=1, phone="0712345678")
    with pytest.raises(AttributeError):
        client.stk.begin(amount=100, phone="0712345678")


def test_the_class_has_every_group_of_operations_that_a_client_has() -> None:
    client = Client(KEY, base_url=BASE)
    groups = [name for name in dir(client) if isinstance(getattr(client, name), Resource)]
    assert len(groups) >= 5
    assert [name for name in groups if not isinstance(getattr(Client, name), Resource)] == []


def test_operations_of_the_class_say_that_they_need_a_client() -> None:
    with pytest.raises(AttributeError, match="make a client first"):
        Client.stk.initiate(amount=100, phone="0712345678")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def close(client: Any) -> None:
    """As an exception does that leaves the client's `with` block."""
    left = (ValueError, ValueError(), None)
    client.__exit__(*left) if isinstance(client, Client) else asyncio.run(client.__aexit__(*left))


def is_open(journal: Journal) -> bool:
    try:
        journal.unresolved()
    except MomoPayError:
        return False
    return True


@KINDS
def test_a_journal_given_by_its_url_is_opened_once_and_closed_with_its_client(kind: Any, tmp_path: Path) -> None:
    class Broken(RateBudget):
        def close(self) -> None:
            raise OSError("the budget cannot be closed")

    client = kind(KEY, base_url=BASE, journal=f"sqlite:///{tmp_path / 'payments.db'}", budget=Broken())
    copy = client.with_options(timeout=1.0)
    journal = copy.journal
    assert isinstance(journal, Journal)
    assert client.journal is journal
    assert client.with_options(api_key="pk_test_other").journal is journal
    close(copy)
    assert is_open(journal)
    with pytest.raises(OSError, match="cannot be closed"):
        close(client)
    assert (client.is_closed, is_open(journal)) == (True, False)


@KINDS
def test_a_journal_of_the_users_own_stays_open(kind: Any, tmp_path: Path) -> None:
    with Journal(f"sqlite:///{tmp_path / 'payments.db'}") as journal:
        client = kind(KEY, base_url=BASE, journal=journal)
        assert client.journal is journal
        close(client)
        assert is_open(journal)


@KINDS
def test_a_copy_closes_the_journal_that_it_opened_and_nothing_else(kind: Any, tmp_path: Path) -> None:
    client = kind(KEY, base_url=BASE, journal=f"sqlite:///{tmp_path / 'a.db'}")
    copy = client.with_options(journal=f"sqlite:///{tmp_path / 'b.db'}")
    own, other = client.journal, copy.journal
    assert own is not other
    assert client.with_options(journal=None).journal is None
    close(copy)
    assert (is_open(own), is_open(other), client.is_closed) == (True, False, False)
    close(client)


@pytest.mark.parametrize("journal", [5, Path("payments.db"), b"sqlite:///x.db"])
@KINDS
def test_what_is_no_journal_is_refused(kind: Any, journal: Any) -> None:
    for use in (partial(kind, KEY, base_url=BASE), kind(KEY, base_url=BASE).with_options):
        with pytest.raises(ConfigurationError, match=r"sqlite:///payments\.db"):
            use(journal=journal)
        with pytest.raises(ConfigurationError):
            _ = use(journal="").journal
