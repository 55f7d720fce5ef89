"""The base class of requests: all arguments are checked together, and amounts are written exactly."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, ClassVar, Self
from urllib.parse import quote, urlencode

from pydantic import AliasGenerator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from typing_extensions import Sentinel

from momopay.errors import RequestValidationError
from momopay.models.masking import MaskedModel
from momopay.money import format_amount

__all__ = ["UNSET"]

UNSET = Sentinel("UNSET")
"""The default of an argument that was not given, where None means null on the wire."""


class Request(MaskedModel):
    """Arguments that were checked. Only those that were given are sent."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # a RequestValidationError is chained to pydantic's error
    )

    absent: ClassVar[object] = None
    """The value of an argument that was not given."""

    @classmethod
    def checked(cls, *, on_loopback: bool = False, **arguments: Any) -> Self:
        """Return the request. Raise RequestValidationError that names all arguments at fault, and never a value."""
        given = {name: value for name, value in arguments.items() if value is not cls.absent}
        try:
            return cls.model_validate(given, context={"on_loopback": on_loopback})
        except ValidationError as error:
            problems = {str(each["loc"][0]): _message(each) for each in error.errors(include_url=False)}
            raise RequestValidationError(problems) from error

    def given(self) -> dict[str, Any]:
        """Return what is sent, by its name on the wire."""
        fields = type(self).model_fields
        return {
            field.serialization_alias or name: getattr(self, name)
            for name, field in fields.items()
            if name in self.model_fields_set and not field.exclude
        }

    def to_json(self) -> bytes:
        """Return the body. Written here, because a JSON library would write an amount as a float or as text."""
        pairs = (f"{json.dumps(name)}:{_json(value)}" for name, value in self.given().items())
        return f"{{{','.join(pairs)}}}".encode()

    def to_query(self) -> str:
        """Return the query with its question mark, or an empty string."""
        pairs = {name: _plain(value) for name, value in self.given().items()}
        return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


def _message(problem: Any) -> str:
    """Return the message of our own validator, without the "Value error, " that pydantic puts before it."""
    reason = problem.get("ctx", {}).get("error")
    return str(reason) if reason is not None else str(problem["msg"])


def _json(value: object) -> str:
    return _plain(value) if isinstance(value, Decimal) else json.dumps(value)


def _plain(value: object) -> str:
    if isinstance(value, Decimal):
        return format_amount(value)
    # The text of a str, even where it is a member of an enum whose own __str__ gives its name.
    return str.__str__(value) if isinstance(value, str) else str(value)
