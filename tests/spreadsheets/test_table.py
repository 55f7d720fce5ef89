"""The shape of a file: its header, and rows that have as many cells; nothing else is a row."""

import re
from pathlib import Path
from unicodedata import normalize

import pytest

from momopay import PayoutItem, RequestValidationError
from momopay.spreadsheets.rows import read_payouts
from spreadsheets.kit import PAYROLL, faults, of_orders, of_payroll, payouts, places, write

ROW = "A,0712345678,1250,Nov\n"


@pytest.mark.parametrize(
    "header",
    [
        *(
            "Reference,PHONE,Amount,Description",
            " reference , phone,amount ,description ",
            '"reference",phone,amount,description',
        ),
        *(
            "\u00a0reference,phone,amount,description",
            "REFERENCE,phone,amount,description,,",
            "reference,phone,amount,description, ",
        ),
    ],
)
def test_names_may_be_in_any_case_with_spaces(tmp_path: Path, header: str) -> None:
    commas = "," * (header.count(",") - 3)
    assert payouts(write(tmp_path, f"{header}\n{ROW.strip()}{commas}\n")) == [("A", "254712345678", "1250", "Nov")]


def test_columns_may_be_in_any_order_and_others_are_told(tmp_path: Path) -> None:
    path = write(tmp_path, "Dept,amount,phone,Staff No,reference\nSales,1250,0712345678,7,A\n")
    assert payouts(path) == [("A", "254712345678", "1250", None)]
    assert list(read_payouts(path).ignored) == ["dept", "staff no"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(1, "")]),
        (" \n,,\n", [(1, "")]),
        (PAYROLL, [(1, "")]),
        ("reference,phone\nA,0712345678\n", [(1, "amount")]),
        ("Payroll of November\n" + PAYROLL + ROW, [(1, "reference"), (1, "phone"), (1, "amount"), (1, "")]),
        ("reference,phone number,amount\n" + ROW, [(1, "phone")]),
        ("reference,phone,amount,amount\nA,0712345678,1250,5\n", [(1, "amount")]),
        ("reference,phone,amount,Amount \nA,0712345678,1250,5\n", [(1, "amount")]),
        ("reference,phone,amount,note,note\nA,0712345678,1250,5,6\n", [(1, "note")]),
        ("reference,phone,amount,\nA,0712345678,1250,5\n", [(2, "")]),
        ("reference,,phone,amount\nA,x,0712345678,1250\n", [(2, "")]),
        ("reference,phone,am\u200bount\nA,0712345678,1250\n", [(1, ""), (1, "amount")]),
    ],
)
def test_a_header_that_does_not_fit(tmp_path: Path, text: str, expected: list[tuple[int, str]]) -> None:
    found = of_payroll(tmp_path, text)
    assert places(found) == expected
    assert all(each.remedy for each in found if each.column), found


def test_a_column_without_a_name_may_be_empty(tmp_path: Path) -> None:
    path = write(tmp_path, "reference,,phone,amount,,\nA,,0712345678,1250,,\nB, ,0712345679,10\n")
    assert [each[0] for each in payouts(path)] == ["A", "B"]


@pytest.mark.parametrize(
    "row",
    [
        *("A,0712345678", "A,0712345678,1250", "A", "A,0712345678,1250,Nov,x", "A,0712345678,1250,Nov,,x"),
        *("A,0712345678,45,250,Nov", "A,0712345678,1,250,000", 'A,"0712345678,1250",Nov', "A,0712345678,45,250.50,Nov"),
    ],
)
def test_a_row_with_more_or_fewer_cells_is_refused(tmp_path: Path, row: str) -> None:
    found = of_payroll(tmp_path, f"{PAYROLL}{row}\nB,0712345678,x,\n")
    assert places(found) == [(2, ""), (3, "amount")]
    assert found[0].reference == "A"
    assert f"header has {PAYROLL.count(',') + 1}" in found[0].problem


def test_empty_rows_and_cells_at_the_end_are_no_rows(tmp_path: Path) -> None:
    text = f"{PAYROLL}\n{ROW},,,\n , ,,\nB,0712345679,10,,,,\n\n,,,,,,\n   \n"
    assert [each[0] for each in payouts(write(tmp_path, text))] == ["A", "B"]
    assert places(of_payroll(tmp_path, f"{PAYROLL}{ROW},,5,\n")) == [(3, "reference"), (3, "phone"), (3, "amount")]


SPLIT = [
    *("45,250", "1,250", "999,000", "45,250.50", "45,250.5", "1,000.00", "0,250", " 45 , 250 ", "45,250/=", "45,250/-"),
    *("45,250-", "45,'250", "45,250 KES", "45,250 only", "45,\uff12\uff15\uff10", "45,250.000", "45,250.00/="),
]
WORDS = [
    "45,",
    "45,Nov",
    "45,2500",
    "45,25",
    "1250,250",
    "45.00,250",
    "45,250 Nov",
    "45,250 bags",
    "45,No 250",
    "45,250A",
]


@pytest.mark.parametrize("cells", SPLIT)
def test_an_amount_that_may_have_been_split_at_its_comma_is_refused(tmp_path: Path, cells: str) -> None:
    (found,) = [each for each in of_payroll(tmp_path, f"{PAYROLL}A-1,0712345678,{cells}\n") if "comma" in each.problem]
    amount, _, rest = cells.partition(",")
    assert (found.line, found.column, found.reference, found.value) == (2, "amount", "A-1", amount.strip())
    written = amount.strip() + re.sub("[^0-9.]", "", normalize("NFKC", rest))
    assert f"write {written} if" in found.remedy
    for separator in ";\t":
        text = f"{PAYROLL}A-1,0712345678,{cells}\n".replace(",", separator)
        assert any("comma" in each.problem for each in of_payroll(tmp_path, text))


@pytest.mark.parametrize("cells", WORDS)
def test_words_help(tmp_path: Path, cells: str) -> None:
    assert payouts(write(tmp_path, f"{PAYROLL}A-1,0712345678,{cells}\n"))


def test_the_column_after_the_amount_counts_whatever_its_name(tmp_path: Path) -> None:
    assert places(of_payroll(tmp_path, "reference,phone,amount,staff\nA,0712345678,45,250\n")) == [(2, "amount")]
    assert of_orders(tmp_path, "reference,amount,state\nINV-42,1,250\n")
    assert places(of_orders(tmp_path, "reference,state,amount,note\nINV-42,PAID,1,250\n")) == [(2, "amount")]
    assert places(of_orders(tmp_path, "reference,state,amount\nINV-42,PAID,1,250\n")) == [(2, "")]
    assert payouts(write(tmp_path, "reference,amount,phone\nA,250,0712345678\n"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100, "old .xls"),
        (b"%PDF-1.7\n", "PDF"),
        (b"SQLite format 3\0", "database"),
        (b"\x1f\x8b\x08", "compressed"),
        (b"<html><table><tr><td>reference</td></tr></table>", "web page"),
        (b"\xef\xbb\xbf<?xml version='1.0'?><Workbook/>", "XML"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    (found,) = of_payroll(tmp_path, content)
    assert (found.line, problem in found.problem, ".xlsx" in found.remedy) == (0, True, True)


def test_only_an_xlsx_file_has_sheets(tmp_path: Path) -> None:
    path = write(tmp_path, PAYROLL + ROW)
    with pytest.raises(RequestValidationError, match=r"sheet: .* is CSV"):
        PayoutItem.read(path, sheet="November")
    with pytest.raises(RequestValidationError, match="NUL"):
        PayoutItem.read(tmp_path / "a\0b")
    with pytest.raises(FileNotFoundError):
        PayoutItem.read(tmp_path / "none.csv")
    assert faults(lambda: PayoutItem.read(str(path))) == []
