"""CSV as spreadsheets and programs write it: encodings, separators, and quotes that swallow rows."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momopay import PayoutItem
from spreadsheets.kit import PAYROLL, faults, of_orders, of_payroll, payouts, places, write

ROWS = "A-1,0712345678,1250,Nov\nA-2,0712345679,99.5,\n"
READ = [("A-1", "254712345678", "1250", "Nov"), ("A-2", "254712345679", "99.5", None)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("names", [False, True])
def test_every_form_is_the_same_payroll(tmp_path: Path, encoding: str, separator: str, end: str, names: bool) -> None:
    text = (f"sep={separator}\n" * names + PAYROLL + ROWS).replace(",", separator).replace("\n", end)
    assert payouts(write(tmp_path, text.encode(encoding))) == READ
    marked = b"\xff\xfe" + text.encode("utf-16-le")
    assert payouts(write(tmp_path, marked)) == READ


@pytest.mark.parametrize("first", ["sep=|\n", '"sep=|"\n', "SEP=|\n", "\ufeffsep=|\n"])
def test_a_line_names_the_separator(tmp_path: Path, first: str) -> None:
    assert payouts(write(tmp_path, first + (PAYROLL + ROWS).replace(",", "|"))) == READ
    assert places(of_payroll(tmp_path, f"{first}{PAYROLL}A-1,x\n"))


def test_another_separator_is_named(tmp_path: Path) -> None:
    for text in ("sep=a\n" + PAYROLL + ROWS, (PAYROLL + ROWS).replace(",", "|"), (PAYROLL + ROWS).replace(",", ":")):
        found = of_payroll(tmp_path, text)
        assert any("separator" in each.problem or "separated" in each.problem for each in found), found


def test_lines_are_counted_with_a_separator_and_empty_ones(tmp_path: Path) -> None:
    found = of_payroll(tmp_path, f"sep=,\n\n{PAYROLL}\n ,,,\nA,07,100,\n")
    assert places(found) == [(6, "phone")]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "mac-roman"])
def test_an_old_encoding_is_refused_with_every_line_and_the_other_faults(tmp_path: Path, encoding: str) -> None:
    text = PAYROLL + "A,0712345678,100,José\nB,0712345678,12.500,\nC,0712345678,100,Zoë\n"
    found = of_payroll(tmp_path, text.encode(encoding))
    assert places(found) == [(2, ""), (3, "amount"), (4, "")]
    assert "CSV UTF-8" in found[0].remedy
    assert "UTF-8" in found[0].problem
    assert of_orders(tmp_path, "reference,state,amount\nJosé,PAID,5\n".encode(encoding))


def test_what_is_cut_off_in_the_middle_of_a_character_is_refused(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le"):
        assert "not whole" in of_payroll(tmp_path, (PAYROLL + ROWS).encode(encoding)[:-1])[0].problem
    assert "NUL" in of_payroll(tmp_path, PAYROLL + "A,0712345678,100,\0\n")[0].problem


@pytest.mark.parametrize(
    ("rows", "line", "others"),
    [
        ('A,0712345678,100,"Nov\nB,0712345679,200,Nov\n', 2, []),
        ('A,0712345678,100,Nov\nB,0712345679,200,"Nov\n', 3, []),
        ('A,"0712345678,100,Nov\nB,0712345679,200,Nov\n', 2, []),
        ('"A,0712345678,100,Nov\nB,0712345679,200,Nov\n', 2, []),
        ('A,0712345678,"100,Nov\nB,0712345679,200,Nov\n', 2, []),
        ('A,0712345678,100,"Nov" x\nB,0712345679,x,Nov\n', 2, [(3, "amount")]),
        ('A,0712345678,100,"Nov\nB,0712345679,200,back"\nC,0712345670,x,\n', 2, [(4, "amount")]),
        ('A,0712345678,100,"Nov\nB,0712345679,200\nC,0712345670,300,"Dec"\n', 2, [(3, "")]),
        ('A,0712345678,100,"Nov\nB,0712345679,200,"Dec"\nC,0712345670,300,\n', 2, []),
        ('A,0712345678,100,"Nov\nB,0712345679"\n', 2, [(3, "")]),
    ],
)
def test_a_quote_that_is_not_closed_is_found_where_it_is(
    tmp_path: Path, rows: str, line: int, others: list[tuple[int, str]]
) -> None:
    found = of_payroll(tmp_path, PAYROLL + rows)
    assert (found[0].line, "quotation mark" in found[0].problem or "not CSV" in found[0].problem) == (line, True)
    assert all(place in places(found) for place in others), found


def test_a_quote_in_the_last_column_swallows_no_order(tmp_path: Path) -> None:
    header = "reference,amount,state,note\n"
    swallowing = 'A,500,PAID,"call\nB,250,PAID,\nC,80,PAID,back"\n'
    for rows in (swallowing, swallowing.replace('back"', ""), 'A,500,"PAID\nB,250,PAID\n'):
        found = of_orders(tmp_path, header + rows)
        assert (found[0].line, "quotation mark" in found[0].problem) == (2, True)


def test_a_cell_may_have_lines_and_quotes(tmp_path: Path) -> None:
    rows = 'A,0712345678,1250,"Pay,\r\nfor ""Nov"""\r\nB,0712345678,10,5" pipe\r\nC,0712345678,11,Pay\u2028December\r\n'
    assert [each[3] for each in payouts(write(tmp_path, PAYROLL + rows))] == [
        'Pay,\r\nfor "Nov"',
        '5" pipe',
        "Pay\u2028December",
    ]


def test_many_broken_rows_are_bounded(tmp_path: Path) -> None:
    found = of_payroll(tmp_path, PAYROLL + 'A,0712345678,1250,"x\n' * 3000)
    assert 20 <= len(found) <= 40


@settings(max_examples=30)
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: (PAYROLL + text).encode()))
def test_every_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = write(tmp_path_factory.getbasetemp(), content)
    rows: list[PayoutItem] = []
    found = faults(lambda: rows.extend(PayoutItem.read(path)))
    assert bool(rows) != bool(found)
