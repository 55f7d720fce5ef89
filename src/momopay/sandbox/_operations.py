"""Every operation of the service as a plain function from a call to the data of its answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from momopay.sandbox import _channels, _payments, _serializers
from momopay.sandbox._bodies import (
    ChannelChangesBody,
    NewChannelBody,
    PayoutBody,
    StkBody,
    TopUpBody,
    read_body,
)
from momopay.sandbox._listing import list_page, read_filters
from momopay.sandbox._payments import LIST_LAG, NO_TWIST, Twist
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import Book, World


@dataclass(frozen=True, slots=True)
class Call:
    """One admitted request."""

    world: World
    book: Book
    now: datetime
    id: str
    query: Mapping[str, str]
    body: bytes
    idempotency_key: str | None
    twist: Twist = NO_TWIST


Operation = Callable[[Call], object]


def initiate_stk(call: Call) -> object:
    """POST /payments/stk."""
    body = read_body(StkBody, call.body)
    return _serializers.stk_initiated(_payments.initiate_stk(call.world, call.book, body, call.now, call.twist))


def initiate_payout(call: Call) -> object:
    """POST /b2c/payouts."""
    body = read_body(PayoutBody, call.body)
    return _serializers.payout_initiated(_payments.initiate_payout(call.world, call.book, body, call.now, call.twist))


def top_up(call: Call) -> object:
    """POST /wallets/service/topups; an accepted Idempotency-Key is answered as before, whatever the body says now."""
    if call.idempotency_key and (earlier := call.book.replays.get(call.idempotency_key)):
        return _serializers.stk_initiated(earlier)
    body = read_body(TopUpBody, call.body)
    return _serializers.stk_initiated(
        _payments.initiate_top_up(
            call.world, call.book, body, call.now, idempotency_key=call.idempotency_key, twist=call.twist
        )
    )


def list_transactions(call: Call) -> object:
    """GET /transactions."""
    filters = read_filters(call.query)
    if call.twist.list_lag:
        filters = replace(filters, created_by=call.now - timedelta(seconds=LIST_LAG))
    page = list_page(call.book, filters, call.now)
    snake = call.book.account.switches.naming == "snake_case"
    fee_field = "transaction_fee" if snake else "transactionFee"
    return {
        "overview": page.overview,
        "items": [_serializers.list_item(transaction, fee_field=fee_field) for transaction in page.items],
        "nextCursor": page.next_cursor,
    }


def read_transaction(call: Call) -> object:
    """GET /transactions/{id}; another account's transaction is as unknown as none."""
    transaction = call.world.transactions.get(call.id)
    switches = call.book.account.switches
    if transaction is None or transaction.tenant_id != call.book.account.tenant_id:
        status = switches.transaction_not_found_status
        raise Refusal("TRANSACTION_NOT_FOUND", "No such transaction", status=status)
    return (_serializers.read_snake if switches.naming == "snake_case" else _serializers.read_camel)(transaction)


def read_balance(call: Call) -> object:
    """GET /wallets/service/balance."""
    account = call.book.account
    wallet_id = str(uuid5(UUID(account.tenant_id), "service wallet"))
    return _serializers.balance_record(account, wallet_id, account.service_updated_at)


def list_channels(call: Call) -> object:
    """GET /payment-wallet/channels."""
    account = call.book.account
    channels = _channels.listed(account)
    return {"items": [_serializers.channel_record(channel, account.tenant_id) for channel in channels]}


def create_channel(call: Call) -> object:
    """POST /payment-wallet/channels."""
    account = call.book.account
    channel = _channels.create(account, read_body(NewChannelBody, call.body), call.now)
    call.world.version += 1
    return _serializers.channel_record(channel, account.tenant_id)


def read_channel(call: Call) -> object:
    """GET /payment-wallet/channels/{id}."""
    account = call.book.account
    return _serializers.channel_record(_channels.found(account, call.id), account.tenant_id)


def change_channel(call: Call) -> object:
    """PATCH /payment-wallet/channels/{id}."""
    account = call.book.account
    channel = _channels.found(account, call.id, code=account.switches.patch_unknown_channel)
    _channels.change(account, channel, read_body(ChannelChangesBody, call.body))
    call.world.version += 1
    return _serializers.channel_record(channel, account.tenant_id)


def delete_channel(call: Call) -> object:
    """DELETE /payment-wallet/channels/{id}."""
    _channels.delete(_channels.found(call.book.account, call.id), call.book.linked_channels)
    call.world.version += 1
    return {}
