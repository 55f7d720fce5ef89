"""The records of the service wallet and its top-ups, and of payment channels."""

from __future__ import annotations

from momopay.models.enums import ChannelType, TransactionType
from momopay.models.records import Amount, Items, Record, Timestamp
from momopay.models.transactions import StkTransaction


class TopUp(StkTransaction):
    """An accepted top-up, PENDING until the prompt is confirmed. The balance follows in 1 to 2 minutes."""

    # The service returns STK in this response, and WALLET_TOPUP in the list.
    type: TransactionType = TransactionType.WALLET_TOPUP


class WalletOwner(Record):
    """The tenant whose wallet a key may read. Payments depend on this alone, and not on the balance."""

    tenant_id: str | None = None


class WalletBalance(Record):
    """The service wallet (service page, "Service wallet"). Amounts in KES. Only `available_balance` is always there."""

    wallet_id: str | None = None
    tenant_id: str | None = None
    currency: str | None = "KES"
    available_balance: Amount
    ledger_balance: Amount | None = None
    updated_at: Timestamp | None = None


class PaymentChannel(Record):
    """A registered shortcode (service page, "Payment channel")."""

    id: str
    tenant_id: str | None = None
    category: str | None = None
    type: ChannelType
    shortcode: str
    name: str | None = None
    account_number: str | None = None
    is_default: bool | None = False
    created_at: Timestamp | None = None


class ChannelItems(Record):
    """The list of channels on the wire: the default first, then newest to oldest."""

    items: Items[PaymentChannel]
