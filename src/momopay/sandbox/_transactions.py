"""One transaction and the money movements it leaves behind. Data only; `_lifecycle` moves it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Protocol


class Status(StrEnum):
    """Every status of the service page, "Transaction" and "Callbacks"."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    REVERSED = "REVERSED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class Kind(StrEnum):
    """The types a transaction is listed under."""

    STK = "STK"
    B2C = "B2C"
    WALLET_TOPUP = "WALLET_TOPUP"


# REVERSED is no completion: it follows FAILED, which was one.
COMPLETED = frozenset({Status.SUCCESS, Status.FAILED, Status.CANCELLED, Status.EXPIRED})
_FEE_SHOWN = frozenset({Status.PENDING, Status.SUCCESS})


class HasTransactionId(Protocol):
    """Any record that names a transaction."""

    @property
    def transaction_id(self) -> str:
        """The transaction's id."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """The next status, and how many virtual seconds after the one before."""

    after: float
    status: Status
    code: str | None = None

    def due(self, before: datetime) -> datetime:
        """Return the instant of this step, given that of the one before."""
        return before + timedelta(seconds=self.after)


# The names of these fields are also the format of the state file, see `_store`.
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
    # Planned for this payment; None means that the phone number decides.
    outcome: str | None = None

    @property
    def is_prompt(self) -> bool:
        """Whether a PIN prompt is open on the phone."""
        return self.kind is not Kind.B2C and self.status is Status.PENDING

    @property
    def shown_fee(self) -> Decimal:
        """The fee as reads, lists and callbacks show it: the actual one while PENDING and on SUCCESS, else 0."""
        return self.fee if self.status in _FEE_SHOWN else Decimal(0)


# Lower case, unlike the other names: these are the sandbox's own and not on the service's wire.
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
