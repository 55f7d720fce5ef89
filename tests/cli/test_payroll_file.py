"""The payroll file: what is taken, and every fault of it at once, by line and without its values."""

import hashlib
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momopay.cli.payroll_file import Fault, FaultyFileError, Row, people, read_payroll

HEADING = "reference,phone,amount,description\n"


def read(folder: Path, text: str | bytes) -> list[Row]:
    path = folder / "salaries.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_payroll(path).rows


def faults(folder: Path, text: str | bytes) -> list[tuple[int, str]]:
    with pytest.raises(FaultyFileError) as caught:
        read(folder, text)
    assert "07123" not in str(caught.value.faults)
    for fault in caught.value.faults:
        assert ("may have dropped the leading 0" in fault.problem) == (fault.value == "712345678")
    return [(fault.line, fault.column) for fault in caught.value.faults]


def test_a_file_as_spreadsheets_write_it(tmp_path: Path) -> None:
    text = (
        "\ufeffDepartment,Reference, PHONE ,Amount,Description,Name\r\n"
        'Sales,A,0712 345 678,1000,"Pay,\r\nNovember",Jo\r\n'
        ",,,,,\r\n"
        "Sales,B,+254712345679,99.5,,Al\r\n"
        "Sales,C,0712345670,10,Pay\u2028December,Mo\r\n"
    )
    assert read(tmp_path, text) == [
        Row(2, "A", "254712345678", Decimal(1000), "Pay,\r\nNovember", "Jo"),
        Row(5, "B", "254712345679", Decimal("99.5"), None, "Al"),
        Row(6, "C", "254712345670", Decimal(10), "Pay\u2028December", "Mo"),
    ]
    payroll = read_payroll(tmp_path / "salaries.csv")
    assert (payroll.name, payroll.ignored) == ("salaries.csv", ["department"])
    assert payroll.sha256 == hashlib.sha256(text.encode()).hexdigest()


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
        "H,0712345678,,\n"
    )
    assert faults(tmp_path, HEADING + rows) == [
        *((3, "reference"), (4, "phone"), (5, "amount"), (7, "amount"), (8, ""), (9, "amount"), (9, "phone")),
        *((9, "reference"), (10, "amount"), (11, "amount"), (12, "amount")),
    ]


@pytest.mark.parametrize("first", ["A,0712345679,5,", "A,07,100,", "A,0712345679,100,"])
@pytest.mark.parametrize(("second", "others"), [("A,0712345679,60,", []), ("A,0712345679,1e3,", [(3, "amount")])])
def test_a_reference_twice_is_a_fault(tmp_path: Path, first: str, second: str, others: list[tuple[int, str]]) -> None:
    found = faults(tmp_path, f"{HEADING}{first}\n{second}\n")
    assert [fault for fault in found if fault[0] == 3] == [(3, "reference"), *others]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(1, "reference"), (1, "phone"), (1, "amount")]),
        (HEADING, [(1, "")]),
        ("reference;phone;amount\nA;0712345678;100\n", [(1, "")]),
        ("reference,phone,amount,amount\n", [(1, "amount")]),
        ("reference,phone\n", [(1, "amount")]),
        (HEADING + 'A,"0712345678,100,\n', [(2, "")]),
        (HEADING.encode() + b"A,0712345678,100,Jos\xe9\n", [(2, "")]),
        (HEADING + "A,0712345678,100,,,\n", [(2, "")]),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, text: str | bytes, expected: list[tuple[int, str]]) -> None:
    assert faults(tmp_path, text) == expected


def test_rows_that_may_be_duplicates(tmp_path: Path) -> None:
    read(tmp_path, HEADING + "A,0712345678,100,\nB,0712345679,100,\nC,+254712345678,100.00,\n")
    assert read_payroll(tmp_path / "salaries.csv").possible_duplicates == [[2, 4]]


@settings(max_examples=25)
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: (HEADING + text).encode()))
def test_every_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    rows: list[Row] = []
    faulty: list[Fault] = []
    try:
        rows = read(tmp_path_factory.getbasetemp(), content)
    except FaultyFileError as error:
        faulty = error.faults
    assert bool(rows) != bool(faulty)


def test_payouts_and_phones_are_counted_apart() -> None:
    rows = [Row(line, f"SAL-{line}", f"25471234567{line // 2}", Decimal(10), None) for line in range(3)]
    assert (people(rows), people(rows[:2])) == ("3 payouts to 2 phones", "2 payouts to 1 phone")
    assert people(rows[:1]) == "1 payout to 1 phone"
