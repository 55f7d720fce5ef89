"""The record of an STK collection."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field

from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import PHONE, REFERENCE, RESULT_TEXT, Id, ProviderCode, Record, Timestamp

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
    phone: str = Field(validation_alias=PHONE)
    account_reference: str | None = Field(None, validation_alias=REFERENCE)
    transaction_desc: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    transaction_fee: Decimal | None = None
    result_code: ProviderCode | None = None
    result_description: str | None = Field(None, validation_alias=RESULT_TEXT)
    created_at: Timestamp
    updated_at: Timestamp
