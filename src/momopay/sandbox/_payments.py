"""How STK prompts, payouts and top-ups are accepted, with the checks in the order that docs/test/sandbox.md gives.

Everything that can refuse comes before the first change: a refused payment leaves no trace.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from momopay.sandbox import _channels
from momopay.sandbox._accounts import Account, Credential
from momopay.sandbox._bodies import PayoutBody, StkBody, TopUpBody, normalise_phone
from momopay.sandbox._hosts import check_callback_url
from momopay.sandbox._lifecycle import provider_ids
from momopay.sandbox._outcomes import outcome_for, plan
from momopay.sandbox._records import Kind, MovementKind, Transaction
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import AccountState, ServiceState
from momopay.sandbox._throttling import is_abuse

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
    channel = _channels.select_for_stk(account, body.channel_id, body.credential_id)
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
        channel = _channels.find(account, body.channel_id, status=400)
    # KYC, funds, fee, in the order of the service page, "POST /b2c/payouts".
    if not account.kyc_approved:
        raise Refusal("KYC_NOT_VERIFIED", "Payouts need approved KYC")
    if account.b2c_balance < body.amount:
        raise Refusal("INSUFFICIENT_FUNDS", "The B2C wallet balance is too low")
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
        raise Refusal("INSUFFICIENT_SERVICE_BALANCE", "The service wallet cannot cover the fee")


def _deduct_fee(state: ServiceState, account: Account, transaction: Transaction) -> None:
    if transaction.fee:
        account.service_balance -= transaction.fee
        account.service_updated_at = transaction.created_at
        state.record_movement(MovementKind.fee, transaction, transaction.fee, transaction.created_at)
