"""The envelope of the service's answers, and its refusals: codes, HTTP statuses, and what a wallet is refused for."""

import json
from collections.abc import Mapping
from decimal import Decimal
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from pydantic_core import ErrorDetails

# Not pydantic's JSON: a refusal may quote a lone surrogate from a request, which only a `\u` escape can carry.
_encode = json.JSONEncoder(separators=(",", ":")).encode

# The HTTP status of each code, and what it means.
CODES: dict[str, tuple[int, str]] = {
    "INVALID_PHONE": (400, "The phone number format is not recognised"),
    "NO_PAYMENT_CHANNELS": (400, "No channelId was sent, and the account has no payment channels"),
    "NO_DEFAULT_CHANNEL": (400, "No channelId was sent, and no channel of the account is the default"),
    "CHANNEL_NOT_FOUND": (404, "No such payment channel on this account"),
    "INVALID_API_KEY": (401, "The API key is missing, invalid or revoked"),
    "INSUFFICIENT_SERVICE_BALANCE": (402, "The service wallet cannot cover the fee"),
    "KYC_NOT_VERIFIED": (403, "Payouts need approved KYC"),
    "INSUFFICIENT_FUNDS": (409, "The B2C wallet balance is too low"),
    "CHANNEL_IN_USE": (409, "The channel has linked transactions or customers"),
    "TRANSACTION_NOT_FOUND": (404, "No such transaction"),
    "RATE_LIMIT_EXCEEDED": (429, "Too many requests"),
    "STK_TEMP_BANNED": (429, "STK is blocked for this key: low success rate"),
    "TRANSACTION_HEALTH_BLOCKED": (429, "STK is paused: low success rate"),
    # The service specifies no code for these.
    "VALIDATION_ERROR": (400, "A field or parameter is missing or not valid"),
    "PAYLOAD_TOO_LARGE": (413, "The request body is over 1 MiB"),
    "NOT_FOUND": (404, "No such path"),
    "METHOD_NOT_ALLOWED": (405, "This path does not take that method"),
    "NOT_PENDING": (409, "No PIN prompt is open for this transaction"),
    "FORBIDDEN": (403, "The sandbox answers to its own pages and to programs"),
    "INTERNAL_ERROR": (500, "The sandbox itself failed; this is a defect of the sandbox"),
}
# Codes of the operator's contract and clients, which the service's description does not have.
_MORE_CODES: Mapping[int, tuple[str, ...]] = {
    400: (
        *("INVALID_IDEMPOTENCY_KEY", "INVALID_CURSOR", "INVALID_UUID", "EMPTY_UPDATE", "UNSUPPORTED_CURRENCY"),
        "INSUFFICIENT_BALANCE",
    ),
    401: ("AUTH_HEADER_INVALID", "TENANT_INACTIVE"),
    403: ("ACCOUNT_INACTIVE", "INSUFFICIENT_SCOPE"),
    404: ("CREDENTIAL_NOT_FOUND", "WALLET_NOT_FOUND"),
    409: ("CREDENTIAL_INACTIVE", "WALLET_INACTIVE", "DUPLICATE_SHORTCODE", "DUPLICATE_IDEMPOTENCY_KEY"),
    429: ("RATE_LIMITED", "RATE_LIMIT"),
    500: ("PLATFORM_CREDENTIALS_NOT_CONFIGURED",),
}
CODES.update(
    {
        code: (status, f"{code.replace('_', ' ').capitalize()}.")
        for status, codes in _MORE_CODES.items()
        for code in codes
    }
)
CODES.update({f"HTTP_{status}": (status, HTTPStatus(status).phrase) for status in (400, 401, 403, 404, 409, 422, 429)})
STATUS_BY_CODE: Mapping[str, int] = {code: status for code, (status, _) in CODES.items()}
# Examples of the details of those codes that have any.
DETAILS: Mapping[str, Mapping[str, object]] = {
    "RATE_LIMIT_EXCEEDED": {"limit": 60, "remaining": 0, "resetInSeconds": 17},
    "STK_TEMP_BANNED": {"retryAfterSeconds": 3600},
    "TRANSACTION_HEALTH_BLOCKED": {
        "retryAfterSeconds": 1800,
        "blockedUntil": "2026-01-31T10:00:00.000Z",
        "successRate": 0.29,
        "sampleSize": 100,
        "minSuccessRate": 0.3,
    },
    "VALIDATION_ERROR": {"fields": {"amount": "is required"}},
}
_INVALID = "VALIDATION_ERROR"


def code_under(code: str, status: int, messages: str) -> str:
    """Return a code under the switch `error_messages`."""
    return f"HTTP_{status}" if messages == "array" and code == _INVALID else code


class Refusal(Exception):  # noqa: N818 - a refusal is an answer of the service, not a defect of it
    """The service refuses a request: nothing changes, and the answer is an error envelope."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        details: Mapping[str, object] | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`message` and `status` override those of the code."""
        self.code = code
        self.message: str = message or CODES[code][1]
        super().__init__(self.message)
        self.details: dict[str, object] = dict(details or {})
        # The code alone does not decide: CHANNEL_NOT_FOUND is 400 on payments and 404 on channels.
        self.status: int = status or STATUS_BY_CODE[code]
        self.headers: dict[str, str] = dict(headers or {})

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def body(self, messages: str = "text") -> str:
        """Return the error envelope under the switch `error_messages`."""
        message: object = self.message
        code = code_under(self.code, self.status, messages)
        if messages == "array" and code.startswith("HTTP_"):
            fields: Any = self.details.get("fields")
            message = [f"{name} {reason}" for name, reason in fields.items()] if fields else [message]
        error = {"message": message, "code": code, "details": self.details}
        return _encode({"success": False, "error": error, "requestId": str(uuid4())})


def check_funds(balance: Decimal, amount: Decimal) -> None:
    """Raise if the B2C wallet cannot cover a payout."""
    if balance < amount:
        raise Refusal("INSUFFICIENT_FUNDS")


def check_fee(balance: Decimal, fee: Decimal) -> None:
    """Raise if the service wallet cannot cover a fee; an empty one covers 0, where there is no pricing rule."""
    if balance < fee:
        raise Refusal("INSUFFICIENT_SERVICE_BALANCE")


def check_wallet(state: str) -> None:
    """Raise if a wallet is "missing" or "inactive"."""
    if state == "missing":
        raise Refusal("WALLET_NOT_FOUND")
    if state == "inactive":
        raise Refusal("WALLET_INACTIVE")


def invalid_field(field: str, reason: str, status: int = 400) -> Refusal:
    """Return a VALIDATION_ERROR for a field, which has its name on the wire."""
    return Refusal("VALIDATION_ERROR", f"{field}: {reason}", details={"fields": {field: reason}}, status=status)


# What the validators of pydantic mean, in words of JSON: their own texts name types of Python.
_REASONS: Mapping[str, str] = {
    "missing": "is required",
    "extra_forbidden": "is unknown",
    "decimal_max_places": "must have at most {decimal_places} decimals",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must have the form {pattern}",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}
_NAMES: Mapping[str, str] = {
    "int": "a whole number",
    "bool": "true or false",
    "string": "a string",
    "list": "an array",
    "dict": "an object",
    "model": "an object",
}


def reason_of(fault: ErrorDetails) -> str:
    """Return why a value is not valid, in words of JSON."""
    if fault["input"] is None:
        return "must not be null"
    kind = _NAMES.get(fault["type"].partition("_")[0], "a number")
    return _REASONS.get(fault["type"], f"must be {kind}").format(**fault.get("ctx", {})).replace("'", '"')


def invalid(error: ValidationError, message: str) -> Refusal:
    """Return a VALIDATION_ERROR whose `details.fields` names each invalid field."""
    fields = {".".join(map(str, fault["loc"])): reason_of(fault) for fault in error.errors()}
    return Refusal("VALIDATION_ERROR", message, details={"fields": fields})


def success_body(data: object) -> str:
    return _encode({"success": True, "data": data, "requestId": str(uuid4())})
