"""The base classes of models and of records from the service, and the types of their fields.

Phones are masked in repr and str, and whole in the attributes. Records are frozen. They accept unknown fields and
values, because the service may add some at any time.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache, partial
from threading import Thread, current_thread, main_thread
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, cast
from unicodedata import category

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    NaiveDatetime,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from momopay._redaction import mask_phone, redacted_repr
from momopay.models.enums import ResultCode
from momopay.money import is_whole


def _built_in_thread(model: type[BaseModel], build: Callable[[], bool | None], *, force: bool) -> bool | None:
    """Build a model's validator, in a thread if this is the main thread, where handlers of signals run.

    An exception from a handler that strikes while pydantic builds would come out as pydantic's own SchemaError.
    """
    if model.__pydantic_complete__ and not force:
        return None
    results = list[bool | None]()

    def run() -> None:
        with suppress(Exception):  # raised below, where it can be seen
            results.append(build())

    if current_thread() is main_thread():
        building = Thread(target=run, daemon=True)
        with suppress(RuntimeError):  # Python is ending and starts no thread
            building.start()
            building.join()
    return results[0] if results else build()


class _LateModel(BaseModel):
    """A model whose validator is built when it is first used."""

    # Building the validators of all models at once would take most of the time of the first call.
    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    @classmethod
    def model_rebuild(cls, *, force: bool = False, raise_errors: bool = True, **_frame: Any) -> bool | None:
        """Build the validator; pydantic calls this when it is first used."""
        # Without the caller's frame: every name in our annotations is of its module.
        build = partial(super().model_rebuild, force=force, raise_errors=raise_errors)
        return _built_in_thread(cls, build, force=force)


class MaskedModel(_LateModel):
    """A frozen model whose repr and str may be logged."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            # An id is shown whole, because the redaction could take a part of it for a phone.
            if name is not None and (name == "id" or name.endswith(("_id", "Id"))):
                yield name, value
            elif name in {"phone", "phone_number"} and isinstance(value, str):
                yield name, mask_phone(value)
            elif name is not None and isinstance(value, str) and _PERSON.fullmatch(name):
                yield name, "*****"
            elif name in {"callback_url", "callbackUrl"} and isinstance(value, str):
                yield name, re.sub(r"\?.*", "?*****", value, flags=re.DOTALL)  # the query may have a token
            else:
                yield name, _Shown(redacted_repr(value))


class _Shown(str):
    """Text whose repr is the text itself; pydantic calls repr on what `__repr_args__` yields."""

    __slots__ = ()
    __repr__ = str.__str__


logger: logging.Logger = logging.getLogger("momopay")

T = TypeVar("T")

# The names of fields with a person's name, in either naming style.
_PERSON: Final = re.compile(
    "(customer|payer|payee|sender|recipient|receiver|first|middle|last|full).*_?name", re.IGNORECASE
)
_MAX_PROBLEMS: Final = 5  # fields that an error describes
_MANY_DIGITS: Final = 300  # of a number in JSON, from which it stays text
# The service has no limit for ids. This one keeps a path within what any server and proxy accepts.
_MAX_ID_LENGTH: Final = 255  # characters

_FIRST_YEAR, _LAST_YEAR = 2000, 2100  # the service has no transactions before or after these
_FIRST: Final = datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(_LAST_YEAR, 12, 31, tzinfo=UTC)
_NAIROBI: Final = timezone(timedelta(hours=3))
_FOURTEEN_DIGITS: Final = re.compile("[0-9]{14}")


def is_missing(time: datetime) -> bool:
    """Return whether a time is missing: the service may write that as year 1 or as 1970. None is after 2100 either."""
    return not _FIRST_YEAR <= time.year <= _LAST_YEAR


def _parse_unusual(value: object) -> datetime:
    """Return a time that is written as 14 digits, in Nairobi, or that is none of a transaction; see `is_missing`."""
    # The provider writes times so. As the number of seconds or milliseconds, they would be centuries away.
    if isinstance(value, int | str) and _FOURTEEN_DIGITS.fullmatch(str(value)):
        return datetime.strptime(str(value), "%Y%m%d%H%M%S").replace(tzinfo=_NAIROBI)
    return _any_time().validate_python(value)


@cache
def _any_time() -> TypeAdapter[datetime]:
    return TypeAdapter(AwareDatetime | Annotated[NaiveDatetime, AfterValidator(lambda when: when.replace(tzinfo=UTC))])


# A time as an aware datetime: ISO 8601 or a number of seconds or milliseconds. Without a zone, it is taken as UTC. The
# last form is parsed in Python, which takes longer, so it is tried last.
Timestamp: TypeAlias = Annotated[
    Annotated[AwareDatetime, Field(ge=_FIRST, le=_LAST)]
    | Annotated[NaiveDatetime, AfterValidator(lambda when: when.replace(tzinfo=UTC))]
    | Annotated[datetime, PlainValidator(_parse_unusual)],
    Field(union_mode="left_to_right"),
]

# Written by programs where they have no value.
_NO_VALUES: Final = frozenset({"", "-", "n/a", "none", "null", "undefined"})


def is_placeholder(text: str) -> bool:
    """Return whether a text is a placeholder for a missing one: "N/A", "-", or nothing that can be seen."""
    visible = text
    if not (text.isascii() and text.isprintable()):  # hardly any
        visible = "".join(each for each in text if category(each) not in {"Cc", "Cf"})
    return visible.strip().casefold() in _NO_VALUES


# An id that can be part of a path. With another one, an accepted payment could never be read.
Id: TypeAlias = Annotated[str, Field(pattern=r"[^.\s]", max_length=_MAX_ID_LENGTH)]

# A result code. The service specifies text, but a number must not make a payment unreadable.
ProviderCode: TypeAlias = Annotated[
    ResultCode | Annotated[int, AfterValidator(lambda code: ResultCode(str(code)))],
    Field(union_mode="left_to_right"),
]

# Amounts beyond this, KES, are unreadable, as for `parse_amount`: "1E+999999999" would fill gigabytes. Bounds refuse
# infinity and NaN, too, so the fields leave out pydantic's own check of those.
LIMIT: Final = 10**13

# A list of records, refused at its first error, because an error for each of a million items would fill gigabytes.
Items: TypeAlias = Annotated[list[T], FailFast()]

# Fields for which the service has several names, beyond camelCase and snake_case.
PHONE = AliasChoices("phone", "phone_number", "phoneNumber")
REFERENCE = AliasChoices(
    "accountReference", "account_reference", "reference", "external_reference", "externalReference"
)
RESULT_TEXT = AliasChoices("resultDesc", "result_desc", "resultDescription", "result_description")


@dataclass(frozen=True, slots=True)
class ResponseInfo:
    """The response that a record came in.

    Attributes:
        request_id: The service's id of the request, None where the envelope had none.
        status_code: The HTTP status.
        headers: The headers, a mapping whose keys are case-insensitive.
        attempts: How many attempts the call took.
        elapsed: Seconds from the call to the response, waiting included.
    """

    request_id: str | None
    status_code: int
    headers: Mapping[str, str] = field(repr=False)
    attempts: int
    elapsed: float


class Record(MaskedModel):
    """A record from the service. Unknown fields are kept in ``model_extra``; phones are masked when shown."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel,
        extra="allow",  # a field that the service adds is readable at once
        hide_input_in_errors=True,
        validate_by_alias=True,
        validate_by_name=True,  # both naming styles of the service parse
    )

    @property
    def response(self) -> ResponseInfo:
        """The response that this record came in.

        Raises:
            AttributeError: The record was made by hand, not read from the service.
        """
        info: ResponseInfo | None = vars(self).get("_response")
        if info is None:
            raise AttributeError("this record did not come from the service")
        return info


def note_response(record: Record, info: ResponseInfo) -> None:
    """Note the response of a record, and of the records in it, such as the items of a page."""
    # Not in a field, so that dumps and comparisons have only the service's; no method, which editors would offer.
    for value in [record, *vars(record).values()]:
        if isinstance(value, list):  # of records; not checked one by one, because a page has 100
            records = cast("list[Record]", value)
        else:
            records = [value] if isinstance(value, Record) else []
        for each in records:
            vars(each)["_response"] = info
            if each.model_extra:
                _fill_reference(each)


def _fill_reference(record: Record) -> None:
    """Read an empty reference under another of its names, of which the service may give several."""
    fields, extra = vars(record), record.model_extra or {}
    others = [other for name in REFERENCE.choices if isinstance(other := extra.get(str(name)), str) and other]
    for own in ("account_reference", "reference"):  # as the models call it
        if others and own in fields and not fields[own]:
            fields[own] = others[0]


def receipt_in(record: Record) -> str | None:
    """Return the receipt of a record. Its field's name begins with the provider's brand.

    A number is its text, and a placeholder none. Two such fields with different texts give None, and not a wrong
    receipt.
    """
    found = {str(value).strip() for value in receipt_fields(record).values() if is_receipt(value)}
    return found.pop() if len(found) == 1 else None


def receipt_fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record whose names end in "receipt", and that are not null."""
    extra = record.model_extra or {}
    return {name: value for name, value in extra.items() if value is not None and name.lower().endswith("receipt")}


def is_receipt(value: object) -> bool:
    """Return whether a value is a receipt: a text that says something, or a whole number above 0."""
    return not is_placeholder(value) if isinstance(value, str) else is_whole(value) and value > 0


class Envelope(_LateModel, Generic[T]):
    """The success envelope (service page, "Conventions")."""

    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True)

    success: Literal[True]
    data: T
    request_id: str | None = Field(None, alias="requestId")


M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound=Record)

# An escaped lone surrogate, which is no text, but which a service in another language may write to JSON.
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def is_id(text: str) -> bool:
    """Return whether a text can be an id, and part of a path."""
    # "." and ".." would survive percent-encoding and lead to another path.
    return text.strip() not in {"", ".", ".."} and len(text) <= _MAX_ID_LENGTH


def parse_json(model: type[M], body: bytes) -> M:
    """Return a model parsed from JSON, or raise ValidationError. Lone surrogates in its texts are replaced."""
    try:
        # Not `model_validate_json`, which takes a tenth longer to check options that are not used here.
        parsed: M = model.__pydantic_validator__.validate_json(body)
    except ValidationError:
        readable = _without_surrogates(body)
        if readable == body:
            raise
        logger.warning("a response has a text that is no Unicode; what cannot be read of it is replaced")
        return model.model_validate_json(readable)
    return parsed


def parse_plain(body: bytes) -> object:
    """Return JSON as plain values, its fractions as Decimals. Raise ValueError if it cannot be read.

    A number of absurd size stays text. As a number, a field that is no Decimal might take minutes to refuse it, and
    Python would refuse the whole page.
    """
    try:
        # Decoded first: JSON is UTF-8, and the parser would guess UTF-16.
        text = _without_surrogates(body).decode()
        return json.loads(text, parse_float=_parse_fraction, parse_int=_parse_int)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None  # the cause has the whole body
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parse_fraction(text: str) -> Decimal | str:
    number = Decimal(text)
    return number if len(text) < _MANY_DIGITS and abs(number.adjusted()) < _MANY_DIGITS else text


def _parse_int(digits: str) -> int | str:
    return int(digits) if len(digits) < _MANY_DIGITS else digits


def _without_surrogates(body: bytes) -> bytes:
    return _LONE_SURROGATE.sub(rb"\\ufffd", body)


def parse_incomplete(model: type[R], data: Mapping[str, Any], known: Mapping[str, object], needed: Iterable[str]) -> R:
    """Return a record of which fields are missing, null or unreadable. Raise ValidationError if it cannot be made.

    Such a field takes the value in `known`, else its default. One of those `needed` must be readable, or missing and
    known.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faulty = {str(each["loc"][0]) for each in error.errors()}
    spellings = {name: _spellings(name, field.validation_alias) for name, field in model.model_fields.items()}
    identifying = {key for name in needed if name in spellings for key in spellings[name]}
    faulty = {key for key in faulty if key not in identifying or data.get(key) is None}
    kept = {key: value for key, value in data.items() if key not in faulty}
    for name, value in known.items():
        if name in spellings and all(kept.get(key) is None for key in spellings[name]):
            kept = {key: other for key, other in kept.items() if key not in spellings[name]} | {name: value}
    return model.model_validate(kept)


def _spellings(name: str, alias: object) -> set[str]:
    """Return the names under which a response may have a field."""
    return {name, *map(str, alias.choices if isinstance(alias, AliasChoices) else [alias])}


def describe(error: ValidationError) -> str:
    """Return the first problems of a validation, with their locations and without the values."""
    problems = error.errors()[:_MAX_PROBLEMS]
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in problems)
