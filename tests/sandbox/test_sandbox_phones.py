import pytest
from hypothesis import given
from hypothesis import strategies as st

from momopay.sandbox._values import normalise_phone
from momopay.sandbox._refusals import Refusal


@pytest.mark.parametrize("phone", ["0712345678", "+254712345678", "254712345678"])
def test_the_forms_of_the_service_become_one(phone: str) -> None:
    assert normalise_phone(phone) == "254712345678"


def test_01_numbers_are_numbers_too() -> None:
    assert normalise_phone("0112345678") == "254112345678"


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
def test_anything_else_is_refused(phone: str) -> None:
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
