"""Payment channels, and how STK prompts, payouts and top-ups are accepted.

The checks are in the order that docs/test/sandbox.md gives. Everything that can refuse comes before the first change: a
refused payment leaves no trace.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from momopay.sandbox._accounts import Account, Channel, Credential
from momopay.sandbox._bodies import (
    ChannelChangesBody,
    NewChannelBody,
    PayoutBody,
    StkBody,
    TopUpBody,
    normalise_phone,
    parse_json,
    read_body,
)
from momopay.sandbox._hosts import check_callback_url
from momopay.sandbox._lifecycle import provider_ids
from momopay.sandbox._outcomes import outcome_for, plan
from momopay.sandbox._records import Kind, MovementKind, Transaction
from momopay.sandbox._refusals import CODES, Refusal, invalid_field
from momopay.sandbox._state import AccountState, ServiceState
from momopay.sandbox._throttling import is_abuse


def channels_in_order(account: Account) -> list[Channel]:
    """Return the default channel first, then newest to oldest."""
    newest_first = list(account.live_channels())[::-1]
    return sorted(newest_first, key=lambda channel: not channel.is_default)


def find_channel(account: Account, channel_id: str, *, code: str = "CHANNEL_NOT_FOUND", status: int = 404) -> Channel:
    """Return the live channel with that id."""
    for channel in account.live_channels():
        if channel.id == channel_id:
            return channel
    raise Refusal(code, CODES["CHANNEL_NOT_FOUND"][1], status=status)


def create_channel(account: Account, body: NewChannelBody, now: datetime) -> Channel:
    """Add a channel and return it."""
    channel = Channel(
        type=body.type,
        shortcode=body.shortcode,
        name=body.name,
        account_number=_account_number(body.type, body.account_number),
        created_at=now,
    )
    account.channels.append(channel)
    if body.is_default:
        make_default(account, channel)
    return channel


def change_channel(account: Account, channel: Channel, raw: bytes) -> None:
    """Change the fields that were sent in a body, and only those."""
    body = read_body(ChannelChangesBody, raw)
    sent = body.model_fields_set
    if account.switches.immutable_channel_fields == "refuse":
        fields = parse_json(raw)
        for name in ("type", "shortcode"):
            # The same value again is no change, and so no reason to refuse.
            if fields.get(name, getattr(channel, name)) != getattr(channel, name):
                raise invalid_field(name, "cannot be changed after creation")
    if "account_number" in sent:
        # 409: the body is right, and only does not fit this channel.
        channel.account_number = _account_number(channel.type, body.account_number, status=409)
    if "name" in sent:
        channel.name = body.name
    if body.is_default:
        make_default(account, channel)
    elif "is_default" in sent:
        channel.is_default = False


def make_default(account: Account, channel: Channel) -> None:
    """Move the default flag to this channel."""
    for other in account.channels:
        other.is_default = other is channel


def delete_channel(channel: Channel, linked: Collection[str | None]) -> None:
    """Soft-delete a channel."""
    if channel.id in linked or channel.customers:
        raise Refusal("CHANNEL_IN_USE")
    # Kept, because the id must stay in use: transactions of the past name it.
    channel.deleted, channel.is_default = True, False


def select_for_stk(account: Account, channel_id: str | None, credential_id: str | None) -> Channel | None:
    """Return the channel of an STK request; None only where a credential profile has to do without one."""
    if channel_id is not None:
        return find_channel(account, channel_id, status=400)
    channels = list(account.live_channels())
    # The default comes before the credential profile: the channel, where there is one, is the receiving party.
    for channel in channels:
        if channel.is_default:
            return channel
    if credential_id is not None:
        return None
    if channels:
        raise Refusal("NO_DEFAULT_CHANNEL")
    raise Refusal("NO_PAYMENT_CHANNELS")


def _account_number(channel_type: str, account_number: str | None, status: int = 400) -> str | None:
    if channel_type == "PAYBILL" and not account_number:
        raise invalid_field("accountNumber", "is required for a PAYBILL channel", status)
    # TILL_NUMBER has none, so what was sent for it is dropped and never shown.
    return None if channel_type == "TILL_NUMBER" else account_number


LIST_LAG = 60.0  # virtual seconds
# Used where neither a channel nor a credential profile decides.
PLATFORM_SHORTCODE = "600000"
PLATFORM_TRANSACTION_TYPE = "CustomerPayBillOnline"
_TRANSACTION_TYPES = {"PAYBILL": "CustomerPayBillOnline", "TILL_NUMBER": "CustomerBuyGoodsOnline"}


@dataclass(frozen=True, slots=True)
class FaultEffects:
    """What a fault does to an accepted payment: its callback goes wrong, or lists show it late."""

    callback_mode: str = ""
    list_lag: bool = False


NO_EFFECTS = FaultEffects()


def initiate_stk(
    state: ServiceState, account_state: AccountState, body: StkBody, now: datetime, effects: FaultEffects = NO_EFFECTS
) -> Transaction:
    """Send a PIN prompt; the fee is deducted at once."""
    account = account_state.account
    if account.switches.strict_fields:
        body.require_all()
    phone = normalise_phone(body.phone)
    callback_url = _callback_url(state, account, body.callback_url)
    channel = select_for_stk(account, body.channel_id, body.credential_id)
    account_state.health.check(now)
    if is_abuse(reversed(account_state.history), account.switches, now):
        account_state.health.ban(now)
        # The one refusal that changes something: without a new version the ban would not be saved.
        state.version += 1
        account_state.health.check(now)
    _check_fee(account)
    # An unknown profile is taken with its defaults: the service has no endpoint that would make one.
    profile = Credential()
    if body.credential_id is not None:
        profile = account.credentials.get(body.credential_id, profile)
    transaction_type = profile.transaction_type or PLATFORM_TRANSACTION_TYPE
    if channel is not None:
        transaction_type = _TRANSACTION_TYPES.get(channel.type, PLATFORM_TRANSACTION_TYPE)
    shortcode = channel.shortcode if channel else profile.shortcode
    transaction = _new_transaction(state, account_state, Kind.STK, body, now, phone, effects, shortcode)
    transaction.reference, transaction.description = body.account_reference or "", body.transaction_desc or ""
    transaction.transaction_type, transaction.callback_url = transaction_type, callback_url
    transaction.channel_id, transaction.fee = channel.id if channel else None, account.fee
    transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    state.add(transaction)
    _deduct_fee(state, account, transaction)
    return transaction


def initiate_payout(
    state: ServiceState,
    account_state: AccountState,
    body: PayoutBody,
    now: datetime,
    effects: FaultEffects = NO_EFFECTS,
) -> Transaction:
    """Queue a payout; the B2C wallet is debited and the fee deducted at once."""
    account = account_state.account
    if account.switches.strict_fields:
        body.require_all()
    phone = normalise_phone(body.phone)
    callback_url = _callback_url(state, account, body.callback_url)
    channel = None
    if body.channel_id is not None:
        channel = find_channel(account, body.channel_id, status=400)
    # KYC, funds, fee, in the order of the service page, "POST /b2c/payouts".
    if not account.kyc_approved:
        raise Refusal("KYC_NOT_VERIFIED")
    if account.b2c_balance < body.amount:
        raise Refusal("INSUFFICIENT_FUNDS")
    _check_fee(account)
    shortcode = channel.shortcode if channel else PLATFORM_SHORTCODE
    transaction = _new_transaction(state, account_state, Kind.B2C, body, now, phone, effects, shortcode)
    transaction.reference, transaction.description = body.reference or "", body.description or ""
    transaction.transaction_type, transaction.callback_url = "BusinessPayment", callback_url
    transaction.channel_id, transaction.fee = channel.id if channel else None, account.fee
    state.add(transaction)
    # At acceptance, not at success: a payout that is queued holds its money.
    account.b2c_balance -= transaction.amount
    state.record_movement(MovementKind.payout, transaction, transaction.amount, now)
    _deduct_fee(state, account, transaction)
    return transaction


def initiate_top_up(
    state: ServiceState,
    account_state: AccountState,
    body: TopUpBody,
    now: datetime,
    *,
    idempotency_key: str | None = None,
    effects: FaultEffects = NO_EFFECTS,
) -> Transaction:
    """Send the prompt of a top-up; the caller has looked for an earlier one with the same key."""
    phone = normalise_phone(body.phone)
    transaction = _new_transaction(
        state, account_state, Kind.WALLET_TOPUP, body, now, phone, effects, PLATFORM_SHORTCODE
    )
    transaction.reference, transaction.description = body.account_reference or "", body.transaction_desc or ""
    transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    # An empty header is no key: else every client that sends one would share a top-up.
    transaction.idempotency_key = idempotency_key or None
    state.add(transaction)
    return transaction


def _new_transaction(
    state: ServiceState,
    account_state: AccountState,
    kind: Kind,
    body: StkBody | PayoutBody | TopUpBody,
    now: datetime,
    phone: str,
    effects: FaultEffects,
    shortcode: str,
) -> Transaction:
    """Return what all three have in common. Nothing refuses the payment any more: it uses up what was planned."""
    transaction = Transaction(
        id=str(uuid4()),
        tenant_id=account_state.account.tenant_id,
        number=len(account_state.history),
        kind=kind,
        amount=body.amount,
        phone=phone,
        shortcode=shortcode,
        transaction_type=PLATFORM_TRANSACTION_TYPE,
        created_at=now,
        updated_at=now,
        outcome=state.outcomes.take(kind, phone),
        # Kept with it, because its callback and its lists come long after the request that the fault struck.
        callback_mode=effects.callback_mode,
        listed_from=now + timedelta(seconds=LIST_LAG) if effects.list_lag else None,
    )
    transaction.plan = plan(kind, outcome_for(transaction))
    return transaction


def _callback_url(state: ServiceState, account: Account, url: str | None) -> str | None:
    return check_callback_url(url, strict=account.switches.strict_callback_urls, hosts=state.callback_hosts)


def _check_fee(account: Account) -> None:
    # Not "is zero": where no pricing rule is configured the fee is 0, and an empty wallet covers that.
    if account.service_balance < account.fee:
        raise Refusal("INSUFFICIENT_SERVICE_BALANCE")


def _deduct_fee(state: ServiceState, account: Account, transaction: Transaction) -> None:
    if transaction.fee:
        account.service_balance -= transaction.fee
        account.service_updated_at = transaction.created_at
        state.record_movement(MovementKind.fee, transaction, transaction.fee, transaction.created_at)
