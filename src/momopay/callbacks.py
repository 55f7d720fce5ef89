"""Callbacks: bytes into a Callback, and a Callback held against the service's own record. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import to_json
from typing_extensions import Buffer

from momopay._redaction import clear_frames
from momopay.errors import CallbackMismatchError, InvalidCallbackError
from momopay.models.callbacks import Callback
from momopay.models.enums import EventType, TransactionStatus, TransactionType
from momopay.models.faults import describe
from momopay.phones import same_phone

if TYPE_CHECKING:
    from momopay.models.transactions import Transaction

__all__ = ["parse_callback"]

LARGEST_BODY = 64 * 1024
_EVENTS = frozenset(EventType)


def parse_callback(body: bytes | bytearray | memoryview | str | Mapping[str, Any]) -> Callback:
    """Read what the service POSTed to a callback URL.

    The service signs nothing, so this proves nothing: hold the callback against the service's own record
    with ``transactions.confirm`` before goods leave the shop. The same callback may come more than once;
    handle each ``callback.key`` once. Rests on SPEC.md, "Events".

    Args:
        body: The request's body as it came, at most 64 KiB, or the JSON object that a framework made of it.

    Returns:
        The callback. Unknown words and unknown fields are kept.

    Raises:
        InvalidCallbackError: Too large, not JSON, not an object, or not a callback. Answer 400.
    """
    try:
        return _parse(body)
    except InvalidCallbackError as error:
        clear_frames(error)
        del body
        raise


def _parse(body: object) -> Callback:
    text = body if isinstance(body, bytes) else _encoded(body)
    if len(text) > LARGEST_BODY:
        raise InvalidCallbackError("a callback's body has at most 64 KiB")
    try:
        return Callback.model_validate_json(text)
    except ValidationError as error:
        problem = describe(error)
    raise InvalidCallbackError(f"not a callback: {problem}")


def _encoded(body: object) -> bytes:
    try:
        if isinstance(body, str):
            return body.encode()
        if isinstance(body, Mapping):
            return to_json(body, fallback=_plain)
        if isinstance(body, Buffer):
            return bytes(body)
        problem = "bytes, text or a mapping are wanted"
    except (ValueError, RecursionError):
        problem = "it cannot be written as JSON in UTF-8"
    raise InvalidCallbackError(f"not a callback: {problem}")


def _plain(value: Any) -> dict[Any, Any]:
    return dict(value)  # a mapping of another kind; what is none refuses, and is no JSON


def check_agreement(callback: Callback, transaction: Transaction) -> None:
    """Compare what the callback tells with what the service's own record says.

    Raises:
        CallbackMismatchError: They differ in id, in whether it is a payout, in status, amount, phone or reference, or
            the callback's event type, where it is a known one, belies its own status.
    """
    told = callback.transaction
    tells_of_success = told.status == TransactionStatus.SUCCESS
    agreement = {
        "transaction_id": told.id == transaction.transaction_id,
        "type": (told.type == TransactionType.B2C) == (transaction.type == TransactionType.B2C),
        "event_type": callback.event_type not in _EVENTS
        or (callback.event_type == EventType.SUCCESS) == tells_of_success,
        "status": told.status == transaction.status
        or (told.status.ended_without_success and transaction.status.ended_without_success),
        "amount": told.amount == transaction.amount,
        "phone": same_phone(told.phone, transaction.phone),
        "reference": (told.account_reference or "") == (transaction.account_reference or ""),
    }
    differing = [field for field, agrees in agreement.items() if not agrees]
    if differing:
        raise CallbackMismatchError(
            f"the callback for {told.id} and the service's record differ in {', '.join(differing)}",
            transaction_id=told.id,
            fields=differing,
        )
