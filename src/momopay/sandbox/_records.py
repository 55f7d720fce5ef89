"""The records of the service: transactions, movements of money, callbacks, requests."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol
from uuid import uuid4


def json_number(amount: Decimal) -> int | float:
    """Return an amount as a JSON number, without a fraction if it is whole."""
    whole = int(amount)
    return whole if whole == amount else float(amount)


def iso(instant: datetime) -> str:
    """Return ISO 8601 text in UTC with milliseconds."""
    return f"{instant.isoformat(timespec='milliseconds')[:-6]}Z"


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
    WALLET_TOPUP_B2C = "WALLET_TOPUP_B2C"


TOP_UPS = frozenset({Kind.WALLET_TOPUP, Kind.WALLET_TOPUP_B2C})


# Without REVERSED, which follows FAILED: the transaction had completed before.
COMPLETED = frozenset({Status.SUCCESS, Status.FAILED, Status.CANCELLED, Status.EXPIRED})
_FEE_SHOWN = frozenset({Status.PENDING, Status.SUCCESS})


class HasTransactionId(Protocol):
    """Any record that names a transaction."""

    @property
    def transaction_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Step:
    """The next status, and the virtual seconds after the one before."""

    after: float
    status: Status
    code: str | None = None


# The field names are also the format of the state file, see `_engine`.
@dataclass(slots=True)
class Transaction:
    """A transaction. `number` is its index in the account's history, `due` the instant of its next step."""

    id: str
    tenant_id: str
    number: int
    kind: Kind
    amount: Decimal
    phone: str
    shortcode: str
    transaction_type: str
    created_at: datetime
    updated_at: datetime
    reference: str = ""
    description: str = ""
    channel_id: str | None = None
    callback_url: str | None = None
    fee: Decimal = Decimal(0)
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
    credential_id: str | None = None  # of a payout
    unshown: bool = False  # the provider fails it for its long texts, and no phone shows it
    outcome: str | None = None  # planned for this payment; None means that the phone number decides
    # Fields that lists show with another value, or without one: then they lack the field.
    spoiled: dict[str, list[object]] = field(default_factory=dict[str, list[object]])

    @property
    def is_prompt(self) -> bool:
        """Whether a PIN prompt is open on the phone."""
        return self.kind is not Kind.B2C and self.status is Status.PENDING and not self.unshown

    @property
    def shown_fee(self) -> Decimal:
        """The fee that reads, lists and callbacks show: the real one while PENDING and on SUCCESS, else 0."""
        return self.fee if self.status in _FEE_SHOWN else Decimal(0)

    @property
    def amount_with_fee(self) -> Decimal:
        """The amount that lists show under the switch `list_amount`."""
        return self.amount + self.shown_fee


# Lower case, unlike the service's own names: these are the sandbox's.
class MovementKind(StrEnum):
    """Why money moved."""

    payout = "payout"
    stk = "stk"
    top_up = "top_up"
    fee = "fee"
    fee_refund = "fee_refund"
    reversal = "reversal"


@dataclass(frozen=True, slots=True)
class Movement:
    """One movement of money in KES. A payout moves it on acceptance, an STK payment or a top-up on success."""

    kind: MovementKind
    transaction_id: str
    tenant_id: str
    reference: str
    amount: Decimal
    phone: str
    at: datetime


# Virtual seconds. The delays are those before retries 1 to 5 (service page, "Callbacks").
RETRY_DELAYS = (10.0, 30.0, 60.0, 120.0, 300.0)
ANSWER_LIMIT = 30.0
DUPLICATE_AFTER = 1.0
LATE_AFTER = 300.0
HELD_AT_MOST = 60.0


# The field names are also the format of the state file, see `_engine`.
@dataclass(slots=True)
class Delivery:
    """A callback that is still to be delivered. `attempt` 0 is the first delivery, 1 to 5 are its retries.

    `due` is None during a POST. A `held` one waits for the account's next callback to overtake it.
    """

    tenant_id: str
    transaction_id: str
    url: str
    payload: dict[str, object]
    posts_left: int
    due: datetime | None = None
    id: str = field(default_factory=lambda: str(uuid4()))
    attempt: int = 0
    duplicates_left: int = 0
    held: bool = False

    def record(self, result: "PostResult", at: datetime) -> "CallbackRecord":
        of_what = (self.transaction_id, self.tenant_id, self.url, self.payload)
        return CallbackRecord(*of_what, self.attempt, at, result.status, result.answer, result.error)

    def next_attempt(self, result: "PostResult", at: datetime) -> datetime | None:
        """Count an attempt that was made at `at`; return when the next one is due, or None if delivery is over."""
        if is_acknowledged(result.status):
            if not self.duplicates_left:
                return None
            self.duplicates_left -= 1
            return at + timedelta(seconds=DUPLICATE_AFTER)
        self.posts_left -= 1
        if not self.posts_left:
            return None
        # A POST takes no virtual time while `advance` moves the clock, so the time of a timeout is added here.
        delay = RETRY_DELAYS[self.attempt] + (ANSWER_LIMIT if result.timed_out else 0.0)
        self.attempt += 1
        return at + timedelta(seconds=delay)


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of one POST: the response's status and the beginning of its body, or an error."""

    status: int | None = None
    answer: str = ""
    error: str | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class CallbackRecord:
    """One delivery of a callback, with the response's status or the error."""

    transaction_id: str
    tenant_id: str
    url: str
    payload: Mapping[str, object]
    attempt: int
    at: datetime
    status: int | None = None
    answer: str = ""
    error: str | None = None
    id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def acknowledged(self) -> bool:
        """Whether the response was a 2xx."""
        return is_acknowledged(self.status)


def is_acknowledged(status: int | None) -> bool:
    """Return whether the status of a response is a 2xx."""
    return status is not None and HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


KEPT = 100_000  # enough for any test, and a limit for the memory of load tests that run for hours


@dataclass(slots=True)
class ReceivedRequest:
    """One request. `path` is relative to /v1 and as sent; `status` is None if no status line was sent.

    `key` is the masked API key, `tenant_id` the account of a `pk_test_` key. Numbers start at 1.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    at: datetime
    body: bytes = b""
    status: int | None = None
    key: str = ""
    tenant_id: str | None = None
    number: int = 0

    @property
    def json(self) -> object:
        """The body as JSON, or None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(slots=True)
class RequestLog:
    """The newest requests, oldest first. `version` grows with every change."""

    entries: deque[ReceivedRequest] = field(default_factory=lambda: deque[ReceivedRequest](maxlen=KEPT))
    total: int = 0
    version: int = 0

    def add(self, request: ReceivedRequest) -> None:
        self.entries.append(request)
        self.total += 1
        self.version += 1
        request.number = self.total

    def set_status(self, request: ReceivedRequest, status: int) -> None:
        request.status = status
        self.version += 1
