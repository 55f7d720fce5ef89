"""A phone number is normalised or refused, and no refusal shows it."""

import re
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import momopay
from in_turn import in_turn
from momopay.phones import is_same_phone_if_known, may_be_phone, normalise_phone, same_phone

SUBSCRIBERS = st.from_regex(r"[71][0-9]{8}", fullmatch=True)
FORMS = st.sampled_from(["0{}", "254{}", "+254{}"])
SEPARATORS = st.sampled_from(["", " ", "-", "  ", " - "])


@in_turn(
    ("text", "expected"),
    [
        *(("0712345678", "254712345678"), ("254812345678", "254812345678"), ("+254201234567", "254201234567")),
        *(("\u202a+254712345678\u202c", "254712345678"), ("\ufeff\u00a00712345678\u200b\n", "254712345678")),
        *(("0712 345 678", "254712345678"), ("(0712) 345 678", "254712345678"), ("+254 (712) 345-678", "254712345678")),
    ],
)
def test_the_forms_of_the_service_are_normalised(text: str, expected: str) -> None:
    assert momopay.normalise_phone(text) == expected


@in_turn(
    "text",
    [
        *("", " ", "+", "-", "()", "712345678", "112345678", "0812345678", "0212345678", "0012345678", "071234567"),
        *("07123456789", "25471234567", "2547123456789", "+25471234567", "+2547123456789", "+0712345678"),
        *("2540712345678", "+2540712345678", "00254712345678", "255712345678", "+1 202 555 0100", "++254712345678"),
        *("254+712345678", "254712345678+", "0712345678a", "O712345678", "0712.345.678", "0712/345678"),
        *("0712_345_678", "0712,345678", "[0712]345678", "0712\t345678", "0712\n345678", "\u202a"),
        *("0712345678\x00", "0712\u00a0345678", "0712\u2009345678", "0712\u2010345678"),
        *("0712\u2013345678", "0712\u200b345678", "٠٧١٢٣٤٥٦٧٨", "०७१२३४५६७८"),
        *("\uff10\uff17\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18", "071234567²", "\uff0b254712345678"),
        *("2547*****678", "tel:+254712345678", "0712345678, 0712345679", "\ud800"),
        *(None, 254712345678, 712345678, 7.0, True, b"0712345678", ["0712345678"]),
    ],
)
def test_anything_else_is_refused_without_being_shown(text: Any) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the message is free, the absence of the phone is the point
        normalise_phone(text)
    assert "712345678" not in f"{caught.value} {caught.value!r}"
    raised = list(traceback.walk_tb(caught.tb))[-1][0]
    assert "normalise_phone" in raised.f_code.co_name  # a mutation tool adds to the name
    assert "text" not in raised.f_locals


class PhoneNumber:
    def __str__(self) -> str:
        return "+254712345678"


@in_turn(
    ("value", "problem"),
    [
        *(("0712\u00a0345678", "without U+00A0 NO-BREAK SPACE"), ("0712\u2013345678\u202c", "without U+2013 EN DASH")),
        *(("O712345678", "without U+004F LATIN CAPITAL LETTER O"), ("0712345678\x00", "without U+0000:")),
        *(
            (each, f"text, not {type(each).__name__}: pass it in E.164 form")
            for each in (712345678, 7.0, PhoneNumber())
        ),
        ("\u202a", "number: 07XXXXXXXX"),
        ("0812345678", "number: 07XXXXXXXX, 01XXXXXXXX, +254XXXXXXXXX or 254XXXXXXXXX"),
    ],
)
def test_a_refusal_names_the_character_or_the_type_at_fault(value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        normalise_phone(value)
    assert str(momopay.RequestValidationError({"phone": str(caught.value)})) == f"phone: {caught.value}"


@given(SUBSCRIBERS, FORMS, st.data())
def test_separators_between_digits_change_nothing(subscriber: str, form: str, data: st.DataObject) -> None:
    plus, digits = form.format(subscriber).startswith("+"), form.format(subscriber).removeprefix("+")
    pieces = [digits[0]]
    for digit in digits[1:]:
        pieces += [data.draw(SEPARATORS), digit]
    assert normalise_phone("+" * plus + "".join(pieces)) == f"254{subscriber}" == normalise_phone(f"254{subscriber}")


@given(st.text(alphabet=st.characters() | st.sampled_from("0123456789+-() ")))
def test_any_text_is_normalised_or_refused(text: str) -> None:
    try:
        phone = normalise_phone(text)
    except ValueError:
        return
    assert phone.isascii()
    assert len(phone) == 12
    assert phone.startswith("254")
    digits = "".join(re.findall("[0-9]", text))
    assert digits == phone or (digits == f"0{phone[3:]}" and phone[3] in "71")


@in_turn(
    ("one", "other", "same"),
    [
        *(("254712345678", "254712345678", True), ("254712345678", "0712345678", True)),
        *(("+254712345678", "0712 345 678", True), ("2547*****678", "254712345678", True)),
        *(("254712345678", "2547*****678", True), ("254712345678", "254712345679", False)),
        *(("2547*****679", "254712345678", False), ("2541*****678", "254712345678", False)),
        *(("2547****678", "254712345678", False), ("", "254712345678", False)),
    ],
)
def test_which_texts_may_be_the_same_phone(one: str, other: str, same: bool) -> None:
    assert same_phone(one, other) is same
    assert same_phone(other, one) is same


@in_turn(
    ("shown", "agrees"),
    [
        *(
            (text, True)
            for text in (None, "", "N/A", "-", "unknown", "9" * 30, "254712345678", "+254712345678", "0712345678")
        ),
        *((text, True) for text in ("712345678", "00254712345678", "+254 712-345-678", "(0712) 345 678")),
        *((text, True) for text in ("2547*****678", "0712***678", "07*****678", "+2547*****678", "****5678", "254*")),
        *((text, False) for text in ("254712345679", "0712345679", "2547*****679", "0713***678", "****5679", "2541*")),
    ],
)
def test_what_the_service_shows_contradicts_a_phone_or_not(shown: str | None, agrees: bool) -> None:
    assert is_same_phone_if_known("254712345678", shown) is agrees
    assert shown is None or may_be_phone(shown) or agrees
