"""Accepting payments: STK prompts, payouts and top-ups, with every check in SPEC.md's order."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

from momopay.sandbox import _channels
from momopay.sandbox._accounts import Account, Credential
from momopay.sandbox._bodies import PayoutBody, StkBody, TopUpBody, require_all
from momopay.sandbox._callback_urls import check
from momopay.sandbox._health import is_abuse
from momopay.sandbox._lifecycle import provider_ids
from momopay.sandbox._outcomes import Kind, outcome_of, plan
from momopay.sandbox._phones import normalise
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._state import Book, World
from momopay.sandbox._transactions import MovementKind, Transaction

LIST_LAG = 60.0
PLATFORM_SHORTCODE = "600000"
PLATFORM_TRANSACTION_TYPE = "CustomerPayBillOnline"
_TRANSACTION_TYPES = {"PAYBILL": "CustomerPayBillOnline", "TILL_NUMBER": "CustomerBuyGoodsOnline"}


@dataclass(frozen=True, slots=True)
class Twist:
    """What a fault makes of an accepted payment: how its callback fares, whether lists show it late."""

    callback_mode: str = ""
    list_lag: bool = False


NO_TWIST = Twist()


def initiate_stk(world: World, book: Book, body: StkBody, now: datetime, twist: Twist = NO_TWIST) -> Transaction:
    """Send a PIN prompt; the fee is deducted at once."""
    account = book.account
    if account.switches.strict_fields:
        require_all(body, frozenset({"channel_id", "credential_id"}))
    phone = normalise(body.phone)
    callback_url = check(body.callback_url, strict=account.switches.strict_callback_urls)
    channel = _channels.for_stk(account, body.channel_id, body.credential_id)
    book.health.check(now)
    if is_abuse(reversed(book.history), account.switches, now):
        book.health.ban(now)
        world.version += 1  # the refusal that follows must not keep the ban from being saved
        book.health.check(now)
    _cover_fee(account)
    profile = Credential()
    if body.credential_id is not None:
        profile = account.credentials.get(body.credential_id, profile)
    transaction_type = profile.transaction_type or PLATFORM_TRANSACTION_TYPE
    if channel is not None:
        transaction_type = _TRANSACTION_TYPES.get(channel.type, PLATFORM_TRANSACTION_TYPE)
    transaction = _open(
        book,
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
    _twisted(transaction, twist)
    world.add(transaction)
    _deduct_fee(world, account, transaction)
    return transaction


def initiate_payout(world: World, book: Book, body: PayoutBody, now: datetime, twist: Twist = NO_TWIST) -> Transaction:
    """Queue a payout; the B2C wallet is debited and the fee deducted at once."""
    account = book.account
    if account.switches.strict_fields:
        require_all(body, frozenset({"channel_id"}))
    phone = normalise(body.phone)
    callback_url = check(body.callback_url, strict=account.switches.strict_callback_urls)
    channel = None
    if body.channel_id is not None:
        channel = _channels.found(account, body.channel_id, status=400)
    if not account.kyc_approved:
        raise Refusal("KYC_NOT_VERIFIED", "Payouts need approved KYC")
    if account.b2c_balance < body.amount:
        raise Refusal("INSUFFICIENT_FUNDS", "The B2C wallet balance is too low")
    _cover_fee(account)
    transaction = _open(
        book,
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
    _twisted(transaction, twist)
    world.add(transaction)
    account.b2c_balance -= transaction.amount
    world.move_money(MovementKind.payout, transaction, transaction.amount, now)
    _deduct_fee(world, account, transaction)
    return transaction


def initiate_top_up(
    world: World,
    book: Book,
    body: TopUpBody,
    now: datetime,
    *,
    idempotency_key: str | None = None,
    twist: Twist = NO_TWIST,
) -> Transaction:
    """Send the prompt of a top-up; whoever calls has looked for an earlier one under the same key."""
    phone = normalise(body.phone)
    transaction = _open(
        book,
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
    transaction.idempotency_key = idempotency_key or None
    _twisted(transaction, twist)
    world.add(transaction)
    return transaction


def _open(
    book: Book,
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
    return Transaction(
        id=str(uuid4()),
        tenant_id=book.account.tenant_id,
        number=len(book.history),
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
        plan=plan(kind, outcome_of(phone)),
    )


def _twisted(transaction: Transaction, twist: Twist) -> None:
    transaction.callback_mode = twist.callback_mode
    if twist.list_lag:
        transaction.listed_from = transaction.created_at + timedelta(seconds=LIST_LAG)


def _cover_fee(account: Account) -> None:
    if account.service_balance < account.fee:
        raise Refusal("INSUFFICIENT_SERVICE_BALANCE", "The service wallet cannot cover the fee")


def _deduct_fee(world: World, account: Account, transaction: Transaction) -> None:
    if transaction.fee:
        account.service_balance -= transaction.fee
        account.service_updated_at = transaction.created_at
        world.move_money(MovementKind.fee, transaction, transaction.fee, transaction.created_at)
