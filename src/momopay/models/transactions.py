"""The records of prompts, payouts and transactions, a page of the list, the service wallet, and payment channels.

The service page, "Transaction", has two naming styles. Both parse into the same record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, Self, cast

from pydantic import Field, ValidationError, model_validator

from momopay.models.enums import ChannelType, TransactionStatus, TransactionType
from momopay.models.records import (
    LIMIT,
    PHONE,
    REFERENCE,
    RESULT_TEXT,
    Id,
    Items,
    MaskedModel,
    ProviderCode,
    Record,
    Timestamp,
    describe,
    is_id,
    note_response,
    parse_incomplete,
    receipt_in,
)
from momopay.phones import may_be_phone

# A page with more items is refused before they are built. The service's pages have at most 100.
_MOST_ITEMS: Final = 1000


class PaymentRecord(Record):
    """What prompts, payouts and transactions have in common."""

    transaction_id: Id
    type: TransactionType
    status: TransactionStatus
    amount: Decimal = Field(gt=-LIMIT, lt=LIMIT, allow_inf_nan=True)
    currency: str = "KES"
    phone: str = Field(validation_alias=PHONE)
    transaction_fee: Decimal | None = Field(None, gt=-LIMIT, lt=LIMIT, allow_inf_nan=True)
    created_at: Timestamp
    updated_at: Timestamp

    @property
    def receipt(self) -> str | None:
        """The provider's receipt, from the field whose name ends in "receipt"; None if there is none, or two differ."""
        return receipt_in(self)


class StkTransaction(PaymentRecord):
    """An accepted STK prompt, PENDING until the customer acts (service page, "Transaction")."""

    type: TransactionType = TransactionType.STK
    tenant_id: str | None = None
    channel_id: str | None = None
    account_reference: str | None = Field(None, validation_alias=REFERENCE)
    transaction_desc: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    result_code: ProviderCode | None = None
    result_description: str | None = Field(None, validation_alias=RESULT_TEXT)


class TopUp(StkTransaction):
    """An accepted top-up, PENDING until the prompt is confirmed. The balance follows in 1 to 2 minutes."""

    # The service returns STK in this response, and WALLET_TOPUP in the list.
    type: TransactionType = TransactionType.WALLET_TOPUP


class Payout(PaymentRecord):
    """An accepted payout, PENDING until the provider takes it. The B2C wallet is already debited."""

    type: TransactionType = TransactionType.B2C
    tenant_id: str | None = None
    channel_id: str | None = None
    reference: str | None = Field(None, validation_alias=REFERENCE)
    description: str | None = None
    result_code: ProviderCode | None = None
    result_description: str | None = Field(None, validation_alias=RESULT_TEXT)


class TransactionSummary(PaymentRecord):
    """A transaction as the list shows it (service page, "Transaction")."""

    account_reference: str | None = Field(None, validation_alias=REFERENCE)


class Transaction(TransactionSummary):
    """A transaction as a single read shows it. Fields that the response does not have are None.

    Only `transaction_id`, `status` and `amount` are always there. If a wait or a confirmation has read the transaction
    from the list, it has only the fields of `TransactionSummary`.
    """

    # Unlike a list item, which is unread without them.
    type: TransactionType | None = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    phone: str | None = Field(None, validation_alias=PHONE)  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    created_at: Timestamp | None = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    updated_at: Timestamp | None = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    tenant_id: str | None = None
    channel_id: str | None = None
    transaction_desc: str | None = None
    provider: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    result_code: ProviderCode | None = None
    result_desc: str | None = Field(None, validation_alias=RESULT_TEXT)


def transaction_from(summary: TransactionSummary) -> Transaction:
    """Return a `Transaction` with the fields of a list item. The others are None."""
    if isinstance(summary, Transaction):
        return summary
    # An unknown field of the list may have the name of a field here, and another type.
    transaction = parse_incomplete(Transaction, dict(summary), {}, type(summary).model_fields)
    note_response(transaction, summary.response)
    return transaction


def is_whole(transaction: Transaction) -> bool:
    """Return whether a read has what every item of the list has, and a reference."""
    fields = {transaction.type, transaction.phone, transaction.created_at, transaction.updated_at}
    return None not in fields and may_be_phone(transaction.phone or "") and bool(transaction.account_reference)


def with_known(transaction: Transaction, known: object) -> Transaction:
    """Return a read in which what the service left out comes from an earlier record or a payment of the journal."""
    record, missing = getattr(known, "transaction", None) or known, dict[str, object]()
    if isinstance(record, PaymentRecord):
        names = ("type", "phone", "account_reference", "created_at")  # what does not change
        missing = {name: getattr(record, name, None) for name in names if getattr(transaction, name) is None}
    elif transaction.type is None:  # without it, a payout that FAILED would seem settled
        missing = {"type": getattr(getattr(known, "kind", None), "transaction_type", None)}
    return transaction.model_copy(update=missing) if missing else transaction


class TransactionOverview(Record):
    """Counts over the whole filtered set, not over the page (service page, "Overview counts")."""

    total: int
    completed: int
    failed: int
    pending: int


class UnreadTransaction(MaskedModel):
    """An item of the list that could not be read, such as one without a phone. It may be any payment.

    A search also reports an item without a reference so, if nothing in it contradicts the payment.

    Attributes:
        id: Its id; None if it has none. `transactions.get` may read it.
        reference: Its reference; None if it has none.
        problem: What could not be read.
        raw: The item as the service sent it, with its numbers as `int` and `Decimal`; the repr leaves it out.
    """

    id: str | None
    reference: str | None
    problem: str
    raw: Any = Field(repr=False)

    @property
    def transaction_id(self) -> str | None:
        """`id`, under its name in other records."""
        return self.id


def without_reference(item: TransactionSummary) -> UnreadTransaction:
    """Return an item of the list without a reference as a search reports it."""
    raw = item.model_dump(exclude={"account_reference"})
    return UnreadTransaction(id=item.transaction_id, reference=None, problem="it has no reference", raw=raw)


class TransactionPage(Record):
    """One page of the list, newest first. It fetches nothing.

    Iterating a page gives its items, and not its fields, as it does for other records.

    Attributes:
        items: The transactions that could be read.
        overview: Counts over the whole filtered set; None if the service sent none.
        next_cursor: The cursor of the next page; None on the last one.
    """

    items: Items[TransactionSummary] = Field(max_length=_MOST_ITEMS)
    overview: TransactionOverview | None = None
    # Required: absence must not be proven by a page that may not be the last.
    next_cursor: str | None

    @property
    def unread(self) -> tuple[UnreadTransaction, ...]:
        """The items that could not be read."""
        found: tuple[UnreadTransaction, ...] = vars(self).get("_unread", ())
        return found

    @model_validator(mode="after")
    def _use_other_cursor(self) -> Self:
        other = (self.model_extra or {}).get("next_cursor")  # beside a nextCursor that is null
        if self.next_cursor is None and isinstance(other, str):
            vars(self)["next_cursor"] = other
        return self

    def __iter__(self) -> Iterator[TransactionSummary]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return iter(self.items)


def parse_page(data: Mapping[str, Any]) -> TransactionPage:
    """Return a page that cannot be read as a whole, item by item. Raise ValueError if it is no page."""
    found = data.get("items")
    if not isinstance(found, list) or len(cast("list[object]", found)) > _MOST_ITEMS:
        raise ValueError("no list of items")
    items = cast("list[object]", found)
    readable, unread = list[TransactionSummary](), list[UnreadTransaction]()
    for item in items:
        try:
            readable.append(TransactionSummary.model_validate(item))
        except ValidationError as error:
            unread.append(_unread_item(item, describe(error)))
    page = parse_incomplete(TransactionPage, {**data, "items": readable}, {}, ["items", "next_cursor"])
    vars(page)["_unread"] = tuple(unread)  # not in a field, as a response's
    return page


def _unread_item(item: object, problem: str) -> UnreadTransaction:
    fields = cast("dict[str, object]", item) if isinstance(item, dict) else {}
    ids = (fields.get(name) for name in ("transactionId", "transaction_id"))
    references = (fields.get(str(name)) for name in REFERENCE.choices)
    return UnreadTransaction(
        id=next((each for each in ids if isinstance(each, str) and is_id(each)), None),
        reference=next((each for each in references if isinstance(each, str) and each.strip()), None),
        problem=problem,
        raw=item,
    )


class WalletOwner(Record):
    """The tenant whose wallet a key may read. Payments depend on this alone, and not on the balance."""

    tenant_id: str | None = None


class WalletBalance(Record):
    """The service wallet (service page, "Service wallet"). Amounts in KES. Only `available_balance` is always there."""

    wallet_id: str | None = None
    tenant_id: str | None = None
    currency: str | None = "KES"
    available_balance: Decimal = Field(gt=-LIMIT, lt=LIMIT, allow_inf_nan=True)
    ledger_balance: Decimal | None = Field(None, gt=-LIMIT, lt=LIMIT, allow_inf_nan=True)
    updated_at: Timestamp | None = None


class PaymentChannel(Record):
    """A registered shortcode (service page, "Payment channel")."""

    id: str
    tenant_id: str | None = None
    category: str | None = None
    type: ChannelType
    shortcode: str
    name: str | None = None
    account_number: str | None = None
    is_default: bool | None = False
    created_at: Timestamp | None = None


class ChannelAnswer(Record):
    """The answer to the creation or a change of a channel, which has happened even if fields are missing in it."""

    tenant_id: str | None = None
    category: str | None = None
    type: ChannelType | None = None
    shortcode: str | None = None
    name: str | None = None
    account_number: str | None = None
    is_default: bool | None = None
    created_at: Timestamp | None = None

    def completed(self, known: Mapping[str, object], changed: Mapping[str, object]) -> PaymentChannel:
        """Return the channel with what was known of it before and what was changed, where the answer lacks it.

        Raise ValidationError if that is not enough.
        """
        stated = {name: getattr(self, name) for name in self.model_fields_set}
        stated = {name: value for name, value in stated.items() if value is not None or name == "account_number"}
        channel = PaymentChannel.model_validate({**known, **changed, **(self.model_extra or {}), **stated})
        note_response(channel, self.response)
        return channel


class CreatedChannel(ChannelAnswer):
    """The answer to a creation, which needs the new channel's id."""

    id: str


class ChangedChannel(ChannelAnswer):
    """The answer to a change, which needs nothing."""

    id: str | None = None


class ChannelItems(Record):
    """The list of channels on the wire: the default first, then newest to oldest."""

    items: Items[PaymentChannel]
