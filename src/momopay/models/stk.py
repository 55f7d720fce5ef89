"""The record of an STK collection."""

from __future__ import annotations

from decimal import Decimal

from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import Id, Phone, ProviderCode, Reason, Record, Reference, Timestamp

__all__ = ["StkTransaction"]


class StkTransaction(Record):
    """An accepted STK prompt, PENDING until the customer acts (service page, "Transaction")."""

    transaction_id: Id
    tenant_id: str | None = None
    channel_id: str | None = None
    type: TransactionType = TransactionType.STK
    status: TransactionStatus
    amount: Decimal
    currency: str = "KES"
    phone: Phone
    account_reference: Reference = None
    transaction_desc: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    transaction_fee: Decimal | None = None
    result_code: ProviderCode | None = None
    result_description: Reason = None
    created_at: Timestamp
    updated_at: Timestamp
