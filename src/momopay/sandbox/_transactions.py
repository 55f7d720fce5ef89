"""One transaction and the money movements it leaves behind. Data only; `_lifecycle` moves it."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from momopay.sandbox._outcomes import Kind, Status, Step

COMPLETED = frozenset({Status.SUCCESS, Status.FAILED, Status.CANCELLED, Status.EXPIRED})


@dataclass(slots=True)
class Transaction:
    """A transaction; `number` is its place in the account's history, `due` the instant of its next step."""

    id: str
    tenant_id: str
    number: int
    kind: Kind
    amount: Decimal
    phone: str
    reference: str
    description: str
    channel_id: str | None
    shortcode: str
    transaction_type: str
    callback_url: str | None
    fee: Decimal
    created_at: datetime
    updated_at: datetime
    status: Status = Status.PENDING
    result_code: str | None = None
    result_desc: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    receipt: str | None = None
    plan: list[Step] = field(default_factory=list[Step])
    due: datetime | None = None
    callback_mode: str = ""
    listed_from: datetime | None = None
    idempotency_key: str | None = None


class MovementKind(StrEnum):
    """What money moved for."""

    payout = "payout"
    stk = "stk"
    top_up = "top_up"
    fee = "fee"
    fee_refund = "fee_refund"
    reversal = "reversal"


@dataclass(frozen=True, slots=True)
class Movement:
    """One committed movement of money (KES): a payout from its acceptance, STK and top-up from success."""

    kind: MovementKind
    transaction_id: str
    tenant_id: str
    reference: str
    amount: Decimal
    phone: str
    at: datetime
