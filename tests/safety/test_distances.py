"""Distances that matter: attempts hours apart, the first beyond page one; a payer's clock hours from the service's."""

from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from momopay import InsufficientFundsError, OutcomeUnknownError
from momopay.sandbox import Fault
from safety.kit import HOUR, Shop
from virtual import refusal


def crowd(shop: Shop) -> None:
    """Make a page of other people's payouts, newer than all there is."""
    with httpx.Client(base_url=shop.sandbox.base_url, auth=(shop.key, ""), trust_env=False, verify=False) as others:
        for number in range(100):
            body = {"amount": 10, "phone": "0711000000", "reference": f"CROWD-{number}"}
            others.post("/b2c/payouts", json=body).raise_for_status()


AHEAD, BEHIND = timedelta(hours=3), timedelta(hours=-3)


@pytest.mark.parametrize(("payer", "has_date"), [(AHEAD, True), (BEHIND, False)])
def test_a_payer_whose_clock_is_hours_off_pays_once(shop: Shop, payer: timedelta, has_date: bool) -> None:
    """The payout was made and its answer lost. With a `Date` header it is found; without one, never sent again.

    The control: what was refused for good is sent again, hours later and behind a crowd.
    """
    shop.between.time_shift = -payer
    shop.between.date_shift = -payer if has_date else None
    shop.between.hold_next_post(httpx.Response(409, json=refusal("INSUFFICIENT_FUNDS")))
    with pytest.raises(InsufficientFundsError):
        shop.pay("REFUSED")
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(OutcomeUnknownError):
        shop.pay()
    made = shop.newest()
    crowd(shop)
    if has_date:
        shop.between.time_shift -= 4 * AHEAD
        since = datetime.now(UTC) - 4 * AHEAD
        found = shop(lambda client: client.transactions.find(reference="r", since=since))
        assert [each.transaction_id for each in found] == [made]
        shop.between.time_shift = -payer
    with nullcontext() if has_date else suppress(OutcomeUnknownError):  # without one, it may only look similar
        assert shop.pay().transaction_id == made
    shop.later(5 * HOUR)
    assert shop.pay("REFUSED").is_new
    assert (shop.paid_out["r"], shop.paid_out["REFUSED"], shop.payouts) == (10, 10, 3)
