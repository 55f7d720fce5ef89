"""Release is the only way to pay twice: it comes late, there is one of it, and a sweep looks again afterwards."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from momopay import Journal, JournalState, OutcomeUnknownError, RequestValidationError
from safety.kit import HOUR, SEARCH_AGAIN, Shop, entry_of, pay, release, sweep

TOO_EARLY = 3.0 + 50.0
"""Less than a minute after the deadline of the shop's client, which no lease ends before."""


def send_unresolved(shop: Shop) -> None:
    """Send a payout that the service will execute later."""
    shop.between.hold_next_post()
    with pytest.raises(OutcomeUnknownError):
        shop(pay(shop.journal))


def criticals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


@pytest.mark.parametrize("how", [{}, {"searched_elsewhere": True}])
@pytest.mark.parametrize("waited", [0.0, TOO_EARLY])
def test_what_is_executed_late_cannot_be_released_early(shop: Shop, how: dict[str, Any], waited: float) -> None:
    """The wait counts from the latest attempt, although its own call reported UNKNOWN."""
    send_unresolved(shop)
    shop.later(waited)
    with pytest.raises(RequestValidationError, match=r"\d+ s"):
        shop(release(shop.journal, **how))
    with pytest.raises(OutcomeUnknownError):
        shop(pay(shop.journal))
    shop.between.deliver()
    assert shop(pay(shop.journal)).transaction_id == shop.newest()
    assert shop.paid_out == {"PAY-1": 100}
    assert shop.payouts == 1


def test_an_hour_later_it_can_be_released_and_paid(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The control of the waits: what was never executed is released, and paid once."""
    send_unresolved(shop)
    shop.later(HOUR)
    entry = shop(release(shop.journal))
    assert (entry.state, entry.released_by) == (JournalState.NOT_SENT, "Njeri")
    shop(pay(shop.journal))
    assert shop.paid_out == {"PAY-1": 100}
    shop.later(SEARCH_AGAIN)
    shop(sweep(shop.journal))
    assert criticals(caplog) == []
    assert not entry_of(shop.journal, "PAY-1").paid_twice


def test_the_wait_begins_anew_with_each_attempt(shop: Shop) -> None:
    """A release after the first attempt gives no right to another one after the second."""
    send_unresolved(shop)
    shop.later(HOUR)
    shop(release(shop.journal))
    send_unresolved(shop)
    with pytest.raises(RequestValidationError):
        shop(release(shop.journal))
    assert entry_of(shop.journal, "PAY-1").state is JournalState.UNKNOWN


def test_who_has_searched_elsewhere_skips_the_search(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    send_unresolved(shop)
    shop.later(HOUR)
    before = shop.between.requests.count("GET /transactions")
    assert shop(release(shop.journal, searched_elsewhere=True)).state is JournalState.NOT_SENT
    assert shop.between.requests.count("GET /transactions") == before
    assert [each.levelno for each in caplog.records if "PAY-1" in each.getMessage()][-1:] == [logging.WARNING]


@pytest.mark.parametrize("how", [{}, {"searched_elsewhere": True}])
def test_what_was_accepted_is_never_released(shop: Shop, how: dict[str, Any]) -> None:
    shop(pay(shop.journal))
    shop.later(HOUR)
    with pytest.raises(RequestValidationError, match="accepted"):
        shop(release(shop.journal, **how))
    assert entry_of(shop.journal, "PAY-1").state is JournalState.ACCEPTED


def test_there_is_one_release() -> None:
    assert not hasattr(Journal, "release")


def test_a_payout_that_follows_its_release_is_recorded_by_a_later_sweep(shop: Shop) -> None:
    """A sweep searches once more, ten minutes after the release, and not sooner for good."""
    send_unresolved(shop)
    shop.later(HOUR)
    shop(release(shop.journal))
    shop(sweep(shop.journal))
    shop.between.deliver()
    shop.later(SEARCH_AGAIN)
    shop(sweep(shop.journal))
    entry = entry_of(shop.journal, "PAY-1")
    assert (entry.state, entry.transaction_id) == (JournalState.ACCEPTED, shop.newest())
    shop(pay(shop.journal))
    assert shop.paid_out == {"PAY-1": 100}


def test_a_payout_made_twice_after_a_release_is_critical(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    send_unresolved(shop)
    shop.later(HOUR)
    shop(release(shop.journal))
    second = shop(pay(shop.journal))
    shop.between.deliver()
    first = shop.newest()
    assert shop.paid_out == {"PAY-1": 200}
    shop.later(SEARCH_AGAIN)
    shop(sweep(shop.journal))
    assert criticals(caplog)
    assert all("PAY-1" in each for each in criticals(caplog))
    entry = entry_of(shop.journal, "PAY-1")
    assert entry.paid_twice
    assert set(entry.transaction_ids) == {first, second.transaction_id}
    assert shop.journal.check().paid_twice == ("PAY-1",)


def test_the_list_is_searched_once_more_and_not_for_ever(shop: Shop) -> None:
    send_unresolved(shop)
    shop.later(HOUR)
    shop(release(shop.journal))
    shop.later(SEARCH_AGAIN)
    shop(sweep(shop.journal))
    before = len(shop.between.requests)
    shop.later(HOUR)
    shop(sweep(shop.journal))
    assert len(shop.between.requests) == before
