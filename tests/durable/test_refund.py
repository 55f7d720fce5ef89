"""`refund` pays back what was paid of a collection, once, and never more."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from drivers import Driver
from durable.kit import pay, refund, requests, with_each_client_and_database
from journal.kit import ACCEPTED, COLLECTION, PHONE, REFUSED, found, put, put_collection, state_of
from momopay import (
    DuplicatePayoutError,
    InsufficientFundsError,
    Journal,
    OutcomeUnknownError,
    RequestValidationError,
)
from momopay.sandbox import Account, Fault, Sandbox


def paid_back(sandbox: Sandbox) -> dict[str | None, Decimal]:
    return {each.reference: abs(each.amount) for each in sandbox.ledger if each.kind == "payout"}


@with_each_client_and_database
def test_what_was_paid_is_paid_back_once(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    put_collection(journal)
    first, again = sdk(refund(journal, metadata={"why": "broken"})), sdk(refund(journal))
    assert (first.is_new, again.is_new, again.transaction_id) == (True, False, first.transaction_id)
    assert (first.amount, first.phone, first.reference) == (100, PHONE, "o-R1")
    entry = found(journal, "o-R1")
    assert (entry.refund_of, entry.metadata, entry.state) == ("o", {"why": "broken"}, ACCEPTED)
    with pytest.raises(DuplicatePayoutError):
        sdk(refund(journal, amount=50))
    with pytest.raises(RequestValidationError, match=r"'o-R1' KES 100 \(PENDING\)"):
        sdk(refund(journal, amount=10, reference="o-R2"))
    assert paid_back(sandbox) == {"o-R1": 100}


def test_a_part_that_was_paid_back_is_the_refund_until_the_order_is_paid_again(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    put_collection(journal)
    first, again = sdk(refund(journal, amount=40)), sdk(refund(journal))
    assert (again.is_new, again.amount, again.transaction_id) == (False, 40, first.transaction_id)
    assert paid_back(sandbox) == {"o-R1": 40}


def test_a_refund_that_is_unresolved_counts_and_one_that_was_refused_does_not(
    sdk: Driver, sandbox: Sandbox, account: Account, journal: Journal
) -> None:
    put_collection(journal)
    account.b2c_balance, before = Decimal(0), account.b2c_balance
    with pytest.raises(InsufficientFundsError):
        sdk(refund(journal))
    account.b2c_balance = before
    sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
    with pytest.raises(OutcomeUnknownError):
        sdk(refund(journal, reference="o-R2", amount=60))
    # Its amount is that of the first call, which does not fit any more.
    with pytest.raises(RequestValidationError, match=r"'o-R2' KES 60 \(UNKNOWN\)"):
        sdk(refund(journal))
    assert state_of(journal, "o-R1") is REFUSED
    sdk(refund(journal, reference="o-R3"))
    assert paid_back(sandbox) == {"o-R2": 60, "o-R3": 40}


def test_a_reference_is_that_of_a_refund_or_of_another_payout(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    put_collection(journal)
    put_collection(journal, "p")
    put(journal, "p-R1", REFUSED, amount=100, refund_of="p")
    sdk(pay(journal, "PAY", amount=100))
    sdk(refund(journal))
    for call in (
        refund(journal, of="p", reference="PAY"),
        refund(journal, of="p", reference="o-R1"),
        pay(journal, "o-R1", amount=100),
        pay(journal, "p-R1", amount=100),  # it would go out without its limit
    ):
        with pytest.raises(DuplicatePayoutError, match="another refund, or for none"):
            sdk(call)
    assert paid_back(sandbox) == {"PAY": 100, "o-R1": 100}


def test_what_cannot_be_refunded_sends_nothing(sdk: Driver, sandbox: Sandbox, journal: Journal) -> None:
    put_collection(journal)
    put_collection(journal, "cancelled", statuses=["CANCELLED"])
    put_collection(journal, "small", amount=9)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"of": "nobody"}, "of"),
        ({"of": "cancelled"}, "of"),
        ({"of": ""}, "of"),
        ({"of": 5}, "of"),
        ({"of": "small"}, "amount"),
        ({"amount": 9}, "amount"),
        ({"amount": 10.0}, "amount"),
        ({"amount": Decimal("100.01")}, "amount"),
        ({"reference": " x"}, "reference"),
        ({"metadata": 1}, "metadata"),
    ]
    for fields, at_fault in cases:
        with pytest.raises(RequestValidationError) as caught:
            sdk(refund(journal, **fields))
        assert caught.value.fields.keys() == {at_fault}, fields
    assert requests(sandbox) == []


def test_a_collection_that_was_anonymised_is_paid_back_to_a_phone_that_the_caller_knows(
    sdk: Driver, sandbox: Sandbox, journal: Journal
) -> None:
    entry = put_collection(journal)
    journal.anonymise(before=sandbox.now.replace(year=sandbox.now.year + 1))
    assert found(journal, "o", COLLECTION).is_anonymised
    with pytest.raises(RequestValidationError, match="pay_once"):
        sdk(refund(journal))
    assert (entry.phone, requests(sandbox)) == (PHONE, [])
