"""What counts as a number in options and details."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from in_turn import in_turn
from momopay._numbers import is_number, is_whole


@in_turn(
    ("value", "number", "whole"),
    [
        *((value, True, True) for value in (0, -1, 10**400)),
        *((value, True, False) for value in (0.5, -1.0, math.inf, math.nan)),
        *((value, False, False) for value in (True, False, "1", b"1", None, Decimal(1), Fraction(1, 2), 1j, [1])),
    ],
)
def test_what_is_a_number_and_what_a_whole_one(value: Any, number: bool, whole: bool) -> None:
    assert (is_number(value), is_whole(value)) == (number, whole)
