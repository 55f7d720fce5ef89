"""What an error says on the way out: whether money may have moved, since when, and what was reached."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest

from drivers import Drive
from momopay import (
    BudgetExhaustedError,
    Journal,
    OutcomeUnknownError,
    RateBudget,
)
from safety.kit import PHONE, Call, Shop, collect, pay


def test_what_has_an_open_transaction_and_no_budget_may_be_paid(shop: Shop, drive: Drive) -> None:
    """No slot for a read, or for a second prompt: nothing was sent now, and the old one may be paid at any moment."""
    shop.collect()
    shop.pay()
    shop.later(600)

    def error_of(call: Call, slots: int) -> bool:
        budget = RateBudget(requests=slots, window=600.0)
        poor = drive(api_key=shop.key, base_url=shop.sandbox.base_url, budget=budget, deadline=1.0)
        poor(lambda client: client.wallet.balance())
        with pytest.raises(BudgetExhaustedError) as caught:
            poor(call)
        return caught.value.may_have_executed

    assert error_of(collect(shop.journal), 1)
    assert error_of(pay(shop.journal), 1)
    assert error_of(collect(shop.journal, abandon_after=60), 2), "the second slot was for the read"
    assert not error_of(pay(shop.journal, "NEW"), 1), "the control: of a new reference nothing was ever sent"
    assert (shop.payouts, shop.prompts) == (1, 1)


def initiate_payout(_journal: Journal) -> Call:
    return lambda client: client.payouts.initiate(reference="PAY-1", amount=100, phone=PHONE)


def initiate_prompt(_journal: Journal) -> Call:
    return lambda client: client.stk.initiate(account_reference="O-1", amount=100, phone=PHONE)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("call", [pay, collect, initiate_payout, initiate_prompt])
def test_an_unknown_outcome_is_dated_by_the_first_attempt(shop: Shop, call: Callable[[Journal], Call]) -> None:
    """What a transport calls not sent may have been sent: a search for the payment begins there."""
    attempts: list[datetime] = []

    def fail(method: str, _path: str) -> None:
        if method == "POST":
            attempts.append(datetime.now(UTC))
            raise (httpx.ConnectError if len(attempts) == 1 else httpx.ReadTimeout)("the network is in trouble")

    shop.between.first = fail
    begun = datetime.now(UTC)
    with pytest.raises(OutcomeUnknownError) as caught:
        shop(call(shop.journal))
    assert len(attempts) == 2
    assert begun <= caught.value.sent_at <= attempts[0]
