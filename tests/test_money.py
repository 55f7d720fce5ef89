"""An amount is exact to the cent in both directions, or refused."""

import json
import re
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_turn import in_turn
from momopay.money import format_amount, is_number, is_whole, json_number, parse_amount


class Price(IntEnum):
    TEA = 50


AMOUNTS = st.decimals(min_value=1, max_value=10**11, places=2) | st.integers(1, 10**11)


@in_turn(
    ("value", "text"),
    [
        *((1, "1"), (100, "100"), (150_000, "150000"), (Decimal(1), "1"), (Decimal("1.00"), "1")),
        *((Decimal("100.000"), "100"), (Decimal("1.500"), "1.50"), (Decimal("99.9"), "99.90")),
        *((Decimal("1.5E+3"), "1500"), (Price.TEA, "50")),
    ],
)
def test_an_amount_is_written_exactly(value: Any, text: str) -> None:
    assert format_amount(parse_amount(value, 1)) == text


@in_turn(
    "value",
    [
        *(True, False, 1.0, 99.99, float("nan"), float("inf"), Decimal("NaN"), Decimal("-NaN"), Decimal("sNaN")),
        *(Decimal("NaN123"), Decimal("Infinity"), Decimal("-Infinity"), Decimal("1.001")),
        *(Decimal("1.0000000000000000000000000000000001"), Decimal("1E-3"), Decimal("1.001E+0"), "1", "", b"1", None),
        *([], [1], {}, Fraction(3, 2), 1 + 0j, type),
        *(Decimal("1E+1000000"), Decimal("1E+999999999"), 10**4000, Decimal("1E-999999999")),  # at once
    ],
)
def test_what_is_no_amount_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_amount(value, 1)


class int64:  # noqa: N801  as numpy calls it
    def __index__(self) -> int:
        return 100


@in_turn(
    ("value", "problem"),
    [
        (int64(), "not int64: int(amount) converts"),
        (99.99, "not float: Decimal(str(amount)) converts"),
        ("1", "not str:"),
    ],
)
def test_a_refusal_names_the_type_and_what_converts_it(value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_amount(value, 1)


@in_turn(
    ("value", "minimum"),
    [(0, 1), (-1, 1), (Decimal("0.99"), 1), (Decimal(0), 1), (Decimal("-0.00"), 1), (9, 10), (Decimal("9.99"), 10)],
)
def test_an_amount_below_the_minimum_is_refused(value: Any, minimum: int) -> None:
    with pytest.raises(ValueError, match=str(minimum)):
        parse_amount(value, minimum)
    for least in (minimum, Decimal(minimum), 0):
        assert parse_amount(least, int(least)) == least


@given(AMOUNTS)
def test_any_amount_survives_a_json_parser(value: Any) -> None:
    amount = parse_amount(value, 1)
    text = format_amount(amount)
    assert (type(amount), amount) == (Decimal, value)
    assert re.fullmatch(r"[1-9]\d*(\.\d{1,2})?", text)
    assert isinstance(json_number(amount), float) is ("." in text)
    for written in (text, json.dumps(json_number(amount))):
        assert json.loads(written, parse_float=Decimal, parse_int=Decimal) == Decimal(str(json.loads(written))) == value


@given(st.decimals() | st.floats() | st.integers() | st.booleans() | st.text() | st.none() | st.binary())
def test_any_value_is_an_amount_or_refused(value: Any) -> None:
    try:
        amount = parse_amount(value, 1)
    except ValueError:
        return
    assert isinstance(value, int | Decimal)
    assert not isinstance(value, bool)
    assert amount >= 1
    assert amount == value
    assert amount == amount.quantize(Decimal("0.01"))


def test_which_values_are_numbers() -> None:
    values = (7, Price.TEA, 7.5, float("nan"), True, Decimal(7), "7", None)
    assert [is_whole(value) for value in values] == [True] * 2 + [False] * 6
    assert [is_number(value) for value in values] == [True] * 4 + [False] * 4


def test_the_largest_amount_is_the_last_that_a_float_holds_to_the_cent() -> None:
    largest = Decimal("9999999999999.99")
    assert json.loads(format_amount(parse_amount(largest, 1))) == float(largest)
    with pytest.raises(ValueError, match="must be below"):
        parse_amount(largest + Decimal("0.01"), 1)
    assert format_amount(Decimal("12345678901234.5")) == "12345678901234.5"  # kept as it was stated
