"""Release is the only way to pay twice: it comes late, there is one of it, and a sweep looks again afterwards."""

from typing import Any

import pytest

from momopay import JournalState, OutcomeUnknownError, RequestValidationError
from safety.kit import HOUR, OTHER_PHONE, SEARCH_AGAIN, Shop, criticals


# A lease ends after the client's deadline of 3 s at the earliest, and the wait begins then.
@pytest.mark.parametrize(("waited", "how"), [(3.0 + 50.0, {}), (0.0, {"searched_elsewhere": True})])
def test_what_is_executed_late_cannot_be_released_early(shop: Shop, waited: float, how: dict[str, Any]) -> None:
    """The wait counts from the latest attempt, although its own call reported UNKNOWN. What was made is never free."""
    shop.send_unresolved(shop.pay)
    shop.later(waited)
    with pytest.raises(RequestValidationError, match=r"\d+ s"):
        shop.release(**how)
    with pytest.raises(OutcomeUnknownError):
        shop.pay()
    shop.between.deliver()
    assert shop.pay().transaction_id == shop.newest()
    shop.later(HOUR)
    with pytest.raises(RequestValidationError, match="accepted"):
        shop.release(**how)
    assert shop.paid_out == {"r": 10}
    assert shop.payouts == 1


def test_a_payout_that_follows_its_release_is_recorded_by_a_later_sweep(shop: Shop) -> None:
    """A sweep searches once more, ten minutes after the release, and not sooner for good."""
    shop.send_unresolved(shop.pay)
    shop.later(HOUR)
    shop.release()
    shop.sweep()
    shop.between.deliver()
    shop.later(SEARCH_AGAIN)
    shop.sweep()
    entry = shop.entry()
    assert (entry.state, entry.transaction_id) == (JournalState.ACCEPTED, shop.newest())
    shop.pay()
    assert shop.paid_out == {"r": 10}


def test_a_payout_made_twice_after_a_release_is_critical(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
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
    shop: Shop, caplog: pytest.LogCaptureFixture
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


def test_what_only_looks_like_a_released_prompt_is_a_warning(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
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


def test_the_list_is_searched_once_more_and_not_for_ever(shop: Shop) -> None:
    shop.send_unresolved(shop.pay)
    shop.later(HOUR)
    shop.release()
    for wait, requests in ((SEARCH_AGAIN, 1), (HOUR, 0)):
        before = len(shop.between.requests)
        shop.later(wait)
        shop.sweep()
        assert len(shop.between.requests) - before == requests
