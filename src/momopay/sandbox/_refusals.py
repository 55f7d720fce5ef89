"""Answers of the service as text: the envelope, and refusals with their codes and HTTP statuses."""

import json
from collections.abc import Mapping
from uuid import uuid4

# Not pydantic's own JSON: a refusal may quote a lone surrogate from a request, which only `\u` escapes can carry.
_encode = json.JSONEncoder(separators=(",", ":")).encode

STATUS_BY_CODE: Mapping[str, int] = {
    "INVALID_PHONE": 400,
    "NO_PAYMENT_CHANNELS": 400,
    "NO_DEFAULT_CHANNEL": 400,
    "CHANNEL_NOT_FOUND": 404,
    "INVALID_API_KEY": 401,
    "INSUFFICIENT_SERVICE_BALANCE": 402,
    "KYC_NOT_VERIFIED": 403,
    "INSUFFICIENT_FUNDS": 409,
    "CHANNEL_IN_USE": 409,
    "TRANSACTION_NOT_FOUND": 404,
    "RATE_LIMIT_EXCEEDED": 429,
    "STK_TEMP_BANNED": 429,
    "TRANSACTION_HEALTH_BLOCKED": 429,
    # The service specifies no code for these.
    "VALIDATION_ERROR": 400,
    "PAYLOAD_TOO_LARGE": 413,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "NOT_PENDING": 409,
    "FORBIDDEN": 403,
    "INTERNAL_ERROR": 500,
}


class Refusal(Exception):  # noqa: N818 - a refusal is an answer of the service, not a defect of it
    """The service says no: nothing has changed, and the answer is an error envelope."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: Mapping[str, object] | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`status` and `headers` override what the code alone would give."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: dict[str, object] = dict(details or {})
        # CHANNEL_NOT_FOUND is 400 on payments and 404 on channels, so the code alone does not decide.
        self.status: int = status or STATUS_BY_CODE[code]
        self.headers: dict[str, str] = dict(headers or {})

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def invalid_field(field: str, reason: str, status: int = 400) -> Refusal:
    """Return a VALIDATION_ERROR for one field, by its name on the wire."""
    return Refusal("VALIDATION_ERROR", f"{field}: {reason}", details={"fields": {field: reason}}, status=status)


def success_body(data: object) -> str:
    """Return the envelope of a success as text."""
    return _encode({"success": True, "data": data, "requestId": str(uuid4())})


def error_body(code: str, message: str, details: Mapping[str, object] | None = None) -> str:
    """Return the envelope of an error as text."""
    error = {"message": message, "code": code, "details": details or {}}
    return _encode({"success": False, "error": error, "requestId": str(uuid4())})
