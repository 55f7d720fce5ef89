"""Orders as people make them: another phone, a shared account reference, a callback that never came."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from journal.kit import PHONE, callback
from momopay import DuplicateCollectionError, JournalState, OutcomeUnknownError, RequestValidationError
from momopay.sandbox import Fault
from safety.kit import BY_HAND, OTHER_PHONE, Shop

METER = "METER-7"


def by_hand(shop: Shop) -> None:
    shop.sandbox.end_next("by_hand", times=9)


def phones(shop: Shop, kind: str) -> list[str]:
    return [each.phone for each in shop.sandbox.ledger if str(each.kind) == kind]


def test_a_customer_may_pay_from_another_phone(shop: Shop) -> None:
    """Once the first prompt has ended, the second goes to the new phone, and a refund to the one that paid."""
    by_hand(shop)
    shop.sandbox.cancel(shop.collect(phone=PHONE).transaction_id)
    second = shop.collect(phone=OTHER_PHONE)
    assert second.phone == OTHER_PHONE
    shop.settle(second)
    for phone in (PHONE, OTHER_PHONE):
        assert shop.collect(phone=phone).transaction_id == second.transaction_id
    assert (shop.prompts, phones(shop, "stk")) == (2, [OTHER_PHONE])
    shop.refund()
    assert phones(shop, "payout") == [OTHER_PHONE]


@pytest.mark.parametrize("answer_is_lost", [False, True])
def test_while_a_prompt_is_open_another_phone_is_refused(shop: Shop, answer_is_lost: bool) -> None:
    """Also while it is unresolved. Once it is known, the error says which phone, masked, and since when."""
    by_hand(shop)
    if answer_is_lost:
        shop.between.hold_next_post()
        with pytest.raises(OutcomeUnknownError):
            shop.collect(phone=PHONE)
        with pytest.raises((DuplicateCollectionError, OutcomeUnknownError)):
            shop.collect(phone=OTHER_PHONE)
        shop.between.deliver()
    else:
        shop.collect(phone=PHONE)
    with pytest.raises(DuplicateCollectionError) as caught:
        shop.collect(phone=OTHER_PHONE)
    text = str(caught.value)
    assert PHONE not in text
    assert "2547*****678" in text
    assert re.search(r"\d{4}-\d\d-\d\d|\d\d:\d\d", text), text
    assert shop.prompts == 1
    shop.settle(shop.collect(phone=PHONE))
    assert phones(shop, "stk") == [PHONE]


@pytest.mark.parametrize("phone", [BY_HAND, OTHER_PHONE])
def test_the_amount_never_differs(shop: Shop, phone: str) -> None:
    shop.sandbox.cancel(shop.collect().transaction_id)
    with pytest.raises(DuplicateCollectionError) as caught:
        shop.collect(amount=99, phone=phone)
    assert not caught.value.may_have_executed
    assert shop.prompts == 1


def test_what_belongs_to_another_order_is_not_taken(shop: Shop) -> None:
    """The second order's prompt was never sent; the first order's payment of the same amount is not its own."""
    first = shop.collect("O-1", account_reference=METER)
    shop.settle(first)
    shop.sweep()
    shop.between.hold_next_post()
    with pytest.raises(OutcomeUnknownError):
        shop.collect("O-2", account_reference=METER)
    shop.sweep()
    with pytest.raises(OutcomeUnknownError):
        shop.collect("O-2", account_reference=METER)
    assert shop.order("O-2").state is JournalState.UNKNOWN
    # The control: its own prompt, when it comes, is found beside the other order's.
    shop.between.deliver()
    shop.sweep()
    second = shop.order("O-2")
    assert second.state is JournalState.ACCEPTED
    assert first.transaction_id not in second.transaction_ids
    assert shop.prompts == 2


def test_a_refund_reads_an_order_whose_callback_was_lost(shop: Shop) -> None:
    prompt = shop.collect()
    with pytest.raises(RequestValidationError):  # the control: the customer has not paid yet
        shop.refund()
    assert shop.payouts == 0
    shop.settle(prompt)
    shop.refund()
    assert (shop.paid_in, shop.paid_out) == ({"O-1": 100}, {"O-1-R1": 100})


@pytest.mark.parametrize("known_by", ["callback", "sweep"])
def test_an_answer_with_a_foreign_id_takes_nothing_from_its_owner(shop: Shop, known_by: str) -> None:
    """The owner's answer was lost, so its id is nobody's yet when a broken answer names it for another payout."""
    shop.between.hold_next_post()
    with pytest.raises(OutcomeUnknownError):
        shop.pay("OWNER")
    shop.between.deliver()
    owners = shop.newest()
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.other_transaction)
    with suppress(OutcomeUnknownError):
        shop.pay("BROKEN", amount=70)
    shop.later(60)
    if known_by == "callback":
        recorded = shop.journal.record(callback("OWNER", owners, amount=100))
        assert recorded is not None
        assert recorded.reference == "OWNER"
    for _ in range(2):  # one shows that the id is not the other's, the next that it is the owner's
        shop.sweep()
    owner, broken = shop.entry("OWNER"), shop.entry("BROKEN")
    assert (owner.state, owner.transaction_id, owner.status) == (JournalState.ACCEPTED, owners, "SUCCESS")
    assert owners not in broken.transaction_ids
    for reference, amount in (("OWNER", 100), ("BROKEN", 70)):
        with suppress(OutcomeUnknownError):
            shop.pay(reference, amount=amount)
    assert shop.paid_out == {"OWNER": 100, "BROKEN": 70}
