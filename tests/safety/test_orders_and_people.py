"""Orders as people make them: another phone, a shared account reference, a callback that never came."""

import re
from contextlib import suppress

import pytest

from journal.constants import PHONE
from journal.records import callback
from momopay import DuplicateCollectionError, JournalState, OutcomeUnknownError, RequestValidationError
from momopay.sandbox import Fault
from safety.kit import HOUR, OTHER_PHONE, SEARCH_AGAIN, FragileShop

METER = "METER-7"


def phones(shop: FragileShop, kind: str) -> list[str]:
    return [each.phone for each in shop.sandbox.ledger if str(each.kind) == kind]


def test_a_customer_may_pay_from_another_phone_and_never_another_amount(shop: FragileShop) -> None:
    """Once the first prompt has ended, the second goes to the new phone, and a refund to the one that paid."""
    shop.sandbox.end_next("by_hand", times=9)
    shop.sandbox.cancel(shop.collect(phone=PHONE).transaction_id)
    for phone in (PHONE, OTHER_PHONE):
        with pytest.raises(DuplicateCollectionError) as caught:
            shop.collect(amount=11, phone=phone)
        assert not caught.value.may_have_executed
    second = shop.collect(phone=OTHER_PHONE)
    assert second.phone == OTHER_PHONE
    shop.settle(second)
    for phone in (PHONE, OTHER_PHONE):
        assert shop.collect(phone=phone).transaction_id == second.transaction_id
    assert (shop.prompts, phones(shop, "stk")) == (2, [OTHER_PHONE])
    shop.refund()
    assert phones(shop, "payout") == [OTHER_PHONE]


@pytest.mark.parametrize("answer_is_lost", [False, True])
def test_while_a_prompt_is_open_another_phone_is_refused(shop: FragileShop, answer_is_lost: bool) -> None:
    """Also while it is unresolved. Once it is known, the error says which phone, masked, and since when."""
    shop.sandbox.end_next("by_hand", times=9)
    if answer_is_lost:
        shop.send_unresolved(shop.collect, phone=PHONE)
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


def test_what_belongs_to_another_order_is_not_taken(shop: FragileShop) -> None:
    """The second order's prompt was never sent; the first order's payment of the same amount is not its own."""
    first = shop.collect("o", account_reference=METER)
    shop.settle(first)
    shop.sweep()
    shop.send_unresolved(shop.collect, "O-2", account_reference=METER)
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


def lose(shop: FragileShop, reference: str, fault: Fault, amount: int = 10) -> None:
    shop.sandbox.fail_next("POST", "/payments/stk", fault)
    with pytest.raises(OutcomeUnknownError):
        shop.collect(reference, account_reference=METER, amount=amount)


@pytest.fixture
def released(shop: FragileShop) -> FragileShop:
    """The order "o" of the meter was not made, and was released, ten minutes ago."""
    lose(shop, "o", Fault.error_before_commit)
    shop.later(HOUR)
    shop.release("o")
    shop.later(SEARCH_AGAIN)
    return shop


@pytest.mark.parametrize("shown_to", ["collect_once", "settle", "sweep"])
def test_what_may_be_an_unresolved_orders_is_not_taken_for_another_one(released: FragileShop, shown_to: str) -> None:
    lose(released, "O-2", Fault.error_after_commit)
    (made,) = released(lambda client: client.transactions.list())
    released.settle(made)
    if shown_to == "collect_once":
        assert released.collect("o", account_reference=METER).is_new
    elif shown_to == "settle":
        released.journal.settle(released(lambda client: client.transactions.get(made)))
    else:
        released.sweep()
    assert (released.order("O-2").transaction_ids, released.order("O-2").status) == ((made.transaction_id,), "SUCCESS")
    assert made.transaction_id not in released.order().transaction_ids


def test_an_order_waits_for_an_unresolved_one_whose_prompt_would_be_a_near_match(released: FragileShop) -> None:
    """It has another amount. Once it is found, the first order goes on."""
    released.send_unresolved(released.collect, "O-2", account_reference=METER, amount=25)
    with pytest.raises(RequestValidationError, match="that of another order"):
        released.collect("o", account_reference=METER)
    assert released.order().state is JournalState.NOT_SENT
    released.between.deliver()
    assert released.collect("o", account_reference=METER).is_new


def test_unresolved_orders_do_not_wait_for_each_other(shop: FragileShop) -> None:
    for reference, amount in (("o", 10), ("O-2", 25)):
        lose(shop, reference, Fault.error_after_commit, amount)
    shop.sweep()
    assert shop.order().state is shop.order("O-2").state is JournalState.ACCEPTED


def test_a_refund_reads_an_order_whose_callback_was_lost(shop: FragileShop) -> None:
    prompt = shop.collect()
    with pytest.raises(RequestValidationError):  # the control: the customer has not paid yet
        shop.refund()
    assert shop.payouts == 0
    shop.settle(prompt)
    shop.refund()
    assert (shop.paid_in, shop.paid_out) == ({"o": 10}, {"o-R1": 10})


@pytest.mark.parametrize("known_by", ["callback", "sweep"])
def test_an_answer_with_a_foreign_id_takes_nothing_from_its_owner(shop: FragileShop, known_by: str) -> None:
    """The owner's answer was lost, so its id is nobody's yet when a broken answer names it for another payout."""
    shop.send_unresolved(shop.pay, "OWNER")
    shop.between.deliver()
    owners = shop.newest()
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.other_transaction)
    with suppress(OutcomeUnknownError):
        shop.pay("BROKEN", amount=70)
    shop.later(60)
    if known_by == "callback":
        recorded = shop.journal.record(callback("OWNER", owners))
        assert recorded is not None
        assert recorded.reference == "OWNER"
    for _ in range(2):  # one shows that the id is not the other's, the next that it is the owner's
        shop.sweep()
    owner, broken = shop.entry("OWNER"), shop.entry("BROKEN")
    assert (owner.state, owner.transaction_id, owner.status) == (JournalState.ACCEPTED, owners, "SUCCESS")
    assert owners not in broken.transaction_ids
    for reference, amount in (("OWNER", 10), ("BROKEN", 70)):
        with suppress(OutcomeUnknownError):
            shop.pay(reference, amount=amount)
    assert shop.paid_out == {"OWNER": 10, "BROKEN": 70}
