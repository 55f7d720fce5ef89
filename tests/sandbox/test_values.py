"""Money and phone numbers."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from momopay.sandbox import Refusal
from momopay.sandbox._values import json_number, normalise_phone


@pytest.mark.parametrize(
    ("amount", "text"),
    [("1", "1"), ("100.00", "100"), ("0.10", "0.1"), ("250.5", "250.5"), ("999999999.99", "999999999.99")],
)
def test_money_is_a_json_number_exact_to_the_cent(amount: str, text: str) -> None:
    assert repr(json_number(Decimal(amount))) == text


@pytest.mark.parametrize(
    ("phone", "normal"),
    [
        ("0712345678", "254712345678"),
        ("0112345678", "254112345678"),
        ("+254712345678", "254712345678"),
        ("254712345678", "254712345678"),
    ],
)
def test_the_four_forms_become_one(phone: str, normal: str) -> None:
    assert normalise_phone(phone) == normal


@pytest.mark.parametrize(
    "phone",
    [
        "",
        "712345678",
        "0812345678",
        "07123456789",
        "071234567",
        "0712 345 678",
        "0712-345-678",
        "(0712)345678",
        "+2540712345678",
        "00254712345678",
        "+255712345678",
        "0712345678\n",
        "071234567\u0668",
        "\u0660712345678",
    ],
)
def test_any_other_text_is_refused(phone: str) -> None:
    with pytest.raises(Refusal, match="INVALID_PHONE"):
        normalise_phone(phone)


@given(st.text(max_size=16))
def test_no_text_becomes_anything_but_a_whole_number(phone: str) -> None:
    try:
        normal = normalise_phone(phone)
    except Refusal:
        return
    assert len(normal) == 12
    assert normal.isascii()
    assert normal.isdigit()
    assert normal.startswith("254")
