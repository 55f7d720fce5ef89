"""Callbacks in any order, forged, or late: what ranks higher stays, and what nobody showed is not believed."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from momopay import EntryKind, OutcomeUnknownError, RequestValidationError
from momopay.sandbox import Fault, Outcome, phone_for
from safety.kit import (
    BY_HAND,
    PHONE,
    SEARCH_AGAIN,
    Shop,
    callback_for,
    parsed,
    records_of,
)
from safety.webhook import SIGNER, serve


def to_prompt(identity: str, status: str = "SUCCESS", **fields: Any) -> dict[str, Any]:
    return callback_for(identity, "O-1", status, **{"type": "STK", "phone_number": BY_HAND, **fields})


@pytest.mark.parametrize("status", ["FAILED", "PENDING"])
@pytest.mark.parametrize("kind", list(EntryKind))
def test_what_a_callback_paid_stays_paid_whatever_reads_a_stale_record(
    shop: Shop, kind: EntryKind, status: str
) -> None:
    """By the same call again, sweeps, a day's reconciliation and `settle`: no second prompt, and no other status."""
    reference, made, body = shop.made(kind)
    if kind is EntryKind.PAYOUT:
        shop.later(60)
    else:
        shop.settle(made)
    shop.journal.record(parsed(body))
    handled: list[str] = []

    def stale(_path: str, data: Any) -> None:
        for record in records_of(data, made.transaction_id):
            record["status"] = status

    def handle(transaction: Any) -> None:
        handled.append(str(transaction.status))

    shop.between.edit = stale
    (listed,) = shop(lambda client: client.transactions.list()).items
    assert listed.status == status, "the control: the list is stale"
    shop.journal.settle(listed)
    again = shop.pay() if kind is EntryKind.PAYOUT else shop.collect()
    assert (again.transaction_id, str(again.status), again.is_paid) == (made.transaction_id, "SUCCESS", True)
    day = (shop.sandbox.now + timedelta(hours=3)).date()
    shop(lambda client: client.transactions.reconcile(journal=shop.journal, day=day))
    for _ in range(2):
        shop.later(SEARCH_AGAIN)
        shop.sweep(handle)
    entry = shop.entry(reference, kind)
    assert (str(entry.status), entry.transaction_ids) == ("SUCCESS", (made.transaction_id,))
    assert status not in handled
    assert shop.payouts + shop.prompts == 1


def test_an_invented_transaction_pays_no_order_and_raises_no_cap(shop: Shop) -> None:
    """A valid token proves the order and not the id: no prompt until a read of the service shows it."""
    webhook = serve(signer=SIGNER, journal=shop.journal)
    prompt = shop.collect()
    webhook.signed("O-1", to_prompt(str(uuid4())))
    assert shop.order().transaction_ids == (prompt.transaction_id,)
    with pytest.raises(RequestValidationError):
        shop.refund()
    assert shop.collect().status == "PENDING"
    shop.settle(prompt)
    webhook.signed("O-1", to_prompt(prompt.transaction_id))
    webhook.signed("O-1", to_prompt(str(uuid4())))
    shop.refund()
    with pytest.raises(RequestValidationError):
        shop.refund(reference="O-1-R2", amount=100)
    assert shop.paid_out == {"O-1-R1": 100}
    assert not shop.order().paid_twice


def test_a_true_callback_about_a_prompt_whose_answer_was_lost_counts(shop: Shop) -> None:
    """The control of the one above: what the service shows is recorded, whether the callback or a sweep is first."""
    webhook = serve(signer=SIGNER, journal=shop.journal)
    shop.sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    shop.sandbox.end_next(Outcome.success)
    with pytest.raises(OutcomeUnknownError):
        shop.collect()
    shop.later(60)
    webhook.signed("O-1", to_prompt(shop.newest()))
    shop.sweep()
    entry = shop.order()
    assert (entry.transaction_ids, entry.status) == ((shop.newest(),), "SUCCESS")
    assert (shop.prompts, shop.paid_in) == (1, {"O-1": 100})


def test_the_fee_is_the_one_that_was_charged_at_the_end(shop: Shop) -> None:
    """A fee of 10 while pending is 0 once the payout failed; one of 0 while processing is 10 once it is paid."""
    shop.account.fee = Decimal(10)
    shop.pay("FAILS", phone=phone_for(Outcome.reversed))
    shop.pay("SUCCEEDS", phone=PHONE)
    for wait in (0, 10, 30, 20):
        shop.later(wait)
        shop.sweep()
    ends = {name: shop.entry(name) for name in ("FAILS", "SUCCEEDS")}
    assert {name: str(each.status) for name, each in ends.items()} == {"FAILS": "REVERSED", "SUCCEEDS": "SUCCESS"}
    assert {name: each.fee for name, each in ends.items()} == {"FAILS": Decimal(0), "SUCCEEDS": Decimal(10)}
