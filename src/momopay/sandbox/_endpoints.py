"""Every endpoint of the service, in one table, each with the function that returns the record of its answer.

The routes, the OpenAPI document, the faults that can be planned and the lists of the page are made from `ENDPOINTS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from momopay.sandbox import _channels, _payments
from momopay.sandbox._accounts import Switches
from momopay.sandbox._bodies import Body, ChannelChangesBody, NewChannelBody, PayoutBody, StkBody, TopUpBody, read_body
from momopay.sandbox._listing import CURSOR, KINDS, STATUSES, list_page, parse_filters
from momopay.sandbox._payments import LIST_LAG, NO_EFFECTS, FaultEffects
from momopay.sandbox._refusals import STATUS_BY_CODE, Refusal
from momopay.sandbox._serializers import (
    ChannelList,
    Nothing,
    PaymentChannel,
    PayoutInitiated,
    ServiceBalance,
    SnakeRecord,
    StkInitiated,
    TransactionList,
    list_record,
    read_record,
)
from momopay.sandbox._state import AccountState, ServiceState


@dataclass(frozen=True, slots=True)
class Call:
    """One admitted request; `account_state` is that of the account which calls."""

    state: ServiceState
    account_state: AccountState
    now: datetime
    id: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    idempotency_key: str | None = None
    effects: FaultEffects = NO_EFFECTS


Operation = Callable[[Call], SnakeRecord]


def initiate_stk(call: Call) -> StkInitiated:
    """POST /payments/stk."""
    body = read_body(StkBody, call.body)
    transaction = _payments.initiate_stk(call.state, call.account_state, body, call.now, call.effects)
    return StkInitiated.model_validate(transaction)


def initiate_payout(call: Call) -> PayoutInitiated:
    """POST /b2c/payouts."""
    body = read_body(PayoutBody, call.body)
    transaction = _payments.initiate_payout(call.state, call.account_state, body, call.now, call.effects)
    return PayoutInitiated.model_validate(transaction)


def top_up(call: Call) -> StkInitiated:
    """POST /wallets/service/topups."""
    # The key alone decides, even if the body differs: no comparison of bodies is specified.
    transaction = call.account_state.by_idempotency_key.get(call.idempotency_key or "")
    if transaction is None:
        body = read_body(TopUpBody, call.body)
        transaction = _payments.initiate_top_up(
            call.state, call.account_state, body, call.now, idempotency_key=call.idempotency_key, effects=call.effects
        )
    return StkInitiated.model_validate(transaction)


def list_transactions(call: Call) -> TransactionList:
    """GET /transactions."""
    filters = parse_filters(call.query)
    # A bound on creation also keeps the overview in step with the items, as a lagging replica would.
    if call.effects.list_lag:
        filters = replace(filters, created_by=call.now - timedelta(seconds=LIST_LAG))
    page = list_page(call.account_state, filters, call.now)
    return list_record(call.account_state.account.switches).model_validate(page)


def read_transaction(call: Call) -> SnakeRecord:
    """GET /transactions/{id}."""
    transaction = call.state.transactions.get(call.id)
    account = call.account_state.account
    # Another account's transaction is as unknown as none: else ids could be probed for.
    if transaction is None or transaction.tenant_id != account.tenant_id:
        status = account.switches.transaction_not_found_status
        raise Refusal("TRANSACTION_NOT_FOUND", "No such transaction", status=status)
    return read_record(account.switches).model_validate(transaction)


def read_balance(call: Call) -> ServiceBalance:
    """GET /wallets/service/balance."""
    return ServiceBalance.model_validate(call.account_state.account)


def list_channels(call: Call) -> ChannelList:
    """GET /payment-wallet/channels."""
    account = call.account_state.account
    channels = _channels.in_list_order(account)
    return ChannelList(items=[PaymentChannel.of(channel, account.tenant_id) for channel in channels])


def create_channel(call: Call) -> PaymentChannel:
    """POST /payment-wallet/channels."""
    account = call.account_state.account
    # Channels belong to the account's settings, so only the version shows `commit` that there is something to save.
    channel = _channels.create(account, read_body(NewChannelBody, call.body), call.now)
    call.state.version += 1
    return PaymentChannel.of(channel, account.tenant_id)


def read_channel(call: Call) -> PaymentChannel:
    """GET /payment-wallet/channels/{id}."""
    account = call.account_state.account
    return PaymentChannel.of(_channels.find(account, call.id), account.tenant_id)


def change_channel(call: Call) -> PaymentChannel:
    """PATCH /payment-wallet/channels/{id}."""
    account = call.account_state.account
    channel = _channels.find(account, call.id, code=account.switches.patch_unknown_channel)
    _channels.change(account, channel, call.body)
    call.state.version += 1
    return PaymentChannel.of(channel, account.tenant_id)


def delete_channel(call: Call) -> Nothing:
    """DELETE /payment-wallet/channels/{id}."""
    channel = _channels.find(call.account_state.account, call.id)
    _channels.delete(channel, call.account_state.linked_channels)
    call.state.version += 1
    return Nothing()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header, described by hand, as `_listing` parses by hand."""

    name: str
    schema: Mapping[str, object]
    description: str
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. `errors` has the status of each code, beside those that every endpoint may answer.

    `title` is what the page calls it. `record` returns the shape of the answer under an account's switches. The last
    four say what can be planned for it: how its payments end, and which faults can show.
    """

    method: str
    path: str
    operation: Operation
    tag: str
    title: str
    summary: str
    record: Callable[[Switches], type[SnakeRecord]]
    errors: Mapping[str, int]
    body: type[Body] | None = None
    parameters: tuple[Parameter, ...] = ()
    ends_as: Literal["prompt", "payout"] | None = None
    calls_back: bool = False
    listed: bool = False
    shows_transaction: bool = False


def _errors(*codes: str, **others: int) -> Mapping[str, int]:
    # Authentication and the rate limit come before every operation.
    common = ("INVALID_API_KEY", "RATE_LIMIT_EXCEEDED")
    return {code: STATUS_BY_CODE[code] for code in (*codes, *common)} | others


def _always(record: type[SnakeRecord]) -> Callable[[Switches], type[SnakeRecord]]:
    return lambda _switches: record


_FILTERS = (
    Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Page size"),
    Parameter("cursor", {"type": "string", "pattern": f"^{CURSOR}$"}, "The nextCursor of the previous response"),
    Parameter("status", {"type": "string", "enum": list(STATUSES)}, "One status"),
    Parameter("type", {"type": "string", "enum": list(KINDS)}, "One type; top-ups cannot be asked for"),
    # Dates too, which one format cannot say.
    Parameter("from", {"type": "string", "format": "date-time"}, "Created at or after; a date is its beginning"),
    Parameter("to", {"type": "string", "format": "date-time"}, "Created at or before; a date is its end"),
    Parameter("channelId", {"type": "string"}, "Routed through this channel"),
    Parameter("amountMin", {"type": "number"}, "KES, inclusive"),
    Parameter("amountMax", {"type": "number"}, "KES, inclusive"),
    Parameter("q", {"type": "string"}, "Text in reference, phone, description or id; case does not matter"),
)
_IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    {"type": "string"},
    "The same key again returns the original response and sends no new prompt",
    "header",
)
_CHANNELS = "/payment-wallet/channels"
# Only a body can be too large.
_BODY = ("VALIDATION_ERROR", "PAYLOAD_TOO_LARGE")

ENDPOINTS = (
    Endpoint(
        "POST",
        "/payments/stk",
        initiate_stk,
        "STK",
        "Asking a customer to pay",
        "Initiate an STK prompt",
        _always(StkInitiated),
        _errors(
            *_BODY,
            "INVALID_PHONE",
            "NO_PAYMENT_CHANNELS",
            "NO_DEFAULT_CHANNEL",
            "INSUFFICIENT_SERVICE_BALANCE",
            "STK_TEMP_BANNED",
            "TRANSACTION_HEALTH_BLOCKED",
            CHANNEL_NOT_FOUND=400,
        ),
        body=StkBody,
        ends_as="prompt",
        calls_back=True,
        listed=True,
        shows_transaction=True,
    ),
    Endpoint(
        "POST",
        "/b2c/payouts",
        initiate_payout,
        "Payouts",
        "Paying out",
        "Initiate a payout",
        _always(PayoutInitiated),
        _errors(
            *_BODY,
            "INVALID_PHONE",
            "KYC_NOT_VERIFIED",
            "INSUFFICIENT_FUNDS",
            "INSUFFICIENT_SERVICE_BALANCE",
            CHANNEL_NOT_FOUND=400,
        ),
        body=PayoutBody,
        ends_as="payout",
        calls_back=True,
        listed=True,
        shows_transaction=True,
    ),
    Endpoint(
        "GET",
        "/transactions",
        list_transactions,
        "Transactions",
        "Listing payments",
        "List transactions",
        list_record,
        _errors("VALIDATION_ERROR"),
        parameters=_FILTERS,
        listed=True,
    ),
    Endpoint(
        "GET",
        "/transactions/{id}",
        read_transaction,
        "Transactions",
        "Asking how a payment went",
        "Read one transaction",
        read_record,
        _errors("TRANSACTION_NOT_FOUND"),
        shows_transaction=True,
    ),
    Endpoint(
        "POST",
        "/wallets/service/topups",
        top_up,
        "Service wallet",
        "Topping up the fee wallet",
        "Top up the service wallet",
        _always(StkInitiated),
        _errors(*_BODY, "INVALID_PHONE"),
        body=TopUpBody,
        parameters=(_IDEMPOTENCY_KEY,),
        ends_as="prompt",
        listed=True,
        shows_transaction=True,
    ),
    Endpoint(
        "GET",
        "/wallets/service/balance",
        read_balance,
        "Service wallet",
        "Reading the fee wallet",
        "Read the service wallet's balance",
        _always(ServiceBalance),
        _errors(),
    ),
    Endpoint(
        "GET",
        _CHANNELS,
        list_channels,
        "Channels",
        "Listing tills and paybills",
        "List payment channels",
        _always(ChannelList),
        _errors(),
    ),
    Endpoint(
        "POST",
        _CHANNELS,
        create_channel,
        "Channels",
        "Adding a till or paybill",
        "Create a payment channel",
        _always(PaymentChannel),
        _errors(*_BODY),
        body=NewChannelBody,
    ),
    Endpoint(
        "GET",
        f"{_CHANNELS}/{{id}}",
        read_channel,
        "Channels",
        "Reading a till or paybill",
        "Read one payment channel",
        _always(PaymentChannel),
        _errors("CHANNEL_NOT_FOUND"),
    ),
    Endpoint(
        "PATCH",
        f"{_CHANNELS}/{{id}}",
        change_channel,
        "Channels",
        "Changing a till or paybill",
        "Change a payment channel",
        _always(PaymentChannel),
        _errors(*_BODY, "CHANNEL_NOT_FOUND"),
        body=ChannelChangesBody,
    ),
    Endpoint(
        "DELETE",
        f"{_CHANNELS}/{{id}}",
        delete_channel,
        "Channels",
        "Removing a till or paybill",
        "Delete a payment channel",
        _always(Nothing),
        _errors("CHANNEL_NOT_FOUND", "CHANNEL_IN_USE"),
    ),
)


def success_status(endpoint: Endpoint, switches: Switches) -> int:
    """Return the status of a success; 204 has no body."""
    if endpoint.method == "DELETE" and switches.delete_answer == "empty":
        return 204
    return switches.created_status if endpoint.method == "POST" else 200


def errors_of(endpoint: Endpoint, switches: Switches) -> dict[str, int]:
    """Return the codes that an endpoint may answer under an account's switches, each with its status."""
    errors = dict(endpoint.errors)
    if "TRANSACTION_NOT_FOUND" in errors:
        errors["TRANSACTION_NOT_FOUND"] = switches.transaction_not_found_status
    if endpoint.method == "PATCH":
        errors[switches.patch_unknown_channel] = errors.pop("CHANNEL_NOT_FOUND")
    return errors
