"""All refunds of a collection together never exceed what was paid, whoever begins them and when."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal

import pytest

from journal.kit import PHONE, execute, found, just_before, lease_of, put_collection, record, sender
from momopay import Journal, JournalEntry, JournalState, RequestValidationError
from momopay.journal.refunds import Refunds
from momopay.journal.reports import refunds_of

ACCEPTED, UNKNOWN, NOT_SENT, REFUSED, SENDING = (
    JournalState.ACCEPTED,
    JournalState.UNKNOWN,
    JournalState.NOT_SENT,
    JournalState.REFUSED,
    JournalState.SENDING,
)


@pytest.fixture
def refunds(journal: Journal) -> Refunds:
    """The refunds of a collection of KES 100 that was paid once."""
    put_collection(journal)
    return refunds_of(journal, "o")


def begin(journal: Journal, reference: str, amount: int, state: JournalState = ACCEPTED) -> JournalEntry | None:
    """Begin a refund, and bring it into a state if it may be sent."""
    refunds = refunds_of(journal, "o")
    with lease_of(journal) as lease:
        forbidding = refunds.begin(
            lease,
            reference=reference,
            amount=Decimal(amount),
            phone=PHONE,
            body_hash="hash",
            seconds=600,
            read=journal.get(reference),
        )
        if forbidding is None and state is not SENDING:
            record(journal, lease, state, reference)
    return forbidding


def left(refunds: Refunds) -> Decimal:
    return refunds.refundable(besides="").left


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        (ACCEPTED, None, 40),
        (ACCEPTED, "PENDING", 40),
        (ACCEPTED, "SUCCESS", 40),
        (ACCEPTED, "FAILED", 40),
        (ACCEPTED, "CANCELLED", 40),
        (ACCEPTED, "REVERSED", 100),
        (UNKNOWN, None, 40),
        (UNKNOWN, "REVERSED", 40),
        (SENDING, None, 40),
        (REFUSED, None, 100),
        (NOT_SENT, None, 100),
    ],
)
def test_what_was_paid_or_may_be_counts(
    journal: Journal, refunds: Refunds, state: JournalState, status: str | None, expected: int
) -> None:
    assert begin(journal, "first", 60, state) is None
    if status is not None:
        execute(journal, f"UPDATE momopay_payments SET status = '{status}' WHERE reference = 'first'")
    assert left(refunds) == expected
    assert found(journal, "first").refund_of == "o"
    if expected == 40:
        with pytest.raises(RequestValidationError, match="'first' KES 60") as caught:
            begin(journal, "second", 41)
        assert caught.value.fields.keys() == {"amount"}
        assert not caught.value.may_have_executed
        assert journal.get("second") is None
        assert begin(journal, "second", 40) is None
    else:
        assert begin(journal, "second", 100) is None


def test_a_live_sender_counts(journal: Journal, url: str) -> None:
    put_collection(journal)
    with sender(url, reference="first") as other:
        assert other.says() == "held"
        execute(journal, "UPDATE momopay_payments SET refund_of = 'o' WHERE reference = 'first'")
        assert left(refunds_of(journal, "o")) == 90


@pytest.mark.both_databases
@pytest.mark.parametrize(("mine", "other", "fits"), [(60, 60, False), (100, 100, False), (60, 40, True)])
def test_two_that_begin_at_once_never_exceed_what_was_paid(
    journal: Journal, refunds: Refunds, mine: int, other: int, fits: bool
) -> None:
    # The other one begins after this one has counted, and before its row is written.
    with (
        just_before("INSERT", journal, lambda: begin(journal, "other", other)),
        nullcontext() if fits else pytest.raises(RequestValidationError, match="'other'"),
    ):
        assert begin(journal, "mine", mine) is None
    assert left(refunds) == (0 if fits else 100 - other)
    assert (found(journal, "mine").state, found(journal, "mine").attempts) == ((ACCEPTED, 1) if fits else (NOT_SENT, 0))


def test_a_refund_that_is_sent_again_is_checked_again(journal: Journal, refunds: Refunds) -> None:
    assert begin(journal, "first", 60, REFUSED) is None
    assert begin(journal, "second", 60) is None
    with pytest.raises(RequestValidationError, match="'second' KES 60"):
        begin(journal, "first", 60)
    assert found(journal, "first").state is REFUSED
    execute(journal, "UPDATE momopay_payments SET status = 'REVERSED' WHERE reference = 'second'")
    assert begin(journal, "first", 60) is None
    assert found(journal, "first").attempts == 2


@pytest.mark.parametrize(
    ("statuses", "problem"),
    [(["PENDING"], "PENDING"), (["FAILED"], "FAILED"), (["FAILED", "CANCELLED"], "CANCELLED")],
)
def test_what_was_not_paid_is_not_paid_back(journal: Journal, statuses: list[str], problem: str) -> None:
    put_collection(journal, statuses=statuses)
    with pytest.raises(RequestValidationError, match=problem) as caught:
        refunds_of(journal, "o").plan("o-R1", None)
    assert caught.value.fields.keys() == {"of"}


def test_a_collection_that_nobody_knows_is_not_paid_back(journal: Journal) -> None:
    with pytest.raises(RequestValidationError, match="no collection in this journal"):
        refunds_of(journal, "o").plan("o-R1", None)


def test_another_account_of_the_journal_has_its_own_collections(url: str, journal: Journal) -> None:
    put_collection(journal)
    with Journal(url, account="other") as other, pytest.raises(RequestValidationError):
        refunds_of(other, "o").plan("o-R1", None)


def test_by_default_all_that_is_left_is_paid_back(journal: Journal, refunds: Refunds) -> None:
    assert refunds.plan("o-R1", None) == (100, PHONE)
    begin(journal, "o-R1", 30)
    assert refunds.plan("o-R2", None) == (70, PHONE)
    assert refunds.plan("o-R1", None) == (30, PHONE)  # the same as the first time
    assert refunds.plan("o-R1", 50) == (50, PHONE)  # which the row then refuses
    begin(journal, "o-R2", 70)
    with pytest.raises(RequestValidationError, match="KES 0 of the KES 100"):
        refunds.plan("o-R3", None)


def test_of_an_order_that_was_paid_twice_the_default_is_one_payment(journal: Journal) -> None:
    put_collection(journal, statuses=["SUCCESS", "FAILED", "SUCCESS"])
    refunds = refunds_of(journal, "o")
    assert refunds.plan("o-R1", None) == (100, PHONE)
    begin(journal, "o-R1", 30)
    assert refunds.plan("o-R2", None) == (70, PHONE)
    begin(journal, "o-R2", 70)
    assert refunds.plan("o-R3", None) == (100, PHONE)
    begin(journal, "o-R3", 100)
    with pytest.raises(RequestValidationError):
        begin(journal, "o-R4", 10)


@pytest.mark.parametrize("phone", ["", "hmac-sha256:ab"])
def test_an_anonymised_payer_cannot_be_paid_back(journal: Journal, refunds: Refunds, phone: str) -> None:
    execute(journal, f"UPDATE momopay_payments SET phone = '{phone}'")
    with pytest.raises(RequestValidationError, match="anonymised"):
        refunds.plan("o-R1", None)
