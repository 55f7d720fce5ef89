"""Distances that matter: attempts hours apart, the first beyond page one; a payer's clock hours from the service's."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from momopay import InsufficientFundsError, MomoPayError, OutcomeUnknownError
from momopay.sandbox import Fault
from safety.kit import HOUR, Shop, refused

PAGE = 100


def crowd(shop: Shop, count: int = PAGE + 20) -> None:
    """Make other people's payouts, newer than all there is."""
    with httpx.Client(base_url=shop.sandbox.base_url, auth=(shop.key, ""), trust_env=False, verify=False) as others:
        for number in range(count):
            body = {"amount": 10, "phone": "0711000000", "reference": f"CROWD-{number}"}
            others.post("/b2c/payouts", json=body).raise_for_status()


def own(shop: Shop) -> dict[str, int]:
    return {name: amount for name, amount in shop.paid_out.items() if not name.startswith("CROWD")}


def found_by(shop: Shop) -> str | None:
    """Pay again; return the id of what was found, which may only look similar, or None if nothing was."""
    try:
        identity: str = shop.pay().transaction_id
    except OutcomeUnknownError as error:
        return error.near_matches[0].transaction_id if error.near_matches else None
    return identity


AHEAD, BEHIND = timedelta(hours=3), timedelta(hours=-3)


@pytest.mark.parametrize(("payer", "has_date"), [(AHEAD, True), (BEHIND, False)])
def test_a_payer_whose_clock_is_hours_off_pays_once(shop: Shop, payer: timedelta, has_date: bool) -> None:
    """The payout was made and its answer lost. With a `Date` header it is found; without one, never sent again."""
    shop.between.time_shift = -payer
    shop.between.date_shift = -payer if has_date else None
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        shop.pay()
    made = shop.newest()
    crowd(shop)
    if has_date:
        assert shop.pay().transaction_id == made
    else:
        assert found_by(shop) in {made, None}
        shop.later(HOUR)
        with pytest.raises(MomoPayError):  # a search by a person's order has no bound in time
            shop.release()
    assert own(shop) == {"PAY-1": 100}
    assert shop.payouts == 1


def test_what_nobody_made_is_paid_after_any_search(shop: Shop) -> None:
    """The control: an attempt that was refused for good is repeated, hours later and behind a crowd."""
    shop.between.hold_next_post(refused())
    with pytest.raises(InsufficientFundsError):
        shop.pay()
    shop.later(5 * HOUR)
    crowd(shop)
    shop.pay()
    assert own(shop) == {"PAY-1": 100}
    assert shop.payouts == 2
