"""The records of the service as they are on the wire, for its answers and for OpenAPI.

`record_under(name, switches)` makes a pydantic model from the fields of one record. The model reads the attributes of
an object, such as a transaction, and its fields have their names on the wire.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal
from uuid import UUID, uuid5

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    create_model,
)
from pydantic.alias_generators import to_camel

from momopay.sandbox._accounts import ChannelType, Switches
from momopay.sandbox._bodies import text_schema
from momopay.sandbox._records import TOP_UPS, Kind, Status, Transaction, iso, json_number

NAIROBI = timezone(timedelta(hours=3))


def _local(instant: datetime) -> str:
    return instant.astimezone(NAIROBI).replace(tzinfo=None).isoformat(timespec="milliseconds")


def _id_from(name: str) -> AfterValidator:
    """Return a validator that makes an id from that of the account."""
    return AfterValidator(lambda tenant_id: str(uuid5(UUID(tenant_id), name)))


def _text(example: str) -> Any:
    return Annotated[str, text_schema(examples=[example])]


# As the service shows them: amounts as numbers that are exact to the cent, instants with whole milliseconds.
Amount = Annotated[
    Decimal,
    PlainSerializer(json_number),
    WithJsonSchema({"type": "number", "description": "KES", "examples": [100]}),
]
Fee = Annotated[Amount, WithJsonSchema({"type": "number", "description": "KES", "examples": [1]})]
Instant = Annotated[
    datetime, PlainSerializer(iso), text_schema(format="date-time", examples=["2026-01-31T09:30:00.000Z"])
]
LocalInstant = Annotated[
    datetime,
    PlainSerializer(_local),
    text_schema(description="In Nairobi, without a zone", examples=["2026-01-31T12:30:00.000"]),
]
Id: Any = Annotated[str, text_schema(format="uuid", examples=["00000000-0000-0000-0000-000000000002"])]
Phone = Annotated[str, text_schema(pattern="^254[0-9]{9}$", examples=["254712345678"])]
MaskedPhone = Annotated[
    str,
    PlainSerializer(lambda phone: f"{phone[:4]}*****{phone[-3:]}"),
    text_schema(pattern=r"^254[0-9]\*{5}[0-9]{3}$", examples=["2547*****678"]),
]
Receipt = _text("TCK4H7X2QP") | None
Flag = Annotated[bool, Field(examples=[True])]
Count = Annotated[int, Field(examples=[1])]
Event = Annotated[
    str,
    # The last one is only for the switch `callback_on_processing`.
    text_schema(enum=[f"transaction.{name}" for name in ("success", "failed", "cancelled", "expired", "updated")]),
]

# Fields as `create_model` takes them, by their names on the wire.
Fields = dict[str, Any]
# The type of each field of a payment and, where its name is another one, the attribute that it is read from.
_FIELDS: Mapping[str, tuple[Any, str]] = {
    "transaction_id": (Id, "id"),
    "tenant_id": (Id, ""),
    "channel_id": (Id | None, ""),
    "status": (Annotated[Status, Field(examples=["SUCCESS"])], ""),
    "amount": (Amount, ""),
    "phone": (Phone, ""),
    "phone_number": (Phone, "phone"),
    "reference": (_text("INV-42"), ""),
    "account_reference": (_text("INV-42"), "reference"),
    "external_reference": (Annotated[_text("INV-42") | None, BeforeValidator(lambda text: text or None)], "reference"),
    "description": (_text("Order 42"), ""),
    "transaction_desc": (_text("Order 42"), "description"),
    # `fee` is what an initiation deducted. Later, a fee is shown only while it is due.
    "transaction_fee": (Fee, "shown_fee"),
    "provider_request_id": (_text("mr-0000000000000003") | None, ""),
    "provider_checkout_id": (_text("co-0000000000000004") | None, ""),
    "result_code": (_text("0") | None, ""),
    "result_desc": (_text("The service request is processed successfully.") | None, ""),
    "created_at": (Instant, ""),
    "updated_at": (Instant, ""),
}
_TIMES = ("created_at", "updated_at")
_IN_CAMEL_CASE = ("transaction_id", "status", "amount", "phone", "account_reference", *_TIMES)
_IN_SNAKE_CASE = ("status", "amount", "phone_number", "external_reference", "transaction_fee", *_TIMES)
_BY_THE_PROVIDER = ("provider_request_id", "provider_checkout_id", "result_code", "result_desc")


def _of(kind: Any, attribute: str) -> Any:
    return kind, Field(validation_alias=attribute)


def _always(value: str, kind: Any = None) -> Any:
    # No object that a record is read from has an attribute of this name.
    return kind or Literal[value], Field(value, validation_alias="-")


def _says(text: str) -> Any:
    return _always(text, _text(text))


def _fields(names: Iterable[str], called: Callable[[str], str] = str, /, **changed: tuple[Any, str]) -> Fields:
    """Return these fields of a payment, and its currency; `called` makes the names on the wire."""
    known = {**_FIELDS, **changed}
    fields = {called(name): _of(known[name][0], known[name][1] or name) for name in names}
    return fields | {"currency": _always("KES")}


def _initiated(switches: Switches, kind: str, names: Iterable[str], more: Fields) -> Fields:
    """Return the answer to an initiation, which shows the transaction as it was then, because it may be replayed."""
    same = ("transaction_id", "tenant_id", "channel_id", "amount", "phone", "created_at")
    first: Fields = {"type": _always(kind), "status": _always("PENDING")}
    first |= {"updatedAt": _of(Instant, "created_at"), "transactionFee": _of(Fee, "fee")}
    fields = _fields((*same, *names), to_camel) | first | more
    return {name: fields[name] for name in ("transactionId", "status")} if switches.minimal_answers else fields


def _stk_initiated(switches: Switches) -> Fields:
    more = {"resultCode": _always("0"), "resultDescription": _says("Request accepted for processing")}
    names = ("account_reference", "transaction_desc", "provider_request_id", "provider_checkout_id")
    return _initiated(switches, "STK", names, more)


def _payout_initiated(switches: Switches) -> Fields:
    more = {"resultDescription": _says("Payout queued for processing")}
    key = {} if switches.payout_keys == "ignored" else {"idempotencyKey": _of(str | None, "idempotency_key")}
    return _initiated(switches, "B2C", ("reference", "description"), more) | key


def _top_up_initiated(switches: Switches) -> Fields:
    """Return the answer to a top-up, which under the switch `topup_answer` is not that to a prompt."""
    fields = _stk_initiated(switches)
    if switches.topup_answer == "prompt":
        return fields
    own = {"type": _kind(switches, among=TOP_UPS)} if "type" in fields else {}
    return fields | own | {"idempotencyKey": _of(str | None, "idempotency_key")}


def _kind(switches: Switches, case: str = "upper", among: Collection[Kind] = tuple(Kind)) -> Any:
    """Return the field `type`, as the switches spell it."""

    def spell(kind: Kind) -> str:
        text = switches.topup_type if kind is Kind.WALLET_TOPUP else kind.value
        return text.lower() if case == "lower" else text

    schema = text_schema(enum=[spell(kind) for kind in Kind if kind in among])
    return _of(Annotated[Kind, PlainSerializer(spell), schema], "kind")


def _transaction_read(switches: Switches) -> Fields:
    """Return a single read. In camelCase, the service names no fee among its fields."""
    if switches.naming == "snake_case":
        fields = _fields(("transaction_id", *_IN_SNAKE_CASE, *_BY_THE_PROVIDER))
    else:
        more = ("tenant_id", "channel_id", "transaction_desc", *_BY_THE_PROVIDER)
        fields = _fields((*_IN_CAMEL_CASE, *more), to_camel) | {"provider": _always("MOMO")}
    fields["type"] = _kind(switches)
    if switches.receipt_in_reads:
        fields[switches.receipt_field] = _of(Receipt, "receipt")
    if switches.minimal_answers:
        for name in ("type", "phone", "phone_number", "createdAt", "created_at", "updatedAt", "updated_at"):
            fields.pop(name, None)
    if switches.customer_in_reads:
        fields |= {"customer_name": _says("WANJIKU KAMAU"), "callback_url": _of(str | None, "callback_url")}
    return fields


def _transaction_item(switches: Switches) -> Fields:
    changed = dict[str, tuple[Any, str]]()
    if switches.list_phone == "masked":
        changed |= dict.fromkeys(("phone", "phone_number"), (MaskedPhone, "phone"))
    if switches.list_amount == "with_fee":
        changed["amount"] = Amount, "amount_with_fee"
    if switches.list_times == "local":
        changed |= dict.fromkeys(_TIMES, (LocalInstant, ""))
    if switches.item_naming == "snake_case":
        fields = _fields(("transaction_id", *_IN_SNAKE_CASE), **changed)
    else:
        fields = _fields(_IN_CAMEL_CASE, to_camel, **changed)
        # The fee is the only field of a list item that the service specifies in both styles.
        fee = "transaction_fee" if switches.naming == "snake_case" else "transactionFee"
        fields[fee] = _of(Fee, "shown_fee")
    fields["type"] = _kind(switches, switches.list_type)
    if switches.receipt_in_reads:
        fields[switches.receipt_field] = _of(Receipt, "receipt")
    return fields


def _transaction_list(switches: Switches) -> Fields:
    item: Any = record_under("TransactionItem", switches)
    fields: Fields = {"items": (list[item], ...), switches.cursor_field: _of(str | None, "next_cursor")}
    return fields | ({"overview": (Overview, ...)} if switches.overview else {})


def _callback_transaction(switches: Switches) -> Fields:
    fields = _fields(("tenant_id", *_IN_SNAKE_CASE, *_BY_THE_PROVIDER)) | {"type": _kind(Switches())}
    return fields | {"id": (Id, ...), "provider": _always("MOMO"), switches.receipt_field: _of(Receipt, "receipt")}


def _callback(switches: Switches) -> Fields:
    transaction = record_under("CallbackTransaction", switches)
    return {"event": _always("transaction.updated"), "event_type": (Event, ...), "transaction": (transaction, ...)}


def _balance(wallet: str, attribute: str) -> Callable[[Switches], Fields]:
    """Return the balance of a wallet; nothing is ever pending here, so both balances are the same."""
    balances = {name: _of(Amount, attribute) for name in ("availableBalance", "ledgerBalance")}
    ids = {"walletId": _of(Annotated[Id, _id_from(wallet)], "tenant_id"), "tenantId": _of(Id, "tenant_id")}
    updated = _of(Instant, "service_updated_at")
    return lambda _switches: {**ids, **balances, "currency": _always("KES"), "updatedAt": updated}


class Overview(BaseModel):
    """Counts over the filtered set."""

    total: Count
    completed: Count
    failed: Count
    pending: Count


def _payment_channel(_switches: Switches) -> Fields:
    kinds: Mapping[str, Any] = {
        "id": Id,
        "tenant_id": Id,
        "category": _text("PAYMENT_WALLET"),
        "type": ChannelType,
        "shortcode": _text("512345"),
        "name": _text("Shop"),
        "account_number": str | None,
        "is_default": Flag,
        "created_at": Instant,
    }
    return {to_camel(name): _of(kind, name) for name, kind in kinds.items()}


def _channel_list(switches: Switches) -> Fields:
    """Return a list: the default channel first, then newest to oldest."""
    channel: Any = record_under("PaymentChannel", switches)
    return {"items": (list[channel], ...)}


_RECORDS: Mapping[str, Callable[[Switches], Fields]] = {
    "StkInitiated": _stk_initiated,
    "PayoutInitiated": _payout_initiated,
    "TopUpInitiated": _top_up_initiated,
    "TransactionRead": _transaction_read,
    "TransactionItem": _transaction_item,
    "TransactionList": _transaction_list,
    "CallbackTransaction": _callback_transaction,
    "Callback": _callback,
    "ServiceBalance": _balance("service wallet", "service_balance"),
    "B2cBalance": _balance("payout wallet", "b2c_balance"),
    "PaymentChannel": _payment_channel,
    "ChannelList": _channel_list,
    "Nothing": lambda _switches: {},
}


def record_under(name: str, switches: Switches) -> type[BaseModel]:
    """Return the model of a record as an account's switches shape it."""
    return _record_under(name, tuple(vars(switches).items()))


@lru_cache(maxsize=256)
def _record_under(name: str, values: tuple[tuple[str, Any], ...]) -> type[BaseModel]:
    switches = Switches.model_construct(None, **dict(values))
    config = ConfigDict(from_attributes=True, json_schema_serialization_defaults_required=True)
    return create_model(name, __config__=config, **_RECORDS[name](switches))


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
    record = record_under("Callback", switches).model_validate({"event_type": event_type, "transaction": transaction})
    payload: dict[str, Any] = record.model_dump(mode="json")
    payload["transaction"]["status"] = status.value
    return payload
