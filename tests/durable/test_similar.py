"""Payouts that look like others, in the rows themselves and in the journal; and a payroll that was paid lately."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from durable.kit import PAYOUTS, Shop, over_both_clients
from journal.constants import ACCEPTED, PAYOUT, PHONE, REFUSED, UNKNOWN
from journal.database_kit import execute
from journal.kit import put, put_collection
from momopay import Journal
from momopay.durable.similar import FEWEST, RECENT, find_paid_lately, find_similar


@dataclass(frozen=True)
class Row:
    reference: str
    phone: str = PHONE
    amount: Decimal = Decimal(10)


def rows(*references: str) -> list[Row]:
    return [Row(each) for each in references]


@pytest.mark.parametrize(
    ("kept", "new", "found"),
    [
        (["001"], ["1"], {"1": "001"}),
        (["1001"], ["1001.0"], {"1001.0": "1001"}),
        (["2026-11"], ["Nov-26"], {"Nov-26": "2026-11"}),
        (["Nov-26"], ["2026-11"], {"2026-11": "Nov-26"}),
        (["100000"], ["1E5"], {"1E5": "100000"}),
        ([], ["SAL-1", "sal 1", "SAL_01"], {"sal 1": "SAL-1", "SAL_01": "SAL-1"}),
        (["SAL-1"], ["SAL-1", "SAL-2"], {}),
        (["SAL-1", "SAL 1"], ["SAL-1", "SAL 1"], {}),
        (["WAGE-2026-W47-7"], ["WAGE-2026-W48-7"], {}),
        (["SAL-11"], ["SAL-12", "SAL-111"], {}),
        (["1-11"], ["11-1", "111"], {"111": "1-11"}),
    ],
)
def test_a_new_payout_looks_like_another(
    journal: Journal, kept: Sequence[str], new: Sequence[str], found: dict[str, str]
) -> None:
    for each in kept:
        put(journal, each, ACCEPTED, PAYOUT)
    assert find_similar(journal, rows(*new)) == found
    alone = find_similar(None, rows(*new))
    assert {each for each in alone if each not in found} == {"SAL 1"} & {*new}, "without a journal each is new"


def test_only_the_same_phone_and_amount_are_the_same(journal: Journal) -> None:
    put(journal, "001", ACCEPTED, PAYOUT)
    assert find_similar(journal, [Row("1", "254799999999"), Row("01", amount=Decimal("10.50"))]) == {}
    assert find_similar(journal, [Row("1", amount=Decimal("10.00"))]) == {"1": "001"}
    put_collection(journal, "o", 10, ["SUCCESS"])
    put(journal, "R-1", ACCEPTED, PAYOUT, refund_of="o")
    assert find_similar(journal, rows("R 1")) == {}, "a refund has a reference of its own"


@pytest.mark.parametrize(
    ("rewritten", "same"),
    [
        (["1", "2", "3"], True),
        (["001.0", "002.0", "003.0"], True),
        (["004", "005", "006"], False),
    ],
)
@over_both_clients
def test_pay_all_pays_nobody_twice_for_another_spelling(shop: Shop, rewritten: list[str], same: bool) -> None:
    def pay(references: Sequence[str], **options: Any) -> list[bool]:
        items = [{"reference": each, "amount": 100, "phone": f"071234567{n}"} for n, each in enumerate(references)]
        outcomes = shop.sdk.collect(lambda client: client.payouts.pay_all(items, journal=shop.journal, **options))
        return [each.stops for each in outcomes]

    assert pay(["001", "002", "003"]) == [False] * 3
    assert pay(rewritten) == ([True] if same else [False] * 3)
    assert len(PAYOUTS.paid(shop.sandbox)) == (3 if same else 6)
    assert pay(rewritten, similar=True) == [False] * 3
    assert len(PAYOUTS.paid(shop.sandbox)) == 6


def staff(prefix: str, count: int = 3) -> list[Row]:
    return [Row(f"{prefix}-{n}", f"25471234567{n}", Decimal(100 + n)) for n in range(count)]


def keep(journal: Journal, payouts: Sequence[Row], state: Any = ACCEPTED, status: Any = "SUCCESS") -> None:
    for each in payouts:
        extra = {"status": status} if state is ACCEPTED else {}
        put(journal, each.reference, state, PAYOUT, amount=int(each.amount), **extra)
        execute(journal, f"UPDATE momopay_payments SET phone = '{each.phone}' WHERE reference = '{each.reference}'")


def age(journal: Journal, hours: float, reference: str = "%") -> None:
    sent = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    for table in ("payments", "transactions"):
        execute(journal, f"UPDATE momopay_{table} SET sent_at = '{sent}' WHERE reference LIKE '{reference}'")


def lately(journal: Journal, payouts: Sequence[Row], to_pay: Sequence[Row] | None = None) -> dict[str, str]:
    return find_paid_lately(journal, payouts, payouts if to_pay is None else to_pay)


def test_the_same_file_under_new_references_is_found(journal: Journal) -> None:
    keep(journal, staff("OLD"))
    age(journal, 11.9)
    assert lately(journal, staff("NEW")) == {f"NEW-{n}": f"OLD-{n}" for n in range(3)}
    age(journal, 12.1)
    assert lately(journal, staff("NEW")) == {}
    assert (timedelta(hours=12), 3) == (RECENT, FEWEST)


def test_fewer_than_three_and_anything_new_are_no_repetition(journal: Journal) -> None:
    keep(journal, staff("OLD", 4))
    age(journal, 1)
    assert lately(journal, staff("NEW", 2)) == {}
    assert len(lately(journal, staff("NEW", 4))) == 4
    assert lately(journal, [*staff("NEW"), Row("NEW-9", "254700000000")]) == {}
    assert lately(journal, [*staff("NEW")[:2], Row("NEW-2", "254712345672", Decimal("102.50"))]) == {}
    assert find_paid_lately(None, staff("NEW"), staff("NEW")) == {}


def test_a_run_that_goes_on_is_no_repetition(journal: Journal) -> None:
    """Two rows of the file pay the same amount to the same phone, and the first was paid before the interrupt."""
    file = [*staff("SAL"), Row("SAL-9", "254712345670", Decimal(100))]
    keep(journal, file[:3])
    age(journal, 1)
    assert lately(journal, file, file[3:]) == {}
    keep(journal, [Row("BONUS", "254712345670", Decimal(100))])
    age(journal, 1)
    assert lately(journal, file, file[3:]) == {"SAL-9": "BONUS"}
    assert lately(journal, file, []) == {}


@pytest.mark.parametrize(
    ("state", "status", "stops"),
    [
        (ACCEPTED, "SUCCESS", True),
        (ACCEPTED, "PENDING", True),
        (ACCEPTED, "PROCESSING", True),
        (ACCEPTED, "FAILED", True),  # the money is on its way back
        (ACCEPTED, "REVERSED", False),
        (ACCEPTED, "CANCELLED", False),
        (UNKNOWN, None, True),
        (REFUSED, None, False),
    ],
)
def test_what_may_be_paid_counts_and_what_came_back_does_not(
    journal: Journal, state: Any, status: Any, stops: bool
) -> None:
    keep(journal, staff("OLD"), state, status)
    age(journal, 1)
    assert bool(lately(journal, staff("NEW"))) == stops


def test_one_that_came_back_does_not_let_the_others_be_paid_twice(journal: Journal) -> None:
    keep(journal, staff("OLD"))
    execute(journal, "UPDATE momopay_transactions SET status = 'REVERSED' WHERE reference = 'OLD-0'")
    age(journal, 1)
    assert lately(journal, staff("NEW")) == {"NEW-1": "OLD-1", "NEW-2": "OLD-2"}


def test_the_attempt_that_was_accepted_counts_and_not_the_first(journal: Journal) -> None:
    keep(journal, staff("OLD"))
    age(journal, 30)
    execute(journal, f"UPDATE momopay_transactions SET sent_at = '{datetime.now(UTC).isoformat()}'")
    assert len(lately(journal, staff("NEW"))) == 3


@pytest.mark.parametrize("weeks", [12, pytest.param(52, marks=pytest.mark.whole)])
def test_weekly_wages_are_never_stopped(journal: Journal, weeks: int) -> None:
    """The same people, the same wages, references that are counted up, one a week."""
    for week in range(1, weeks + 1):
        wages = [Row(f"WAGE-2026-W{week:02}-{n}", f"25471234567{n}", Decimal(500)) for n in range(4)]
        assert (find_similar(journal, wages), lately(journal, wages)) == ({}, {})
        keep(journal, wages)
        age(journal, 7 * 24 * (60 - week), f"%-W{week:02}-%")
