"""Real .xlsx files, and some that no library writes: hidden rows, formulas, merged cells, dates, a wrong dimension."""

import io
import logging
import re
import sys
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from openpyxl import Workbook
from openpyxl.utils import get_column_letter

from momopay import PayoutItem
from momopay.spreadsheets import xlsx_files
from momopay.spreadsheets.rows import read_payouts
from momopay.types import BookedOrder, FileFault
from spreadsheets.kit import GOOD, HEADER, book, edited, faults, payouts, places, save, with_stored_value

READ = ("A", "254712345678", "1250", "November")
MIDNIGHT = datetime.combine(date(2026, 11, 1), time())


def of(path: Path, sheet: str | None = None) -> list[FileFault]:
    return faults(lambda: PayoutItem.read(path, sheet=sheet))


def test_a_sheet_is_a_payroll(tmp_path: Path) -> None:
    rows = [
        ("Reference ", "PHONE", "amount", "Description", "Dept"),
        GOOD,
        ("B", 254712345679, 99.5, None, "Sales"),
        (None, " ", None, None),
        (1001, "+254 712 345 670", "1,250.50", 2026),
        ("D", 254712345671.0, 0.1 + 9.9, None),
    ]
    path = save(tmp_path, book(*rows))
    assert payouts(path) == [
        READ,
        ("B", "254712345679", "99.5", None),
        ("1001", "254712345670", "1250.50", "2026"),
        ("D", "254712345671", "10", None),
    ]
    assert [row.line for row in read_payouts(path).rows] == [2, 3, 5, 6]
    assert list(read_payouts(path).ignored) == ["dept"]
    path.rename(tmp_path / "salaries.csv")
    assert payouts(tmp_path / "salaries.csv")[0] == READ, "what it is decides, and not its name"


def test_orders_of_a_sheet(tmp_path: Path) -> None:
    path = save(tmp_path, book(("reference", "amount", "state"), ("INV-1", 500, "paid"), (42, 12.5, "WAITING")))
    assert [(each.reference, str(each.amount), each.state) for each in BookedOrder.read(path)] == [
        ("INV-1", "500", "PAID"),
        ("42", "12.5", "WAITING"),
    ]


@pytest.mark.parametrize(
    ("row", "column", "problem"),
    [
        (("B", 712345678, 100), "phone", "leading 0"),
        (("B", 2.5471234567e12, 100), "phone", "Kenyan"),
        (("B", MIDNIGHT, 100), "phone", "date"),
        (("B", True, 100), "phone", "TRUE or FALSE"),
        (("B", 712345678.5, 100), "phone", "decimals"),
        (("B", None, 100), "phone", "Kenyan"),
        ((MIDNIGHT, "0712345678", 100), "reference", "date"),
        ((date(2026, 11, 1), "0712345678", 100), "reference", "date"),
        ((1001.5, "0712345678", 100), "reference", "decimals"),
        ((2026.1, "0712345678", 100), "reference", "decimals"),
        ((False, "0712345678", 100), "reference", "TRUE or FALSE"),
        ((1234567890123456789, "0712345678", 100), "reference", "more digits"),
        (("#REF!", "0712345678", 100), "reference", "error"),
        (("B", "0712345678", 100.005), "amount", "two decimals"),
        (("B", "0712345678", 100.0051), "amount", "two decimals"),
        (("B", "0712345678", 9.99), "amount", "at least"),
        (("B", "0712345678", -100), "amount", "no amount"),
        (("B", "0712345678", True), "amount", "TRUE or FALSE"),
        (("B", "0712345678", date(2026, 11, 1)), "amount", "date"),
        (("B", "0712345678", time(8, 30)), "amount", "date"),
        (("B", "0712345678", "12.500"), "amount", "thousands or decimals"),
        (("B", "0712345678", "#N/A"), "amount", "error"),
        (("B", "0712345678", None), "amount", "missing"),
        (("B", "0712345678", "KES 45"), "amount", "currency"),
        (("B", "0712345678", 45, 250), "amount", "comma"),
        (("B", "0712345678", 100, MIDNIGHT), "description", "date"),
        (("B", "0712345678", 100, "#VALUE!"), "description", "error"),
        (("B", "0712345678", 100, None, "x"), "", "5 cells"),
        (("A", "0712345678", 100), "reference", "the same as on line 2"),
    ],
)
def test_what_a_cell_has_and_a_payout_cannot_be(
    tmp_path: Path, row: tuple[object, ...], column: str, problem: str
) -> None:
    found = of(save(tmp_path, book(HEADER, GOOD, row)))
    assert places(found) == [(3, column)]
    assert problem in f"{found[0].problem} {found[0].remedy}", found


@pytest.mark.parametrize(
    ("place", "value", "shown", "problem"),
    [
        ("A2", 1, "000", "is shown as 001"),
        ("B2", 712345678, "0000000000", "is shown as 0712345678"),
        ("C2", 0.5, "0%", "percentage"),
        ("C2", 45000, "yyyy-mm-dd", "date"),
        ("A2", 46327, "mmm-yy", "date"),
        ("C2", 1250, "#,##0", ""),
        ("C2", 1250, '"KES" #,##0.00', ""),
        ("A2", 1001, "0", ""),
        ("A2", 1001, "0000", ""),
        ("A2", "001", "@", ""),
    ],
)
def test_how_a_number_is_shown_counts_where_it_is_another_one(
    tmp_path: Path, place: str, value: object, shown: str, problem: str
) -> None:
    made = book(HEADER, GOOD, formats={place: shown})
    sheet: Any = made.active
    sheet[place] = value
    sheet[place].number_format = shown
    found = of(save(tmp_path, made))
    assert (problem in found[0].problem) if problem else found == []


def test_a_formula_counts_by_its_stored_value(tmp_path: Path) -> None:
    path = save(tmp_path, book(HEADER, ("A", "0712345678", "=1000+250", '="Nov"&"ember"')))
    without = of(path)
    assert places(without) == [(2, "amount"), (2, "description")]
    assert all("without a stored value" in each.problem for each in without)
    with_stored_value(with_stored_value(path, "C2", "<v>1250</v>"), "D2", "<v>7</v>")
    assert payouts(path) == [("A", "254712345678", "1250", "7")]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("<v>1250.3333333333333</v>", "two decimals"),
        ("<v>3000.2999999999997</v>", "two decimals"),  # 3 times 1000.1
        ("<v></v>", "without a stored value"),
        ("", "without a stored value"),
        ("<v>0</v>", "at least KES 10"),
    ],
)
def test_a_stored_value_is_judged_as_any(tmp_path: Path, stored: str, expected: str) -> None:
    path = save(tmp_path, book(HEADER, ("A", "0712345678", "=1/3")))
    if stored:
        with_stored_value(path, "C2", stored)
    (found,) = of(path)
    assert expected in found.problem


def test_the_stored_error_of_a_formula_is_an_error(tmp_path: Path) -> None:
    path = save(tmp_path, book(HEADER, ("A", "0712345678", "=1/0")))
    edited(
        path,
        lambda text: (
            text.replace('<c r="C2"', '<c t="e" r="C2"')
            .replace("<v />", "<v>#DIV/0!</v>")
            .replace("<v/>", "<v>#DIV/0!</v>")
        ),
    )
    (found,) = of(path)
    assert ("error" in found.problem, found.value) == (True, "#DIV/0!")


def test_formulas_that_come_to_nothing_are_no_rows(tmp_path: Path) -> None:
    """Many sheets have formulas down to row 500, which are empty where nobody is to be paid."""
    path = save(tmp_path, book(HEADER, GOOD, ('=""', '=""', '=""')))
    assert places(of(path)) == [(3, "reference"), (3, "phone"), (3, "amount")]
    edited(path, lambda text: re.sub('<c r="([ABC]3)"', r'<c t="str" r="\1"', text))
    assert payouts(path) == [READ]


def test_merged_cells_are_refused_in_columns_that_are_used(tmp_path: Path) -> None:
    made = book(
        (*HEADER, "note", "more"), (*GOOD, "x", None), ("B", None, 100, None, None, None), ("C", "0712345670", 10)
    )
    sheet: Any = made.active
    sheet.merge_cells("E2:F2")
    sheet.merge_cells("E3:F4")
    assert places(of(save(tmp_path, made))) == [(3, "phone")]
    sheet.merge_cells("B2:B3")
    found = of(save(tmp_path, made))
    assert places(found) == [(2, "phone"), (3, "phone")]
    assert all("merged cells B2:B3" in each.problem for each in found)
    assert "merged" in of(save(tmp_path, merged_header()))[0].problem


def merged_header() -> Workbook:
    made = book(HEADER, GOOD)
    sheet: Any = made.active
    sheet.merge_cells("C1:D1")
    return made


def test_hidden_rows_columns_and_sheets_are_read_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = book(HEADER, GOOD, ("B", "0712345679", 10), ("C", "0712345670", 10), ("D", "0712345671", 10), title="Nov")
    sheet: Any = made.active
    sheet.row_dimensions[3].hidden = True
    sheet.column_dimensions["D"].hidden = True
    made.create_sheet("Notes")
    sheet.sheet_state = "hidden"
    made.active = 1
    path = edited(save(tmp_path, made), lambda text: text.replace('<row r="5"', '<row ht="0" customHeight="1" r="5"'))
    notes = read_payouts(path).notes
    assert list(notes) == [
        "the sheet 'Nov' is hidden",
        "hidden rows of the sheet are read too: 3, 5",
        "hidden columns of the sheet are read too: D",
    ]
    with caplog.at_level(logging.WARNING):
        assert [each.reference for each in PayoutItem.read(path)] == ["A", "B", "C", "D"]
    assert "file.xlsx: hidden rows of the sheet are read too: 3, 5" in caplog.text
    edited(path, lambda text: text.replace("<sheetFormatPr ", '<sheetFormatPr zeroHeight="1" '))
    assert "2, 3, 4, 5" in read_payouts(path).notes[1]


def test_many_hidden_rows_are_counted(tmp_path: Path) -> None:
    made = book(HEADER, *[(f"R{n}", "0712345678", 10 + n) for n in range(30)])
    sheet: Any = made.active
    sheet.auto_filter.ref = "A1:D31"
    for row in range(2, 32):
        sheet.row_dimensions[row].hidden = True
    (note,) = read_payouts(save(tmp_path, made)).notes
    assert note.endswith("2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 20 more")


def test_one_sheet_has_the_header_or_is_named(tmp_path: Path) -> None:
    made = book(("Read me",), title="Cover")
    for title, phone in (("October", "0712345670"), ("November", "0712345671")):
        sheet = made.create_sheet(title)
        sheet.append(HEADER)
        sheet.append(("A", phone, 10, title))
    path = save(tmp_path, made)
    (found,) = of(path)
    assert ("'October' and 'November'" in found.problem, "--sheet" in found.remedy) == (True, True)
    assert [each[3] for each in payouts(path, "November")] == ["November"]
    assert [each[3] for each in payouts(path, " october")] == ["October"]
    (missing,) = of(path, "December")
    assert "'Cover', 'October', 'November'" in missing.problem
    assert {each.column for each in of(path, "Cover")} >= {"reference", "phone", "amount"}
    del made["October"]
    assert [each[3] for each in payouts(save(tmp_path, made))] == ["November"]
    del made["November"]
    assert {each.column for each in of(save(tmp_path, made))} >= {"reference", "phone", "amount"}


def test_sheets_without_the_header_are_listed(tmp_path: Path) -> None:
    made = book(("x",), title="One")
    made.create_sheet("Two").append(("y",))
    (found,) = of(save(tmp_path, made))
    assert ("'One', 'Two'" in found.problem, "reference, phone, amount" in found.problem) == (True, True)
    assert of(save(tmp_path, Workbook()))[0].problem == "is empty"


@pytest.mark.parametrize("dimension", ["A1", "A1:D2", "A1:B3", "B2:D4", "A1:XFD1048576"])
def test_a_wrong_dimension_drops_no_row(tmp_path: Path, dimension: str) -> None:
    rows = [(f"R{n}", "0712345678", 10 + n, "x") for n in range(5)]
    path = save(tmp_path, book(HEADER, *rows))
    edited(path, lambda text: text.replace('<dimension ref="A1:D6"', f'<dimension ref="{dimension}"'))
    assert [each[0] for each in payouts(path)] == [f"R{n}" for n in range(5)]


def test_cells_without_their_places_are_read(tmp_path: Path) -> None:
    """Some programs leave out `r`, which is allowed."""
    path = save(tmp_path, book(HEADER, GOOD))
    edited(path, lambda text: re.sub(r' r="[A-Z]+\d+"', "", text))
    assert payouts(path) == [READ]


def test_a_sheet_with_a_cell_far_below_is_refused_and_not_walked(tmp_path: Path) -> None:
    made = book(HEADER, GOOD)
    sheet: Any = made.active
    sheet.cell(1_048_576, 3).number_format = "0.00"
    (found,) = of(save(tmp_path, made))
    assert "row 1,048,576" in found.problem


def test_far_columns_without_a_name_must_be_empty(tmp_path: Path) -> None:
    made = book(HEADER, GOOD)
    sheet: Any = made.active
    sheet[f"{get_column_letter(40)}2"] = "forgotten"
    assert places(of(save(tmp_path, made))) == [(2, "")]


def archive(**parts: str) -> bytes:
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as made:
        for name, text in parts.items():
            made.writestr(name.replace("__", "/"), text)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (archive(mimetype="application/vnd.oasis.opendocument.spreadsheet"), "an OpenDocument file"),
        (archive(**{"xl__workbook.bin": ""}), "an .xlsb file"),
        (archive(**{"a.txt": ""}), "another kind of archive"),
        (archive(**{"xl__workbook.xml": "<x"}), "cannot be read"),
        (b"PK\x03\x04 and nothing more", "is damaged"),
    ],
)
def test_what_is_no_xlsx_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "file.xlsx"
    path.write_bytes(content)
    (found,) = of(path)
    assert (found.line, problem in found.problem, bool(found.remedy)) == (0, True, True)


def test_every_prefix_of_a_file_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, book(HEADER, GOOD))
    whole = path.read_bytes()
    for length in range(0, len(whole), 400):
        path.write_bytes(whole[:length])
        assert of(path), length


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, book(HEADER, GOOD))
    monkeypatch.setattr(xlsx_files, "_MOST_BYTES", 1000)
    assert "too large" in of(path)[0].problem


def test_without_the_extra_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, book(HEADER, GOOD))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "momopay\[excel\]"'):
        PayoutItem.read(path)
