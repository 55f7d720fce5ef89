"""The kinds of argument that requests take, each refusing what section "Limits" of SPEC.md refuses.

Every refusal is a ValueError that says what is wanted and never repeats what was given.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Any, Literal, Protocol, TypeAlias, runtime_checkable
from uuid import UUID

from pydantic import PlainValidator, ValidationInfo

from momopay._numbers import is_whole
from momopay.money import parse_amount
from momopay.phones import normalise_phone
from momopay.urls import check_callback_url

__all__ = ["ChannelRef", "HasId", "HasTransactionId", "TransactionRef"]

_LONGEST_ID = 255
_HEADER_VALUE = re.compile(r"[!-~]{1,255}")


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
    """An amount of at least so many KES."""
    return PlainValidator(lambda value: parse_amount(value, minimum))


def text(most: int | None = None) -> PlainValidator:
    """Text of no more than so many characters; too long is refused, never cut."""

    def check(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("must be a string")  # noqa: TRY004  every refusal is a ValueError
        if most is not None and len(value) > most:
            raise ValueError(f"must have at most {most} characters, has {len(value)}")
        return _encodable(value)

    return PlainValidator(check)


def _encodable(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be text that UTF-8 can carry") from None
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a string that is not blank")
    return _encodable(value)


def transaction_id(value: object) -> str:
    """Take the id of a transaction, or of the record that carries it."""
    return _id(value, "transaction_id")


def channel_id(value: object) -> str:
    """Take the id of a payment channel, or of the channel."""
    return _id(None if isinstance(value, HasTransactionId) else value, "id")


def _id(value: object, attribute: str) -> str:
    found: object = str(value) if isinstance(value, UUID) else value
    if not isinstance(found, str):
        found = getattr(value, attribute, None)
    if not isinstance(found, str) or found.strip() in {"", ".", ".."} or len(found) > _LONGEST_ID:
        raise ValueError("must be an id, or a record that carries one")
    return _encodable(found)


def _phone(value: Any) -> str:
    return normalise_phone(value)


def _callback_url(value: object, info: ValidationInfo) -> str:
    context: dict[str, bool] = info.context or {}
    return check_callback_url(value, on_loopback=context.get("on_loopback", False))


def _kes_only(value: object) -> str:
    if value != "KES":
        raise ValueError("must be KES, the only currency")
    return "KES"


def _moment(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if not isinstance(value, str):
        raise ValueError("must be a datetime, a date or ISO 8601 text")  # noqa: TRY004  every refusal is a ValueError
    return _encodable(value)


def _since(value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("must be a datetime with a time zone")
    return value


def header_value(value: object) -> str:
    """Check that a header can carry the value: visible ASCII, at most 255 characters."""
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        raise ValueError("must be 1 to 255 visible ASCII characters")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be True or False")  # noqa: TRY004  every refusal is a ValueError
    return value


def _page_size(value: object) -> int:
    if not is_whole(value) or not 1 <= value <= 100:  # noqa: PLR2004  the page
        raise ValueError("must be a whole number from 1 to 100")
    return value


Phone: TypeAlias = Annotated[str, PlainValidator(_phone)]
Name: TypeAlias = Annotated[str, PlainValidator(_name)]
Text: TypeAlias = Annotated[str, text()]
CredentialId: TypeAlias = Annotated[str, PlainValidator(lambda value: _id(value, "id"))]
ChannelId: TypeAlias = Annotated[str, PlainValidator(channel_id)]
CallbackUrl: TypeAlias = Annotated[str, PlainValidator(_callback_url)]
Kes: TypeAlias = Annotated[Literal["KES"], PlainValidator(_kes_only)]
Moment: TypeAlias = Annotated[str, PlainValidator(_moment)]
Since: TypeAlias = Annotated[datetime, PlainValidator(_since)]
Flag: TypeAlias = Annotated[bool, PlainValidator(_flag)]
PageSize: TypeAlias = Annotated[int, PlainValidator(_page_size)]
