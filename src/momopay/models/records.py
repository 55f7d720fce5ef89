"""What every record from the service has in common: frozen, tolerant of more, and it knows its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Annotated, ClassVar, Generic, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    NaiveDatetime,
)
from pydantic.alias_generators import to_camel

from momopay.models.enums import ResultCode
from momopay.models.masking import MaskedModel

__all__ = ["ResponseInfo"]

T = TypeVar("T")

Timestamp: TypeAlias = Annotated[
    AwareDatetime | Annotated[NaiveDatetime, AfterValidator(lambda when: when.replace(tzinfo=UTC))],
    Field(union_mode="left_to_right"),
]
"""ISO 8601 as an aware datetime; a time without a zone is taken as UTC."""

Id: TypeAlias = Annotated[str, Field(pattern=r"\S")]
"""A name that says something: with a blank one, an accepted payment could never be read."""

ProviderCode: TypeAlias = Annotated[
    ResultCode | Annotated[int, AfterValidator(lambda code: ResultCode(str(code)))],
    Field(union_mode="left_to_right"),
]
"""SPEC.md shows text; a provider that sends numbers must not make a payment's answer unreadable."""

Items: TypeAlias = Annotated[list[T], FailFast()]
"""A list of records, refused at its first fault: a fault for each of a million items fills gigabytes."""

# The names that SPEC.md gives one and the same field, beyond camelCase and snake_case.
PHONE = AliasChoices("phone", "phone_number", "phoneNumber")
REFERENCE = AliasChoices(
    "accountReference", "account_reference", "reference", "external_reference", "externalReference"
)
RESULT_TEXT = AliasChoices("resultDesc", "result_desc", "resultDescription", "result_description")


@dataclass(frozen=True, slots=True)
class ResponseInfo:
    """The answer that a record came in.

    Attributes:
        request_id: The service's id of the request, None where the envelope had none.
        status_code: The HTTP status.
        headers: The answer's headers; looked up without regard to case.
        attempts: How many attempts the call took.
        elapsed: Seconds from the call to its answer, waiting included.
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
        defer_build=True,
        extra="allow",
        frozen=True,
        hide_input_in_errors=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    @property
    def response(self) -> ResponseInfo:
        """The answer that this record came in.

        Raises:
            AttributeError: The record was made by hand, not read from the service.
        """
        try:
            info: ResponseInfo = vars(self)["_response"]
        except KeyError:
            raise AttributeError("this record did not come from the service") from None
        return info

    def received(self, info: ResponseInfo) -> None:
        """Note which answer this record came in, beside its fields: dumps stay the wire's."""
        vars(self)["_response"] = info


class Nothing(Record):
    """What a call returns whose answer carries nothing."""


class Envelope(BaseModel, Generic[T]):
    """SPEC.md's success envelope."""

    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True, hide_input_in_errors=True)

    success: Literal[True]
    data: T
    request_id: str | None = Field(None, alias="requestId")
