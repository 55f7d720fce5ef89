"""The envelope around every answer: its two models, for OpenAPI too, and the responses made of them."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from momopay.sandbox._refusals import Refusal

T = TypeVar("T")
# Not pydantic's own JSON: a refusal may quote a lone surrogate from a request, which only `\u` escapes can carry.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class _EnvelopeModel(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, json_schema_serialization_defaults_required=True
    )


class Envelope(_EnvelopeModel, Generic[T]):
    """A success."""

    success: Literal[True] = True
    data: T
    request_id: str = Field(default_factory=lambda: str(uuid4()))


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    code: str
    details: dict[str, Any]


class ErrorEnvelope(_EnvelopeModel):
    """An error."""

    success: Literal[False] = False
    error: ErrorDetail
    request_id: str = Field(default_factory=lambda: str(uuid4()))


# Responses are encoded here, once: FastAPI would validate and encode what is valid JSON already.
def success_response(data: object, status: int = 200) -> Response:
    """Return a success with a record, or with plain JSON data."""
    body = _encode(Envelope[Any](data=data).model_dump(by_alias=True))
    return Response(body, status, media_type="application/json")


def refusal_response(refusal: Refusal) -> Response:
    """Return an error."""
    body = error_body(refusal.code, refusal.message, refusal.details)
    return Response(body, refusal.status, refusal.headers, media_type="application/json")


def error_body(code: str, message: str, details: Mapping[str, Any] | None = None) -> str:
    """Return an error envelope as text."""
    error = ErrorDetail(message=message, code=code, details=dict(details or {}))
    return _encode(ErrorEnvelope(error=error).model_dump(by_alias=True))
