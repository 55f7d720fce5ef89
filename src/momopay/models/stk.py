"""STK collections: what is asked of the service, and what it answers."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from momopay.models.arguments import CallbackUrl, ChannelId, CredentialId, Phone, kes, text
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import PHONE, REFERENCE, RESULT_TEXT, Id, ProviderCode, Record, Timestamp
from momopay.models.request_base import Request

__all__ = ["StkTransaction"]


class StkRequest(Request):
    """The body of POST /payments/stk."""

    amount: Annotated[Decimal, kes(minimum=1)]
    phone: Phone
    account_reference: Annotated[str, text(12)] | None = None
    transaction_desc: Annotated[str, text(13)] | None = None
    callback_url: CallbackUrl | None = None
    channel_id: ChannelId | None = None
    credential_id: CredentialId | None = Field(None, serialization_alias="credential_id")


class StkTransaction(Record):
    """An accepted STK prompt, PENDING until the customer acts (SPEC.md, "Transaction")."""

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
