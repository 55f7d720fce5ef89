"""The records of the service wallet and its top-ups, and of payment channels."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field

from momopay.models.enums import ChannelType, TransactionType
from momopay.models.records import LIMIT, Items, Record, Timestamp
from momopay.models.transactions import StkTransaction


class TopUp(StkTransaction):
    """An accepted top-up, PENDING until the prompt is confirmed. The balance follows in 1 to 2 minutes."""

    # The service returns STK in this response, and WALLET_TOPUP in the list.
    type: TransactionType = TransactionType.WALLET_TOPUP


class WalletBalance(Record):
    """The service wallet (service page, "Service wallet"). Amounts in KES."""

    wallet_id: str
    tenant_id: str | None = None
    currency: str = "KES"
    available_balance: Decimal = Field(gt=-LIMIT, lt=LIMIT)
    ledger_balance: Decimal = Field(gt=-LIMIT, lt=LIMIT)
    updated_at: Timestamp


class PaymentChannel(Record):
    """A registered shortcode (service page, "Payment channel")."""

    id: str
    tenant_id: str | None = None
    category: str | None = None
    type: ChannelType
    shortcode: str
    name: str
    account_number: str | None = None
    is_default: bool = False
    created_at: Timestamp


class ChannelItems(Record):
    """The list of channels on the wire: the default first, then newest to oldest."""

    items: Items[PaymentChannel]
