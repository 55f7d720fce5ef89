"""Which references are one, written differently, and which are counted up by a person."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_turn import some_by_default
from momopay.models.similarity import are_similar, spellings_of

SAME = [
    # What a person changes.
    *(("SAL-1", other) for other in ("sal-1", "SAL1", "S A L 1", "SAL\u20131", "SAL\u22121", " SAL-1 ", "SAL-1\u200b")),
    *(("SAL-1", other) for other in ("SAL_1", "SAL.1", "SAL/1", "SAL\\1", "SAL#1", "#SAL-1", "SAL\u00a01", "'SAL-1")),
    *(("SAL-1", other) for other in ("SAL-01", "SAL-0001", "sal 001", "\uff33\uff21\uff2c\uff0d\uff11", "SAL-1.0")),
    ("WAGE-2026-W47-7", "wage 2026 w47 07"),
    ("2026-11-001", "2026/11/1"),
    ("AB-12-34", "AB1234"),
    ("EMP/01/11-26", "EMP/01/1126"),
    ("1-2-3-4-5-6-7-8-9", "123456789"),
    # What a spreadsheet makes of a number.
    *(("001", other) for other in ("1", "'001", "1.0", "1.00", "#1", "01", "\u0661")),
    *(("1001", other) for other in ("1001.0", "1,001", "1.001", "1 001", "1'001", "1,001.00", "1001,0", "01001")),
    *(("100000", other) for other in ("1E5", "1e5", "1E+05", "1.0E+05", "100,000", "100000.0")),
    ("1E3", "1.000"),
    ("1234567", "1,234,567"),
    ("7.10", "7.1"),
    # What it makes of a month.
    *(
        ("2026-11", other)
        for other in ("Nov-26", "11/2026", "2026/11", "Nov 2026", "November 2026", "nov-26", "11-2026")
    ),
    *(("2026-11", other) for other in ("202611", "2026.11", "2026 Nov", "Novemba 2026")),
    ("2027-11", "11/2027"),
    ("2026-1", "Jan-26"),
    ("2026-01", "1/2026"),
    ("SAL-2026-11", "sal Nov 2026"),
    # One date in another form.
    *(
        ("2026-11-07", other)
        for other in ("07/11/2026", "7/11/2026", "11/7/2026", "7-Nov-26", "07-Nov-2026", "7.11.26")
    ),
    ("11-7", "7-Nov"),
    ("7/11", "07-Nov"),
]
DIFFERENT = [
    ("WAGE-2026-W47-7", "WAGE-2026-W48-7"),
    ("WAGE-2026-W4-77", "WAGE-2026-W47-7"),
    ("SAL-11", "SAL-12"),
    ("SAL-1", "SAL-10"),
    ("SAL-1", "SAL-11"),
    ("SAL-1", "SAL-2"),
    ("SAL-1", "SAL-l"),
    ("SAL-1", "PAY-1"),
    ("1", "10"),
    ("100", "1000"),
    ("1E5", "1E6"),
    ("2026-11", "2026-12"),
    ("2026-11", "2027-11"),
    ("Nov-26", "Dec-26"),
    ("Nov-26", "Nov-27"),
    ("2026-11", "2026-1"),
    ("2026-11-07", "2026-11-14"),
    ("2026-1-11", "2026-11-1"),
    ("E7-1-11", "E7-11-1"),
    ("07/11/2026", "11/07/2026"),
    ("7/11/2026", "14/11/2026"),
    ("7-Nov-26", "8-Nov-26"),
    ("NOV-26-1", "NOV-26-2"),
    ("JAN-01", "JAN-02"),
    ("W47", "W48"),
    ("A1", "B1"),
    ("1/2", "2/1"),
    ("SAL-2026-11-001", "SAL-2026-12-001"),
    ("SAL-11/2026-7", "SAL-12/2026-7"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_reference_written_differently(one: str, other: str) -> None:
    assert are_similar(one, other)
    assert are_similar(other, one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_references(one: str, other: str) -> None:
    assert not are_similar(one, other)
    assert not are_similar(other, one)


@pytest.mark.parametrize(
    "form",
    some_by_default(
        ["{}/W{}", "{}-{:02}", "{}-{:02}-07", "{}/{:02}/07", "WAGE-{}-W{}-7", "PAY {} {}", "SAL.{}.{}", "w{}w{}"], 4
    ),
)
def test_a_year_of_honest_references_has_no_two_alike(form: str) -> None:
    """Each week or month has its own, whatever way of writing a shop has settled on."""
    steps = range(1, 13) if ":02" in form else range(1, 54)
    references = [form.format(year, step) for year in (2026, 2027) for step in steps]
    alike = [
        (one, other) for place, one in enumerate(references) for other in references[:place] if are_similar(one, other)
    ]
    assert alike == []


@settings(max_examples=100)
@given(st.text(st.sampled_from("eEé\u0301 -\u2013\u200d\u034f\t"), max_size=6))
def test_what_is_refused_is_similar_to_what_it_looks_like(text: str) -> None:
    visible = "".join(each for each in text if each.isalpha() or each == "\u0301")
    assert are_similar(text, unicodedata.normalize("NFC", visible.casefold()))


@settings(max_examples=100)
@given(st.text(max_size=130), st.text(max_size=130))
def test_it_is_symmetric_and_every_text_is_itself(one: str, other: str) -> None:
    assert are_similar(one, one)
    assert are_similar(one, other) == are_similar(other, one)
    assert spellings_of(one).is_ <= spellings_of(one).like
