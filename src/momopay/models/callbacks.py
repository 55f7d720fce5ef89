"""The records of a callback (webhook), which the service POSTs (service page, "Callbacks")."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from momopay.models.enums import EventType, TransactionStatus, TransactionType
from momopay.models.records import Id, ProviderCode, Record, Timestamp, receipt_in


class CallbackTransaction(Record):
    """The transaction as the callback states it. Callbacks are not signed: confirm it before you deliver goods.

    Only `id` is always there. Other fields may be None; ``transactions.confirm`` reads them.
    """

    # A callback has only snake_case names, so aliases would waste time. A phone or a reference may be a number.
    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=None, coerce_numbers_to_str=True)

    id: Annotated[Id, Field(strict=True)]
    tenant_id: str | None = None
    type: TransactionType | None = None
    status: TransactionStatus | None = None
    amount: Decimal | None = None
    currency: str | None = "KES"
    phone_number: str | None = None
    external_reference: str | None = None
    provider: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    transaction_fee: Decimal | None = None
    result_code: ProviderCode | None = None
    result_desc: str | None = None
    created_at: Timestamp | None = None
    updated_at: Timestamp | None = None

    @property
    def transaction_id(self) -> str:
        """`id`, under its name in other records."""
        return self.id

    @property
    def phone(self) -> str | None:
        """`phone_number`, under its name in other records."""
        return self.phone_number

    @property
    def account_reference(self) -> str | None:
        """`external_reference`, under its name in other records."""
        return self.external_reference

    @property
    def receipt(self) -> str | None:
        """The provider's receipt, from the field whose name ends in "receipt"; None if there is none, or two differ."""
        return receipt_in(self)

    @property
    def momo_receipt(self) -> str | None:
        """`receipt`, under its name on the service page, "Callbacks"."""
        return self.receipt


class Callback(Record):
    """One callback: an event, and the transaction that it is about."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=None, coerce_numbers_to_str=True)

    event: str | None = "transaction.updated"
    event_type: EventType | None = None
    transaction: CallbackTransaction

    @property
    def key(self) -> tuple[str, TransactionStatus | None]:
        """Transaction id and status. All deliveries of one event have the same key, so handle each key once."""
        return self.transaction.id, self.transaction.status

    @property
    def status(self) -> TransactionStatus | None:
        """The status that the callback states; None if it states none that can be read."""
        return self.transaction.status

    @property
    def transaction_id(self) -> str:
        """The id of the transaction."""
        return self.transaction.id

    @property
    def receipt(self) -> str | None:
        """The receipt of the transaction."""
        return self.transaction.receipt
