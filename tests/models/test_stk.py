"""The record of an STK collection."""

from __future__ import annotations

from models.kit import STK, parse
from momopay import StkTransaction, TransactionType

LEAST = {name: STK.camel[name] for name in ("transactionId", "status", "amount", "phone", "createdAt", "updatedAt")}


def test_a_prompt_needs_no_more_than_its_id_status_amount_phone_and_times() -> None:
    prompt = parse(StkTransaction, LEAST)
    assert (prompt.type, prompt.currency, prompt.account_reference) == (TransactionType.STK, "KES", None)
