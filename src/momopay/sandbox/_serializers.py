"""The records of the service as they are on the wire, for its answers and for OpenAPI.

`Record.model_validate(transaction)` reads a record from the attributes of an object. A field has the name of its
attribute, or names it as `validation_alias`. Its name on the wire is made from the field's name.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal
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
    create_model,
)
from pydantic.alias_generators import to_camel

from momopay.sandbox._accounts import Channel, Switches
from momopay.sandbox._bodies import text_schema
from momopay.sandbox._records import Kind, Status, Transaction, iso, json_number

NAIROBI = timezone(timedelta(hours=3))


def _or_none(text: str) -> str | None:
    return text or None


def _wallet_id(tenant_id: str) -> str:
    return str(uuid5(UUID(tenant_id), "service wallet"))


def _masked(phone: str) -> str:
    return f"{phone[:4]}*****{phone[-3:]}"


def _local(instant: datetime) -> str:
    return instant.astimezone(NAIROBI).replace(tzinfo=None).isoformat(timespec="milliseconds")


# As the service shows them: amounts as numbers that are exact to the cent, instants with whole milliseconds.
Amount = Annotated[Decimal, PlainSerializer(json_number), WithJsonSchema({"type": "number", "description": "KES"})]
Instant = Annotated[datetime, PlainSerializer(iso), text_schema(format="date-time")]
LocalInstant = Annotated[datetime, PlainSerializer(_local), text_schema(description="In Nairobi, without a zone")]
Id = Annotated[str, text_schema(format="uuid")]
Phone = Annotated[str, text_schema(pattern="^254[0-9]{9}$")]
MaskedPhone = Annotated[str, PlainSerializer(_masked), text_schema(pattern=r"^254[0-9]\*{5}[0-9]{3}$")]
LowerKind = Annotated[Kind, PlainSerializer(str.lower), text_schema(enum=[kind.lower() for kind in Kind])]


class SnakeRecord(BaseModel):
    """A record in snake_case."""

    # A field with a default is a constant: no object that a record is read from has an attribute of that name.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        from_attributes=True, json_schema_serialization_defaults_required=True
    )


class Record(SnakeRecord):
    """A record in camelCase."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel))


class _Payment(Record):
    """What every record of a payment shows in camelCase."""

    transaction_id: Id = Field(validation_alias="id")
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone: Phone
    created_at: Instant
    updated_at: Instant


class StkInitiated(_Payment):
    """The answer to an STK initiation and to a top-up.

    It shows the transaction as it was at the initiation, because a top-up is replayed later: hence a constant
    status and `createdAt` twice.
    """

    tenant_id: Id
    channel_id: Id | None
    shown_type: Literal["STK"] = Field("STK", serialization_alias="type")
    initial_status: Literal["PENDING"] = Field("PENDING", serialization_alias="status")
    account_reference: str = Field(validation_alias="reference")
    transaction_desc: str = Field(validation_alias="description")
    provider_request_id: str | None
    provider_checkout_id: str | None
    transaction_fee: Amount = Field(validation_alias="fee")
    acceptance_code: Literal["0"] = Field("0", serialization_alias="resultCode")
    result_description: str = "Request accepted for processing"
    updated_at: Instant = Field(validation_alias="created_at")


class PayoutInitiated(_Payment):
    """The answer to a B2C initiation."""

    tenant_id: Id
    channel_id: Id | None
    shown_type: Literal["B2C"] = Field("B2C", serialization_alias="type")
    initial_status: Literal["PENDING"] = Field("PENDING", serialization_alias="status")
    reference: str
    description: str
    transaction_fee: Amount = Field(validation_alias="fee")
    result_description: str = "Payout queued for processing"


class TransactionRead(_Payment):
    """The single read in camelCase, the default of the switch `naming`; the service names no fee among its fields."""

    tenant_id: Id
    channel_id: Id | None
    kind: Kind = Field(serialization_alias="type")
    status: Status
    account_reference: str = Field(validation_alias="reference")
    transaction_desc: str = Field(validation_alias="description")
    provider: Literal["MOMO"] = "MOMO"
    provider_request_id: str | None
    provider_checkout_id: str | None
    result_code: str | None
    result_desc: str | None


class TransactionItem(_Payment):
    """A list item."""

    kind: Kind = Field(serialization_alias="type")
    status: Status
    account_reference: str = Field(validation_alias="reference")
    transaction_fee: Amount = Field(validation_alias="shown_fee")


class _SnakePayment(SnakeRecord):
    """What a read and a callback show in snake_case."""

    kind: Kind = Field(serialization_alias="type")
    status: Status
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone_number: Phone = Field(validation_alias="phone")
    transaction_fee: Amount = Field(validation_alias="shown_fee")
    provider_request_id: str | None
    provider_checkout_id: str | None
    result_code: str | None
    result_desc: str | None
    created_at: Instant
    updated_at: Instant


class SnakeTransactionRead(_SnakePayment):
    """The single read in snake_case."""

    transaction_id: Id = Field(validation_alias="id")
    external_reference: Annotated[str | None, BeforeValidator(_or_none)] = Field(validation_alias="reference")


class CallbackTransaction(_SnakePayment):
    """The transaction in a callback."""

    id: Id
    tenant_id: Id
    external_reference: str = Field(validation_alias="reference")
    provider: Literal["MOMO"] = "MOMO"
    momo_receipt: str | None = Field(validation_alias="receipt")


class Callback(SnakeRecord):
    """What is POSTed to a callback URL."""

    event: Literal["transaction.updated"] = "transaction.updated"
    event_type: Literal["transaction.success", "transaction.failed", "transaction.cancelled", "transaction.expired"]
    transaction: CallbackTransaction


class Overview(Record):
    """Counts over the filtered set."""

    total: int
    completed: int
    failed: int
    pending: int


class TransactionList(Record):
    """A page of items."""

    overview: Overview
    items: list[TransactionItem]
    next_cursor: str | None


# What a switch with this value changes in a list item.
_VARIANTS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    # The fee is the only field of a list item that the service specifies in both styles.
    ("naming", "snake_case"): {
        "transaction_fee": (Amount, Field(validation_alias="shown_fee", serialization_alias="transaction_fee"))
    },
    ("list_phone", "masked"): {"phone": (MaskedPhone, ...)},
    ("list_amount", "with_fee"): {"amount": (Amount, Field(validation_alias="amount_with_fee"))},
    ("list_type", "lower"): {"kind": (LowerKind, Field(serialization_alias="type"))},
    ("list_times", "local"): {"created_at": (LocalInstant, ...), "updated_at": (LocalInstant, ...)},
}


def list_record(switches: Switches) -> type[TransactionList]:
    """Return the record of a page whose items look as an account's switches say."""
    return _list_record(frozenset(each for each in _VARIANTS if getattr(switches, each[0]) == each[1]))


# The models keep their names, since the OpenAPI document of an account has only one schema of a list.
@lru_cache(maxsize=32)
def _list_record(variants: frozenset[tuple[str, str]]) -> type[TransactionList]:
    if not variants:
        return TransactionList
    fields: dict[str, Any] = {name: field for each in variants for name, field in _VARIANTS[each].items()}
    items: Any = list[create_model("TransactionItem", __base__=TransactionItem, **fields)]  # type: ignore[misc]
    return create_model("TransactionList", __base__=TransactionList, items=(items, ...))


def read_record(switches: Switches) -> type[SnakeRecord]:
    """Return the record of a single read, in the style that an account's switches say."""
    return SnakeTransactionRead if switches.naming == "snake_case" else TransactionRead


class ServiceBalance(Record):
    """The service wallet's balance; nothing is ever pending here, so both balances are the same."""

    wallet_id: Annotated[Id, AfterValidator(_wallet_id)] = Field(validation_alias="tenant_id")
    tenant_id: Id
    currency: Literal["KES"] = "KES"
    available_balance: Amount = Field(validation_alias="service_balance")
    ledger_balance: Amount = Field(validation_alias="service_balance")
    updated_at: Instant = Field(validation_alias="service_updated_at")


class PaymentChannel(Record):
    """A payment channel."""

    id: Id
    tenant_id: Id
    category: str
    type: Literal["PAYBILL", "TILL_NUMBER", "SEND_MONEY"]
    shortcode: str
    name: str
    account_number: str | None
    is_default: bool
    created_at: Instant

    @classmethod
    def of(cls, channel: Channel, tenant_id: str) -> "PaymentChannel":
        """Return the record of a channel, which does not know its account itself."""
        return cls.model_validate({**channel.model_dump(), "tenant_id": tenant_id})


class ChannelList(Record):
    """The default channel first, then newest to oldest."""

    items: list[PaymentChannel]


class Nothing(Record):
    """An empty object."""


def callback_payload(transaction: Transaction, *, event_type: str, status: Status) -> dict[str, object]:
    """Return the body of a callback, whose `status` may be more precise than that of reads."""
    # Plain JSON that is made once, so that retries send the same payload even if the transaction has changed.
    record = Callback.model_validate({"event_type": event_type, "transaction": transaction})
    payload: dict[str, Any] = record.model_dump(mode="json", by_alias=True)
    payload["transaction"]["status"] = status.value
    return payload
