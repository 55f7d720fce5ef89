from __future__ import annotations

import pytest

from momopay.integrations import _stk_window
from momopay.integrations._stk_window import StkWindow


def test_the_rate_is_of_the_latest_hundred() -> None:
    window = StkWindow()
    assert (window.rate, window.completed) == (None, 0)
    for number in range(50):
        window.add(f"failed-{number}", paid=False)
    assert (window.rate, window.completed) == (0.0, 50)
    for number in range(80):
        window.add(f"paid-{number}", paid=True)
    assert (window.rate, window.completed) == (0.8, 100)


def test_a_prompt_counts_once_however_often_and_late_it_is_reported() -> None:
    window = StkWindow()
    window.add("early", paid=True)
    for number in range(150):
        window.add(f"t-{number}", paid=False)
    for _ in range(3):
        window.add("early", paid=True)
        window.add("t-149", paid=False)
    assert (window.rate, window.completed) == (0.0, 100)


def test_a_late_pin_makes_a_failure_a_success_and_nothing_makes_a_success_a_failure() -> None:
    window = StkWindow()
    window.add("a", paid=False)
    window.add("b", paid=True)
    window.add("a", paid=True)
    window.add("b", paid=False)
    assert (window.rate, window.completed) == (1.0, 2)


def test_after_a_block_it_counts_from_zero_as_the_service_does() -> None:
    window = StkWindow()
    for number in range(100):
        window.add(f"t-{number}", paid=False)
    window.accept()
    assert window.completed == 100
    window.block()
    window.add("ended during the block", paid=False)
    assert (window.rate, window.completed) == (0.0, 100)
    window.accept()
    assert (window.rate, window.completed) == (None, 0)
    window.add("t-5", paid=False)  # it was counted before the block
    window.add("new", paid=True)
    window.accept()
    assert (window.rate, window.completed) == (1.0, 1)


def test_it_remembers_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stk_window, "MEMORY", 200)
    window = StkWindow()
    for number in range(1000):
        window.add(f"t-{number}", paid=True)
    assert len(window._paid) == 200
