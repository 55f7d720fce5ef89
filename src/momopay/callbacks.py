"""Callbacks (webhooks): parsing a body, making one, and comparing a callback with the service's own record. Pure."""

from __future__ import annotations

import logging
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from inspect import iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, cast
from unicodedata import normalize

from pydantic import ValidationError
from pydantic_core import to_json
from typing_extensions import Buffer

from momopay._redaction import clears_frames, redacted_repr
from momopay.errors import CallbackMismatchError, InvalidCallbackError
from momopay.models.callbacks import Callback, CallbackTransaction
from momopay.models.enums import FAILURES, ResultCode, TransactionStatus, TransactionType, end_of, is_known_type
from momopay.models.records import (
    Record,
    describe,
    is_missing,
    is_placeholder,
    is_receipt,
    parse_incomplete,
    parse_json,
    parse_plain,
    receipt_fields,
)
from momopay.money import json_number
from momopay.phones import is_same_phone_if_known, may_be_phone

if TYPE_CHECKING:  # not needed to parse callbacks
    from momopay.models.transactions import Transaction

logger: logging.Logger = logging.getLogger("momopay")

MAX_BODY_BYTES: Final = 64 * 1024


@clears_frames
def parse_callback(body: bytes | bytearray | memoryview | str | Mapping[str, Any]) -> Callback:
    """Return the callback that the service POSTed to a callback URL.

    The service does not sign callbacks, so anybody may have sent it. Before you deliver goods, compare it with the
    service's own record: ``transactions.confirm``. The same callback may be delivered more than once: handle each
    ``callback.key`` once. See the service page, "Callbacks". Sends nothing.

    Args:
        body: The request's body as it was received, at most 64 KiB, or the JSON object that a framework made of it.

    Returns:
        The callback, with unknown fields and values. Only its transaction's id is required. Another field that cannot
        be read, such as an amount "N/A", is None, with a WARNING that names it: the service's record has the value.

    Raises:
        InvalidCallbackError: Too large, not JSON, not an object, or without a transaction's id. Respond with 400.
    """
    text = body if isinstance(body, bytes) else _encoded(body)
    if len(text) > MAX_BODY_BYTES:
        raise InvalidCallbackError("a callback's body has at most 64 KiB")
    text = text.removeprefix(BOM_UTF8)
    try:
        callback = parse_json(Callback, text)
    except ValidationError as error:
        try:
            return _without_unusable(_parse_partly(text))
        except ValidationError as narrower:  # no id
            raise InvalidCallbackError(f"not a callback: {describe(narrower)}") from error
        except ValueError:
            raise InvalidCallbackError(f"not a callback: {describe(error)}") from error
    return _without_unusable(callback)


def _parse_partly(body: bytes) -> Callback:
    """Return what can be read of a callback. Raise ValueError if that does not include an id."""
    whole = parse_plain(body)
    others = cast("dict[str, Any]", whole) if isinstance(whole, dict) else {}
    if not isinstance(others.get("transaction"), dict):
        raise ValueError("no transaction")  # noqa: TRY004  as for a body that is no JSON
    stated: dict[str, Any] = others["transaction"]
    transaction = parse_incomplete(CallbackTransaction, stated, {}, ["id"])
    callback = parse_incomplete(Callback, {**others, "transaction": transaction}, {}, ["transaction"])
    left_out = _left_out(callback, others) + _left_out(transaction, stated)
    if left_out:
        _warn(transaction, left_out)
    return callback


def _left_out(record: Record, data: Mapping[str, Any]) -> list[str]:
    fields = type(record).model_fields.keys() - record.model_fields_set
    return sorted(name for name in fields if data.get(name) is not None)


def _without_unusable(callback: Callback) -> Callback:
    """Return the callback without times, phones and placeholders that say nothing."""
    stated = callback.transaction
    times = {"created_at": stated.created_at, "updated_at": stated.updated_at}
    texts = {"external_reference": stated.external_reference, "result_code": stated.result_code, "type": stated.type}
    faulty = [name for name, time in times.items() if time is not None and is_missing(time)]
    faulty += [name for name, text in texts.items() if text is not None and is_placeholder(str(text))]
    if stated.phone_number is not None and not may_be_phone(stated.phone_number):
        faulty.append("phone_number")
    faulty += [name for name, value in receipt_fields(stated).items() if value != "" and not is_receipt(value)]
    if not faulty:
        return callback
    _warn(stated, faulty)
    return callback.model_copy(update={"transaction": stated.model_copy(update=dict.fromkeys(faulty))})


def _warn(stated: CallbackTransaction, fields: Iterable[str]) -> None:
    text = "the callback for transaction %s has a %s that cannot be read; it is left out"
    logger.warning(text, redacted_repr(stated.id), " and a ".join(fields))


def _encoded(body: object) -> bytes:
    if isinstance(body, str):
        # A lone surrogate becomes bytes that the JSON parser refuses. A UnicodeEncodeError would show the whole body.
        return body.encode(errors="surrogatepass")
    if isinstance(body, Buffer):
        return bytes(body)
    how = _how_to_read(body)
    if how or not isinstance(body, Mapping):  # a request of Starlette is a mapping, too
        raise InvalidCallbackError(f"not a callback: bytes, text or a mapping are needed{how}")
    try:
        # Encoded again, so that there is one parser, and a copy that the caller cannot change. The fallback is for
        # mappings that are not a dict; it raises for anything else that JSON does not have.
        return to_json(body, fallback=dict)
    except (ValueError, RecursionError) as error:
        raise InvalidCallbackError("not a callback: it cannot be encoded as JSON") from error


def _how_to_read(request: object) -> str:
    """Return what to pass instead of a request of a web framework; "" of anything else."""
    if iscoroutine(request):
        return "; await it first"
    for name in ("get_data", "body", "read"):  # Flask; Django, Starlette and others; aiohttp
        found = getattr(type(request), name, None)
        if found is not None:
            call = f"request.{name}()" if callable(found) else f"request.{name}"
            return f": pass {'await ' if iscoroutinefunction(found) else ''}{call}"
    return ""


def callback_body(transaction: Transaction) -> bytes:
    """Return the body of the callback that the service would send for a payment that has ended.

    It has every field of the service page, "Callbacks". Fields that the record lacks are null. A payout that was
    REVERSED is FAILED here, because no callback says REVERSED.
    """
    succeeded = transaction.status == TransactionStatus.SUCCESS
    status = TransactionStatus.FAILED if transaction.status == TransactionStatus.REVERSED else transaction.status
    # The other fields have the same names in both.
    reported = {name: getattr(transaction, name, None) for name in CallbackTransaction.model_fields} | {
        "id": transaction.transaction_id,
        "status": status,
        "amount": json_number(transaction.amount),
        "phone_number": transaction.phone,
        "external_reference": transaction.account_reference,
        "momo_receipt": transaction.receipt,
        "transaction_fee": json_number((transaction.transaction_fee or Decimal(0)) if succeeded else Decimal(0)),
        "result_code": transaction.result_code or (ResultCode.SUCCESS if succeeded else None),
        "created_at": _instant(transaction.created_at),
        "updated_at": _instant(transaction.updated_at),
    }
    event_type = f"transaction.{status.lower()}"
    return to_json({"event": "transaction.updated", "event_type": event_type, "transaction": reported})


def _instant(when: datetime | None) -> str | None:
    if when is None:
        return None
    with suppress(OverflowError):  # at the edge of the calendar, where it keeps its own offset
        when = when.astimezone(UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_agreement(callback: Callback, transaction: Transaction) -> None:
    """Raise CallbackMismatchError if a callback contradicts the service's own record, or states an end too early."""
    stated = callback.transaction
    # A field that either of them lacks agrees.
    agreement = {
        "transaction_id": stated.id == transaction.transaction_id,
        # Only payout or not, because the service gives two types to top-ups. A type of another name says neither.
        "type": not (is_known_type(stated.type) and is_known_type(transaction.type))
        or (stated.type == TransactionType.B2C) == (transaction.type == TransactionType.B2C),
        # Which of FAILED, CANCELLED and EXPIRED a read returns is not specified, and a payout that FAILED may be
        # REVERSED by then. The event type is not compared: it adds nothing to the status.
        "status": stated.status is None
        or not stated.status.is_terminal
        or end_of(stated.status) == end_of(transaction.status)
        or (stated.status in FAILURES and transaction.status == TransactionStatus.REVERSED),
        "amount": stated.amount in {None, transaction.amount},
        "phone": stated.phone is None or is_same_phone_if_known(stated.phone, transaction.phone),
        "reference": is_placeholder(stated.account_reference or "")
        or is_placeholder(transaction.account_reference or "")
        or normalize("NFC", stated.account_reference or "") == normalize("NFC", transaction.account_reference or ""),
    }
    differing = [field for field, agrees in agreement.items() if not agrees]
    if differing:
        raise CallbackMismatchError(
            f"the callback for {stated.id} and the service's record differ in {', '.join(differing)}",
            transaction_id=stated.id,
            fields=differing,
        )
