"""The records of the service wallet: its balance, and the top-up that fills it."""

from __future__ import annotations

from decimal import Decimal

from momopay.models.enums import TransactionType
from momopay.models.records import Record, Timestamp
from momopay.models.stk import StkTransaction

__all__ = ["TopUp", "WalletBalance"]


class TopUp(StkTransaction):
    """An accepted top-up, PENDING until the prompt is confirmed. The balance follows in 1 to 2 minutes."""

    # The service states STK in this response, and WALLET_TOPUP in the list.
    type: TransactionType = TransactionType.WALLET_TOPUP


class WalletBalance(Record):
    """The service wallet (service page, "Service wallet"). Amounts in KES."""

    wallet_id: str
    tenant_id: str | None = None
    currency: str = "KES"
    available_balance: Decimal
    ledger_balance: Decimal
    updated_at: Timestamp
