"""The options of a client: where they come from, and what is refused."""

from typing import Any

import pytest

from drivers import LOOPBACK
from in_turn import in_turn
from momopay import ConfigurationError
from momopay._core.config import Account, Limits, checked_headers, merged_headers

KEY = "pk_test_0123456789"
BASE = "https://api.example/v1"


def test_key_and_address_come_from_the_environment_and_the_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOMOPAY_API_KEY", KEY)
    monkeypatch.setenv("MOMOPAY_BASE_URL", BASE + "/")
    account = Account(None, None)
    assert (account.api_key, account.base_url) == (KEY, BASE)
    assert KEY not in repr(account)
    assert Account("pk_test_other", None).api_key == "pk_test_other"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, given in (("MOMOPAY_API_KEY", (None, BASE)), ("MOMOPAY_BASE_URL", (KEY, None))):
        monkeypatch.delenv(name, raising=False)
        with pytest.raises(ConfigurationError, match=name):
            Account(*given)


@in_turn(
    "key",
    [
        *("", "pk test", "pk_test_\u00e9", "pk_test_x\r\nX: y", "pk_test_x:y", "pk_test_x\x7f"),
        *("pk_live_", "pk_test_", "ab_test_", "pk_test_-", "pk_test_x.", "pk_test_x!"),
        *(f"pk_test_x{each}y" for each in "\"'`{}[]()<>&@|\\;,? "),
    ],
)
def test_what_is_no_key_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOMOPAY_API_KEY", KEY)  # which an empty one must not stand for
    with pytest.raises(ConfigurationError) as caught:
        Account(key, BASE)
    assert not key or key not in str(caught.value)


@in_turn(
    ("key", "base_url", "mode", "host"),
    [
        ("pk_live_a", "https://Api.Example:8443/v1", "live", "api.example"),
        ("ab_live_test_a", "https://api.example./v1", "live", "api.example"),
        ("pk_test_a", "https://api.example/v1", "test", "api.example"),
        ("pk_test_a", "http://127.0.0.1:8000/v1", "test", "loopback"),
        ("pk_test_a", "http://localhost:1/v1", "test", "loopback"),
        ("pk_test_a", "http://[::1]:1/v1", "test", "loopback"),
    ],
)
def test_how_a_journal_identifies_an_account(
    key: str, base_url: str, mode: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOMOPAY_TEST_RUN", raising=False)
    identity = Account(key, base_url).identity
    assert (identity.mode, identity.host) == (mode, host)
    assert key not in repr(identity)
    assert identity.key != Account(key + "b", base_url).identity.key


@pytest.mark.usefixtures("live_keys")
@in_turn("key", ["pk_test_a", "ab_test_a", "ab_test_live_a", "Token_test_a"])
def test_any_letters_may_begin_a_key_and_the_next_word_decides_its_mode(key: str) -> None:
    assert Account(key, LOOPBACK).api_key == key
    live = key.replace("_test_", "_live_", 1)
    with pytest.raises(ConfigurationError, match="live key must not be sent to loopback") as caught:
        Account(live, LOOPBACK)
    assert live not in str(caught.value)


@in_turn(
    "key",
    [
        *("sk_live_abc", "sk_test_abc", "SK_test_abc", "pk_abc", "PK_LIVE_abc", "x", "Bearer pk_live_abc"),
        "p_test_abc",
        *("p1_test_abc", "_test_abc", "my_pk_test_abc", "pktest_abc", "pk_testabc", "\u043f\u043a_test_abc"),
    ],
)
def test_another_kind_of_key_hears_of_ours(key: str) -> None:
    with pytest.raises(ConfigurationError, match="start with pk_live_ or pk_test_, or with other letters") as caught:
        Account(key, BASE)
    assert "abc" not in str(caught.value)


def test_headers_are_added_and_replace_those_of_the_same_name() -> None:
    assert checked_headers(None, None, "1") == {"User-Agent": "momopay/1"}
    assert checked_headers({"X-Shop": "1"}, None, "1")["X-Shop"] == "1"
    program = {"User-Agent": "momopay/1 shop/1.2"}
    assert checked_headers({"X-Shop": "1"}, "shop/1.2", "1") == {"X-Shop": "1", **program}
    assert merged_headers({"x-shop": "1", "X-Day": "2"}, {"X-Shop": "3"}) == {"X-Day": "2", "X-Shop": "3"}


@in_turn(
    "headers",
    [
        *({"Authorization": "x"}, {"content-length": "x"}, {"HOST": "x"}, {"Connection": "x"}, {"Content-Type": "x"}),
        *({"Expect": "x"}, {"Idempotency-Key": "x"}, {"Proxy-Authorization": "x"}, {"TE": "x"}, {"Trailer": "x"}),
        *({"Transfer-Encoding": "x"}, {"Upgrade": "x"}, {"X-A": "x\r\nAuthorization: Basic eA=="}, {"X-A": "x\n"}),
        *({"X-A": " x"}, {"X-A": "k\u00e4se"}, {"X-A": 1}, {"X-A": None}, {"X A": "x"}, {"X-A:": "x"}, {"": "x"}),
        *({1: "x"}, {"X-A": "1", "x-a": "2"}, [("X-A", "x")], "X-A: x"),
    ],
)
def test_headers_that_would_change_a_request_are_refused(headers: Any) -> None:
    with pytest.raises(ConfigurationError, match="default_headers"):
        checked_headers(headers, None, "1")


@in_turn("text", ["", " shop", "shop\r\nX: 1", "sh\u00f6p", 1, b"shop/1.2"])
def test_a_program_that_is_no_header_text_is_refused(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="app_info"):
        checked_headers(None, text, "1")


def test_a_live_key_is_refused_while_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOMOPAY_TEST_RUN", raising=False)
    assert Account("pk_live_abc", BASE).api_key == "pk_live_abc"
    monkeypatch.setenv("MOMOPAY_TEST_RUN", "1")
    for key in ("pk_live_abc", "ab_live_test_abc"):
        with pytest.raises(ConfigurationError, match="test run"):
            Account(key, BASE)


@in_turn(
    "options",
    [
        *({"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"timeout": float("inf")}),
        *({"timeout": 1_000_001}, {"timeout": 10**400}, {"deadline": 1e300}, {"timeout": None}, {"timeout": True}),
        *({"deadline": 0.0}, {"deadline": "90"}, {"max_attempts": 0}, {"max_attempts": 1.5}, {"max_attempts": True}),
        *({"max_wait": -0.1}, {"max_wait": float("nan")}, {"max_wait": 1_000_001}, {"max_wait": True}),
    ],
)
def test_limits_out_of_range_are_refused(options: dict[str, Any]) -> None:
    defaults: dict[str, Any] = {"timeout": 1_000_000, "deadline": 0.001, "max_attempts": 1, "max_wait": 0}
    Limits(**defaults)  # each is at an end of its range
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Limits(**(defaults | options))
