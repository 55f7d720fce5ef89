"""`Payment`, what the durable calls return."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from drivers import Driver
from durable.kit import BY_HAND, Calls, of_both_kinds
from journal.kit import PHONE, UNKNOWN, callback, entry_of, found
from momopay import EntryKind, Journal, Payment, PollSchedule, TransactionStatus
from momopay.durable.payment import payment_in
from momopay.sandbox import Sandbox


def payment(**fields: Any) -> Payment:
    known: dict[str, Any] = {
        "kind": EntryKind.PAYOUT,
        "reference": "r",
        "transaction_id": "t-1",
        "status": "PENDING",
        "amount": 10,
        "phone": PHONE,
        "is_new": True,
        **fields,
    }
    return Payment.model_validate(known)


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


def test_it_masks_its_phone_and_pickles() -> None:
    made = payment()
    assert PHONE not in repr(made)
    assert "2547*****678" in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_payment_in_the_journal_is_that_of_the_transaction_that_counts() -> None:
    entry = entry_of("CANCELLED", "SUCCESS", "PENDING")
    known = payment_in(entry)
    assert known is not None
    assert (known.transaction_id, known.status, known.is_new, known.transaction) == ("t-1", "SUCCESS", False, None)
    assert (known.kind, known.type, known.reference) == (EntryKind.COLLECTION, "STK", "o")
    assert payment_in(entry_of(state=UNKNOWN)) is None
    pending = payment_in(entry_of(None))
    assert pending is not None
    assert pending.status == "PENDING"


@of_both_kinds
def test_a_payment_can_be_waited_for_and_has_its_receipt(
    sdk: Driver, sandbox: Sandbox, journal: Journal, calls: Calls
) -> None:
    made = sdk(calls.once(journal))
    assert (made.is_new, made.receipt, made.transaction.transaction_id) == (True, None, made.transaction_id)
    if made.phone == BY_HAND:
        sandbox.enter_pin(made)
    sandbox.advance(600)
    schedule = PollSchedule(first=0.0, every=0.05, limit=5.0)
    assert sdk(lambda client: client.transactions.wait(made, schedule=schedule)).status == "SUCCESS"
    journal.record(
        callback("r", made.transaction_id, type=made.type.value, phone_number=made.phone, momo_receipt="SLK7")
    )
    assert found(journal).receipt == sdk(calls.once(journal)).receipt == "SLK7"
