"""What an error says on the way out: whether money may have moved, since when, and what was reached."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import pytest

from journal.kit import PHONE
from momopay import (
    Journal,
    OutcomeUnknownError,
)
from safety.kit import Call, Shop, collect, pay


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
