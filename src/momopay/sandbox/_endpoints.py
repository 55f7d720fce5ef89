"""The table of the service's endpoints, `ENDPOINTS`. Each row decorates the function that answers the call.

The routes, the OpenAPI document, the faults that can be planned and the lists of the page are made from it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from momopay.sandbox import _payments
from momopay.sandbox._accounts import Account, Channel, Switches
from momopay.sandbox._bodies import (
    Body,
    ChannelChangesBody,
    NewChannelBody,
    PayoutBody,
    StkBody,
    TopUpBody,
    parse_json,
    read_body,
)
from momopay.sandbox._listing import CURSOR, KINDS, STATUSES, list_page, parse_filters
from momopay.sandbox._payments import LIST_LAG, Call
from momopay.sandbox._refusals import STATUS_BY_CODE, Refusal, invalid_field
from momopay.sandbox._serializers import (
    ChannelList,
    Nothing,
    PaymentChannel,
    PayoutInitiated,
    ServiceBalance,
    SnakeRecord,
    StkInitiated,
    list_record,
    read_record,
)

Operation = Callable[[Call], SnakeRecord]
Parameter = Mapping[str, object]


@dataclass(slots=True)
class Endpoint:
    """One row. The docstring of the operation is its summary in the OpenAPI document, `title` its name on the page.

    `errors` are its own codes, each with its status if that is not the usual one. `ends_as` is the kind of payment that
    it creates. `listed` and `shows_transaction` are for reads. These three decide which faults fit it.
    """

    method: str
    path: str
    tag: str
    title: str
    record: type[SnakeRecord] | None = None
    record_for: Callable[[Switches], type[SnakeRecord]] | None = None  # in place of `record`, if switches decide
    body: type[Body] | None = None
    parameters: tuple[Parameter, ...] = ()
    errors: Sequence[str | tuple[str, int]] = ()
    ends_as: Literal["prompt", "payout"] | None = None
    listed: bool = False
    shows_transaction: bool = False
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
    def calls_back(self) -> bool:
        return self.body is not None and "callback_url" in self.body.model_fields

    def record_under(self, switches: Switches) -> type[SnakeRecord]:
        """Return the record of a success under an account's switches."""
        return self.record_for(switches) if self.record_for else self.record or Nothing

    def status_under(self, switches: Switches) -> int:
        """Return the status of a success. A 204 has no body."""
        if self.method == "DELETE" and switches.delete_answer == "empty":
            return 204
        return switches.created_status if self.method == "POST" else 200

    def errors_under(self, switches: Switches) -> Iterator[tuple[str, int]]:
        """Yield the codes of its refusals, each with its status."""
        # Every operation needs a key and has a rate limit, and only a body can be too large.
        common = ("INVALID_API_KEY", "RATE_LIMIT_EXCEEDED", *(("PAYLOAD_TOO_LARGE",) if self.body else ()))
        for each in (*self.errors, *common):
            code, status = (each, STATUS_BY_CODE[each]) if isinstance(each, str) else each
            if code == "TRANSACTION_NOT_FOUND":
                status = switches.transaction_not_found_status
            if self.method == "PATCH" and code == "CHANNEL_NOT_FOUND":
                code = switches.patch_unknown_channel
            yield code, status


ENDPOINTS: list[Endpoint] = []


def _parameter(name: str, description: str, place: str = "query", **schema: object) -> Parameter:
    """Return the OpenAPI description of a query parameter or header, none of which pydantic parses."""
    return {"name": name, "in": place, "required": False, "schema": schema, "description": description}


_FILTERS = (
    _parameter("limit", "Page size", type="integer", minimum=1, maximum=100, default=20),
    _parameter("cursor", "The nextCursor of the previous response", type="string", pattern=f"^{CURSOR}$"),
    _parameter("status", "One status", type="string", enum=list(STATUSES)),
    _parameter("type", "One type; top-ups cannot be asked for", type="string", enum=list(KINDS)),
    # A date is accepted too, which the format cannot say.
    _parameter("from", "Created at or after; a date is its beginning", type="string", format="date-time"),
    _parameter("to", "Created at or before; a date is its end", type="string", format="date-time"),
    _parameter("channelId", "Routed through this channel", type="string"),
    _parameter("amountMin", "KES, inclusive", type="number"),
    _parameter("amountMax", "KES, inclusive", type="number"),
    _parameter("q", "Text in reference, phone, description or id; case does not matter", type="string"),
)
_SAME_KEY = "The same key again returns the original response and sends no new prompt"
_IDEMPOTENCY_KEY = _parameter("Idempotency-Key", _SAME_KEY, "header", type="string")
_CHANNELS = "/payment-wallet/channels"
_NO_CHANNEL = ("CHANNEL_NOT_FOUND", 400)  # on payments; it is 404 on channels


@Endpoint(
    "POST",
    "/payments/stk",
    "STK",
    "Asking a customer to pay",
    record=StkInitiated,
    body=StkBody,
    errors=(
        *("VALIDATION_ERROR", "INVALID_PHONE", "NO_PAYMENT_CHANNELS", "NO_DEFAULT_CHANNEL", _NO_CHANNEL),
        *("INSUFFICIENT_SERVICE_BALANCE", "STK_TEMP_BANNED", "TRANSACTION_HEALTH_BLOCKED"),
    ),
    ends_as="prompt",
)
def initiate_stk(call: Call) -> SnakeRecord:
    """Initiate an STK prompt."""
    return StkInitiated.model_validate(_payments.initiate_stk(call, read_body(StkBody, call.body)))


@Endpoint(
    "POST",
    "/b2c/payouts",
    "Payouts",
    "Paying out",
    record=PayoutInitiated,
    body=PayoutBody,
    errors=(
        *("VALIDATION_ERROR", "INVALID_PHONE", _NO_CHANNEL),
        *("KYC_NOT_VERIFIED", "INSUFFICIENT_FUNDS", "INSUFFICIENT_SERVICE_BALANCE"),
    ),
    ends_as="payout",
)
def initiate_payout(call: Call) -> SnakeRecord:
    """Initiate a payout."""
    return PayoutInitiated.model_validate(_payments.initiate_payout(call, read_body(PayoutBody, call.body)))


@Endpoint(
    "GET",
    "/transactions",
    "Transactions",
    "Listing payments",
    record_for=list_record,
    parameters=_FILTERS,
    errors=("VALIDATION_ERROR",),
    listed=True,
)
def list_transactions(call: Call) -> SnakeRecord:
    """List transactions."""
    filters = parse_filters(call.query)
    # Limiting the time of creation also changes the overview, as a lagging replica would.
    if call.list_lag:
        lag = call.now - timedelta(seconds=LIST_LAG)
        filters = replace(filters, until=min(lag, filters.until or lag))
    page = list_page(call.account_state, filters, call.now)
    return list_record(call.account_state.account.switches).model_validate(page)


@Endpoint(
    "GET",
    "/transactions/{id}",
    "Transactions",
    "Asking how a payment went",
    record_for=read_record,
    errors=("TRANSACTION_NOT_FOUND",),
    shows_transaction=True,
)
def read_transaction(call: Call) -> SnakeRecord:
    """Read one transaction."""
    transaction = call.state.transactions.get(call.id)
    account = call.account_state.account
    # Another account's transaction looks like a missing one, or else ids could be guessed.
    if transaction is None or transaction.tenant_id != account.tenant_id:
        status = account.switches.transaction_not_found_status
        raise Refusal("TRANSACTION_NOT_FOUND", status=status)
    return read_record(account.switches).model_validate(transaction)


@Endpoint(
    "POST",
    "/wallets/service/topups",
    "Service wallet",
    "Topping up the fee wallet",
    record=StkInitiated,
    body=TopUpBody,
    parameters=(_IDEMPOTENCY_KEY,),
    errors=("VALIDATION_ERROR", "INVALID_PHONE"),
    ends_as="prompt",
)
def top_up(call: Call) -> SnakeRecord:
    """Top up the service wallet."""
    # Only the key decides, even if the body differs, because no comparison of bodies is specified.
    history, key = call.account_state.history, call.idempotency_key
    transaction = next((each for each in history if key and each.idempotency_key == key), None)
    if transaction is None:
        transaction = _payments.initiate_top_up(call, read_body(TopUpBody, call.body))
    return StkInitiated.model_validate(transaction)


@Endpoint("GET", "/wallets/service/balance", "Service wallet", "Reading the fee wallet", record=ServiceBalance)
def read_balance(call: Call) -> SnakeRecord:
    """Read the service wallet's balance."""
    return ServiceBalance.model_validate(call.account_state.account)


@Endpoint("GET", _CHANNELS, "Channels", "Listing tills and paybills", record=ChannelList)
def list_channels(call: Call) -> SnakeRecord:
    """List payment channels."""
    account = call.account_state.account
    newest_first = [*account.live_channels()][::-1]
    channels = sorted(newest_first, key=lambda channel: not channel.is_default)
    return ChannelList(items=[PaymentChannel.of(channel, account.tenant_id) for channel in channels])


@Endpoint(
    "POST",
    _CHANNELS,
    "Channels",
    "Adding a till or paybill",
    record=PaymentChannel,
    body=NewChannelBody,
    errors=("VALIDATION_ERROR",),
)
def create_channel(call: Call) -> SnakeRecord:
    """Create a payment channel."""
    account, body = call.account_state.account, read_body(NewChannelBody, call.body)
    channel = Channel(
        type=body.type,
        shortcode=body.shortcode,
        name=body.name,
        account_number=_payments.account_number_of(body.type, body.account_number),
        created_at=call.now,
    )
    account.channels.append(channel)
    if body.is_default:
        _make_default(account, channel)
    # A new version makes `commit` save the change.
    call.state.version += 1
    return PaymentChannel.of(channel, account.tenant_id)


def _make_default(account: Account, channel: Channel) -> None:
    for other in account.channels:
        other.is_default = other is channel


@Endpoint(
    "GET",
    f"{_CHANNELS}/{{id}}",
    "Channels",
    "Reading a till or paybill",
    record=PaymentChannel,
    errors=("CHANNEL_NOT_FOUND",),
)
def read_channel(call: Call) -> SnakeRecord:
    """Read one payment channel."""
    account = call.account_state.account
    return PaymentChannel.of(_payments.find_channel(account, call.id), account.tenant_id)


@Endpoint(
    "PATCH",
    f"{_CHANNELS}/{{id}}",
    "Channels",
    "Changing a till or paybill",
    record=PaymentChannel,
    body=ChannelChangesBody,
    errors=("VALIDATION_ERROR", ("VALIDATION_ERROR", 409), "CHANNEL_NOT_FOUND"),
)
def change_channel(call: Call) -> SnakeRecord:
    """Change a payment channel."""
    account = call.account_state.account
    channel = _payments.find_channel(account, call.id, code=account.switches.patch_unknown_channel)
    body = read_body(ChannelChangesBody, call.body)
    sent = body.model_fields_set
    if account.switches.immutable_channel_fields == "refuse":
        fields = parse_json(call.body)
        for name in ("type", "shortcode"):
            # Sending the same value again changes nothing, so it is not refused.
            if fields.get(name, getattr(channel, name)) != getattr(channel, name):
                raise invalid_field(name, "cannot be changed after creation")
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
    return PaymentChannel.of(channel, account.tenant_id)


@Endpoint(
    "DELETE",
    f"{_CHANNELS}/{{id}}",
    "Channels",
    "Removing a till or paybill",
    record=Nothing,
    errors=("CHANNEL_NOT_FOUND", "CHANNEL_IN_USE"),
)
def delete_channel(call: Call) -> SnakeRecord:
    """Delete a payment channel."""
    channel = _payments.find_channel(call.account_state.account, call.id)
    if channel.customers or channel.id in {each.channel_id for each in call.account_state.history}:
        raise Refusal("CHANNEL_IN_USE")
    # Kept, because old transactions name its id.
    channel.deleted, channel.is_default = True, False
    call.state.version += 1
    return Nothing()
