"""Payouts and orders from files: every fault at once, by line, column, value and remedy."""

from decimal import Decimal
from hashlib import sha256
from pathlib import Path

import pytest

from momopay import PayoutItem
from momopay.spreadsheets.rows import PayoutRow, read_orders, read_payouts
from momopay.types import BookedOrder
from spreadsheets.kit import ORDERS, PAYROLL, of_orders, of_payroll, payouts, places, write


def test_a_file_as_spreadsheets_write_it(tmp_path: Path) -> None:
    text = (
        "\ufeffDepartment,Reference, PHONE ,Amount,Description,Name\r\n"
        'Sales,A,0712 345 678,"1,000","Pay,\r\nNovember",Jo\r\n'
        ",,,,,\r\n"
        "Sales,B,+254712345679,99.5,,Al\r\n"
    )
    path = write(tmp_path, text)
    file = read_payouts(path)
    assert file.rows == [
        PayoutRow(2, "A", "254712345678", Decimal(1000), "Pay,\r\nNovember", "Jo"),
        PayoutRow(5, "B", "254712345679", Decimal("99.5"), None, "Al"),
    ]
    assert (file.name, file.ignored, file.notes) == ("file.csv", ["department"], ())
    assert file.sha256 == sha256(text.encode()).hexdigest()
    first, second = PayoutItem.read(path)
    assert first == PayoutItem(reference="A", amount=1000, phone="254712345678", description="Pay,\r\nNovember")
    assert (second.description, second.currency, second.metadata) == (None, "KES", None)
    assert "0712 345" not in repr(file)


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    rows = (
        "A,0712345678,100,\n"
        "A,0712345679,100,\n"
        "B,712345678,100,\n"
        'C,0712345678,"1,000",\n'
        "\n"
        "D,0712345678,9.99,\n"
        "E,0712345678\n"
        ",07,1e3,\n"
        "F,0712345678,100.001,\n"
        "G,0712345678,-100,\n"
        "H,0712345678,,#REF!\n"
        "A\u200bB,0712345678,100,\n"
        "X,2.54712E+11,45,250\n"
    )
    found = of_payroll(tmp_path, PAYROLL + rows)
    assert sorted(places(found)) == [
        *((3, "reference"), (4, "phone"), (7, "amount"), (8, ""), (9, "amount"), (9, "phone"), (9, "reference")),
        *((10, "amount"), (11, "amount"), (12, "amount"), (12, "description"), (13, "reference"), (14, "amount")),
        (14, "phone"),
    ]
    assert [each.line for each in found] == sorted(each.line for each in found)
    by_place = {(each.line, each.column): each for each in found}
    assert by_place[4, "phone"].value == "712345678"
    assert "with the 0" in by_place[4, "phone"].remedy
    assert "line 2" in by_place[3, "reference"].problem
    assert "U+200B ZERO WIDTH SPACE" in by_place[13, "reference"].problem
    assert all(each.reference for each in found if each.line != 9)
    assert all(
        each.remedy
        for each in found
        if each.column and (each.line, each.column) not in {(7, "amount"), (9, "reference"), (9, "phone")}
    )


@pytest.mark.parametrize("first", ["A,0712345679,5,", "A,07,100,", "A,0712345679,100,"])
@pytest.mark.parametrize(("second", "others"), [("A,0712345679,60,", []), ("A,0712345679,1e3,", [(3, "amount")])])
def test_a_reference_twice_is_a_fault(tmp_path: Path, first: str, second: str, others: list[tuple[int, str]]) -> None:
    found = of_payroll(tmp_path, f"{PAYROLL}{first}\n{second}\n")
    assert [place for place in places(found) if place[0] == 3] == [(3, "reference"), *others]


def test_orders(tmp_path: Path) -> None:
    path = write(tmp_path, ORDERS + 'INV-42,paid,"1,250.50"\nINV-43, Waiting ,0\nINV-44,FAILED,80\n')
    assert BookedOrder.read(path) == [
        BookedOrder("INV-42", Decimal("1250.50"), "PAID"),
        BookedOrder("INV-43", 0, "WAITING"),
        BookedOrder("INV-44", 80, "FAILED"),
    ]
    assert read_orders(write(tmp_path, ORDERS)) == ([], ()), "there are days without orders"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("A,PAID,x", [(2, "amount")]),
        ("A,SHIPPED,5", [(2, "state")]),
        ("A,,5", [(2, "state")]),
        (",PAID,5", [(2, "reference")]),
        ("A,PAID,nan", [(2, "amount")]),
        ("A,PAID,-5", [(2, "amount")]),
        ("A,PAID,12.500", [(2, "amount")]),
        ('A,PAID,"1250,00"', [(2, "amount")]),
        ("A,PAID,1_250", [(2, "amount")]),
        ("A,PAID,99999999999999", [(2, "amount")]),
        ("A,#REF!,#N/A", [(2, "state"), (2, "amount")]),
        ("A\u200b,PAI\u200bD,5", [(2, "reference"), (2, "state")]),
        ('"A\nB",PAID,5', [(2, "reference")]),
        ("A,PAID", [(2, "")]),
        ("A,PAID,1,250", [(2, "")]),
        ("A,PAID,5\nB,PAID,5\nA,PAID,6", [(4, "reference")]),
    ],
)
def test_what_is_no_order_is_named(tmp_path: Path, row: str, expected: list[tuple[int, str]]) -> None:
    found = of_orders(tmp_path, f"{ORDERS}{row}\n")
    assert sorted(places(found)) == sorted(expected)
    assert all(each.value or each.reference or each.column in {"state", "reference"} for each in found)


def test_the_text_forms_of_an_amount_are_exact(tmp_path: Path) -> None:
    rows = 'A,0712345678,"1,250",\nB,0712345678,"12,345.60",\nC,0712345678,0100,\n'
    assert [each[2] for each in payouts(write(tmp_path, PAYROLL + rows))] == ["1250", "12345.60", "100"]
