"""The types of the arguments that requests take. Each refuses what the service page, "Limits", refuses.

Validators are plain functions rather than pydantic's own types: pydantic would convert (``"5"`` to 5, True to 1), and
its messages repeat what was given. Every refusal here is a ValueError that says what is wanted and nothing else.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from math import inf
from typing import Annotated, Final, Literal, Protocol, TypeAlias, runtime_checkable
from uuid import UUID

from pydantic import PlainValidator, ValidationInfo

from momopay._numbers import is_number, is_whole
from momopay.models.references import check_reference
from momopay.money import parse_amount
from momopay.phones import normalise_phone
from momopay.urls import check_callback_url

__all__ = ["ChannelRef", "HasId", "HasTransactionId", "TransactionRef"]

# The service sets no limit for ids. This one keeps a path within what any server and proxy accepts.
_MAX_ID_LENGTH: Final = 255
_MAX_PAGE_SIZE: Final = 100
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HEADER_VALUE: Final = re.compile(r"[!-~]{1,255}")


@runtime_checkable
class HasTransactionId(Protocol):
    """Any record that names a transaction."""

    @property
    def transaction_id(self) -> str:
        """The transaction's id."""
        ...


@runtime_checkable
class HasId(Protocol):
    """Any record with an id of its own, such as a payment channel."""

    @property
    def id(self) -> str:
        """The record's id."""
        ...


TransactionRef: TypeAlias = str | UUID | HasTransactionId
"""A transaction's id, or a record that carries it."""

ChannelRef: TypeAlias = str | UUID | HasId
"""A payment channel's id, or the channel."""


def kes(minimum: int) -> PlainValidator:
    """Return a validator for amounts of at least `minimum` KES."""
    return PlainValidator(lambda value: parse_amount(value, minimum))


def text(max_length: int | None = None) -> PlainValidator:
    """Return a validator for text of at most `max_length` characters. Longer text is refused, never cut."""
    return PlainValidator(lambda value: _check_text(value, max_length))


def reference(max_length: int) -> PlainValidator:
    """Return a validator for the reference of a new payment. A search takes any text, as older ones may have it."""
    return PlainValidator(lambda value: check_reference(_check_text(value, max_length)))


def check_transaction_id(value: object) -> str:
    """Return the id of a transaction, given the id or a record that carries it."""
    return _check_id(value, "transaction_id")


def check_channel_id(value: object) -> str:
    """Return the id of a payment channel, given the id or the channel."""
    # A transaction of a callback has an `id` too, and would pass for a channel.
    return _check_id(None if isinstance(value, HasTransactionId) else value, "id")


def _check_id(value: object, attribute: str) -> str:
    found: object = str(value) if isinstance(value, UUID) else value
    if not isinstance(found, str):
        found = getattr(value, attribute, None)
    # "." and ".." would survive percent-encoding and lead to another path.
    if not isinstance(found, str) or found.strip() in {"", ".", ".."} or len(found) > _MAX_ID_LENGTH:
        raise ValueError("must be an id, or a record that carries one")
    return _check_utf8(found)


def _check_text(value: object, max_length: int | None) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # noqa: TRY004  every refusal is a ValueError
    if max_length is not None and len(value) > max_length:
        raise ValueError(f"must have at most {max_length} characters, has {len(value)}")
    return _check_utf8(value)


def _check_utf8(value: str) -> str:
    # Not by `encode`, because the repr of a UnicodeEncodeError shows the whole text.
    if _SURROGATE.search(value):
        raise ValueError("must be text that can be encoded as UTF-8")
    return value


def _check_name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a string that is not blank")
    return _check_utf8(value)


def _check_callback_url(value: object, info: ValidationInfo) -> str:
    context: dict[str, bool] = info.context or {}
    return check_callback_url(value, on_loopback=context.get("on_loopback", False))


def _check_currency(value: object) -> str:
    if value != "KES":
        raise ValueError("must be KES, the only currency")
    return "KES"


def _check_moment(value: object) -> str:
    if isinstance(value, date):  # a datetime is a date too
        return value.isoformat()
    if not isinstance(value, str):
        raise ValueError("must be a datetime, a date or ISO 8601 text")  # noqa: TRY004  every refusal is a ValueError
    return _check_utf8(value)


def _check_since(value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("must be a datetime with a time zone")
    return value


def _check_header_value(value: object) -> str:
    # Anything else could end the header and begin another one.
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        raise ValueError("must be 1 to 255 visible ASCII characters")
    return value


def _check_seconds(value: object) -> float:
    if not is_number(value) or not 0 <= value < inf:
        raise ValueError("must be a number of seconds, 0 or more")
    return float(value)


def _check_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be True or False")  # noqa: TRY004  every refusal is a ValueError
    return value


def _check_page_size(value: object) -> int:
    if not is_whole(value) or not 1 <= value <= _MAX_PAGE_SIZE:
        raise ValueError(f"must be a whole number from 1 to {_MAX_PAGE_SIZE}")
    return value


Phone: TypeAlias = Annotated[str, PlainValidator(normalise_phone)]
Name: TypeAlias = Annotated[str, PlainValidator(_check_name)]
Text: TypeAlias = Annotated[str, text()]
Reference: TypeAlias = Annotated[str, PlainValidator(lambda value: check_reference(_check_name(value)))]
CredentialId: TypeAlias = Annotated[str, PlainValidator(lambda value: _check_id(value, "id"))]
ChannelId: TypeAlias = Annotated[str, PlainValidator(check_channel_id)]
CallbackUrl: TypeAlias = Annotated[str, PlainValidator(_check_callback_url)]
Currency: TypeAlias = Annotated[Literal["KES"], PlainValidator(_check_currency)]
Moment: TypeAlias = Annotated[str, PlainValidator(_check_moment)]
Since: TypeAlias = Annotated[datetime, PlainValidator(_check_since)]
HeaderValue: TypeAlias = Annotated[str, PlainValidator(_check_header_value)]
Seconds: TypeAlias = Annotated[float, PlainValidator(_check_seconds)]
Flag: TypeAlias = Annotated[bool, PlainValidator(_check_flag)]
PageSize: TypeAlias = Annotated[int, PlainValidator(_check_page_size)]
