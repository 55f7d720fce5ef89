"""References: which texts are refused, and why; and which ones differ only in how they are written."""

import re
import unicodedata
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_turn import in_turn
from models.kit import PHONE
from momopay import RequestValidationError
from momopay.models.arguments import check_reference
from momopay.models.requests import PayoutRequest, Request, Search, StkRequest, TopUpRequest

NEW: list[tuple[type[Request], str, dict[str, Any]]] = [
    (PayoutRequest, "reference", {"amount": 10, "phone": PHONE}),
    (StkRequest, "account_reference", {"amount": 1, "phone": PHONE}),
    (TopUpRequest, "account_reference", {"amount": 1, "phone": PHONE, "idempotency_key": "k"}),
]
JOSE = unicodedata.normalize("NFD", "José")
LOOK_ALIKES = [
    ("SAL-1 ", "must not begin or end with U+0020 SPACE: remove it"),
    (" SAL-1", "must not begin or end with U+0020 SPACE: remove it"),
    ("SAL-1\u00a0", "must not begin or end with U+00A0 NO-BREAK SPACE: remove it"),
    ("SAL\u00a01", "must not contain U+00A0 NO-BREAK SPACE: use an ordinary space"),
    ("SAL\u30001", "must not contain U+3000 IDEOGRAPHIC SPACE: use an ordinary space"),
    ("SAL-1\u200b", "must not contain U+200B ZERO WIDTH SPACE: remove it"),
    ("\ufeffSAL-1", "must not contain U+FEFF ZERO WIDTH NO-BREAK SPACE: remove it"),
    ("SAL\u00ad-1", "must not contain U+00AD SOFT HYPHEN: remove it"),
    ("SAL-1\u202e", "must not contain U+202E RIGHT-TO-LEFT OVERRIDE: remove it"),
    ("SAL\t1", "must not contain U+0009: remove it"),
    ("SAL-1\n", "must not begin or end with U+000A: remove it"),
    ("SAL-1\0", "must not contain U+0000: remove it"),
    ("SAL\u20281", "must not contain U+2028 LINE SEPARATOR: remove it"),
    ("SAL\u0378", "must not contain U+0378: remove it"),
    ("SAL-1\ufe0f", "must not contain U+FE0F VARIATION SELECTOR-16: remove it"),
    ("SAL\u31641", "must not contain U+3164 HANGUL FILLER: remove it"),
    (JOSE, "must be in the Unicode form NFC: use unicodedata.normalize('NFC', reference)"),
]


@in_turn(("kind", "field", "others"), NEW)
@in_turn(("text", "problem"), LOOK_ALIKES)
def test_a_reference_that_looks_like_another_is_refused(
    kind: type[Request], field: str, others: dict[str, Any], text: str, problem: str
) -> None:
    arguments: dict[str, Any] = others | {field: text}
    with pytest.raises(RequestValidationError) as caught:
        kind.checked(**arguments)
    assert caught.value.fields == {field: problem}


@in_turn("text", ["SAL-1", "INV 42", "José", "a/b#c?d", "給与", "١٢", "№ ①", "\U0001f600"])
def test_any_other_text_is_sent_as_it_is(text: str) -> None:
    assert check_reference(text) == text


def test_a_search_takes_the_references_that_an_older_version_sent() -> None:
    for text, _ in LOOK_ALIKES:
        assert Search.checked(reference=text, since=datetime(2026, 1, 1, tzinfo=UTC)).reference == text


# Texts of which many look alike.
SIMILAR = st.text(
    st.sampled_from("aeé\u0301 -\u2010\u2013\t\n\u00a0\u200b\u200d\u2028\u0378\ufe0f\ufeff\u034f1")
    | st.characters(exclude_categories=["Cs"]),
    max_size=6,
)


@given(SIMILAR)
def test_what_is_accepted_has_one_spelling(text: str) -> None:
    try:
        check_reference(text)
    except ValueError as error:
        # The code point of a character, and nothing else of the value.
        assert re.search(r"U\+[0-9A-F]{4,6}|NFC", str(error))  # noqa: PT017  either end is right
        assert str(error).isascii()  # noqa: PT017
    else:
        assert text == unicodedata.normalize("NFC", text).strip()
        refused = {"Cc", "Cf", "Cn", "Zl", "Zp"}
        assert not refused & set(map(unicodedata.category, text))
        assert all(each == " " for each in text if unicodedata.category(each) == "Zs")


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1).map(str.strip))
def test_printable_ascii_is_accepted(text: str) -> None:
    assert check_reference(text) == text
