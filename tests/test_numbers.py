"""What counts as a number in options and details."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from momopay._numbers import is_number, is_whole


@pytest.mark.parametrize("value", [0, -1, 10**400])
def test_whole_numbers_are_both(value: int) -> None:
    assert is_whole(value)
    assert is_number(value)


@pytest.mark.parametrize("value", [0.5, -1.0, math.inf, math.nan])
def test_floats_are_numbers_and_not_whole(value: float) -> None:
    assert is_number(value)
    assert not is_whole(value)


@pytest.mark.parametrize("value", [True, False, "1", b"1", None, Decimal(1), Fraction(1, 2), 1j, [1]])
def test_nothing_else_is_a_number(value: Any) -> None:
    assert not is_number(value)
    assert not is_whole(value)
