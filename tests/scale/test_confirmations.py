"""A key settles by confirmed callbacks nearly what it can begin: in virtual time."""

from __future__ import annotations

import pytest

from momopay._polling.wait import Confirmation
from scale.confirmations import CEILING, Plan, one_by_one, simulate

SEED = 1


@pytest.mark.parametrize(
    ("kind", "payers", "waits"), [("STK", 4, False), ("B2C", 40, False), ("STK", 200, True), ("B2C", 200, True)]
)
def test_a_key_settles_what_it_can_begin_with_every_callback_confirmed(kind: str, payers: int, *, waits: bool) -> None:
    shop = simulate(Plan(payers, kind, waits, SEED, minutes=10.0))
    assert shop.report.settled >= 0.8 * CEILING, SEED
    assert shop.report.left_waiting == shop.unconfirmed == 0
    assert shop.service.refused == 0
    assert len(shop.report.told) == len(shop.service.lives)


def test_without_sharing_a_key_settles_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Confirmation, "read", one_by_one)
    shop = simulate(Plan(200, one_by_one=True, seed=SEED, minutes=10.0))
    assert shop.report.settled <= 0.5 * CEILING, SEED
    at_once = simulate(Plan(4, seed=SEED, minutes=10.0))
    assert at_once.unconfirmed > 0
