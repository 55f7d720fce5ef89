"""Every route of the service, with its operation and its OpenAPI description, from the models that the rules use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from momopay.sandbox import _bodies, _operations, _serializers
from momopay.sandbox._envelope import Envelope, ErrorEnvelope
from momopay.sandbox._listing import KINDS, STATUSES
from momopay.sandbox._refusals import STATUS_BY_CODE

# Authentication and the rate limit come before every operation.
_CODES_OF_ALL = ("INVALID_API_KEY", "RATE_LIMIT_EXCEEDED")
_CHANNEL_CODES = ("NO_PAYMENT_CHANNELS", "NO_DEFAULT_CHANNEL")


@dataclass(frozen=True, slots=True)
class Route:
    """One route; `codes` are those beside the codes that every route may answer."""

    method: str
    path: str
    operation: _operations.Operation
    answer: type[BaseModel]
    summary: str
    body: type[_bodies.Body] | None = None
    codes: tuple[str, ...] = ()
    query: tuple[Mapping[str, object], ...] = ()
    headers: tuple[Mapping[str, object], ...] = ()


def _query(name: str, schema: Mapping[str, object], description: str) -> Mapping[str, object]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


# Described by hand, as `_listing` parses by hand: `from` and `to` take dates too, which one format cannot say.
_FILTERS = (
    _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Page size"),
    _query("cursor", {"type": "string", "format": "cursor"}, "The nextCursor of the previous response"),
    _query("status", {"type": "string", "enum": list(STATUSES)}, "One status"),
    _query("type", {"type": "string", "enum": list(KINDS)}, "One type; top-ups cannot be asked for"),
    _query("from", {"type": "string", "format": "date-time"}, "Created at or after; a date is its beginning"),
    _query("to", {"type": "string", "format": "date-time"}, "Created at or before; a date is its end"),
    _query("channelId", {"type": "string"}, "Routed through this channel"),
    _query("amountMin", {"type": "number"}, "KES, inclusive"),
    _query("amountMax", {"type": "number"}, "KES, inclusive"),
    _query("q", {"type": "string"}, "Text in reference, phone, description or id; case does not matter"),
)
_IDEMPOTENCY_KEY: Mapping[str, object] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The same key again returns the original response and sends no new prompt",
}

_CHANNELS = "/payment-wallet/channels"
ROUTES = (
    Route(
        "POST",
        "/payments/stk",
        _operations.initiate_stk,
        Envelope[_serializers.StkInitiated],
        "Initiate an STK prompt",
        _bodies.StkBody,
        (
            "VALIDATION_ERROR",
            "INVALID_PHONE",
            *_CHANNEL_CODES,
            "INSUFFICIENT_SERVICE_BALANCE",
            "STK_TEMP_BANNED",
            "TRANSACTION_HEALTH_BLOCKED",
        ),
    ),
    Route(
        "POST",
        "/b2c/payouts",
        _operations.initiate_payout,
        Envelope[_serializers.PayoutInitiated],
        "Initiate a payout",
        _bodies.PayoutBody,
        ("VALIDATION_ERROR", "INVALID_PHONE", "KYC_NOT_VERIFIED", "INSUFFICIENT_FUNDS", "INSUFFICIENT_SERVICE_BALANCE"),
    ),
    Route(
        "GET",
        "/transactions",
        _operations.list_transactions,
        Envelope[_serializers.TransactionList[_serializers.TransactionItem]],
        "List transactions",
        codes=("VALIDATION_ERROR",),
        query=_FILTERS,
    ),
    Route(
        "GET",
        "/transactions/{id}",
        _operations.read_transaction,
        Envelope[_serializers.TransactionRead],
        "Read one transaction",
        codes=("TRANSACTION_NOT_FOUND", "VALIDATION_ERROR"),
    ),
    Route(
        "POST",
        "/wallets/service/topups",
        _operations.top_up,
        Envelope[_serializers.StkInitiated],
        "Top up the service wallet",
        _bodies.TopUpBody,
        ("VALIDATION_ERROR", "INVALID_PHONE"),
        headers=(_IDEMPOTENCY_KEY,),
    ),
    Route(
        "GET",
        "/wallets/service/balance",
        _operations.read_balance,
        Envelope[_serializers.ServiceBalance],
        "Read the service wallet's balance",
    ),
    Route("GET", _CHANNELS, _operations.list_channels, Envelope[_serializers.ChannelList], "List payment channels"),
    Route(
        "POST",
        _CHANNELS,
        _operations.create_channel,
        Envelope[_serializers.PaymentChannel],
        "Create a payment channel",
        _bodies.NewChannelBody,
        ("VALIDATION_ERROR",),
    ),
    Route(
        "GET",
        f"{_CHANNELS}/{{id}}",
        _operations.read_channel,
        Envelope[_serializers.PaymentChannel],
        "Read one payment channel",
        codes=("CHANNEL_NOT_FOUND",),
    ),
    Route(
        "PATCH",
        f"{_CHANNELS}/{{id}}",
        _operations.change_channel,
        Envelope[_serializers.PaymentChannel],
        "Change a payment channel",
        _bodies.ChannelChangesBody,
        ("VALIDATION_ERROR", "CHANNEL_NOT_FOUND"),
    ),
    Route(
        "DELETE",
        f"{_CHANNELS}/{{id}}",
        _operations.delete_channel,
        Envelope[_serializers.Nothing],
        "Delete a payment channel",
        codes=("CHANNEL_NOT_FOUND", "CHANNEL_IN_USE"),
    ),
)


def describe(route: Route) -> dict[str, Any]:
    """Return the arguments of `FastAPI.add_api_route` that describe a route.

    Bodies and parameters are given as schemas, not as arguments of the handler: FastAPI would answer its own 422 to
    what does not fit them.
    """
    codes = (*route.codes, *_CODES_OF_ALL)
    # Only a body can be too large.
    if route.body is not None:
        codes = (*codes, "PAYLOAD_TOO_LARGE")
    responses: dict[int | str, dict[str, object]] = {}
    for status in sorted({STATUS_BY_CODE[code] for code in codes}):
        # OpenAPI describes a status once, so the codes that share one are listed in its description.
        shared = ", ".join(code for code in codes if STATUS_BY_CODE[code] == status)
        responses[status] = {"model": ErrorEnvelope, "description": shared}
    responses[200] = {"model": route.answer, "description": "success: true"}
    extra: dict[str, object] = {"security": [{"apiKey": []}]}
    parameters = [*route.query, *route.headers]
    if "{id}" in route.path:
        schema = {"type": "string", "minLength": 1}
        parameters.insert(0, {"name": "id", "in": "path", "required": True, "schema": schema})
    if parameters:
        extra["parameters"] = parameters
    if route.body is not None:
        schema = route.body.model_json_schema(by_alias=True)
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {
        "summary": route.summary,
        "operation_id": route.operation.__name__,
        "tags": ["service"],
        "responses": responses,
        "openapi_extra": extra,
    }
