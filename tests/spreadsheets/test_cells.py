"""Amounts, phones and references as cells have them: taken exactly, or refused with what to write."""

from decimal import Decimal

import pytest

from momopay.spreadsheets.cells import Cell, amount_in, phone_problem, reference_problem, text_problem

HIDDEN = ["\u200b", "\u200d", "\ufeff", "\u2060", "\u00ad", "\u202e", "\u3164", "\u2800"]
ERRORS = [
    *("#REF!", "#N/A", "#VALUE!", "#NAME?", "#DIV/0!", "#NUM!", "#NULL!", "#SPILL!", "#CALC!", "#GETTING_DATA"),
    *(
        "#####",
        "#ref!",
        "#BEZUG!",
        "#NV",
        "#WERT!",
        "#ZAHL!",
        "#VALEUR!",
        "#NOM?",
        "#¡REF!",
        "#¿NOMBRE?",
        "#¡VALOR!",
        "#VERW!",
    ),
    *("#WAARDE!", "#N/B", "#RIF!", "#N/D", "#ÜBERLAUF!", "#ERROR!", "Err:502", "#I/T", "#PUUTTUU!", "##"),
]


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *(("1250", "1250"), ("1250.50", "1250.50"), ("1250.5", "1250.5"), ("1,250", "1250"), ("1,250.50", "1250.50")),
        *(("45", "45"), ("1,234,567", "1234567"), ("0100", "100"), ("0", "0"), ("999,999.9", "999999.9")),
    ],
)
def test_an_amount_is_its_digits(text: str, amount: str) -> None:
    assert amount_in(text) == Decimal(amount)


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("", "is missing", "write the amount"),
        ("12.500", "thousands or decimals", "write 12500, or 12.50 with cents"),
        ("12.505", "thousands or decimals", "write 12505, or 12.50 with cents"),
        ("1.250.000", "thousands or decimals", "write 1250000"),
        ("1250,00", "comma before its cents", "write 1250"),
        ("1250,5", "comma before its cents", "write 1250.50"),
        ("1.250,75", "comma before its cents", "write 1250.75"),
        ("1_250", "in threes", "write 1250 if"),
        ("1 250", "in threes", "write 1250 if"),
        ("1\u00a0250", "in threes", "write 1250 if"),
        ("1'250", "in threes", "write 1250 if"),
        ("1,25,000", "in threes", "write 125000 if"),
        ("0,250", "in threes", "write 0250 if"),
        ("1,2345", "in threes", "write 12345 if"),
        ("1250,000", "in threes", "write 1250000 if"),
        ("\u0661\u0662\u0665\u0660", "not 0 to 9", "0 to 9"),
        ("\uff11\uff12\uff15\uff10", "not 0 to 9", "0 to 9"),
        ("KES 45", "currency", "number alone"),
        ("45 KES", "currency", "number alone"),
        ("Ksh45", "currency", "number alone"),
        ("45/=", "currency", "number alone"),
        ("$45", "currency", "number alone"),
        ("2.5E+05", "shortened", "all digits"),
        ("1e3", "shortened", "all digits"),
        ("1,2E+04", "shortened", "all digits"),
        ("01-Feb", "date", "number"),
        ("2026-11-01", "date", "number"),
        ("1/2/2026", "date", "number"),
        ("Jan-26", "date", "number"),
        ("=45+5", "formula", "value"),
        ("12\u200b50", "U+200B ZERO WIDTH SPACE", "again"),
        ("1250\ufeff", "U+FEFF", "again"),
        *((text, "is no amount", "2500.50") for text in ("-45", "+45", "(45)", "45-", "1250.", ".50", "12.5.0", "45%")),
        *(
            (text, "is no amount", "2500.50")
            for text in ("nan", "inf", "TRUE", "forty", "1250.505", "1250.5000", "'45")
        ),
        *((text, "error of the spreadsheet", "formula") for text in ERRORS),
    ],
)
def test_what_is_no_amount_says_what_to_write(text: str, problem: str, remedy: str) -> None:
    found = amount_in(text)
    assert isinstance(found, tuple), found
    assert (problem in found[0], remedy in found[1]) == (True, True), found


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("2.54712E+11", "shortened", "as text"),
        ("2,54712E+11", "shortened", "as text"),
        ("7.12E+08", "shortened", "as text"),
        ("2.547123e11", "shortened", "as text"),
        ("254712345678.0", "decimals", "write 254712345678"),
        ("254712345678.00", "decimals", "write 254712345678"),
        ("254712345678,0", "decimals", "write 254712345678"),
        ("712345678.0", "decimals", "write 712345678"),
        ("712345678", "without its leading 0", "as text"),
        ("112345678", "without its leading 0", "as text"),
        ("712 345 678", "without its leading 0", "as text"),
        ("01-Feb-26", "date", "as text"),
        ("0712\u200b345678", "U+200B", "again"),
        *((text, "error of the spreadsheet", "formula") for text in ERRORS),
    ],
)
def test_what_a_spreadsheet_did_to_a_phone(text: str, problem: str, remedy: str) -> None:
    found = phone_problem(text)
    assert found is not None
    assert (problem in found[0], remedy in found[1]) == (True, True), found


@pytest.mark.parametrize("text", ["0712345678", "+254712345678", "(0712) 345-678", "\u202a0712345678\u202c", "12", ""])
def test_what_it_did_not_do(text: str) -> None:
    assert phone_problem(text) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *(("2.54712E+11", "shortened"), ("1.23457E+14", "shortened"), ("2026-11-01 00:00:00", "date")),
        *(("nan", "no value"), ("NULL", "no value"), ("None", "no value"), ("=A1", "formula"), ("A\nB", "line break")),
        *((f"A{each}1", "cannot be seen") for each in HIDDEN),
        *((text, "error of the spreadsheet") for text in ERRORS),
    ],
)
def test_what_a_spreadsheet_did_to_a_reference(text: str, problem: str) -> None:
    found = reference_problem(text)
    assert found is not None
    assert problem in found[0]


@pytest.mark.parametrize("text", ["1E5", "1E+05", "Nov-26", "2026-11", "#12", "A#", "A B", "001", "'001", "1001.0"])
def test_references_that_people_may_have_chosen(text: str) -> None:
    """They are compared with those of the journal instead."""
    assert reference_problem(text) is None


def test_an_error_is_no_description() -> None:
    assert text_problem("#REF!") is not None
    assert text_problem("Pay of \U0001f468\u200d\U0001f469\u200d\U0001f467, November #3!") is None


def test_a_cell_is_empty_if_nothing_is_in_it() -> None:
    problem = ("is a formula without a stored value", "")
    cells = [Cell(), Cell("a"), Cell("", problem), Cell("", problem, is_merged=True)]
    assert [each.is_empty for each in cells] == [True, False, False, True]
