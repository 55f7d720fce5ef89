"""What all records share: their types, and how an account's switches change them.

`Record.model_validate(transaction)` reads a record from the attributes of an object. A field has the name of its
attribute, or names it as `validation_alias`. Its name on the wire is made from the field's name.
"""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from pydantic import AliasGenerator, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema, create_model
from pydantic.alias_generators import to_camel

from momopay.sandbox._accounts import Switches
from momopay.sandbox._bodies import text_schema
from momopay.sandbox._records import iso, json_number

Changes = dict[str, Any]
LEFT_OUT: Any = (Any, Field(None, exclude=True))
NAIROBI = timezone(timedelta(hours=3))


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


_SHAPES = (
    *("naming", "list_phone", "list_amount", "list_type", "list_times", "cursor_field", "item_naming", "overview"),
    *("receipt_field", "receipt_in_reads", "customer_in_reads", "topup_type", "minimal_answers"),
    "payout_keys",
)


def record_under(record: type[SnakeRecord], switches: Switches) -> type[SnakeRecord]:
    """Return a record as an account's switches change it."""
    return _record_under(record, tuple(getattr(switches, name) for name in _SHAPES))


# The models keep their names, since the OpenAPI document of an account has only one schema of each.
@lru_cache(maxsize=256)
def _record_under(record: type[SnakeRecord], values: tuple[object, ...]) -> type[SnakeRecord]:
    switches = Switches.model_construct(None, **dict(zip(_SHAPES, values, strict=True)))
    record = record.base(switches)
    changes = record.changes(switches)
    return create_model(record.__name__, __base__=record, **changes) if changes else record
