"""An order that was paid twice is noticed, whatever the clocks show, and its CRITICAL leads to money back."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from momopay import DuplicatePayoutError
from safety.kit import SEARCH_AGAIN, Shop, criticals

_CALL = re.compile(r"client\.payouts\.refund\(([^()]*(?:\([^()]*\)[^()]*)*)\)")


def two_prompts(shop: Shop) -> tuple[str, str]:
    """Send a prompt that the customer cancels, and another one that is paid; return their ids."""
    shop.account.switches.late_pin = True
    first = shop.collect()
    shop.sandbox.cancel(first.transaction_id)
    second = shop.collect()
    shop.settle(second)
    return first.transaction_id, second.transaction_id


def pay_late(shop: Shop, identity: str) -> None:
    """Let the customer enter the PIN for a prompt that had ended, and the service confirm it."""
    shop.sandbox.enter_pin(identity)
    shop.later(60)


def critical_calls(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the arguments of the calls that CRITICAL messages say, without those that were said before."""
    found: list[dict[str, Any]] = []
    for message in criticals(caplog):
        call = _CALL.search(message)
        assert call is not None, f"no call in {message!r}"
        arguments: dict[str, Any] = eval(f"dict({call.group(1)})", {"Decimal": Decimal})
        if arguments not in found:
            found.append(arguments)
    return found


@pytest.mark.parametrize("refunded", [True, False])
def test_the_call_in_the_message_pays_back(shop: Shop, caplog: pytest.LogCaptureFixture, refunded: bool) -> None:
    """Also if the second payment was refunded as o-R1 before the first came late: it needs another reference."""
    first, second = two_prompts(shop)
    shop.sweep()
    if refunded:
        shop.refund()
    assert critical_calls(caplog) == []
    pay_late(shop, first)
    shop.later(SEARCH_AGAIN)
    shop.sweep()
    assert set(shop.order().transaction_ids) == {first, second}
    assert shop.order().paid_twice
    assert shop.journal.check().paid_twice == ("o",)
    (call,) = critical_calls(caplog)
    assert call["of"] == "o"
    for _ in range(2):
        shop.refund(**call)
    assert (shop.paid_in, shop.paid_out.total()) == ({"o": 20}, 20 if refunded else 10)
    assert shop.journal.check().paid_twice == ()


def test_an_old_refund_is_not_returned_while_more_is_to_be_paid_back(shop: Shop) -> None:
    """`refund(of=...)` names the free reference, and does not call the old refund a success."""
    first, _second = two_prompts(shop)
    shop.sweep()
    old = shop.refund()
    assert shop.refund().transaction_id == old.transaction_id  # the control: nothing more is to be paid back yet
    pay_late(shop, first)
    shop.later(SEARCH_AGAIN)
    shop.sweep()
    with pytest.raises(DuplicatePayoutError, match="o-R2"):
        shop.refund()
    shop.refund(reference="o-R2")
    assert shop.paid_out == {"o-R1": 10, "o-R2": 10}


MINUTES = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("date", "times"),
    [
        (None, -MINUTES),  # the sweeper is ahead, and no Date shows it
        (MINUTES, MINUTES),  # it is behind
        (MINUTES, timedelta(0)),  # Date is ahead of updatedAt
    ],
)
def test_the_second_look_comes_late_enough_by_every_clock(shop: Shop, date: timedelta | None, times: timedelta) -> None:
    """A sweep at once after the end must not use up the second look at the prompt that ended; there is no third."""
    shop.between.date_shift, shop.between.time_shift = date, times
    first, second = two_prompts(shop)
    for _ in range(2):
        shop.sweep()
    assert not shop.order().paid_twice
    pay_late(shop, first)
    shop.later(2 * SEARCH_AGAIN)
    for _ in range(2):
        shop.sweep()
    assert shop.order().paid_twice
    assert set(shop.order().transaction_ids) == {first, second}
    before = len(shop.between.requests)
    shop.later(SEARCH_AGAIN)
    shop.sweep()
    assert len(shop.between.requests) == before
