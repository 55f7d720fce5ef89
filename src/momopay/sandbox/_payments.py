"""How STK prompts, payouts and top-ups are accepted, and through which channel.

The checks are in the order that docs/test/sandbox.md gives. All of them come before the first change, so a refused
payment leaves no trace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import uuid4

from momopay.sandbox._accounts import Account, Channel, Credential, Switches
from momopay.sandbox._bodies import (
    IDEMPOTENCY_KEY_LIMIT,
    B,
    B2cTopUpBody,
    PayoutBody,
    StkBody,
    TopUpBody,
    callback_fields,
    check_callback_url,
    is_too_long,
    normalise_phone,
    read_body,
)
from momopay.sandbox._lifecycle import provider_ids
from momopay.sandbox._outcomes import TEXTS_FAIL, outcome_for, plan
from momopay.sandbox._records import Kind, MovementKind, Transaction
from momopay.sandbox._refusals import CODES, Refusal, check_fee, check_funds, check_wallet, invalid_field
from momopay.sandbox._state import AccountState, ServiceState, is_abuse


def find_channel(account: Account, channel_id: str, *, code: str = "CHANNEL_NOT_FOUND", status: int = 404) -> Channel:
    """Return the live channel with an id, or raise Refusal."""
    for channel in account.live_channels():
        if channel.id == channel_id:
            return channel
    raise Refusal(code, CODES["CHANNEL_NOT_FOUND"][1], status=status)


def select_for_stk(account: Account, channel_id: str | None, credential_id: str | None) -> Channel | None:
    """Return the channel of an STK request; None if there is only a credential profile."""
    if channel_id is not None:
        return find_channel(account, channel_id, status=400)
    channels = list(account.live_channels())
    # The default channel, if there is one, receives the money even if a credential profile was named.
    for channel in channels:
        if channel.is_default:
            return channel
    if credential_id is not None:
        return None
    if channels:
        raise Refusal("NO_DEFAULT_CHANNEL")
    raise Refusal("NO_PAYMENT_CHANNELS")


def account_number_of(channel_type: str, account_number: str | None, status: int = 400) -> str | None:
    """Return the account number of a channel of this type, or raise Refusal if it is missing."""
    if channel_type == "PAYBILL" and not account_number:
        raise invalid_field("accountNumber", "is required for a PAYBILL channel", status)
    # A TILL_NUMBER or TILL has none, so one that was sent is dropped.
    return None if channel_type in _TILLS else account_number


LIST_LAG = 60.0  # virtual seconds
# Used if there is neither a channel nor a credential profile.
PLATFORM_SHORTCODE = "600000"
PLATFORM_TRANSACTION_TYPE = "CustomerPayBillOnline"
_TILLS = frozenset({"TILL_NUMBER", "TILL"})
_FORGOTTEN_AFTER = timedelta(minutes=10)  # a payout's Idempotency-Key, under the switch `payout_keys`


@dataclass(frozen=True, slots=True)
class Call:
    """One admitted request of an account. The last two fields are set by faults in callbacks and lists."""

    state: ServiceState
    account_state: AccountState
    now: datetime
    id: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    idempotency_key: str | None = None
    callback_mode: str = ""
    list_lag: bool = False

    @property
    def switches(self) -> Switches:
        return self.account_state.account.switches

    def read(self, model: type[B]) -> B:
        """Return the body under the account's switches."""
        return read_body(model, self.body, self.switches, self.state.callback_hosts)


def initiate_stk(call: Call, body: StkBody) -> Transaction:
    """Send a PIN prompt; the fee is deducted at once."""
    state, account_state, now = call.state, call.account_state, call.now
    account = account_state.account
    phone, callback_url = _check_fields(call, body)
    channel = select_for_stk(account, body.channel_id, body.credential_id)
    profile = _profile(account, body.credential_id)
    if account.switches.prompt_kyc and not account.kyc_approved:
        raise Refusal("KYC_NOT_VERIFIED")
    account_state.health.check(now)
    if is_abuse(reversed(account_state.history), account.switches, now):
        account_state.health.ban(now)
        # The only refusal that changes something. Without a new version, the ban would not be saved.
        state.version += 1
        account_state.health.check(now)
    check_wallet(account.service_wallet)
    check_fee(account.service_balance, account.fee)
    transaction_type = profile.transaction_type or PLATFORM_TRANSACTION_TYPE
    if channel is not None:
        transaction_type = "CustomerBuyGoodsOnline" if channel.type in _TILLS else PLATFORM_TRANSACTION_TYPE
    shortcode = channel.shortcode if channel else profile.shortcode
    transaction = _new_transaction(call, Kind.STK, body, phone, shortcode)
    transaction.reference, transaction.description = body.account_reference or "", body.transaction_desc or ""
    transaction.transaction_type, transaction.callback_url = transaction_type, callback_url
    transaction.channel_id, transaction.fee = channel.id if channel else None, account.fee
    transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    if is_too_long(body):
        transaction.unshown, transaction.plan = True, [TEXTS_FAIL]
    state.add(transaction)
    state.move(MovementKind.fee, transaction, transaction.fee, now)
    return transaction


def initiate_payout(call: Call, body: PayoutBody) -> Transaction:
    """Queue a payout; the B2C wallet is debited and the fee deducted at once.

    Where keys are honoured, one that was sent before returns its payout.
    """
    state, account, keys = call.state, call.account_state.account, call.switches.payout_keys
    key = "" if keys == "ignored" else _checked_key(call)
    phone, callback_url = _check_fields(call, body)
    reference, description = body.reference or "", body.description or ""
    made = call.account_state.keys.get((Kind.B2C, key))
    if made is not None and (keys == "honoured" or call.now - made.created_at < _FORGOTTEN_AFTER):
        _check_same(made, body, phone, reference, description, callback_url)
        return made
    channel = None if body.channel_id is None else find_channel(account, body.channel_id, status=400)
    profile = _profile(account, body.credential_id)
    # KYC, funds and fee are in the order of the service page, "POST /b2c/payouts".
    if not account.kyc_approved:
        raise Refusal("KYC_NOT_VERIFIED")
    check_wallet(account.b2c_wallet)
    check_funds(account.b2c_balance, body.amount)
    check_wallet(account.service_wallet)
    check_fee(account.service_balance, account.fee)
    shortcode = (
        channel.shortcode if channel else PLATFORM_SHORTCODE if body.credential_id is None else profile.shortcode
    )
    transaction = _new_transaction(call, Kind.B2C, body, phone, shortcode)
    transaction.reference, transaction.description = reference, description
    transaction.idempotency_key = key or None
    transaction.transaction_type, transaction.callback_url = "BusinessPayment", callback_url
    transaction.channel_id, transaction.fee = channel.id if channel else None, account.fee
    transaction.credential_id = body.credential_id
    state.add(transaction)
    # At acceptance, because a queued payout already holds its money.
    state.move(MovementKind.payout, transaction, transaction.amount, call.now)
    state.move(MovementKind.fee, transaction, transaction.fee, call.now)
    return transaction


def initiate_top_up(call: Call, kind: Kind) -> Transaction:
    """Send the prompt of a top-up, or return that of the same Idempotency-Key."""
    account, is_strict = call.account_state.account, call.switches.topup_keys == "same_body"
    key = _checked_key(call) if is_strict else call.idempotency_key or ""
    made = call.account_state.keys.get((kind, key))
    if made is not None and not is_strict:
        return made  # only the key decides, even if the body differs: no comparison of bodies is specified
    body = call.read(B2cTopUpBody if kind is Kind.WALLET_TOPUP_B2C else TopUpBody)
    phone, callback_url = _check_fields(call, body)
    reference, description = body.account_reference or "", body.transaction_desc or ""
    if kind is Kind.WALLET_TOPUP_B2C:
        reference = f"B2C:{account.tenant_id}:{reference}"
    if made is not None:
        _check_same(made, body, phone, reference, description, callback_url)
        return made
    check_wallet(account.b2c_wallet if kind is Kind.WALLET_TOPUP_B2C else account.service_wallet)
    transaction = _new_transaction(call, kind, body, phone, PLATFORM_SHORTCODE)
    transaction.reference, transaction.description = reference, description
    transaction.provider_request_id, transaction.provider_checkout_id = provider_ids()
    # An empty header is no key, or else all clients that send one would share a top-up.
    transaction.idempotency_key, transaction.callback_url = key or None, callback_url
    call.state.add(transaction)
    return transaction


def _checked_key(call: Call) -> str:
    key = call.idempotency_key or ""
    if len(key) > IDEMPOTENCY_KEY_LIMIT:
        raise Refusal("INVALID_IDEMPOTENCY_KEY")
    return key


def _check_same(made: Transaction, body: PayoutBody | TopUpBody, phone: str, *texts: str | None) -> None:
    """Raise if the request with a key that was sent before differs from the first one."""
    channel, credential = getattr(body, "channel_id", None), getattr(body, "credential_id", None)
    earlier = (made.amount, made.phone, made.channel_id, made.credential_id)
    before = (*earlier, made.reference, made.description, made.callback_url)
    if before != (body.amount, phone, channel, credential, *texts):
        raise Refusal("DUPLICATE_IDEMPOTENCY_KEY")


def _profile(account: Account, credential_id: str | None) -> Credential:
    """Return a credential profile. The service has no endpoint that creates one."""
    profile = account.credentials.get(credential_id or "", Credential())
    if credential_id is not None and credential_id not in account.credentials and account.switches.more_codes:
        raise Refusal("CREDENTIAL_NOT_FOUND")
    if not profile.active:
        raise Refusal("CREDENTIAL_INACTIVE")
    return profile


def _new_transaction(
    call: Call, kind: Kind, body: StkBody | PayoutBody | TopUpBody, phone: str, shortcode: str
) -> Transaction:
    """Return a transaction of any kind. All checks have passed, so this uses up the outcome that was planned."""
    transaction = Transaction(
        id=str(uuid4()),
        tenant_id=call.account_state.account.tenant_id,
        number=len(call.account_state.history),
        kind=kind,
        amount=body.amount,
        phone=phone,
        shortcode=shortcode,
        transaction_type=PLATFORM_TRANSACTION_TYPE,
        created_at=call.now,
        updated_at=call.now,
        outcome=call.state.outcomes.take(kind, phone),
        # Kept here, because the callback and the lists come long after the request that the fault applied to.
        callback_mode=call.callback_mode,
        listed_from=call.now + timedelta(seconds=LIST_LAG) if call.list_lag else None,
    )
    transaction.plan = plan(kind, outcome_for(transaction))
    return transaction


def _check_fields(call: Call, body: StkBody | PayoutBody | TopUpBody) -> tuple[str, str | None]:
    """Return the normalised phone and the callback URL."""
    switches, url = call.switches, getattr(body, "callback_url", None)
    if switches.strict_fields and body.optional:
        body.require_all()
    phone, hosts, fields = normalise_phone(body.phone), call.state.callback_hosts, callback_fields(type(body), switches)
    return phone, check_callback_url(url, strict=switches.strict_callback_urls, hosts=hosts, field=fields[0])
