"""Parse a response into a record, or into the failure that it describes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import SchemaError, from_json, to_json

from momopay._core.retry import AttemptFailed, FailureKind
from momopay._transport.attempt import NoReplyError, NoResponseError, NotSentError, RawResponse
from momopay.errors import (
    ERRORS_BY_CODE,
    APIConnectionError,
    APIError,
    InvalidApiKeyError,
    KycNotVerifiedError,
    ProtocolError,
    RateLimitExceededError,
    ServerError,
    ThrottledError,
    moment_or_none,
    number_or_none,
)
from momopay.models.records import Envelope, describe, is_id, parse_json, parse_plain
from momopay.models.requests import OtherPaymentError, read_partly
from momopay.models.transactions import ChangedChannel
from momopay.urls import host_and_port

T = TypeVar("T")
_MAX_TEXT: Final = 500  # characters of the service's text that an error shows
_MAX_MESSAGE: Final = 4000  # characters of a validation error, which has a text for each field
_QUESTION: Final = ". That is not this service's way to answer: is base_url right, or does a proxy answer for it?"
# On these statuses a refusal is definite even if its code is unknown. Elsewhere an unknown code may mean that the
# payment was made: 409 and 425 may refer to an earlier request, 499 to a client that hung up, and 2xx is success.
_REFUSING_STATUSES: Final = frozenset({400, 401, 402, 403, 404, 410, 413, 415, 422, 429})
# Codes that refuse for certain on any status, as those that are specified do.
_REFUSING_CODES: Final = ERRORS_BY_CODE.keys() | {"CREDENTIAL_INACTIVE", "WALLET_INACTIVE", "DUPLICATE_SHORTCODE"}
_SENT_BEFORE: Final = "DUPLICATE_IDEMPOTENCY_KEY"
# The class of an error with an unknown code, so that it has the consequences of the known codes with its status.
_ERRORS_BY_STATUS: Final = {401: InvalidApiKeyError, 403: KycNotVerifiedError, 429: RateLimitExceededError}
_EMPTY: Final = b'{"success": true}'
_SUCCESS: Final = 2  # the first digit of a status
_REDIRECT: Final = 3  # the same
_MAX_RETRY_AFTER: Final = 1e9  # seconds
_RATE_WINDOW: Final = 60.0  # seconds
_MILLISECONDS: Final = 10**11  # a Unix time from here on is in milliseconds: in seconds, it would be of the year 5138
_COUNT: Final = re.compile("[0-9]{1,15}")


def is_success(status: int) -> bool:
    return status // 100 == _SUCCESS


def build_parser(envelope: type[Envelope[Any]]) -> None:
    """Build an envelope's parser before anything is sent: an interrupt of it at its first use would lose a response."""
    try:
        envelope.model_rebuild()
    except SchemaError as error:
        if "KeyboardInterrupt" in str(error):  # pydantic-core has it only as text
            raise KeyboardInterrupt from error
        raise


def parse_envelope(
    response: RawResponse, envelope: type[Envelope[T]], url: str, requested: Mapping[str, object] | None = None
) -> Envelope[T]:
    """Return the success envelope, or raise AttemptFailed if the response is anything else.

    Fields that a payment's response lacks come from what was `requested`. Here and below, `url` is the request's URL
    without its query.
    """
    # By the status first, so that each body is parsed once.
    if not is_success(response.status):
        raise failure_from_response(response, url)
    try:
        return parse_json(envelope, _EMPTY if response.status == HTTPStatus.NO_CONTENT else response.body)
    except ValidationError as error:
        problem, is_of_another = describe(error), False
        try:
            return _parse_partly(response, envelope, requested or {})
        except ValidationError as narrower:  # what is missing still
            problem = describe(narrower)
        except OtherPaymentError as contradiction:
            problem, is_of_another = str(contradiction), True
        except ValueError:
            pass
        failure = failure_from_response(response, url, problem)
        if is_of_another:
            failure.kind = FailureKind.OTHER_PAYMENT
        # The user gets `failure.error`, so pydantic's error must be the cause of that.
        failure.error.__cause__ = error
    raise failure


def _parse_partly(response: RawResponse, envelope: type[Envelope[T]], requested: Mapping[str, object]) -> Envelope[T]:
    """Return an envelope with what can be read of its data. Raise ValueError if that is not enough."""
    model: Any = envelope.model_fields["data"].annotation
    body: Any = parse_plain(response.body)
    match body:
        case {"success": True, "data": dict()}:
            data = body["data"]
        case {"success": True} if isinstance(model, type) and issubclass(model, ChangedChannel):
            data = dict[str, Any]()  # a change of a channel needs none
        case _:
            raise ValueError("no data")
    moment = service_time(response.headers)
    request_id = body.get("requestId")
    return envelope.model_construct(
        success=True,
        data=read_partly(model, data, {**requested, "created_at": moment, "updated_at": moment}),
        request_id=request_id if isinstance(request_id, str) else None,
    )


def check_success(response: RawResponse, url: str) -> None:
    """Raise AttemptFailed unless a call that returns nothing succeeded: any 2xx whose envelope is no refusal."""
    if not is_success(response.status) or _refusal(response.body) is not None:
        raise failure_from_response(response, url)


def failure_from_response(response: RawResponse, url: str, problem: str = "not an envelope") -> AttemptFailed:
    """Return the failure that a response describes.

    Its kind, by which it is retried, depends on the status first. The class of its error depends on the code first.
    """
    refusal = _refusal(response.body)
    # Even with a refusal in the body: the server may have committed the payment before it failed.
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status == HTTPStatus.REQUEST_TIMEOUT:
        error = _api_error(response, refusal, ServerError)
        pause = retry_after(response.headers)
        return AttemptFailed(FailureKind.SERVER_ERROR, error, retry_after=pause, body=response.body)
    if refusal is None or response.status // 100 == _REDIRECT:  # redirects are never followed
        content_type = response.headers.get("content-type", "no content type")[:_MAX_TEXT]
        is_elsewhere = refusal is not None or not _is_envelope(response.body)
        protocol_error = ProtocolError(
            f"{url[:_MAX_TEXT]} answered HTTP {response.status} with {len(response.body)} bytes of {content_type}:"
            f" {problem}{_QUESTION if is_elsewhere else ''}",
            status_code=response.status,
        )
        return AttemptFailed(FailureKind.INVALID_RESPONSE, protocol_error, body=response.body)
    error = _api_error(response, refusal, _ERRORS_BY_STATUS.get(response.status, APIError))
    if error.code == _SENT_BEFORE:
        kind = FailureKind.SENT_BEFORE
    elif isinstance(error, RateLimitExceededError):
        kind = FailureKind.RATE_LIMITED
    elif error.code in _REFUSING_CODES or response.status in _REFUSING_STATUSES:
        kind = FailureKind.REFUSED
    else:
        kind = FailureKind.UNKNOWN_CODE
    return AttemptFailed(kind, error, retry_after=error.retry_after if isinstance(error, ThrottledError) else None)


def failure_without_response(error: NoResponseError, url: str) -> AttemptFailed:
    """Return the failure of an attempt without a complete response."""
    reason = str(error)[:_MAX_TEXT]
    host, port = host_and_port(url)
    if isinstance(error, NotSentError):
        failure = AttemptFailed(FailureKind.NOT_SENT, APIConnectionError(f"not sent to {host}:{port}: {reason}"))
    elif isinstance(error, NoReplyError):
        connection_error = APIConnectionError(f"no reply from {host}:{port}: {reason}")
        failure = AttemptFailed(FailureKind.NO_REPLY, connection_error, body=error.partial)
    else:
        protocol_error = ProtocolError(f"{url[:_MAX_TEXT]} answered with {reason}{_QUESTION}")
        failure = AttemptFailed(FailureKind.INVALID_RESPONSE, protocol_error)
    failure.error.__cause__ = error
    return failure


def transaction_id_in(body: bytes) -> str | None:
    """Return the transaction id in a response's body, which may be truncated; None if there is none."""
    try:
        envelope = from_json(body, allow_partial=True)
    except ValueError:
        return None
    match envelope:
        case {"data": {"transactionId": str(found)} | {"transaction_id": str(found)}}:
            return found if is_id(found) else None
        case _:
            return None


def _is_envelope(body: bytes) -> bool:
    """Return whether a body looks like the service's envelope, even if it is malformed."""
    try:
        return "success" in from_json(body)
    except (ValueError, TypeError):
        return False


def _refusal(body: bytes) -> dict[str, Any] | None:
    """Return the arguments of an `APIError`, or None if the body is not a definite refusal."""
    try:
        envelope = from_json(body)
    except ValueError:
        return None
    match envelope:
        case {"success": False, "error": {"code": str(code)} as error} if (
            code.strip()
            and len(code) <= _MAX_TEXT
            # A refusal that also carries data contradicts itself: the payment may have been made.
            and not envelope.get("data")
        ):
            message, details, request_id = error.get("message"), error.get("details"), envelope.get("requestId")
            others = {name: value for name, value in error.items() if name not in {"code", "message", "details"}}
            if not isinstance(details, dict):
                details = {"details": details} if details else {}
            return {
                "code": code,
                "message": _text(message),
                "details": others | details,
                "request_id": request_id[:_MAX_TEXT] if isinstance(request_id, str) else None,
            }
        case _:
            return None


def _text(message: object) -> str:
    """Return an error's message, which for validation errors may be a list of texts."""
    if isinstance(message, str):
        return message[:_MAX_TEXT]
    if isinstance(message, list):
        return "; ".join(filter(None, map(_text, cast("list[object]", message))))[:_MAX_MESSAGE]
    return "" if message is None else to_json(message).decode()[:_MAX_TEXT]


def _api_error(response: RawResponse, refusal: dict[str, Any] | None, default: type[APIError]) -> APIError:
    if refusal is None:
        return default("the service failed", code=None, status_code=response.status)
    error_class = ERRORS_BY_CODE.get(refusal["code"], default)
    if issubclass(error_class, ThrottledError):
        refusal["retry_after"] = _pause(response, refusal["details"])
    error = error_class(**refusal, status_code=response.status)
    if error.code not in ERRORS_BY_CODE and isinstance(error, InvalidApiKeyError | KycNotVerifiedError):
        error.remedy = APIError.remedy  # that of its class is for the code that is specified
    return error


def _pause(response: RawResponse, details: Mapping[str, Any]) -> float | None:
    """Return the longest pause, in seconds, that a response's header or details ask for."""
    stated = (
        retry_after(response.headers),
        number_or_none(details.get("resetInSeconds")),
        number_or_none(details.get("retryAfterSeconds")),
    )
    seconds = [pause for pause in stated if pause is not None]
    if seconds:
        return max(seconds)
    # A point in time depends on two clocks that agree, so it is used only if no seconds are stated.
    end = moment_or_none(details.get("blockedUntil"))
    if end is not None:
        return _seconds_until(end, response.headers)
    remaining = remaining_requests(response.headers)
    return None if remaining is None else remaining[1]


def remaining_requests(headers: Mapping[str, str]) -> tuple[int, float] | None:
    """Return how many requests the rate limit's headers leave, and for how many seconds; None if unreadable."""
    remaining, reset = headers.get("x-ratelimit-remaining", ""), headers.get("x-ratelimit-reset", "")
    if not _COUNT.fullmatch(remaining) or not _COUNT.fullmatch(reset):
        return None
    date, at = http_date(headers.get("date")), float(reset)
    if at >= _MILLISECONDS:
        at /= 1000
    # By the service's own clock. This machine's may be wrong: by it, the window may have begun just now at the latest.
    seconds = min(_RATE_WINDOW, at - (date or datetime.now(UTC)).timestamp())
    if seconds <= 0 and date is None:
        seconds = _RATE_WINDOW
    return (int(remaining), seconds) if seconds > 0 else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header, given in digits or as an HTTP date; None for anything else."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _MAX_RETRY_AFTER)
    when = http_date(text)
    return None if when is None else _seconds_until(when, headers)


def _seconds_until(end: datetime, headers: Mapping[str, str]) -> float:
    # By the service's own time if the response has it, because this machine's clock may be wrong.
    return max(0.0, (end - service_time(headers)).total_seconds())


def service_time(headers: Mapping[str, str]) -> datetime:
    """Return the time of a response by its ``Date`` header, else by this machine's clock."""
    return http_date(headers.get("date")) or datetime.now(UTC)


def http_date(text: str | None) -> datetime | None:
    """Return the time of a header such as ``Date`` or ``Retry-After``; None if it is no HTTP date."""
    try:
        when = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, OverflowError):  # the last two for absurd numbers
        return None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)  # "-0000" is UTC, and has no zone in Python
