"""What must hold between payments, as arithmetic. `test_store` shows that no interleaving breaks it."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pytest

from journal.kit import ACCEPTED, COLLECTION, NOT_SENT, PAYOUT, PHONE, REFUSED, SENDING, UNKNOWN, entry_of
from momopay import EntryKind, JournalEntry, JournalState, RequestValidationError
from momopay.journal.limits import Refundable, check_sharing, counts


def refund(
    number: int, amount: int, status: str | None = "SUCCESS", *, paid_before: int | None = 100, **fields: Any
) -> JournalEntry:
    return entry_of(
        status, kind=PAYOUT, amount=amount, reference=f"o-R{number}", paid_before=paid_before, refund_of="o", **fields
    )


ONCE, TWICE = entry_of("SUCCESS"), entry_of("SUCCESS", "FAILED", "SUCCESS")


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        (ACCEPTED, None, True),
        (ACCEPTED, "PENDING", True),
        (ACCEPTED, "SUCCESS", True),
        (ACCEPTED, "FAILED", True),  # until the money is back
        (ACCEPTED, "CANCELLED", True),
        (ACCEPTED, "REVERSED", False),
        (UNKNOWN, None, True),
        (SENDING, None, True),
        (REFUSED, None, False),
        (NOT_SENT, None, False),
    ],
)
def test_a_refund_counts_that_was_paid_or_may_be(state: JournalState, status: str | None, expected: bool) -> None:
    one = refund(1, 60, status, state=state)
    assert counts(one) is expected
    assert Refundable(ONCE, [one]).left == (40 if expected else 100)
    assert Refundable(ONCE, [one], besides="o-R1").left == 100


@pytest.mark.parametrize(
    ("order", "paid"), [(ONCE, 100), (TWICE, 200), (entry_of("FAILED", "PENDING"), 0), (entry_of(), 0)]
)
def test_all_paid_prompts_together_may_be_paid_back(order: JournalEntry, paid: int) -> None:
    assert Refundable(order, []).left == Refundable(order, []).paid == paid


@pytest.mark.parametrize(
    ("order", "refunds", "overpaid", "by_default"),
    [
        (ONCE, [], 0, 100),
        (ONCE, [refund(1, 30)], 0, 70),
        (TWICE, [], 100, 100),
        (TWICE, [refund(1, 30, paid_before=200)], 70, 70),
        (TWICE, [refund(1, 100, paid_before=200)], 0, 100),  # then the order itself
        (TWICE, [refund(1, 100)], 100, 100),  # it was given back before the late PIN came
        (TWICE, [refund(1, 30)], 100, 100),  # of the order's 100, 70 are still wanted
        (TWICE, [refund(1, 30), refund(2, 100, paid_before=200)], 0, 70),
        (TWICE, [refund(1, 100, "REVERSED")], 100, 100),
        (TWICE, [refund(1, 100, paid_before=None)], 0, 100),
        (TWICE, [refund(1, 200, paid_before=200)], 0, 0),
    ],
)
def test_what_was_paid_beyond_the_order_comes_back_first(
    order: JournalEntry, refunds: list[JournalEntry], overpaid: Decimal, by_default: Decimal
) -> None:
    refundable = Refundable(order, refunds)
    assert (refundable.overpaid, refundable.by_default) == (overpaid, by_default)


@pytest.mark.parametrize(("amount", "fits"), [(1, True), (40, True), (41, False), (0, False), (-1, False)])
def test_no_more_than_what_is_left_may_be_paid_back(amount: int, fits: bool) -> None:
    refundable = Refundable(ONCE, [refund(1, 60), refund(2, 50, "REVERSED")])
    with nullcontext() if fits else pytest.raises(RequestValidationError) as caught:
        refundable.check(entry_of(amount=amount).amount)
    if not fits:
        assert caught is not None
        assert caught.value.fields.keys() == {"amount"}
        text = caught.value.fields["amount"]
        assert "KES 40 of the KES 100" in text
        assert "'o-R1' KES 60 (SUCCESS)" in text
        assert "o-R2" not in text
        assert "sweep" not in text  # all that counts has settled


def test_one_that_may_come_back_is_explained() -> None:
    with pytest.raises(RequestValidationError, match=r"\(FAILED\).*REVERSED: sweep"):
        Refundable(ONCE, [refund(1, 100, "FAILED")]).check(ONCE.amount)
    with pytest.raises(RequestValidationError, match=r"\(UNKNOWN\).*sweep"):
        Refundable(ONCE, [entry_of(kind=PAYOUT, state=UNKNOWN, reference="o-R1")]).check(ONCE.amount)
    with pytest.raises(RequestValidationError, match=r"count: none$"):
        Refundable(entry_of("FAILED"), []).check(ONCE.amount)


def test_the_remedy_names_the_first_free_reference_and_the_amount() -> None:
    refunds = [refund(1, 30, paid_before=200), refund(3, 10, "REVERSED", paid_before=200)]
    assert Refundable(TWICE, refunds).free_reference() == "o-R2"
    said = Refundable(TWICE, refunds).remedy()
    assert said.startswith("pay back KES 70, with")
    assert "client.payouts.refund(of='o', reference='o-R2', amount=Decimal('70'))" in said
    cents = entry_of("SUCCESS", "SUCCESS", reference=PHONE).model_copy(update={"amount": ONCE.amount / 3})
    assert PHONE not in Refundable(cents, []).remedy()


@pytest.mark.parametrize(
    ("state", "statuses", "blocked"),
    [
        (ACCEPTED, ["PENDING"], True),
        (ACCEPTED, ["FAILED", "PROCESSING"], True),
        (ACCEPTED, ["PENDING", "SUCCESS"], True),
        (UNKNOWN, [], True),
        (SENDING, ["FAILED"], True),
        (UNKNOWN, ["SUCCESS"], True),
        (ACCEPTED, ["SUCCESS"], False),
        (ACCEPTED, ["CANCELLED"], False),
        (REFUSED, [], False),
        (NOT_SENT, ["EXPIRED"], False),
    ],
)
def test_an_order_that_is_open_or_unresolved_keeps_its_amount_for_itself(
    state: JournalState, statuses: list[str], blocked: bool
) -> None:
    def check(kind: EntryKind = COLLECTION, reference: str = "mine", amount: int = 100) -> None:
        other = entry_of(*statuses, kind=kind, state=state, reference="theirs", wire_reference="METER")
        check_sharing(other, "METER", reference, entry_of(amount=amount).amount)

    with pytest.raises(RequestValidationError, match="'theirs'") if blocked else nullcontext() as caught:
        check()
    if blocked:
        assert caught is not None
        assert caught.value.fields.keys() == {"account_reference"}
        assert not caught.value.may_have_executed
    check(amount=101)
    check(reference="theirs")
    check(kind=PAYOUT)
