"""Distances that matter: attempts hours apart, the first beyond page one; a payer's clock hours from the service's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from momopay import InsufficientFundsError, Journal, JournalState, MomoPayError, OutcomeUnknownError
from momopay.sandbox import Fault
from safety.kit import HOUR, Call, Shop, collect, entry_of, pay, records_of, refusal, release, sweep

PAGE = 100


def crowd(shop: Shop, count: int = PAGE + 20) -> None:
    """Make other people's payouts, newer than all there is."""
    with httpx.Client(base_url=shop.sandbox.base_url, auth=(shop.key, ""), trust_env=False) as others:
        for number in range(count):
            body = {"amount": 10, "phone": "0711000000", "reference": f"CROWD-{number}"}
            others.post("/b2c/payouts", json=body).raise_for_status()


def own(shop: Shop) -> dict[str, int]:
    return {name: amount for name, amount in shop.paid_out.items() if not name.startswith("CROWD")}


def found_by(shop: Shop) -> str | None:
    """Pay again; return the id of what was found, which may only look similar, or None if nothing was."""
    try:
        identity: str = shop(pay(shop.journal)).transaction_id
    except OutcomeUnknownError as error:
        return error.near_matches[0].transaction_id if error.near_matches else None
    return identity


@pytest.mark.parametrize("hours", [0.0, 5 * HOUR])
def test_a_first_attempt_beyond_page_one_is_found(shop: Shop, hours: float) -> None:
    """The service refused it and made it even so; the search before the second attempt goes back that far."""
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.refused_after_commit, status=400)
    with pytest.raises(MomoPayError) as caught:
        shop(pay(shop.journal))
    assert not caught.value.may_have_executed
    made = shop.newest()
    shop.later(hours)
    crowd(shop)
    assert shop(pay(shop.journal)).transaction_id == made
    assert own(shop) == {"PAY-1": 100}
    assert shop.payouts == 1


def test_the_search_goes_back_to_the_first_of_several_attempts(shop: Shop) -> None:
    """Two attempts, hours apart: the first is made late, and shows up beyond page one, after the second was refused."""
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.refused_after_commit, status=400)
    with pytest.raises(MomoPayError):
        shop(pay(shop.journal))
    made = shop.newest()

    def hide(path: str, data: Any) -> None:
        if path == "/transactions":
            data["items"] = [each for each in data["items"] if each["transactionId"] != made]

    shop.between.edit = hide
    shop.later(5 * HOUR)
    shop.between.hold_next_post(refusal())
    with pytest.raises(InsufficientFundsError):
        shop(pay(shop.journal))
    crowd(shop)
    shop.between.edit = lambda _path, _data: None
    assert shop(pay(shop.journal)).transaction_id == made
    assert own(shop) == {"PAY-1": 100}
    assert shop.payouts == 2


@pytest.mark.parametrize(("look", "hours"), [(pay, 0.0), (pay, 5 * HOUR), (sweep, 0.0)])
def test_an_unresolved_payout_beyond_page_one_is_found(
    shop: Shop, look: Callable[[Journal], Call], hours: float
) -> None:
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        shop(pay(shop.journal))
    made = shop.newest()
    shop.later(hours)
    crowd(shop)
    shop(look(shop.journal))
    entry = entry_of(shop.journal, "PAY-1")
    assert (entry.state, entry.transaction_id) == (JournalState.ACCEPTED, made)


AHEAD, BEHIND = timedelta(hours=3), timedelta(hours=-3)


@pytest.mark.parametrize("has_date", [True, False])
@pytest.mark.parametrize("payer", [AHEAD, BEHIND], ids=["ahead", "behind"])
@pytest.mark.parametrize("beyond_page_one", [False, True])
def test_a_payer_whose_clock_is_hours_off_pays_once(
    shop: Shop, payer: timedelta, has_date: bool, beyond_page_one: bool
) -> None:
    """The payout was made and its answer lost. With a `Date` header it is found; without one, never sent again."""
    shop.between.time_shift = -payer
    shop.between.date_shift = -payer if has_date else None
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        shop(pay(shop.journal))
    made = shop.newest()
    if beyond_page_one:
        crowd(shop)
    if has_date:
        assert shop(pay(shop.journal)).transaction_id == made
    else:
        assert found_by(shop) in {made, None}
        shop.later(HOUR)
        with pytest.raises(MomoPayError):  # a search by a person's order has no bound in time
            shop(release(shop.journal))
    assert own(shop) == {"PAY-1": 100}
    assert shop.payouts == 1


@pytest.mark.parametrize("has_date", [True, False])
def test_another_machine_whose_clock_is_right_takes_over(shop: Shop, has_date: bool) -> None:
    """The first payer's clock was hours ahead; the second's search must not begin after what the first sent."""
    shop.between.time_shift = -AHEAD
    shop.between.date_shift = -AHEAD if has_date else None
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.refused_after_commit, status=400)
    with pytest.raises(MomoPayError):
        shop(pay(shop.journal))
    made = shop.newest()
    shop.between.date_shift = timedelta(0)  # now the service seems to be where this machine is
    crowd(shop)

    def as_it_was(_path: str, data: Any) -> None:
        for record in (data, *data.get("items", ())):
            if "transactionId" in record and not records_of({"items": [record]}, made):
                record["createdAt"] = record["updatedAt"] = shop.sandbox.now.isoformat()

    shop.between.edit = as_it_was
    assert found_by(shop) == made
    assert own(shop) == {"PAY-1": 100}
    assert shop.payouts == 1


def test_what_nobody_made_is_paid_after_any_search(shop: Shop) -> None:
    """The control: an attempt that was refused for good is repeated, hours later and behind a crowd."""
    shop.between.hold_next_post(refusal())
    with pytest.raises(InsufficientFundsError):
        shop(pay(shop.journal))
    shop.later(5 * HOUR)
    crowd(shop)
    shop(pay(shop.journal))
    assert own(shop) == {"PAY-1": 100}
    assert shop.payouts == 2


def test_an_unresolved_prompt_beyond_page_one_is_found(shop: Shop) -> None:
    shop.sandbox.fail_next("POST", "/payments/stk", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        shop(collect(shop.journal))
    shop.later(2 * HOUR)
    crowd(shop)
    prompt = shop(collect(shop.journal))
    assert (prompt.status, shop.prompts) == ("PENDING", 1)
    shop.settle(prompt)
    assert shop.paid_in == {"O-1": 100}
