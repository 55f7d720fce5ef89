"""The table of the service's endpoints, `ENDPOINTS`. Each row decorates the function that answers the call.

The routes, the OpenAPI document, the faults that can be planned and the lists of the page are made from it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

from momopay.sandbox import _payments
from momopay.sandbox._accounts import Account, Channel, ChannelType, Switches
from momopay.sandbox._bodies import (
    IDEMPOTENCY_KEY_LIMIT,
    B2cTopUpBody,
    Body,
    ChannelChangesBody,
    NewChannelBody,
    PayoutBody,
    StkBody,
    TopUpBody,
    parse_json,
)
from momopay.sandbox._listing import CURSOR, kinds_under, list_page, parse_filters, statuses_under
from momopay.sandbox._payments import LIST_LAG, Call
from momopay.sandbox._records import Kind
from momopay.sandbox._refusals import STATUS_BY_CODE, Refusal, check_wallet, code_under, invalid_field
from momopay.sandbox._serializers import record_under

Record = dict[str, Any]
Operation = Callable[[Call], Record]
Parameter = Mapping[str, object]


@dataclass(slots=True)
class Endpoint:
    """One row. The docstring of the operation is its summary in the OpenAPI document and on the page.

    `errors` are its own codes, each with its status if that is not the usual one. `more_errors` are those that only the
    operator's contract has.
    """

    method: str
    path: str
    tag: str
    record: str = "Nothing"
    body: type[Body] | None = None
    errors: Sequence[str | tuple[str, int]] = ()
    more_errors: tuple[str, ...] = ()  # under the switch `more_codes`
    needs: str = ""  # the switch that must be on for it
    operation: Operation = field(init=False)

    def __call__(self, operation: Operation) -> Operation:
        """Add the row to the table, with its operation."""
        self.operation = operation
        ENDPOINTS.append(self)
        return operation

    @property
    def name(self) -> str:
        return self.operation.__name__

    @property
    def summary(self) -> str:
        return (self.operation.__doc__ or "").rstrip(".")

    @property
    def ends_as(self) -> str | None:
        """The kind of payment that it creates, if it creates one."""
        return {"StkInitiated": "prompt", "TopUpInitiated": "prompt", "PayoutInitiated": "payout"}.get(self.record)

    @property
    def calls_back(self) -> bool:
        return self.body is not None and "callback_url" in self.body.model_fields

    def exists_under(self, switches: Switches) -> bool:
        return not self.needs or bool(getattr(switches, self.needs))

    def status_under(self, switches: Switches) -> int:
        """Return the status of a success. A 204 has no body."""
        if self.method == "DELETE" and switches.delete_answer == "empty":
            return 204
        return switches.created_status if self.method == "POST" else 200

    def errors_under(self, switches: Switches) -> Iterator[tuple[str, int]]:
        """Yield the codes of its refusals, each with its status."""
        # Every operation needs a key and has a rate limit, and only a body can be too large.
        common = ("INVALID_API_KEY", switches.rate_limit_code, *(("PAYLOAD_TOO_LARGE",) if self.body else ()))
        ids = ("INVALID_UUID",) if switches.invalid_uuid and "{id}" in self.path else ()
        keys = ("INVALID_IDEMPOTENCY_KEY", "DUPLICATE_IDEMPOTENCY_KEY") if self._compares_keys(switches) else ()
        others = (*_MORE_CODES, *self.more_errors) if switches.more_codes else ()
        others += ("KYC_NOT_VERIFIED",) if switches.prompt_kyc and self.record == "StkInitiated" else ()
        for each in dict.fromkeys((*self.errors, *common, *ids, *keys, *others)):
            code, status = (each, STATUS_BY_CODE[each]) if isinstance(each, str) else each
            if code == "TRANSACTION_NOT_FOUND":
                status = switches.transaction_not_found_status
            if self.method == "PATCH" and code == "CHANNEL_NOT_FOUND":
                code = switches.patch_unknown_channel
            yield code_under(code, status, switches.error_messages), status

    def parameters_under(self, switches: Switches) -> tuple[Parameter, ...]:
        if self.record == "TransactionList":
            return tuple(_filters_under(switches))
        if self.record == "TopUpInitiated":
            return (_STRICT_KEY,) if self._compares_keys(switches) else (_TOP_UP_KEY,)
        return (_PAYOUT_KEY,) if self._compares_keys(switches) else ()

    def _compares_keys(self, switches: Switches) -> bool:
        if self.record == "TopUpInitiated":
            return switches.topup_keys == "same_body"
        return self.ends_as == "payout" and switches.payout_keys != "ignored"


ENDPOINTS: list[Endpoint] = []


def _parameter(name: str, description: str, place: str = "query", **schema: object) -> Parameter:
    """Return the OpenAPI description of a query parameter or header, none of which pydantic parses."""
    return {"name": name, "in": place, "required": False, "schema": schema, "description": description}


def _filters_under(switches: Switches) -> Iterator[Parameter]:
    statuses, kinds = list(statuses_under(switches)), list(kinds_under(switches))
    yield _parameter("limit", "Page size", type="integer", minimum=1, maximum=100, default=20)
    yield _parameter("cursor", f"The {switches.cursor_field} of the previous response", type="string", pattern=_CURSOR)
    yield _parameter("status", "One status", type="string", enum=statuses)
    yield _parameter("type", "One type", type="string", enum=kinds)
    if switches.time_filters:
        # A date is accepted too, which the format cannot say.
        yield _parameter("from", "Created at or after; a date is its beginning", type="string", format="date-time")
        yield _parameter("to", "Created at or before; a date is its end", type="string", format="date-time")
    yield _parameter("channelId", "Routed through this channel", type="string")
    yield _parameter("amountMin", "KES, inclusive", type="number")
    yield _parameter("amountMax", "KES, inclusive", type="number")
    text = "Text in reference, phone, description or id; case does not matter"
    yield _parameter("q", text, type="string")


_CURSOR = f"^{CURSOR}$"
_SAME_KEY = "The same key again returns the original response and sends no new prompt"
_SAME_BODY = "The same key and body again return the original response and send no new prompt"
_SAME_PAYOUT = "The same key and body again return the original response and send no second payout"
_TOP_UP_KEY = _parameter("Idempotency-Key", _SAME_KEY, "header", type="string")
_STRICT_KEY = _parameter("Idempotency-Key", _SAME_BODY, "header", type="string", maxLength=IDEMPOTENCY_KEY_LIMIT)
_PAYOUT_KEY = _parameter("Idempotency-Key", _SAME_PAYOUT, "header", type="string", maxLength=IDEMPOTENCY_KEY_LIMIT)
# What any request may be refused with, under the switch `more_codes`.
_MORE_CODES = ("AUTH_HEADER_INVALID", "TENANT_INACTIVE", "ACCOUNT_INACTIVE", "INSUFFICIENT_SCOPE")
_CREDENTIAL = ("CREDENTIAL_NOT_FOUND", "CREDENTIAL_INACTIVE")
_WALLET = ("WALLET_NOT_FOUND", "WALLET_INACTIVE")
_FIXED = ("type", "shortcode")
_CHANNELS = "/payment-wallet/channels"
_NO_CHANNEL = ("CHANNEL_NOT_FOUND", 400)  # on payments; it is 404 on channels
# What the two paths of a prompt share, and the top-ups of both wallets.
_PROMPT = partial(
    Endpoint,
    record="StkInitiated",
    body=StkBody,
    errors=(
        *("VALIDATION_ERROR", "INVALID_PHONE", "NO_PAYMENT_CHANNELS", "NO_DEFAULT_CHANNEL", _NO_CHANNEL),
        *("INSUFFICIENT_SERVICE_BALANCE", "STK_TEMP_BANNED", "TRANSACTION_HEALTH_BLOCKED"),
    ),
    more_errors=(*_CREDENTIAL, *_WALLET),
)
_TOP_UP = partial(Endpoint, record="TopUpInitiated", errors=("VALIDATION_ERROR", "INVALID_PHONE"), more_errors=_WALLET)


def _shown(record: str, subject: object, call: Call) -> Record:
    """Return the record of an object as the account's switches show it."""
    return record_under(record, call.switches).model_validate(subject).model_dump()


def _shown_channel(channel: Channel, call: Call) -> Record:
    # A channel does not know its account itself.
    tenant_id = call.account_state.account.tenant_id
    return _shown("PaymentChannel", {**channel.model_dump(), "tenant_id": tenant_id}, call)


@_PROMPT("POST", "/payments/stk", "STK")
def initiate_stk(call: Call) -> Record:
    """Initiate an STK prompt."""
    return _shown("StkInitiated", _payments.initiate_stk(call, call.read(StkBody)), call)


@_PROMPT("POST", "/payments/stk/initiate", "STK", needs="more_endpoints")
def initiate_stk_by_its_other_path(call: Call) -> Record:
    """Initiate an STK prompt; the same as /payments/stk."""
    return initiate_stk(call)


@Endpoint(
    "POST",
    "/b2c/payouts",
    "Payouts",
    record="PayoutInitiated",
    body=PayoutBody,
    errors=(
        *("VALIDATION_ERROR", "INVALID_PHONE", _NO_CHANNEL),
        *("KYC_NOT_VERIFIED", "INSUFFICIENT_FUNDS", "INSUFFICIENT_SERVICE_BALANCE"),
    ),
    more_errors=("UNSUPPORTED_CURRENCY", *_CREDENTIAL, *_WALLET),
)
def initiate_payout(call: Call) -> Record:
    """Initiate a payout."""
    return _shown("PayoutInitiated", _payments.initiate_payout(call, call.read(PayoutBody)), call)


@Endpoint(
    "GET",
    "/transactions",
    "Transactions",
    record="TransactionList",
    errors=("VALIDATION_ERROR",),
    more_errors=("INVALID_CURSOR",),
)
def list_transactions(call: Call) -> Record:
    """List transactions."""
    filters = parse_filters(call.query, call.switches)
    # Limiting the time of creation also changes the overview, as a lagging replica would.
    if call.list_lag:
        lag = call.now - timedelta(seconds=LIST_LAG)
        filters = replace(filters, until=min(lag, filters.until or lag))
    return _shown("TransactionList", list_page(call.account_state, filters, call.now), call)


@Endpoint(
    "GET",
    "/transactions/{id}",
    "Transactions",
    record="TransactionRead",
    errors=("TRANSACTION_NOT_FOUND",),
)
def read_transaction(call: Call) -> Record:
    """Read one transaction."""
    transaction = call.state.transactions.get(call.id)
    # Another account's transaction looks like a missing one, or else ids could be guessed.
    if transaction is None or transaction.tenant_id != call.account_state.account.tenant_id:
        raise Refusal("TRANSACTION_NOT_FOUND", status=call.switches.transaction_not_found_status)
    return _shown("TransactionRead", transaction, call)


@_TOP_UP("POST", "/wallets/service/topups", "Service wallet", body=TopUpBody)
def top_up(call: Call) -> Record:
    """Top up the service wallet."""
    return _shown("TopUpInitiated", _payments.initiate_top_up(call, Kind.WALLET_TOPUP), call)


@Endpoint("GET", "/wallets/service/balance", "Service wallet", record="ServiceBalance", more_errors=_WALLET)
def read_balance(call: Call) -> Record:
    """Read the service wallet's balance."""
    check_wallet(call.account_state.account.service_wallet)
    return _shown("ServiceBalance", call.account_state.account, call)


@_TOP_UP("POST", "/wallets/b2c/topups", "Payout wallet", body=B2cTopUpBody, needs="more_endpoints")
def top_up_b2c(call: Call) -> Record:
    """Top up the payout wallet."""
    return _shown("TopUpInitiated", _payments.initiate_top_up(call, Kind.WALLET_TOPUP_B2C), call)


@Endpoint(
    "GET",
    "/wallets/b2c/balance",
    "Payout wallet",
    record="B2cBalance",
    more_errors=_WALLET,
    needs="more_endpoints",
)
def read_b2c_balance(call: Call) -> Record:
    """Read the payout wallet's balance."""
    check_wallet(call.account_state.account.b2c_wallet)
    return _shown("B2cBalance", call.account_state.account, call)


@Endpoint("GET", _CHANNELS, "Channels", record="ChannelList", needs="channel_reads")
def list_channels(call: Call) -> Record:
    """List payment channels."""
    account = call.account_state.account
    newest_first = [*account.live_channels()][::-1]
    channels = sorted(newest_first, key=lambda channel: not channel.is_default)
    return {"items": [_shown_channel(channel, call) for channel in channels]}


@Endpoint(
    "POST",
    _CHANNELS,
    "Channels",
    record="PaymentChannel",
    body=NewChannelBody,
    errors=("VALIDATION_ERROR",),
    more_errors=("DUPLICATE_SHORTCODE",),
)
def create_channel(call: Call) -> Record:
    """Create a payment channel."""
    account, body = call.account_state.account, call.read(NewChannelBody)
    channel = Channel(
        type=cast("ChannelType", body.type),
        shortcode=body.shortcode,
        name=body.name,
        account_number=_payments.account_number_of(body.type, body.account_number),
        created_at=call.now,
    )
    same = (channel.shortcode, channel.account_number)
    if call.switches.more_codes and same in {(each.shortcode, each.account_number) for each in account.live_channels()}:
        raise Refusal("DUPLICATE_SHORTCODE")
    account.channels.append(channel)
    if body.is_default:
        _make_default(account, channel)
    # A new version makes `commit` save the change.
    call.state.version += 1
    return _shown_channel(channel, call)


def _make_default(account: Account, channel: Channel) -> None:
    for other in account.channels:
        other.is_default = other is channel


@Endpoint(
    "GET",
    f"{_CHANNELS}/{{id}}",
    "Channels",
    record="PaymentChannel",
    errors=("CHANNEL_NOT_FOUND",),
    needs="channel_reads",
)
def read_channel(call: Call) -> Record:
    """Read one payment channel."""
    return _shown_channel(_payments.find_channel(call.account_state.account, call.id), call)


@Endpoint(
    "PATCH",
    f"{_CHANNELS}/{{id}}",
    "Channels",
    record="PaymentChannel",
    body=ChannelChangesBody,
    errors=("VALIDATION_ERROR", ("VALIDATION_ERROR", 409), "CHANNEL_NOT_FOUND"),
    more_errors=("EMPTY_UPDATE",),
)
def change_channel(call: Call) -> Record:
    """Change a payment channel."""
    account = call.account_state.account
    channel = _payments.find_channel(account, call.id, code=account.switches.patch_unknown_channel)
    body = call.read(ChannelChangesBody)
    sent = body.model_fields_set
    fields = parse_json(call.body)
    if account.switches.immutable_channel_fields == "refuse":
        for name in _FIXED:
            # Sending the same value again changes nothing, so it is not refused.
            if fields.get(name, getattr(channel, name)) != getattr(channel, name):
                raise invalid_field(name, "cannot be changed after creation")
    if call.switches.more_codes and not sent and not fields.keys() & set(_FIXED):
        raise Refusal("EMPTY_UPDATE")
    if "account_number" in sent:
        # 409, because the body is valid and only does not fit this channel.
        channel.account_number = _payments.account_number_of(channel.type, body.account_number, status=409)
    if "name" in sent:
        channel.name = body.name
    if body.is_default:
        _make_default(account, channel)
    elif "is_default" in sent:
        channel.is_default = False
    call.state.version += 1
    return _shown_channel(channel, call)


@Endpoint(
    "DELETE",
    f"{_CHANNELS}/{{id}}",
    "Channels",
    errors=("CHANNEL_NOT_FOUND", "CHANNEL_IN_USE"),
)
def delete_channel(call: Call) -> Record:
    """Delete a payment channel."""
    channel = _payments.find_channel(call.account_state.account, call.id)
    if channel.customers or channel.id in {each.channel_id for each in call.account_state.history}:
        raise Refusal("CHANNEL_IN_USE")
    # Kept, because old transactions name its id.
    channel.deleted, channel.is_default = True, False
    call.state.version += 1
    return {}
