"""What may be paid twice: a late PIN, a release, an attempt hours ago or by another clock. It is refused or known."""

import re
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

import momopay
from bodies import refusal
from momopay.sandbox import Fault
from safety.kit import HOUR, OTHER_PHONE, SEARCH_AGAIN, FragileShop, criticals

_CALL = re.compile(r"client\.payouts\.refund\(([^()]*(?:\([^()]*\)[^()]*)*)\)")


def two_prompts(shop: FragileShop) -> tuple[str, str]:
    """Send a prompt that the customer cancels, and another one that is paid; return their ids."""
    shop.account.switches.late_pin = True
    first = shop.collect()
    shop.sandbox.cancel(first.transaction_id)
    second = shop.collect()
    shop.settle(second)
    return first.transaction_id, second.transaction_id


def pay_late(shop: FragileShop, identity: str) -> None:
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
def test_the_call_in_the_message_pays_back(shop: FragileShop, caplog: pytest.LogCaptureFixture, refunded: bool) -> None:
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


def test_an_old_refund_is_not_returned_while_more_is_to_be_paid_back(shop: FragileShop) -> None:
    """`refund(of=...)` names the free reference, and does not call the old refund a success."""
    first, _second = two_prompts(shop)
    shop.sweep()
    old = shop.refund()
    assert shop.refund().transaction_id == old.transaction_id  # the control: nothing more is to be paid back yet
    pay_late(shop, first)
    shop.later(SEARCH_AGAIN)
    shop.sweep()
    with pytest.raises(momopay.DuplicatePayoutError, match="o-R2"):
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
def test_the_second_look_comes_late_enough_by_every_clock(
    shop: FragileShop, date: timedelta | None, times: timedelta
) -> None:
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


# A lease ends after the client's deadline of 3 s at the earliest, and the wait begins then.
@pytest.mark.parametrize(("waited", "how"), [(3.0 + 50.0, {}), (0.0, {"searched_elsewhere": True})])
def test_what_is_executed_late_cannot_be_released_early(shop: FragileShop, waited: float, how: dict[str, Any]) -> None:
    """The wait counts from the latest attempt, although its own call reported UNKNOWN. What was made is never free."""
    shop.send_unresolved(shop.pay)
    shop.later(waited)
    with pytest.raises(momopay.RequestValidationError, match=r"\d+ s"):
        shop.release(**how)
    with pytest.raises(momopay.OutcomeUnknownError):
        shop.pay()
    shop.between.deliver()
    assert shop.pay().transaction_id == shop.newest()
    shop.later(HOUR)
    with pytest.raises(momopay.RequestValidationError, match="accepted"):
        shop.release(**how)
    assert shop.paid_out == {"r": 10}
    assert shop.payouts == 1


@pytest.mark.parametrize("ahead", [0.0, 24 * HOUR])
def test_a_payout_that_follows_its_release_is_recorded_by_a_later_sweep(shop: FragileShop, ahead: float) -> None:
    """A sweep searches once more, ten minutes after the release, and not sooner for good, by whatever clock."""
    shop.send_unresolved(shop.pay)
    shop.later(HOUR)
    shop.release()
    shop.clock.ahead += ahead
    shop.sweep()
    shop.clock.ahead -= ahead
    shop.between.deliver()
    shop.later(SEARCH_AGAIN)
    shop.sweep()
    entry = shop.entry()
    assert (entry.state, entry.transaction_id) == (momopay.JournalState.ACCEPTED, shop.newest())
    shop.pay()
    assert shop.paid_out == {"r": 10}


def test_a_payout_made_twice_after_a_release_is_critical(shop: FragileShop, caplog: pytest.LogCaptureFixture) -> None:
    shop.send_unresolved(shop.pay)
    shop.later(HOUR)
    shop.release()
    second = shop.pay()
    shop.between.deliver()
    first = shop.newest()
    assert shop.paid_out == {"r": 20}
    shop.later(SEARCH_AGAIN)
    shop.reconcile_all()
    (line,) = criticals(caplog)
    for part in ("'r' was paid more than once", first, second.transaction_id, "ask the recipient"):
        assert part in line
    entry = shop.entry()
    assert entry.paid_twice
    assert set(entry.transaction_ids) == {first, second.transaction_id}
    assert shop.journal.check().paid_twice == ("r",)


def test_a_second_attempt_that_was_lost_too_is_searched_for_once_the_first_is_found(
    shop: FragileShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send_unresolved(shop.pay)
    shop.later(HOUR)
    shop.release()
    shop.send_unresolved(shop.pay)
    shop.between.deliver(1)
    shop.later(SEARCH_AGAIN - 120)
    first = shop.pay().transaction_id
    shop.later(180)
    shop.sweep()
    shop.between.deliver()
    shop.later(SEARCH_AGAIN - 120)
    shop.sweep()
    assert shop.paid_out == {"r": 20}
    assert len(criticals(caplog)) == 1
    assert set(shop.entry().transaction_ids) == {first, shop.newest()}


def test_what_only_looks_like_a_released_prompt_is_a_warning(
    shop: FragileShop, caplog: pytest.LogCaptureFixture
) -> None:
    """The order went on with another phone, so nothing proves that the first prompt was its own."""
    shop.send_unresolved(shop.collect)
    shop.later(HOUR)
    shop.release("o")
    second = shop.collect(phone=OTHER_PHONE)
    shop.between.deliver()
    shop.later(SEARCH_AGAIN)
    shop.sweep()
    assert [each.levelname for each in caplog.records if "may have been made" in each.getMessage()] == ["WARNING"]
    assert shop.order().transaction_ids == (second.transaction_id,)


def test_the_list_is_searched_once_more_and_not_for_ever(shop: FragileShop) -> None:
    shop.send_unresolved(shop.pay)
    shop.later(HOUR)
    shop.release()
    for wait, requests in ((SEARCH_AGAIN, 1), (HOUR, 0)):
        before = len(shop.between.requests)
        shop.later(wait)
        shop.sweep()
        assert len(shop.between.requests) - before == requests


def crowd(shop: FragileShop) -> None:
    """Make a page of other people's payouts, newer than all there is."""
    with httpx.Client(base_url=shop.sandbox.base_url, auth=(shop.key, ""), trust_env=False, verify=False) as others:
        for number in range(100):
            body = {"amount": 10, "phone": "0711000000", "reference": f"CROWD-{number}"}
            others.post("/b2c/payouts", json=body).raise_for_status()


AHEAD, BEHIND = timedelta(hours=3), timedelta(hours=-3)


@pytest.mark.parametrize(("payer", "has_date"), [(AHEAD, True), (BEHIND, False)])
def test_a_payer_whose_clock_is_hours_off_pays_once(shop: FragileShop, payer: timedelta, has_date: bool) -> None:
    """The payout was made and its answer lost. With a `Date` header it is found; without one, never sent again.

    The control: what was refused for good is sent again, hours later and behind a crowd.
    """
    shop.between.time_shift = -payer
    shop.between.date_shift = -payer if has_date else None
    shop.between.hold_next_post(httpx.Response(409, json=refusal("INSUFFICIENT_FUNDS")))
    with pytest.raises(momopay.InsufficientFundsError):
        shop.pay("REFUSED")
    shop.sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    with pytest.raises(momopay.OutcomeUnknownError):
        shop.pay()
    made = shop.newest()
    crowd(shop)
    if has_date:
        shop.between.time_shift -= 4 * AHEAD
        since = datetime.now(UTC) - 4 * AHEAD
        found = shop(lambda client: client.transactions.find(reference="r", since=since))
        assert [each.transaction_id for each in found] == [made]
        shop.between.time_shift = -payer
    with nullcontext() if has_date else suppress(momopay.OutcomeUnknownError):  # without one, it may only look similar
        assert shop.pay().transaction_id == made
    shop.later(5 * HOUR)
    assert shop.pay("REFUSED").is_new
    assert (shop.paid_out["r"], shop.paid_out["REFUSED"], shop.payouts) == (10, 10, 3)
