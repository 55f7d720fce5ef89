"""The records of the service wallet."""

from __future__ import annotations

from decimal import Decimal

import pytest

from models.kit import BALANCE, TOP_UP, parse, with_literal
from momopay import TopUp, TransactionType, WalletBalance


def test_a_top_up_without_a_type_is_one() -> None:
    data = {name: value for name, value in TOP_UP.camel.items() if name != "type"}
    assert parse(TopUp, data).type is TransactionType.WALLET_TOPUP


@pytest.mark.parametrize("literal", ["9999999999999.99", "0.1", "-5"])
def test_a_balance_is_exact(literal: str) -> None:
    balance = parse(WalletBalance, with_literal(BALANCE.camel, "availableBalance", literal))
    assert balance.available_balance == Decimal(literal)
