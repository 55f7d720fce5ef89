"""The records of the service as they are on the wire, for its answers and for OpenAPI.

`Record.model_validate(transaction)` reads a record from the attributes of an object. A field has the name of its
attribute, or names it as `validation_alias`. Its name on the wire is made from the field's name.
"""

from collections.abc import Iterable, Mapping
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

from momopay.sandbox._accounts import Channel, ChannelType, Switches
from momopay.sandbox._bodies import text_schema
from momopay.sandbox._records import Kind, Status, Transaction, iso, json_number

Changes = dict[str, Any]
LEFT_OUT: Any = (Any, Field(None, exclude=True))
NAIROBI = timezone(timedelta(hours=3))


def _local(instant: datetime) -> str:
    return instant.astimezone(NAIROBI).replace(tzinfo=None).isoformat(timespec="milliseconds")


# As the service shows them: amounts as numbers that are exact to the cent, instants with whole milliseconds.
Amount = Annotated[Decimal, PlainSerializer(json_number), WithJsonSchema({"type": "number", "description": "KES"})]
Instant = Annotated[datetime, PlainSerializer(iso), text_schema(format="date-time")]
LocalInstant = Annotated[datetime, PlainSerializer(_local), text_schema(description="In Nairobi, without a zone")]
Id = Annotated[str, text_schema(format="uuid")]
Phone = Annotated[str, text_schema(pattern="^254[0-9]{9}$")]
MaskedPhone = Annotated[
    str,
    PlainSerializer(lambda phone: f"{phone[:4]}*****{phone[-3:]}"),
    text_schema(pattern=r"^254[0-9]\*{5}[0-9]{3}$"),
]
TextOrNone = Annotated[str | None, BeforeValidator(lambda text: text or None)]


class SnakeRecord(BaseModel):
    """A record in snake_case."""

    # A field with a default is a constant: no object that a record is read from has an attribute of that name.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        from_attributes=True, json_schema_serialization_defaults_required=True
    )

    @classmethod
    def base(cls, _switches: Switches, /) -> "type[SnakeRecord]":
        """Return the record in the style that an account's switches say."""
        return cls

    @classmethod
    def changes(cls, _switches: Switches, /) -> Changes:
        """Return the fields that an account's switches change, as `create_model` takes them."""
        return {}

    @classmethod
    def retyped(cls, name: str, kind: Any, attribute: str | None = None) -> Changes:
        """Return a field with another type, of the same name in JSON, and perhaps from another attribute."""
        known = cls.model_fields[name]
        source = attribute or known.validation_alias
        return {name: (kind, Field(validation_alias=source, serialization_alias=known.serialization_alias))}


class Record(SnakeRecord):
    """A record in camelCase."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel))


def record_under(record: type[SnakeRecord], switches: Switches) -> type[SnakeRecord]:
    """Return a record as an account's switches change it."""
    return _record_under(record, tuple(vars(switches).items()))


# The models keep their names, since the OpenAPI document of an account has only one schema of each.
@lru_cache(maxsize=256)
def _record_under(record: type[SnakeRecord], values: tuple[tuple[str, Any], ...]) -> type[SnakeRecord]:
    switches = Switches.model_construct(None, **dict(values))
    record = record.base(switches)
    changes = record.changes(switches)
    return create_model(record.__name__, __base__=record, **changes) if changes else record


class _Payment(Record):
    """What every record of a payment shows in camelCase."""

    transaction_id: Id = Field(validation_alias="id")
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone: Phone
    created_at: Instant
    updated_at: Instant


class _Initiated(_Payment):
    """The answer to an initiation.

    It shows the transaction as it was then, because it may be replayed later: hence a constant status and `createdAt`
    twice.
    """

    tenant_id: Id
    channel_id: Id | None
    initial_status: Literal["PENDING"] = Field("PENDING", serialization_alias="status")
    transaction_fee: Amount = Field(validation_alias="fee")
    updated_at: Instant = Field(validation_alias="created_at")

    @classmethod
    def changes(cls, switches: Switches, /) -> Changes:
        if not switches.minimal_answers:
            return {}
        return {name: LEFT_OUT for name in cls.model_fields if name not in {"transaction_id", "initial_status"}}


class StkInitiated(_Initiated):
    """The answer to an STK initiation and to a top-up."""

    shown_type: Literal["STK"] = Field("STK", serialization_alias="type")
    account_reference: str = Field(validation_alias="reference")
    transaction_desc: str = Field(validation_alias="description")
    provider_request_id: str | None
    provider_checkout_id: str | None
    acceptance_code: Literal["0"] = Field("0", serialization_alias="resultCode")
    result_description: str = "Request accepted for processing"


class PayoutInitiated(_Initiated):
    """The answer to a B2C initiation."""

    shown_type: Literal["B2C"] = Field("B2C", serialization_alias="type")
    reference: str
    description: str
    result_description: str = "Payout queued for processing"

    @classmethod
    def changes(cls, switches: Switches, /) -> Changes:
        key = {} if switches.payout_keys == "ignored" else {"idempotency_key": (str | None, Field())}
        return {**super().changes(switches), **key}


class _Transaction(SnakeRecord):
    """What a single read and a list item share."""

    transaction_id: Id = Field(validation_alias="id")
    kind: Kind = Field(serialization_alias="type")
    status: Status

    @classmethod
    def changes(cls, switches: Switches, /) -> Changes:
        def spell(kind: Kind) -> str:
            text = switches.topup_type if kind is Kind.WALLET_TOPUP else kind.value
            return text.lower() if switches.list_type == "lower" and issubclass(cls, _Item) else text

        spelled = text_schema(enum=[spell(kind) for kind in Kind])
        changes = cls.retyped("kind", Annotated[Kind, PlainSerializer(spell), spelled])
        if switches.receipt_in_reads:
            changes["receipt"] = str | None, Field(serialization_alias=switches.receipt_field)
        return changes


class _Read(_Transaction):
    """A single read."""

    @classmethod
    def changes(cls, switches: Switches, /) -> Changes:
        changes = super().changes(switches)
        if switches.customer_in_reads:
            changes["customer_name"] = str, Field("WANJIKU KAMAU", serialization_alias="customer_name")
            changes["callback_url"] = str | None, Field(serialization_alias="callback_url")
        if switches.minimal_answers:
            changes |= dict.fromkeys(("kind", "phone", "created_at", "updated_at"), LEFT_OUT)
        return changes


class _Item(_Transaction):
    """A list item."""

    @classmethod
    def changes(cls, switches: Switches, /) -> Changes:
        changes = super().changes(switches)
        if switches.naming == "snake_case":
            # The fee is the only field of a list item that the service specifies in both styles.
            named = Field(validation_alias="shown_fee", serialization_alias="transaction_fee")
            changes["transaction_fee"] = Amount, named
        if switches.list_phone == "masked":
            changes |= cls.retyped("phone", MaskedPhone)
        if switches.list_amount == "with_fee":
            changes |= cls.retyped("amount", Amount, "amount_with_fee")
        if switches.list_times == "local":
            changes |= cls.retyped("created_at", LocalInstant) | cls.retyped("updated_at", LocalInstant)
        return changes


class TransactionRead(_Read, _Payment):
    """The single read in camelCase, the default of the switch `naming`; the service names no fee among its fields."""

    tenant_id: Id
    channel_id: Id | None
    account_reference: str = Field(validation_alias="reference")
    transaction_desc: str = Field(validation_alias="description")
    provider: Literal["MOMO"] = "MOMO"
    provider_request_id: str | None
    provider_checkout_id: str | None
    result_code: str | None
    result_desc: str | None

    @classmethod
    def base(cls, switches: Switches, /) -> type[SnakeRecord]:
        return SnakeTransactionRead if switches.naming == "snake_case" else cls


class TransactionItem(_Item, _Payment):
    """A list item."""

    account_reference: str = Field(validation_alias="reference")
    transaction_fee: Amount = Field(validation_alias="shown_fee")

    @classmethod
    def base(cls, switches: Switches, /) -> type[SnakeRecord]:
        return SnakeTransactionItem if switches.item_naming == "snake_case" else cls


class _SnakePayment(SnakeRecord):
    """What every record of a payment shows in snake_case."""

    kind: Kind = Field(serialization_alias="type")
    status: Status
    amount: Amount
    currency: Literal["KES"] = "KES"
    phone: Phone = Field(serialization_alias="phone_number")
    external_reference: TextOrNone = Field(validation_alias="reference")
    transaction_fee: Amount = Field(validation_alias="shown_fee")
    created_at: Instant
    updated_at: Instant


class _Provided(SnakeRecord):
    """What the provider says about a payment."""

    provider_request_id: str | None
    provider_checkout_id: str | None
    result_code: str | None
    result_desc: str | None


class SnakeTransactionRead(_Read, _Provided, _SnakePayment):
    """The single read in snake_case."""


class SnakeTransactionItem(_Item, _SnakePayment):
    """A list item in snake_case."""


class CallbackTransaction(_Provided, _SnakePayment):
    """The transaction in a callback."""

    id: Id
    tenant_id: Id
    provider: Literal["MOMO"] = "MOMO"
    receipt: str | None = Field(serialization_alias="momo_receipt")

    @classmethod
    def changes(cls, switches: Switches, /) -> Changes:
        return {"receipt": (str | None, Field(serialization_alias=switches.receipt_field))}


# The last one is only for the switch `callback_on_processing`.
_EVENTS = ("success", "failed", "cancelled", "expired", "updated")


class Callback(SnakeRecord):
    """What is POSTed to a callback URL."""

    event: Literal["transaction.updated"] = "transaction.updated"
    event_type: Annotated[str, text_schema(enum=[f"transaction.{name}" for name in _EVENTS])]
    transaction: CallbackTransaction

    @classmethod
    def changes(cls, switches: Switches, /) -> Changes:
        return {"transaction": (record_under(CallbackTransaction, switches), ...)}


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

    @classmethod
    def changes(cls, switches: Switches, /) -> Changes:
        item: Any = record_under(TransactionItem, switches)
        cursor = str | None, Field(serialization_alias=switches.cursor_field)
        overview = {} if switches.overview else {"overview": LEFT_OUT}
        return {"items": (list[item], ...), "next_cursor": cursor, **overview}


def _derived(name: str) -> AfterValidator:
    """Return a validator that makes an id from that of the account."""
    return AfterValidator(lambda tenant_id: str(uuid5(UUID(tenant_id), name)))


class ServiceBalance(Record):
    """The service wallet's balance; nothing is ever pending here, so both balances are the same."""

    wallet_id: Annotated[Id, _derived("service wallet")] = Field(validation_alias="tenant_id")
    tenant_id: Id
    currency: Literal["KES"] = "KES"
    available_balance: Amount = Field(validation_alias="service_balance")
    ledger_balance: Amount = Field(validation_alias="service_balance")
    updated_at: Instant = Field(validation_alias="service_updated_at")


class B2cBalance(ServiceBalance):
    """The payout wallet's balance."""

    wallet_id: Annotated[Id, _derived("payout wallet")] = Field(validation_alias="tenant_id")
    available_balance: Amount = Field(validation_alias="b2c_balance")
    ledger_balance: Amount = Field(validation_alias="b2c_balance")


class PaymentChannel(Record):
    """A payment channel."""

    id: Id
    tenant_id: Id
    category: str
    type: ChannelType
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


SPOILABLE = ("type", "status", "amount", "currency", "phone", "created_at", "updated_at")


def spoil(items: Iterable[dict[str, Any]], state: Mapping[str, Transaction]) -> None:
    """Replace or remove the spoiled fields in the items of a list."""
    for item in items:
        for field, value in state[item.get("transactionId") or item["transaction_id"]].spoiled.items():
            # Its name in either style.
            for name in item.keys() & {field, to_camel(field), f"{field}_number"}:
                item[name] = value[0] if value else None
                if not value:
                    del item[name]


def callback_payload(
    transaction: Transaction, event_type: str, status: Status, switches: Switches
) -> dict[str, object]:
    """Return the body of a callback, whose `status` may be more precise than that of reads."""
    # Plain JSON that is made once, so that retries send the same payload even if the transaction has changed.
    shown = record_under(Callback, switches)
    record = shown.model_validate({"event_type": event_type, "transaction": transaction})
    payload: dict[str, Any] = record.model_dump(mode="json", by_alias=True)
    payload["transaction"]["status"] = status.value
    return payload
