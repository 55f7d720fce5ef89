"""How STK prompts, payouts and top-ups are accepted, with the checks in the order that docs/test/sandbox.md gives.

Everything that can refuse comes before the first change: a refused payment leaves no trace.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
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
    transaction = _new_transaction(
        state,
        account_state,
        Kind.STK,
        body.amount,
        phone,
        now,
        reference=body.account_reference or "",
        description=body.transaction_desc or "",
        channel_id=channel.id if channel else None,
        shortcode=channel.shortcode if channel else profile.shortcode,
        transaction_type=transaction_type,
        callback_url=callback_url,
        fee=account.fee,
    )
    transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    _apply(effects, transaction)
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
    transaction = _new_transaction(
        state,
        account_state,
        Kind.B2C,
        body.amount,
        phone,
        now,
        reference=body.reference or "",
        description=body.description or "",
        channel_id=channel.id if channel else None,
        shortcode=channel.shortcode if channel else PLATFORM_SHORTCODE,
        transaction_type="BusinessPayment",
        callback_url=callback_url,
        fee=account.fee,
    )
    _apply(effects, transaction)
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
        state,
        account_state,
        Kind.WALLET_TOPUP,
        body.amount,
        phone,
        now,
        reference=body.account_reference or "",
        description=body.transaction_desc or "",
        channel_id=None,
        shortcode=PLATFORM_SHORTCODE,
        transaction_type=PLATFORM_TRANSACTION_TYPE,
        callback_url=None,
        fee=Decimal(0),
    )
    transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    # An empty header is no key: else every client that sends one would share a top-up.
    transaction.idempotency_key = idempotency_key or None
    _apply(effects, transaction)
    state.add(transaction)
    return transaction


def _new_transaction(
    state: ServiceState,
    account_state: AccountState,
    kind: Kind,
    amount: Decimal,
    phone: str,
    now: datetime,
    *,
    reference: str,
    description: str,
    channel_id: str | None,
    shortcode: str,
    transaction_type: str,
    callback_url: str | None,
    fee: Decimal,
) -> Transaction:
    transaction = Transaction(
        id=str(uuid4()),
        tenant_id=account_state.account.tenant_id,
        number=len(account_state.history),
        kind=kind,
        amount=amount,
        phone=phone,
        reference=reference,
        description=description,
        channel_id=channel_id,
        shortcode=shortcode,
        transaction_type=transaction_type,
        callback_url=callback_url,
        fee=fee,
        created_at=now,
        updated_at=now,
        # Nothing refuses the payment any more: a refused one must not use up what was planned.
        outcome=state.outcomes.take(kind, phone),
    )
    transaction.plan = plan(kind, outcome_for(transaction))
    return transaction


def _apply(effects: FaultEffects, transaction: Transaction) -> None:
    # Kept with the transaction, because its callback and its lists come long after the request that the fault struck.
    transaction.callback_mode = effects.callback_mode
    if effects.list_lag:
        transaction.listed_from = transaction.created_at + timedelta(seconds=LIST_LAG)


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
