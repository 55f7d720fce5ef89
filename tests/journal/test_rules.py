"""The rules of the journal, as tables, and what may be refunded. `test_store` compares the SQL with them."""

from contextlib import nullcontext
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from journal.constants import ACCEPTED, COLLECTION, NOT_SENT, PAYOUT, PHONE, REFUSED, SENDING, UNKNOWN
from journal.kit import entry_of
from model.rules import may_follow
from momopay import EntryKind, JournalEntry, JournalState, RequestValidationError
from momopay.journal import rules
from momopay.journal.entries import MAY_BE_SENT, Moment
from momopay.journal.rules import Cause, Proof, Refundable
from momopay.models.enums import Stage, TransactionStatus

OPEN, ENDED, PAID = Stage.OPEN, Stage.ENDED, Stage.PAID
both_kinds = pytest.mark.parametrize("kind", EntryKind)


@both_kinds
def test_no_second_call_begins_what_is_under_way_or_unknown(kind: EntryKind) -> None:
    assert not may_follow(kind, Cause.BEGIN, SENDING, SENDING)
    assert not may_follow(kind, Cause.BEGIN, UNKNOWN, SENDING)


@both_kinds
def test_only_a_person_frees_what_is_unknown(kind: EntryKind) -> None:
    freeing = {cause for cause in Cause for free in MAY_BE_SENT if may_follow(kind, cause, UNKNOWN, free)}
    assert freeing == {Cause.RELEASE}


@pytest.mark.parametrize(
    ("state", "statuses", "payout", "order"),
    [
        (UNKNOWN, [], True, True),
        (SENDING, [], True, True),
        (REFUSED, [], False, False),
        (NOT_SENT, ["CANCELLED"], True, False),
        (REFUSED, ["CANCELLED", "PENDING"], True, True),
        (ACCEPTED, ["CANCELLED"], True, False),
        (ACCEPTED, ["CANCELLED", "SUCCESS"], True, True),
    ],
)
def test_whether_money_may_have_moved(state: JournalState, statuses: list[str], payout: bool, order: bool) -> None:
    assert rules.may_have_executed(entry_of(*statuses, kind=PAYOUT, state=state)) is payout
    assert rules.may_have_executed(entry_of(*statuses, kind=COLLECTION, state=state)) is order


@pytest.mark.parametrize(
    ("exact", "near", "payout", "order"),
    [
        ([1], [], Proof.MADE, Proof.MADE),
        ([1], [2], Proof.MADE, Proof.MADE),
        ([1, 2], [], Proof.UNRESOLVED, Proof.MADE),  # an order may have several prompts
        ([], [1], Proof.UNRESOLVED, Proof.UNRESOLVED),
        ([], [], Proof.ABSENT, Proof.ABSENT),
    ],
)
def test_what_a_search_proves(exact: list[int], near: list[int], payout: Proof, order: Proof) -> None:
    assert (rules.proof(PAYOUT, exact, near), rules.proof(COLLECTION, exact, near)) == (payout, order)


def refund(
    number: int, amount: int, *statuses: str | None, paid_before: int | None = 100, **fields: Any
) -> JournalEntry:
    fields |= {"reference": f"o-R{number}", "paid_before": paid_before, "refund_of": "o"}
    if not statuses and "state" not in fields:
        statuses = ("SUCCESS",)
    return entry_of(*statuses, kind=PAYOUT, amount=amount, **fields)


ONCE, TWICE = entry_of("SUCCESS"), entry_of("SUCCESS", "FAILED", "SUCCESS")


@pytest.mark.parametrize(
    ("state", "statuses", "times"),
    [
        (ACCEPTED, [None], 1),
        (ACCEPTED, ["PENDING"], 1),
        (ACCEPTED, ["SUCCESS"], 1),
        (ACCEPTED, ["FAILED"], 1),  # until the money is back
        (ACCEPTED, ["EXPIRED"], 1),
        (ACCEPTED, ["CANCELLED"], 0),
        (ACCEPTED, ["REVERSED"], 0),
        (ACCEPTED, ["SUCCESS", "SUCCESS"], 2),  # released, and made after all
        (ACCEPTED, ["PENDING", "REVERSED"], 1),
        (UNKNOWN, ["SUCCESS"], 2),
        (UNKNOWN, [], 1),
        (SENDING, [], 1),
        (REFUSED, [], 0),
        (NOT_SENT, [], 0),
    ],
)
def test_a_refund_counts_as_often_as_it_may_be_paid(
    state: JournalState, statuses: list[str | None], times: int
) -> None:
    one = refund(1, 40, *statuses, state=state)
    assert rules.refunded(one) == 40 * times
    assert Refundable(ONCE, [one]).left == 100 - 40 * times
    assert Refundable(ONCE, [one], excluding="o-R1").left == 100


@pytest.mark.parametrize(
    ("payers", "refunds", "expected"),
    [
        *(("ab", "", ("b", 100)), ("abc", "", ("c", 100)), ("aba", "", ("a", 200)), ("aba", "a", ("a", 100))),
        *(("ab", "b", ("a", 100)), ("ab", "ba", ("b", 0)), ("ab", "a", ("b", 100)), ("abc", "c", ("b", 100))),
    ],
)
def test_who_paid_last_and_has_not_all_back_is_paid_back(payers: str, refunds: str, expected: tuple[str, int]) -> None:
    """Up to what this phone paid: the rest goes to the others."""
    order = entry_of(*["SUCCESS"] * len(payers))
    paid = [each.model_copy(update={"phone": phone}) for each, phone in zip(order.transactions, payers, strict=True)]
    made = [refund(number, 100, phone=phone) for number, phone in enumerate(refunds)]
    refundable = Refundable(order.model_copy(update={"transactions": tuple(paid)}), made)
    assert (refundable.phone, int(refundable.default_amount)) == expected
    assert f"pay back KES {expected[1]}," in refundable.remedy()


def test_of_an_anonymised_order_nothing_shows_who_paid() -> None:
    assert Refundable(ONCE.model_copy(update={"phone": ""}), [refund(1, 30, phone="")]).left_to("a") == 70


@pytest.mark.parametrize(
    ("order", "refunds", "overpaid", "default_amount"),
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
        (entry_of("FAILED", "PENDING"), [], 0, 0),
    ],
)
def test_what_was_paid_beyond_the_order_comes_back_first(
    order: JournalEntry, refunds: list[JournalEntry], overpaid: Decimal, default_amount: Decimal
) -> None:
    refundable = Refundable(order, refunds)
    assert (refundable.overpaid, refundable.default_amount) == (overpaid, default_amount)


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
    listed = r"left to refund\. These refunds count: 'o-R1' KES 30 \(SUCCESS\), 'o-R2' KES 20 \(SUCCESS\)$"
    with pytest.raises(RequestValidationError, match=listed):
        Refundable(ONCE, [refund(1, 30), refund(2, 20)]).check(ONCE.amount)
    with pytest.raises(RequestValidationError, match=r"^amount: KES 0 of .* is left to refund to 07XX.*; refund each"):
        Refundable(ONCE, []).check(ONCE.amount, "07XX12345678")
    with pytest.raises(RequestValidationError, match=r"count: none$"):
        Refundable(entry_of("FAILED"), []).check(ONCE.amount)


def test_the_remedy_names_the_first_free_reference_and_the_amount() -> None:
    refunds = [refund(1, 30, paid_before=200), *(refund(each, 10, "REVERSED", paid_before=200) for each in (2, 4))]
    assert [Refundable(TWICE, made).free_reference() for made in ([], refunds)] == ["o-R1", "o-R3"]
    said = Refundable(TWICE, refunds).remedy()
    assert said.startswith("pay back KES 70, with")
    assert "client.payouts.refund(of='o', reference='o-R3', amount=Decimal('70'))" in said
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
def test_an_open_or_unresolved_order_keeps_its_amount(state: JournalState, statuses: list[str], blocked: bool) -> None:
    def check(kind: EntryKind = COLLECTION, reference: str = "mine", amount: int = 100) -> None:
        other = entry_of(*statuses, kind=kind, state=state, reference="theirs", wire_reference="METER")
        rules.check_sharing(other, "METER", reference, entry_of(amount=amount).amount)

    with pytest.raises(RequestValidationError, match=r"'METER' .* 'theirs'") if blocked else nullcontext() as caught:
        check()
    if blocked:
        assert caught is not None
        assert caught.value.fields.keys() == {"account_reference"}
        assert not caught.value.may_have_executed
    check(amount=101)
    check(reference="theirs")
    check(kind=PAYOUT)
    theirs = [entry_of(*statuses, kind=each, state=state, reference="theirs") for each in (COLLECTION, PAYOUT)]
    contested = [rules.is_contested(entry_of(state=mine), [each]) for mine in (REFUSED, UNKNOWN) for each in theirs]
    assert contested == [state in {SENDING, UNKNOWN}, False, False, False], "what a search shows may be that one's"


@pytest.mark.parametrize(
    ("seconds", "status", "expected"),
    [
        *((-3.1, "PENDING", True), (-3, "FAILED", False), (299, "FAILED", False), (300, "FAILED", True)),
        *((300, "PENDING", False), (None, "FAILED", True), (None, "PENDING", False)),
    ],
)
def test_a_prompt_before_the_latest_attempt_is_an_earlier_one(
    seconds: float | None, status: str, expected: bool
) -> None:
    entry = entry_of(state=UNKNOWN, attempts=2, clock_offset=60.0)
    sent_at = entry.sent_at - timedelta(seconds=60)  # by the service's clock
    created_at = None if seconds is None else sent_at + timedelta(seconds=seconds)
    assert rules.is_earlier(entry, created_at, TransactionStatus(status)) is expected


@pytest.mark.parametrize(
    ("kind", "state", "now", "seconds"),
    [
        *((PAYOUT, UNKNOWN, Moment("m", clock, None), left) for clock, left in ((150, 850), (99, 901), (98.9, 0))),
        *((PAYOUT, UNKNOWN, Moment("another", 150, service), left) for service, left in ((None, 0), (2150, 750))),
        *((kind, state, Moment("m", 150, None), 0) for kind, state in ((PAYOUT, ACCEPTED), (COLLECTION, UNKNOWN))),
    ],
)
def test_for_how_long_a_key_may_be_sent_again(
    kind: EntryKind, state: JournalState, now: Moment, seconds: float
) -> None:
    entry = entry_of(kind=kind, state=state, key_since=str(Moment("m", 100, 2000)))
    assert rules.seconds_to_resend(entry, now) == seconds
