"""The OpenAPI description of every route, from the models that the rules themselves use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from momopay.sandbox import _bodies
from momopay.sandbox._listing import KINDS, STATUSES
from momopay.sandbox._records import RECORDS, ErrorEnvelope
from momopay.sandbox._refusals import STATUS_BY_CODE

_EVERYWHERE = ("INVALID_API_KEY", "RATE_LIMIT_EXCEEDED")
_CHANNEL = ("NO_PAYMENT_CHANNELS", "NO_DEFAULT_CHANNEL")


@dataclass(frozen=True, slots=True)
class Route:
    """One route; `operation` names the function in `_operations` and the record in `_records`."""

    method: str
    path: str
    operation: str
    summary: str
    body: type[_bodies.Body] | None = None
    codes: tuple[str, ...] = ()
    query: tuple[Mapping[str, object], ...] = ()
    headers: tuple[Mapping[str, object], ...] = ()


def _query(name: str, schema: Mapping[str, object], description: str) -> Mapping[str, object]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


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
        "initiate_stk",
        "Initiate an STK prompt",
        _bodies.StkBody,
        (
            "VALIDATION_ERROR",
            "INVALID_PHONE",
            *_CHANNEL,
            "INSUFFICIENT_SERVICE_BALANCE",
            "STK_TEMP_BANNED",
            "TRANSACTION_HEALTH_BLOCKED",
        ),
    ),
    Route(
        "POST",
        "/b2c/payouts",
        "initiate_payout",
        "Initiate a payout",
        _bodies.PayoutBody,
        (
            "VALIDATION_ERROR",
            "INVALID_PHONE",
            "KYC_NOT_VERIFIED",
            "INSUFFICIENT_FUNDS",
            "INSUFFICIENT_SERVICE_BALANCE",
        ),
    ),
    Route(
        "GET",
        "/transactions",
        "list_transactions",
        "List transactions",
        codes=("VALIDATION_ERROR",),
        query=_FILTERS,
    ),
    Route(
        "GET",
        "/transactions/{id}",
        "read_transaction",
        "Read one transaction",
        codes=("TRANSACTION_NOT_FOUND", "VALIDATION_ERROR"),
    ),
    Route(
        "POST",
        "/wallets/service/topups",
        "top_up",
        "Top up the service wallet",
        _bodies.TopUpBody,
        ("VALIDATION_ERROR", "INVALID_PHONE"),
        headers=(_IDEMPOTENCY_KEY,),
    ),
    Route("GET", "/wallets/service/balance", "read_balance", "Read the service wallet's balance"),
    Route("GET", _CHANNELS, "list_channels", "List payment channels"),
    Route(
        "POST",
        _CHANNELS,
        "create_channel",
        "Create a payment channel",
        _bodies.NewChannelBody,
        ("VALIDATION_ERROR",),
    ),
    Route("GET", f"{_CHANNELS}/{{id}}", "read_channel", "Read one payment channel", codes=("CHANNEL_NOT_FOUND",)),
    Route(
        "PATCH",
        f"{_CHANNELS}/{{id}}",
        "change_channel",
        "Change a payment channel",
        _bodies.ChannelChangesBody,
        ("VALIDATION_ERROR", "CHANNEL_NOT_FOUND"),
    ),
    Route(
        "DELETE",
        f"{_CHANNELS}/{{id}}",
        "delete_channel",
        "Delete a payment channel",
        codes=("CHANNEL_NOT_FOUND", "CHANNEL_IN_USE"),
    ),
)


def describe(route: Route) -> dict[str, Any]:
    """The arguments of `FastAPI.add_api_route` that describe a route."""
    codes = (*route.codes, *_EVERYWHERE)
    if route.body is not None:
        codes = (*codes, "PAYLOAD_TOO_LARGE")
    responses: dict[int | str, dict[str, object]] = {}
    for status in sorted({STATUS_BY_CODE[code] for code in codes}):
        told = ", ".join(code for code in codes if STATUS_BY_CODE[code] == status)
        responses[status] = {"model": ErrorEnvelope, "description": told}
    responses[200] = {"model": RECORDS[route.operation], "description": "success: true"}
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
        "operation_id": route.operation,
        "tags": ["service"],
        "responses": responses,
        "openapi_extra": extra,
    }
