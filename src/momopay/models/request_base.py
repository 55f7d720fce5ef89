"""What every request has in common: it refuses all that is wrong at once, and writes itself exactly."""

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
"""Stands for an argument that was not given, where None means null on the wire."""


class Request(MaskedModel):
    """Arguments, checked. Only what was given goes out."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        defer_build=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    absent: ClassVar[object] = None
    """The argument that means "not given"."""

    @classmethod
    def checked(cls, *, on_loopback: bool = False, **arguments: Any) -> Self:
        """Check all arguments together.

        Raises:
            RequestValidationError: Names each argument at fault, and never its value.
        """
        given = {name: value for name, value in arguments.items() if value is not cls.absent}
        try:
            return cls.model_validate(given, context={"on_loopback": on_loopback})
        except ValidationError as error:
            faults = {str(fault["loc"][0]): _say(fault) for fault in error.errors(include_url=False)}
        # Raised out here, so that no chain leads to the values that were refused.
        raise RequestValidationError(faults)

    def given(self) -> dict[str, Any]:
        """What goes out, by its name on the wire."""
        fields = type(self).model_fields
        return {
            field.serialization_alias or name: getattr(self, name)
            for name, field in fields.items()
            if name in self.model_fields_set and not field.exclude
        }

    def to_json(self) -> bytes:
        """Write the body: amounts as JSON numbers, exact to the cent."""
        pairs = (f"{json.dumps(name)}:{_json(value)}" for name, value in self.given().items())
        return f"{{{','.join(pairs)}}}".encode()

    def to_query(self) -> str:
        """Write the query, empty or with its question mark."""
        pairs = {name: _plain(value) for name, value in self.given().items()}
        return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


def _say(fault: Any) -> str:
    reason = fault.get("ctx", {}).get("error")
    return str(reason) if reason is not None else str(fault["msg"])


def _json(value: object) -> str:
    return _plain(value) if isinstance(value, Decimal) else json.dumps(value)


def _plain(value: object) -> str:
    if isinstance(value, Decimal):
        return format_amount(value)
    return str.__str__(value) if isinstance(value, str) else str(value)  # the text of an enum's member, not its name
