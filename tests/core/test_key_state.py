"""What the clients of one key share: a budget, and the pause of prompts."""

from __future__ import annotations

import os
import threading

import pytest

import momopay
from forked import succeeds_in_child
from momopay import RateBudget
from momopay._core.config import Account
from momopay._core.key_state import StkPause, hash_of, key_state_for


def banned(retry_after: float | None = None) -> momopay.StkTempBannedError:
    return momopay.StkTempBannedError("no", retry_after=retry_after, code="STK_TEMP_BANNED", status_code=429)


def blocked(retry_after: float | None = None) -> momopay.TransactionHealthBlockedError:
    return momopay.TransactionHealthBlockedError("no", retry_after=retry_after, code="X", status_code=429)


@pytest.mark.parametrize("url", ["https://API.example/v1", "https://api.example:443/v1", "https://api.example/v1/"])
def test_a_key_has_one_state_however_its_address_is_spelt(url: str) -> None:
    account = Account("pk_test_spelt", "https://api.example/v1")
    assert key_state_for(Account("pk_test_spelt", url)) is key_state_for(account)
    assert key_state_for(Account("pk_test_other", url)) is not key_state_for(account)
    assert "pk_test_spelt" not in hash_of(account)


@pytest.mark.parametrize(
    ("refusal", "seconds"), [(banned(), 3600), (blocked(), 1800), (banned(60.0), 60), (blocked(7200.0), 7200)]
)
def test_a_pause_lasts_as_stated_or_as_documented(refusal: momopay.ThrottledError, seconds: float) -> None:
    pause = StkPause()
    pause.begin(100.0, refusal)
    held = pause.refusal(100.0 + seconds - 1)
    assert (type(held), held and held.retry_after) == (type(refusal), 1.0)
    assert pause.refusal(100.0 + seconds) is None


def test_the_longer_of_two_pauses_holds() -> None:
    pause = StkPause()
    pause.begin(0.0, banned(3600.0))
    pause.begin(1.0, blocked(1.0))
    assert isinstance(pause.refusal(3599.0), momopay.StkTempBannedError)
    pause.begin(3599.0, blocked(10.0))
    assert isinstance(pause.refusal(3608.0), momopay.TransactionHealthBlockedError)


def test_without_a_refusal_nothing_is_held_back() -> None:
    assert StkPause().refusal(0.0) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_makes_a_state_leaves_no_lock_held(monkeypatch: pytest.MonkeyPatch) -> None:
    made, may_end = threading.Event(), threading.Event()

    def slow_budget() -> RateBudget:
        made.set()
        may_end.wait(30)
        return RateBudget()

    monkeypatch.setattr("momopay._core.key_state.RateBudget", slow_budget)
    thread = threading.Thread(target=key_state_for, args=[Account("pk_test_slow", "https://api.example/v1")])
    thread.start()
    assert made.wait(30)

    def in_child() -> None:
        may_end.set()
        assert key_state_for(Account("pk_test_forked", "https://api.example/v1")) is not None

    try:
        assert succeeds_in_child(in_child)
    finally:
        may_end.set()
        thread.join()
