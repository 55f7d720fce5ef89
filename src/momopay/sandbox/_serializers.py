"""The records of the service as they are on the wire: one description of each, for the answers and for OpenAPI.

A record is read from the attributes of what it shows, by `Record.model_validate(transaction)`. Fields are named as
the attributes are, or name theirs as `validation_alias`. What a field is called on the wire follows from its name.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar
from uuid import UUID, uuid5

from pydantic import (
    AfterValidator,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from momopay.sandbox._accounts import Channel
from momopay.sandbox._clock import iso
from momopay.sandbox._transactions import Kind, Status, Transaction
from momopay.sandbox._values import json_number


def _or_none(text: str) -> str | None:
    return text or None


def _wallet_id(tenant_id: str) -> str:
    return str(uuid5(UUID(tenant_id), "service wallet"))


Item = TypeVar("Item", bound="TransactionItem")
# Shown as the service shows them: an amount as a number exact to the cent, an instant with whole milliseconds.
Amount = Annotated[Decimal, PlainSerializer(json_number), WithJsonSchema({"type": "number"})]
Instant = Annotated[datetime, PlainSerializer(iso), WithJsonSchema({"type": "string"})]


class SnakeRecord(BaseModel):
    """A record in snake_case."""

    # A field with a default is a constant: nothing that a record is read from has an attribute of its name.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        from_attributes=True, json_schema_serialization_defaults_required=True
    )


class Record(SnakeRecord):
    """A record in camelCase."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel))


class StkInitiated(Record):
    """The answer to an STK initiation and to a top-up.

    It shows the transaction as it was at the initiation, because a top-up is replayed later: hence a constant
    status and `createdAt` twice.
    """

    transaction_id: str = Field(validation_alias="id")
    tenant_id: str
    channel_id: str | None
    shown_type: Literal["STK"] = Field("STK", serialization_alias="type")
    initial_status: Literal["PENDING"] = Field("PENDING", serialization_alias="status")
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone: str
    account_reference: str = Field(validation_alias="reference")
    transaction_desc: str = Field(validation_alias="description")
    provider_request_id: str | None
    provider_checkout_id: str | None
    transaction_fee: Amount = Field(validation_alias="fee")
    acceptance_code: Literal["0"] = Field("0", serialization_alias="resultCode")
    result_description: str = "Request accepted for processing"
    created_at: Instant
    updated_at: Instant = Field(validation_alias="created_at")


class PayoutInitiated(Record):
    """The answer to a B2C initiation."""

    transaction_id: str = Field(validation_alias="id")
    tenant_id: str
    channel_id: str | None
    shown_type: Literal["B2C"] = Field("B2C", serialization_alias="type")
    initial_status: Literal["PENDING"] = Field("PENDING", serialization_alias="status")
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone: str
    reference: str
    description: str
    transaction_fee: Amount = Field(validation_alias="fee")
    result_description: str = "Payout queued for processing"
    created_at: Instant
    updated_at: Instant


class TransactionRead(Record):
    """The single read in camelCase, the default of the switch `naming`; the service names no fee among its fields."""

    transaction_id: str = Field(validation_alias="id")
    tenant_id: str
    kind: Kind = Field(serialization_alias="type")
    status: Status
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone: str
    channel_id: str | None
    account_reference: str = Field(validation_alias="reference")
    transaction_desc: str = Field(validation_alias="description")
    provider: Literal["MOMO"] = "MOMO"
    provider_request_id: str | None
    provider_checkout_id: str | None
    result_code: str | None
    result_desc: str | None
    created_at: Instant
    updated_at: Instant


class SnakeTransactionRead(SnakeRecord):
    """The single read in snake_case."""

    transaction_id: str = Field(validation_alias="id")
    kind: Kind = Field(serialization_alias="type")
    status: Status
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone_number: str = Field(validation_alias="phone")
    external_reference: Annotated[str | None, BeforeValidator(_or_none)] = Field(validation_alias="reference")
    transaction_fee: Amount = Field(validation_alias="shown_fee")
    provider_request_id: str | None
    provider_checkout_id: str | None
    result_code: str | None
    result_desc: str | None
    created_at: Instant
    updated_at: Instant


class TransactionItem(Record):
    """A list item."""

    transaction_id: str = Field(validation_alias="id")
    kind: Kind = Field(serialization_alias="type")
    status: Status
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone: str
    account_reference: str = Field(validation_alias="reference")
    transaction_fee: Amount = Field(validation_alias="shown_fee")
    created_at: Instant
    updated_at: Instant


class SnakeFeeItem(TransactionItem):
    """A list item in the other style, which differs only in the name of the fee."""

    transaction_fee: Amount = Field(validation_alias="shown_fee", serialization_alias="transaction_fee")


class Overview(Record):
    """Counts over the filtered set."""

    total: int
    completed: int
    failed: int
    pending: int


class TransactionList(Record, Generic[Item]):
    """A page of items in one of the two styles."""

    overview: Overview
    items: list[Item]
    next_cursor: str | None


class ServiceBalance(Record):
    """The service wallet's balance; nothing is ever pending here, so both balances are the same."""

    wallet_id: Annotated[str, AfterValidator(_wallet_id)] = Field(validation_alias="tenant_id")
    tenant_id: str
    currency: Literal["KES"] = "KES"
    available_balance: Amount = Field(validation_alias="service_balance")
    ledger_balance: Amount = Field(validation_alias="service_balance")
    updated_at: Instant = Field(validation_alias="service_updated_at")


class PaymentChannel(Record):
    """A payment channel."""

    id: str
    tenant_id: str
    category: str
    type: Literal["PAYBILL", "TILL_NUMBER", "SEND_MONEY"]
    shortcode: str
    name: str
    account_number: str | None
    is_default: bool
    created_at: Instant

    @classmethod
    def of(cls, channel: Channel, tenant_id: str) -> "PaymentChannel":
        """Return the record of an account's channel."""
        # A channel does not know its account, so the two are put together here.
        return cls.model_validate({**channel.model_dump(), "tenant_id": tenant_id})


class ChannelList(Record):
    """The default channel first, then newest to oldest."""

    items: list[PaymentChannel]


class Nothing(Record):
    """An empty object."""


class CallbackTransaction(SnakeRecord):
    """The transaction in a callback."""

    id: str
    tenant_id: str
    kind: Kind = Field(serialization_alias="type")
    status: Status
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone_number: str = Field(validation_alias="phone")
    external_reference: str = Field(validation_alias="reference")
    provider: Literal["MOMO"] = "MOMO"
    provider_request_id: str | None
    provider_checkout_id: str | None
    momo_receipt: str | None = Field(validation_alias="receipt")
    transaction_fee: Amount = Field(validation_alias="shown_fee")
    result_code: str | None
    result_desc: str | None
    created_at: Instant
    updated_at: Instant


def callback_payload(transaction: Transaction, *, event_type: str, status: Status) -> dict[str, object]:
    """Return the body of a callback; `status` may say more than reads of the transaction do."""
    # Plain JSON, made once: retries send the same payload, even if the transaction has changed since.
    record = CallbackTransaction.model_validate(transaction)
    shown: Mapping[str, Any] = record.model_dump(mode="json", by_alias=True)
    return {"event": "transaction.updated", "event_type": event_type, "transaction": {**shown, "status": status.value}}
