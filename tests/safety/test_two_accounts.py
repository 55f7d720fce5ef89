"""One database, two accounts, the same references: nothing of one counts for the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drivers import Drive, unique_key
from momopay import Journal, RequestValidationError
from momopay.sandbox import Sandbox
from safety.kit import Between, DatabaseClock, Shop, on_both_databases

pytestmark = on_both_databases


@pytest.fixture
def branches(drive: Drive, sandbox: Sandbox, url: str, database_clock: DatabaseClock) -> Iterator[tuple[Shop, Shop]]:
    made: list[Shop] = []
    for name in ("nairobi", "mombasa"):
        key, between = unique_key(), Between()
        account = sandbox.account(key)
        account.rate_limit = None
        sdk = drive(api_key=key, base_url=sandbox.base_url, transport=between, deadline=3.0)
        made.append(Shop(sandbox, key, account, Journal(url, account=name), database_clock, between, sdk))
    yield made[0], made[1]
    for each in made:
        each.journal.close()
        each.between.close()


def pay_order(shop: Shop, amount: int = 100) -> None:
    """Collect O-1, and let it be paid."""
    shop.settle(shop.collect(amount=amount))
    shop.sweep()


def test_refunds_count_in_their_own_account(branches: tuple[Shop, Shop]) -> None:
    """Each may pay back what was paid to it, and no more: the other's refunds neither use up nor raise the cap."""
    here, there = branches
    pay_order(here)
    with pytest.raises(RequestValidationError):  # the other's order
        there.refund()
    pay_order(there, amount=300)
    there.refund(amount=250, reference="O-1-R1")
    here.refund(amount=60, reference="O-1-R1")
    with pytest.raises(RequestValidationError):
        here.refund(amount=41, reference="O-1-R2")
    here.refund(amount=40, reference="O-1-R2")
    there.refund(amount=50, reference="O-1-R2")
    for branch in branches:
        with pytest.raises(RequestValidationError):
            branch.refund(amount=10, reference="O-1-R3")
    assert here.paid_out == {"O-1-R1": 60, "O-1-R2": 40}
    assert there.paid_out == {"O-1-R1": 250, "O-1-R2": 50}
