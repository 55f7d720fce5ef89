"""The record of a B2C payout."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field

from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import PHONE, REFERENCE, RESULT_TEXT, Id, ProviderCode, Record, Timestamp

__all__ = ["Payout"]


class Payout(Record):
    """An accepted payout, PENDING until the provider takes it. The B2C wallet is already debited."""

    transaction_id: Id
    tenant_id: str | None = None
    channel_id: str | None = None
    type: TransactionType = TransactionType.B2C
    status: TransactionStatus
    amount: Decimal
    currency: str = "KES"
    phone: str = Field(validation_alias=PHONE)
    reference: str | None = Field(None, validation_alias=REFERENCE)
    description: str | None = None
    transaction_fee: Decimal | None = None
    result_code: ProviderCode | None = None
    result_description: str | None = Field(None, validation_alias=RESULT_TEXT)
    created_at: Timestamp
    updated_at: Timestamp
