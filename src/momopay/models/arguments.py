"""The types of the arguments of requests. Each refuses what the service page, "Limits", refuses.

Nothing is converted: ``"5"`` is not 5, and True is not 1. An error says what is expected, and never shows the value.

Two references that look the same are the same, because a reference decides whether a payout was made before. An export
that adds a space, or a system that writes é as two characters, must not lead to a second payout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable
from unicodedata import category, is_normalized
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, PlainValidator, ValidationInfo

from momopay.errors import RequestValidationError
from momopay.models.records import is_id
from momopay.money import parse_amount
from momopay.phones import describe_character, normalise_phone
from momopay.urls import check_callback_url

# Control, format and unassigned characters, line separators, and the category of U+0020 and the other spaces.
_REFUSED: Final = frozenset({"Cc", "Cf", "Cn", "Zl", "Zp", "Zs"})
# Invisible characters of other categories: fillers, variation selectors, a joiner and the blank Braille cell.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def check_reference(text: str) -> str:
    """Return the text. Raise ValueError that names the character at fault and the remedy."""
    if text.isascii() and text.isprintable() and text == text.strip():  # nearly all of them
        return text
    if text != text.strip():
        end = text[0] if text[0].isspace() else text[-1]
        raise ValueError(f"must not begin or end with {describe_character(end)}: remove it")
    for character in text:
        if character != " " and _is_refused(character):
            advice = "use an ordinary space" if category(character) == "Zs" else "remove it"
            raise ValueError(f"must not contain {describe_character(character)}: {advice}")
    if not is_normalized("NFC", text):
        raise ValueError("must be in the Unicode form NFC: use unicodedata.normalize('NFC', reference)")
    return text


def is_hidden(character: str) -> bool:
    """Return whether a character cannot be seen. Spaces can."""
    return category(character) != "Zs" and _is_refused(character)


def without_hidden(text: str) -> str:
    """Return a text without the characters that cannot be seen."""
    return "".join(each for each in text if not is_hidden(each))


def _is_refused(character: str) -> bool:
    return category(character) in _REFUSED or _INVISIBLE.match(character) is not None


def checked_metadata(metadata: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return a copy of the metadata. Raise RequestValidationError if it is no JSON object."""
    if metadata is None:
        return None
    problem = {"metadata": "must be a mapping of names to what JSON can hold"}
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) for name in metadata):
        raise RequestValidationError(problem)
    try:
        copy: dict[str, object] = json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise RequestValidationError(problem) from None  # the cause may show a value
    return copy


_MAX_URL_LENGTH: Final = 500  # characters
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_IDEMPOTENCY_KEY: Final = re.compile(r"[!-~]{1,120}")


@runtime_checkable
class HasTransactionId(Protocol):
    """Any record with a transaction's id."""

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


def text(max_length: int | None = None) -> Any:
    """Return a constraint for text of at most `max_length` characters. Longer text is refused, never cut."""
    # With a length to check, pydantic also refuses lone surrogates, and makes a plain str of a member of an enum.
    return Field(strict=True, min_length=0, max_length=max_length)


def check_transaction_id(value: object) -> str:
    """Return the id of a transaction, given the id or a record that carries it."""
    return _check_id(value, "transaction_id")


def check_channel_id(value: object) -> str:
    """Return the id of a payment channel, given the id or the channel."""
    # The transaction of a callback has an `id`, too, and would pass for a channel.
    return _check_id(None if isinstance(value, HasTransactionId) else value, "id")


def _check_id(value: object, attribute: str) -> str:
    found: object = str(value) if isinstance(value, UUID) else value
    if not isinstance(found, str):
        found = getattr(value, attribute, None)
    if not isinstance(found, str) or not is_id(found) or _SURROGATE.search(found):
        raise ValueError("must be an id, or a record that carries one")
    return found


def _check_not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def _check_callback_url(value: str, info: ValidationInfo) -> str:
    context: dict[str, bool] = info.context or {}
    return check_callback_url(value, on_loopback=context.get("on_loopback", False))


def _moment_text(value: object) -> str:
    text = value.isoformat() if isinstance(value, date) else value  # a datetime is a date too
    if not isinstance(text, str):
        raise ValueError("must be a datetime, a date or ISO 8601 text")  # noqa: TRY004  every refusal is a ValueError
    if _lacks_zone(text):
        raise ValueError("must have a time zone, as datetime.now(UTC) has: without one it may be hours off")
    return text


def _lacks_zone(text: str) -> bool:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # the service's formats are not specified
        return False
    return moment.tzinfo is None and len(text) > len("2026-01-05")  # a date needs none


def check_idempotency_key(value: object) -> str:
    """Return an Idempotency-Key. Raise ValueError if the service or HTTP could take it for anything else."""
    # Anything else than visible ASCII could end the header and begin another one.
    if not isinstance(value, str) or not _IDEMPOTENCY_KEY.fullmatch(value):
        raise ValueError("must be 1 to 120 visible ASCII characters")
    return value


NOT_BLANK: Final = AfterValidator(_check_not_blank)
# For a new payment's reference. A search takes any text, because older payments may have it.
REFERENCE: Final = AfterValidator(check_reference)

Phone: TypeAlias = Annotated[str, PlainValidator(normalise_phone)]
Text: TypeAlias = Annotated[str, text()]
Name: TypeAlias = Annotated[str, text(), NOT_BLANK]
Reference: TypeAlias = Annotated[str, text(), NOT_BLANK, REFERENCE]
PayoutReference: TypeAlias = Annotated[str, text(120), NOT_BLANK, REFERENCE]
CredentialId: TypeAlias = Annotated[str, PlainValidator(lambda value: _check_id(value, "id"))]
ChannelId: TypeAlias = Annotated[str, PlainValidator(check_channel_id)]
CallbackUrl: TypeAlias = Annotated[str, text(_MAX_URL_LENGTH), AfterValidator(_check_callback_url)]
Moment: TypeAlias = Annotated[str, text(), BeforeValidator(_moment_text)]
IdempotencyKey: TypeAlias = Annotated[str, PlainValidator(check_idempotency_key)]
Currency: TypeAlias = Literal["KES"]
Since: TypeAlias = Annotated[AwareDatetime, Field(strict=True)]
Seconds: TypeAlias = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
PageSize: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=100)]
