"""Every operation of the service, as a plain function from a call to the record that answers it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from momopay.sandbox import _channels, _payments
from momopay.sandbox._bodies import ChannelChangesBody, NewChannelBody, PayoutBody, StkBody, TopUpBody, read_body
from momopay.sandbox._list_styles import StyledList, is_styled, styled
from momopay.sandbox._listing import list_page, parse_filters
from momopay.sandbox._payments import LIST_LAG, NO_EFFECTS, FaultEffects
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._serializers import (
    ChannelList,
    Nothing,
    PaymentChannel,
    PayoutInitiated,
    ServiceBalance,
    SnakeFeeItem,
    SnakeRecord,
    SnakeTransactionRead,
    StkInitiated,
    TransactionItem,
    TransactionList,
    TransactionRead,
)
from momopay.sandbox._state import AccountState, ServiceState


@dataclass(frozen=True, slots=True)
class Call:
    """One admitted request; `account_state` is that of the account which calls."""

    state: ServiceState
    account_state: AccountState
    now: datetime
    id: str
    query: Mapping[str, str]
    body: bytes
    idempotency_key: str | None
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


def list_transactions(call: Call) -> TransactionList[TransactionItem] | TransactionList[SnakeFeeItem] | StyledList:
    """GET /transactions."""
    filters = parse_filters(call.query)
    # A bound on creation also keeps the overview in step with the items, as a lagging replica would.
    if call.effects.list_lag:
        filters = replace(filters, created_by=call.now - timedelta(seconds=LIST_LAG))
    page = list_page(call.account_state, filters, call.now)
    switches = call.account_state.account.switches
    snake_case = switches.naming == "snake_case"
    if is_styled(switches):
        kind = SnakeFeeItem if snake_case else TransactionItem
        items = [styled(kind.model_validate(transaction), switches) for transaction in page.items]
        return StyledList(overview=page.overview, items=items, nextCursor=page.next_cursor)
    if snake_case:
        return TransactionList[SnakeFeeItem].model_validate(page)
    return TransactionList[TransactionItem].model_validate(page)


def read_transaction(call: Call) -> TransactionRead | SnakeTransactionRead:
    """GET /transactions/{id}."""
    transaction = call.state.transactions.get(call.id)
    switches = call.account_state.account.switches
    # Another account's transaction is as unknown as none: else ids could be probed for.
    if transaction is None or transaction.tenant_id != call.account_state.account.tenant_id:
        status = switches.transaction_not_found_status
        raise Refusal("TRANSACTION_NOT_FOUND", "No such transaction", status=status)
    if switches.naming == "snake_case":
        return SnakeTransactionRead.model_validate(transaction)
    return TransactionRead.model_validate(transaction)


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
    _channels.change(account, channel, read_body(ChannelChangesBody, call.body))
    call.state.version += 1
    return PaymentChannel.of(channel, account.tenant_id)


def delete_channel(call: Call) -> Nothing:
    """DELETE /payment-wallet/channels/{id}."""
    channel = _channels.find(call.account_state.account, call.id)
    _channels.delete(channel, call.account_state.linked_channels)
    call.state.version += 1
    return Nothing()
