"""The record of a B2C payout."""

from __future__ import annotations

import pytest

from models.kit import PAYOUT, parse
from momopay import Payout, TransactionType

LEAST = {name: PAYOUT.camel[name] for name in ("transactionId", "status", "amount", "phone", "createdAt", "updatedAt")}


def test_a_payout_needs_no_more_than_its_id_status_amount_phone_and_times() -> None:
    payout = parse(Payout, LEAST)
    assert (payout.type, payout.currency, payout.reference) == (TransactionType.B2C, "KES", None)


@pytest.mark.parametrize("name", ["reference", "accountReference", "external_reference"])
def test_every_name_of_the_reference_is_understood(name: str) -> None:
    assert parse(Payout, {**LEAST, name: "PAY-9"}).reference == "PAY-9"
