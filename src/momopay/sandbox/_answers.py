"""The response envelope of SPEC.md."""

import json
from collections.abc import Mapping
from uuid import uuid4

from starlette.responses import Response

from momopay.sandbox._refusals import Refusal

_encode = json.JSONEncoder(separators=(",", ":")).encode


class EnvelopeResponse(Response):
    """A JSON body that is encoded already."""

    media_type = "application/json"


def answered(data: object, status: int = 200) -> Response:
    """A success."""
    return EnvelopeResponse(_encode({"success": True, "data": data, "requestId": str(uuid4())}), status)


def refused(refusal: Refusal) -> Response:
    """An error."""
    return EnvelopeResponse(error_body(refusal.code, refusal.message, refusal.details), refusal.status, refusal.headers)


def error_body(code: str, message: str, details: Mapping[str, object] | None = None) -> str:
    """An error envelope as text."""
    error = {"message": message, "code": code, "details": details or {}}
    return _encode({"success": False, "error": error, "requestId": str(uuid4())})
