"""The envelope of SPEC.md: bytes into a record, or into the failure that they tell of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import from_json

from momopay._core.retry import AttemptFailed, FailureKind, retry_after
from momopay._transport import NoReplyError, NoResponseError, NotSentError, RawResponse
from momopay.errors import (
    ERRORS_BY_CODE,
    APIConnectionError,
    APIError,
    ProtocolError,
    RateLimitExceededError,
    ServerError,
    ThrottledError,
    moment_or_none,
    number_or_none,
)
from momopay.models.faults import describe
from momopay.models.records import Envelope

T = TypeVar("T")
_LONGEST_MESSAGE = 500
"""Characters of what came from outside that an error shows."""


@dataclass(frozen=True)
class _Refusal:
    """The error envelope."""

    code: str
    message: str
    details: Mapping[str, Any]
    request_id: str | None


def parse_envelope(answer: RawResponse, envelope: type[Envelope[T]]) -> Envelope[T]:
    """Read an answer to a call that returns a record.

    Raises:
        AttemptFailed: The service refused, failed, or answered with something that is not SPEC.md's.
    """
    if not 200 <= answer.status < 300:  # noqa: PLR2004  success
        raise failure_from_response(answer)
    try:
        return envelope.model_validate_json(answer.body)
    except ValidationError as error:
        problem = describe(error)
    raise failure_from_response(answer, problem)


def check_success(answer: RawResponse) -> None:
    """Read an answer to a call that returns nothing: any 2xx will do, unless its envelope says otherwise.

    Raises:
        AttemptFailed: As for `parse_envelope`.
    """
    if not 200 <= answer.status < 300 or _refusal(answer.body) is not None:  # noqa: PLR2004  success
        raise failure_from_response(answer)


def failure_from_response(answer: RawResponse, problem: str = "not an envelope") -> AttemptFailed:
    """Say how an answer failed, the class chosen by SPEC.md's code first and by the status after."""
    refusal = _refusal(answer.body)
    broken = answer.status >= 500 or answer.status == 408  # noqa: PLR2004  the server's own failures
    if broken:
        error = _api_error(answer, refusal, ServerError)
        return AttemptFailed(FailureKind.SERVER_ERROR, error, retry_after=retry_after(answer.headers), body=answer.body)
    if refusal is None or 300 <= answer.status < 400:  # noqa: PLR2004  a redirect is never followed
        kind = answer.headers.get("content-type", "no content type")[:_LONGEST_MESSAGE]
        text = f"HTTP {answer.status} with {len(answer.body)} bytes of {kind}: {problem}"
        protocol_error = ProtocolError(text, status_code=answer.status)
        return AttemptFailed(FailureKind.INVALID_RESPONSE, protocol_error, body=answer.body)
    error = _api_error(answer, refusal, APIError)
    pause = error.retry_after if isinstance(error, ThrottledError) else None
    kind = FailureKind.RATE_LIMITED if isinstance(error, RateLimitExceededError) else FailureKind.REFUSED
    return AttemptFailed(kind, error, retry_after=pause)


def failure_without_response(no_answer: NoResponseError) -> AttemptFailed:
    """Say how an attempt failed that brought no whole answer."""
    reason = str(no_answer)[:_LONGEST_MESSAGE]
    if isinstance(no_answer, NotSentError):
        return AttemptFailed(FailureKind.NOT_SENT, APIConnectionError(f"not sent: {reason}"))
    if isinstance(no_answer, NoReplyError):
        return AttemptFailed(FailureKind.NO_REPLY, APIConnectionError(f"no reply: {reason}"), body=no_answer.partial)
    return AttemptFailed(FailureKind.INVALID_RESPONSE, ProtocolError(f"unreadable: {reason}"))


def transaction_id_in(body: bytes) -> str | None:
    """Look for the transaction's id in what came of an answer, even if it was cut short."""
    try:
        return _transaction_id(from_json(body, allow_partial=True))
    except ValueError:
        return None


def _transaction_id(envelope: object) -> str | None:
    match envelope:
        case {"data": {"transactionId": str(found)} | {"transaction_id": str(found)}}:
            return found if found.strip() else None
        case _:
            return None


def _refusal(body: bytes) -> _Refusal | None:
    try:
        envelope = from_json(body)
    except ValueError:
        return None
    match envelope:
        case {"success": False as success, "error": {"code": str(code)} as error} if (
            success is False
            and code.strip()
            and len(code) <= _LONGEST_MESSAGE
            and not envelope.get("data")  # it refuses, and tells of a transaction: nothing definite
        ):
            message, details, request_id = (
                error.get("message"),
                error.get("details"),
                envelope.get("requestId"),
            )
            return _Refusal(
                code=code,
                message=message[:_LONGEST_MESSAGE] if isinstance(message, str) else "",
                details=cast("dict[str, Any]", details) if isinstance(details, dict) else {},
                request_id=request_id[:_LONGEST_MESSAGE] if isinstance(request_id, str) else None,
            )
        case _:
            return None


def _api_error(answer: RawResponse, refusal: _Refusal | None, otherwise: type[APIError]) -> APIError:
    if refusal is None:
        return otherwise("the service failed", code=None, status_code=answer.status)
    of_the_answer: dict[str, Any] = {
        "code": refusal.code,
        "details": refusal.details,
        "status_code": answer.status,
        "request_id": refusal.request_id,
    }
    kind = ERRORS_BY_CODE.get(refusal.code, otherwise)
    if issubclass(kind, ThrottledError):
        of_the_answer["retry_after"] = _pause(answer, refusal.details)
    return kind(refusal.message, **of_the_answer)


def _pause(answer: RawResponse, details: Mapping[str, Any]) -> float | None:
    """The longest pause that the answer asks for, by its header or its details, seconds.

    A moment in time depends on whose clock is right, so it counts only where no seconds are told.
    """
    told = (
        retry_after(answer.headers),
        number_or_none(details.get("resetInSeconds")),
        number_or_none(details.get("retryAfterSeconds")),
    )
    seconds = [pause for pause in told if pause is not None]
    if seconds:
        return max(seconds)
    end = moment_or_none(details.get("blockedUntil"))
    return None if end is None else max(0.0, (end - datetime.now(UTC)).total_seconds())
