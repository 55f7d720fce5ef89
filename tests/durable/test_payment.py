"""What the durable calls take and return: `Payment`, and the items, limits and outcomes of a payroll."""

import pickle
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from durable.kit import BY_HAND, Calls, Shop, of_both_kinds, over_both_clients
from journal.constants import PHONE, UNKNOWN
from journal.kit import entry_of
from journal.records import callback, payout
from momopay import (
    EntryKind,
    OutcomeUnknownError,
    Payment,
    PayoutItem,
    PollSchedule,
    RequestValidationError,
    TransactionStatus,
)
from momopay.durable.pay_all import PayoutLimits
from momopay.durable.payment import item_of, payment_in, payment_of, reference_in
from momopay.models.requests import PayoutRequest
from momopay.types import PayoutOutcome


def payment(**fields: Any) -> Payment:
    known = {"kind": EntryKind.PAYOUT, "reference": "r", "transaction_id": "t-1", "status": "PENDING", "amount": 10}
    return Payment.model_validate({**known, "phone": PHONE, "is_new": True, **fields})


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("PENDING", None),
        ("PROCESSING", None),
        ("ON_HOLD", None),
        ("SUCCESS", True),
        *((each, False) for each in ("FAILED", "CANCELLED", "EXPIRED", "REVERSED")),
    ],
)
def test_whether_it_is_paid(status: str, expected: bool | None) -> None:
    assert payment(status=TransactionStatus(status)).is_paid is expected


def test_a_payment_in_the_journal_is_that_of_the_transaction_that_counts() -> None:
    entry = entry_of("CANCELLED", "SUCCESS", "PENDING")
    known = payment_in(entry)
    assert known is not None
    assert (known.transaction_id, known.status, known.is_new, known.transaction) == ("t-1", "SUCCESS", False, None)
    assert (known.kind, known.type, known.reference) == (EntryKind.COLLECTION, "STK", "o")
    assert payment_in(entry_of(state=UNKNOWN)) is payment_in(entry_of("SUCCESS", state=UNKNOWN)) is None
    assert getattr(payment_in(entry_of(None)), "status", None) == "PENDING"


def test_what_only_the_journal_knows_is_added_to_a_record() -> None:
    """A page has no result code, and a read no fee; and a record that is behind a callback takes nothing back."""
    entry = entry_of("SUCCESS", "FAILED", kind=EntryKind.PAYOUT)
    known = {"fee": Decimal(7), "result_code": "0", "receipt": "SLK7"}
    transactions = (entry.transactions[0].model_copy(update=known), entry.transactions[1])
    entry = entry.model_copy(update={"transactions": transactions})
    for status in ("SUCCESS", "PENDING"):
        made = payment_of(entry, payout("o", transactionId="t-0", status=status))
        assert (made.is_paid, made.fee, made.receipt) == (True, Decimal(7), "SLK7")
        assert made.result_code == "0"
    assert payment_of(entry, payout("o", transactionId="t-0", transactionFee=5)).fee == 5
    assert payment_of(entry, payout("o", phone=None)).phone == PHONE


@over_both_clients
@of_both_kinds
def test_a_payment_can_be_waited_for_and_has_its_receipt(shop: Shop, calls: Calls) -> None:
    shop.account.switches.receipt_in_reads = False  # or else it is known before the callback
    made = shop(calls.once(shop.journal))
    assert (made.is_new, made.receipt, made.transaction.transaction_id) == (True, None, made.transaction_id)
    if made.phone == BY_HAND:
        shop.sandbox.enter_pin(made)
    shop.later(600)
    schedule = PollSchedule(first=0.0, every=0.05, limit=5.0)
    assert shop(lambda client: client.transactions.wait(made, schedule=schedule)).status == "SUCCESS"
    shop.journal.record(
        callback("r", made.transaction_id, type=made.type.value, phone_number=made.phone, momo_receipt="SLK7")
    )
    assert shop.entry().receipt == shop(calls.once(shop.journal)).receipt == "SLK7"


ITEM = PayoutItem(reference="SAL-1", amount=10, phone="0712 345 678", metadata={"file": "a.csv"})


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"reference": "SAL-1"}, {"amount", "phone"}),
        ({"reference": "SAL-1", "amount": 10, "phone": "0712345678", "amont": 10}, {"amont"}),
        ({"reference": "SAL-1", "amount": 10, "phone": "0712345678", "0712345678": 10}, {"0712*****678"}),
        ("SAL-1", {"payouts"}),
        (None, {"payouts"}),
    ],
)
def test_what_is_no_item_is_refused(given: Any, names: set[str]) -> None:
    with pytest.raises(RequestValidationError) as refused:
        item_of(given)
    assert refused.value.fields.keys() == names


def test_an_item_that_cannot_be_paid_is_reported_under_its_reference() -> None:
    given = ({"reference": "SAL-1"}, ITEM, {"reference": 7}, 7)
    assert [reference_in(each) for each in given] == ["SAL-1", "SAL-1", "", ""]


def test_what_they_take_and_return_pickles_and_masks_phones() -> None:
    error = OutcomeUnknownError("to 0712345678", sent_at=datetime.now(UTC))
    item = PayoutItem(reference="PAY-0712345678", amount=10, phone="712345678")
    outcome = PayoutOutcome("SAL-1", UNKNOWN)
    for shown in map(repr, (ITEM, item, payment(), PayoutOutcome("0712345678", UNKNOWN, error=error))):
        assert "12345678" not in shown
        assert "678" in shown
    assert "SAL-1" in repr(ITEM)
    assert "reference='SAL-1', state='UNKNOWN'" in repr(outcome)
    for value in (ITEM, outcome, payment()):
        assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("limit", [1.0, True, "100", Decimal("NaN"), -1, Decimal("0.001")])
@pytest.mark.parametrize("name", ["max_total", "max_each"])
def test_a_limit_is_an_amount(name: str, limit: Any) -> None:
    with pytest.raises(RequestValidationError) as refused:
        PayoutLimits.checked(**{name: limit})
    assert refused.value.fields.keys() == {name}


FIVE = ", ".join(f"'SAL-{number}' (KES {amount})" for number, amount in enumerate((20, 20, 20, 20, 21), start=2))


@pytest.mark.parametrize(
    ("max_total", "max_each", "exceeded"),
    [
        (None, None, {}),
        (Decimal("121.50"), 21, {}),
        (Decimal("121.49"), None, {"max_total": "7 payouts come to KES 121.50, more than KES 121.49"}),
        (None, 20, {"max_each": "more than KES 20: 'SAL-6' (KES 21)"}),
        (200, Decimal("10.50"), {"max_each": f"more than KES 10.50: {FIVE}"}),
        (
            120,
            10,
            {
                "max_total": "7 payouts come to KES 121.50, more than KES 120",
                "max_each": f"more than KES 10: 'SAL-1' (KES 10.50), {FIVE.rpartition(', ')[0]}, 1 others",
            },
        ),
    ],
)
def test_the_limits_are_exact_and_an_error_names_what_exceeds(
    max_total: Any, max_each: Any, exceeded: dict[str, str]
) -> None:
    amounts = (10, Decimal("10.50"), *[20] * 4, 21)
    made = [
        PayoutRequest.checked(reference=f"SAL-{number}", amount=amount, phone="0712345678")
        for number, amount in enumerate(amounts)
    ]
    limits = PayoutLimits.checked(max_total=max_total, max_each=max_each)
    with pytest.raises(RequestValidationError) if exceeded else nullcontext() as refused:
        limits.check(made)
    assert (refused.value.fields if refused else {}) == exceeded
