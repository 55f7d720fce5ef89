"""The service wallet: its balance, and the top-up that fills it."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, PlainValidator

from momopay.models.arguments import Phone, header_value, kes, text
from momopay.models.enums import TransactionType
from momopay.models.records import Record, Timestamp
from momopay.models.request_base import Request
from momopay.models.stk import StkTransaction

__all__ = ["TopUp", "WalletBalance"]


class TopUpRequest(Request):
    """The body of POST /wallets/service/topups."""

    amount: Annotated[Decimal, kes(minimum=1)]
    phone: Phone
    account_reference: Annotated[str, text(120)] | None = None
    transaction_desc: Annotated[str, text(255)] | None = None
    idempotency_key: Annotated[str, PlainValidator(header_value)] = Field(exclude=True)


class TopUp(StkTransaction):
    """An accepted top-up, PENDING until the prompt is answered; the balance follows in 1 to 2 minutes."""

    type: TransactionType = TransactionType.WALLET_TOPUP


class WalletBalance(Record):
    """The service wallet (SPEC.md, "Service wallet balance"), KES."""

    wallet_id: str
    tenant_id: str | None = None
    currency: str = "KES"
    available_balance: Decimal
    ledger_balance: Decimal
    updated_at: Timestamp
