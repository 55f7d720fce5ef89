"""What the command line says of a payroll file: sums, people, and rows that may be the same."""

from decimal import Decimal
from pathlib import Path

import pytest

from momopay.cli.exit_codes import CommandError
from momopay.cli.payroll_file import people, possible_duplicates, read_payroll, total
from momopay.spreadsheets.rows import PayoutRow


def test_payouts_and_phones_are_counted_apart() -> None:
    rows = [PayoutRow(line, f"SAL-{line}", f"25471234567{line // 2}", Decimal(10), None) for line in range(3)]
    assert (people(rows), people(rows[:2])) == ("3 payouts to 2 phones", "2 payouts to 1 phone")
    assert (people(rows[:1]), total(rows)) == ("1 payout to 1 phone", Decimal(30))


def test_rows_that_may_be_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "salaries.csv"
    rows = "A,0712345678,100\nB,0712345679,100\nC,+254712345678,100.00\n"
    path.write_text(f"reference,phone,amount\n{rows}")
    assert possible_duplicates(read_payroll(path).rows) == [[2, 4]]


def test_a_file_that_is_away_is_no_faulty_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        read_payroll(tmp_path / "away.csv")
