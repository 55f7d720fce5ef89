"""The answers of SPEC.md as models, for the OpenAPI description alone: nothing is serialised through them."""

from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

T = TypeVar("T")
Status = Literal["PENDING", "PROCESSING", "SUCCESS", "FAILED", "REVERSED", "CANCELLED", "EXPIRED"]


class Record(BaseModel):
    """A record in camelCase."""

    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel)


class Envelope(Record, Generic[T]):
    """A success."""

    success: Literal[True]
    data: T
    request_id: str


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    code: str
    details: dict[str, Any]


class ErrorEnvelope(Record):
    """An error."""

    success: Literal[False]
    error: ErrorDetail
    request_id: str


class Initiated(Record):
    """What the answers to all initiations share."""

    transaction_id: str
    tenant_id: str
    channel_id: str | None
    status: Literal["PENDING"]
    amount: float
    currency: Literal["KES"]
    phone: str
    transaction_fee: float
    result_description: str | None
    created_at: str
    updated_at: str


class StkInitiated(Initiated):
    """STK initiation, and top-up."""

    type: Literal["STK"]
    account_reference: str
    transaction_desc: str
    provider_request_id: str | None
    provider_checkout_id: str | None
    result_code: str | None


class PayoutInitiated(Initiated):
    """B2C initiation."""

    type: Literal["B2C"]
    reference: str
    description: str


class TransactionRead(Record):
    """The single read (camelCase, the default of the switch `naming`)."""

    transaction_id: str
    tenant_id: str
    type: Literal["STK", "B2C", "WALLET_TOPUP"]
    status: Status
    amount: float
    currency: Literal["KES"]
    phone: str
    channel_id: str | None
    account_reference: str
    transaction_desc: str
    provider: str
    provider_request_id: str | None
    provider_checkout_id: str | None
    result_code: str | None
    result_desc: str | None
    created_at: str
    updated_at: str


class TransactionItem(Record):
    """A list item."""

    transaction_id: str
    type: Literal["STK", "B2C", "WALLET_TOPUP"]
    status: Status
    amount: float
    currency: Literal["KES"]
    phone: str
    account_reference: str
    transaction_fee: float
    created_at: str
    updated_at: str


class Overview(Record):
    """Counts over the filtered set."""

    total: int
    completed: int
    failed: int
    pending: int


class TransactionList(Record):
    """A page."""

    overview: Overview
    items: list[TransactionItem]
    next_cursor: str | None


class Balance(Record):
    """The service wallet."""

    wallet_id: str
    tenant_id: str
    currency: Literal["KES"]
    available_balance: float
    ledger_balance: float
    updated_at: str


class PaymentChannel(Record):
    """A payment channel."""

    id: str
    tenant_id: str
    category: str
    type: Literal["PAYBILL", "TILL_NUMBER", "SEND_MONEY"]
    shortcode: str
    name: str
    account_number: str | None
    is_default: bool
    created_at: str


class ChannelList(Record):
    """The default channel first, then newest to oldest."""

    items: list[PaymentChannel]


class Nothing(Record):
    """An empty object."""


RECORDS: dict[str, type[BaseModel]] = {
    "initiate_stk": Envelope[StkInitiated],
    "initiate_payout": Envelope[PayoutInitiated],
    "top_up": Envelope[StkInitiated],
    "list_transactions": Envelope[TransactionList],
    "read_transaction": Envelope[TransactionRead],
    "read_balance": Envelope[Balance],
    "list_channels": Envelope[ChannelList],
    "create_channel": Envelope[PaymentChannel],
    "read_channel": Envelope[PaymentChannel],
    "change_channel": Envelope[PaymentChannel],
    "delete_channel": Envelope[Nothing],
}
