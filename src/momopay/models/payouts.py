"""B2C payouts: what is asked of the service, and what it answers."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from momopay.models.arguments import CallbackUrl, ChannelId, Kes, Name, Phone, Text, kes
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import PHONE, REFERENCE, RESULT_TEXT, Id, ProviderCode, Record, Timestamp
from momopay.models.request_base import Request

__all__ = ["Payout"]


class PayoutRequest(Request):
    """The body of POST /b2c/payouts."""

    amount: Annotated[Decimal, kes(minimum=10)]
    phone: Phone
    reference: Name
    currency: Kes = "KES"
    description: Text | None = None
    channel_id: ChannelId | None = None
    callback_url: CallbackUrl | None = None


class Payout(Record):
    """An accepted payout, PENDING until the provider takes it; the B2C wallet is debited already."""

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
