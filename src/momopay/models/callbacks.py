"""What the service POSTs to a callback URL (SPEC.md, "Events")."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from momopay.models.enums import EventType, TransactionStatus, TransactionType
from momopay.models.records import ProviderCode, Record, Timestamp

__all__ = ["Callback", "CallbackTransaction"]


class CallbackTransaction(Record):
    """The transaction as the callback tells it. Unsigned: confirm it before goods leave the shop."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=None
    )  # callbacks are snake_case alone, and one look-up is cheaper

    id: Annotated[str, Field(pattern=r"[^.\s]")]
    tenant_id: str | None = None
    type: TransactionType
    status: TransactionStatus
    amount: Decimal
    currency: str = "KES"
    phone_number: str
    external_reference: str | None = None
    provider: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    momo_receipt: str | None = None
    transaction_fee: Decimal | None = None
    result_code: ProviderCode | None = None
    result_desc: str | None = None
    created_at: Timestamp
    updated_at: Timestamp

    @property
    def transaction_id(self) -> str:
        """The id, by the name that it has in every other record."""
        return self.id

    @property
    def phone(self) -> str:
        """The number, by the name that it has in every other record."""
        return self.phone_number

    @property
    def account_reference(self) -> str | None:
        """The reference, by the name that it has in every other record."""
        return self.external_reference


class Callback(Record):
    """One callback: what happened, and to which transaction."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=None)

    event: str = "transaction.updated"
    event_type: EventType
    transaction: CallbackTransaction

    @property
    def key(self) -> tuple[str, TransactionStatus]:
        """Transaction id and status: equal for every delivery of the same news, so handle each key once."""
        return self.transaction.id, self.transaction.status

    @property
    def transaction_id(self) -> str:
        """The id of the transaction."""
        return self.transaction.id
