"""References that may mean one payout: another spelling of one in the file or in the journal, for the same money."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.kit import NORMALISED, PayrollShell
from momopay import Client, Journal
from momopay.cli.payroll import PayrollRun, make_plan
from momopay.cli.payroll_file import FaultyFileError, Row
from momopay.cli.payroll_similar import check_similar, similar_references

ROW = Row(2, "SAL-1", NORMALISED, Decimal(1000), None)
OTHER = Row(3, "sal 1", NORMALISED, Decimal("1000.00"), None)


@pytest.fixture
def journal(payroll: PayrollShell) -> Iterator[Journal]:
    with Journal(f"sqlite:///{payroll.database}") as journal:
        yield journal


def lines(*rows: Row, to_pay: list[Row] | None = None, journal: Journal | None = None) -> list[int]:
    return [fault.line for fault in similar_references(rows, rows if to_pay is None else to_pay, journal)]


def test_the_second_of_two_spellings_is_a_fault() -> None:
    (fault,) = similar_references([ROW, OTHER], [ROW, OTHER], None)
    assert (fault.line, fault.column) == (3, "reference")
    assert fault.problem == (
        "differs from that on line 2 only in case, dashes or spaces, and the phone and the amount are the same"
    )


@given(st.text("sS1-\u2013 ", min_size=1, max_size=5), st.text("sS1-\u2013 ", min_size=1, max_size=5))
def test_any_two_that_differ_only_so_are_found(first: str, second: str) -> None:
    def bare(text: str) -> str:
        return text.casefold().translate({ord(each): None for each in "-\u2013 "})

    found = lines(replace(ROW, reference=first), replace(OTHER, reference=second))
    assert found == ([3] if bare(first) == bare(second) else [])


@pytest.mark.parametrize(
    "other",
    [
        replace(OTHER, reference="SAL-2"),
        replace(OTHER, phone="254712345679"),
        replace(OTHER, amount=Decimal("1000.01")),
    ],
    ids=["reference", "phone", "amount"],
)
def test_another_reference_phone_or_amount_is_another_payout(other: Row) -> None:
    assert lines(ROW, other) == []


def test_only_what_is_still_to_be_paid_is_at_fault() -> None:
    assert lines(ROW, OTHER, to_pay=[]) == []
    assert lines(ROW, OTHER, to_pay=[ROW]) == [2]
    assert lines(ROW, OTHER, to_pay=[OTHER]) == [3]


def test_another_spelling_in_the_journal_is_a_fault(client: Client, journal: Journal) -> None:
    run = PayrollRun(client, journal)
    assert [each.state for each in run.pay([ROW])] == ["ACCEPTED"]
    plan = make_plan([OTHER], journal)
    assert plan.to_pay == [OTHER]
    (fault,) = plan.similar
    assert fault.line == 3
    assert "differs from one in the journal (ACCEPTED, 20" in fault.problem
    assert make_plan([ROW], journal).similar == []  # its own entry
    assert make_plan([replace(OTHER, amount=Decimal(999))], journal).similar == []


def test_a_caller_who_confirms_them_may_pay_them() -> None:
    similar = list(similar_references([ROW, OTHER], [ROW, OTHER], None))
    check_similar(similar, allowed=True)
    check_similar([], allowed=False)
    with pytest.raises(
        FaultyFileError, match=r"1 reference\(s\) may be another payout's.* nothing was sent"
    ) as refused:
        check_similar(similar, allowed=False)
    assert refused.value.faults == similar
    assert "--allow-similar" in refused.value.remedy
