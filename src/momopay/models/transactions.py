"""The records of prompts, payouts and transactions, and a page of the list.

The service page, "Transaction", has two naming styles. Both parse into the same record.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from pydantic import Field, ValidationError

from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import (
    PHONE,
    REFERENCE,
    RESULT_TEXT,
    Id,
    Items,
    ProviderCode,
    Record,
    Timestamp,
    note_response,
)


class PaymentRecord(Record):
    """What prompts, payouts and transactions have in common."""

    transaction_id: Id
    type: TransactionType
    status: TransactionStatus
    amount: Decimal
    currency: str = "KES"
    phone: str = Field(validation_alias=PHONE)
    transaction_fee: Decimal | None = None
    created_at: Timestamp
    updated_at: Timestamp


class StkTransaction(PaymentRecord):
    """An accepted STK prompt, PENDING until the customer acts (service page, "Transaction")."""

    type: TransactionType = TransactionType.STK
    tenant_id: str | None = None
    channel_id: str | None = None
    account_reference: str | None = Field(None, validation_alias=REFERENCE)
    transaction_desc: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    result_code: ProviderCode | None = None
    result_description: str | None = Field(None, validation_alias=RESULT_TEXT)


class Payout(PaymentRecord):
    """An accepted payout, PENDING until the provider takes it. The B2C wallet is already debited."""

    type: TransactionType = TransactionType.B2C
    tenant_id: str | None = None
    channel_id: str | None = None
    reference: str | None = Field(None, validation_alias=REFERENCE)
    description: str | None = None
    result_code: ProviderCode | None = None
    result_description: str | None = Field(None, validation_alias=RESULT_TEXT)


class TransactionSummary(PaymentRecord):
    """A transaction as the list shows it (service page, "Transaction")."""

    account_reference: str | None = Field(None, validation_alias=REFERENCE)


class Transaction(TransactionSummary):
    """A transaction as a single read shows it. Fields that the response does not have are None.

    If a wait or a confirmation has read the transaction from the list, it has only the fields of `TransactionSummary`.
    """

    tenant_id: str | None = None
    channel_id: str | None = None
    transaction_desc: str | None = None
    provider: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    result_code: ProviderCode | None = None
    result_desc: str | None = Field(None, validation_alias=RESULT_TEXT)


def transaction_from(summary: TransactionSummary) -> Transaction:
    """Return a `Transaction` with the fields of a list item. The others are None."""
    if isinstance(summary, Transaction):
        return summary
    values = {name: getattr(summary, name) for name in type(summary).model_fields}
    try:
        transaction = Transaction.model_validate(values | (summary.model_extra or {}))
    except ValidationError:  # an unknown field of the list may have the name of a field here, and another type
        transaction = Transaction.model_validate(values)
    note_response(transaction, summary.response)
    return transaction


class TransactionOverview(Record):
    """Counts over the whole filtered set, not over the page (service page, "Overview counts")."""

    total: int
    completed: int
    failed: int
    pending: int


class TransactionPage(Record):
    """One page of the list, newest first. It fetches nothing.

    Iterating a page gives its items, and not its fields, as it does for other records.
    """

    items: Items[TransactionSummary]
    overview: TransactionOverview
    next_cursor: str | None = None

    def __iter__(self) -> Iterator[TransactionSummary]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return iter(self.items)
