"""Transactions as they are read: one, in a list, and the list's page. Both naming styles of SPEC.md parse."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Self

from pydantic import Field, ValidationError

from momopay.models.arguments import ChannelId, Moment, Name, PageSize, Phone, Since, Text, kes
from momopay.models.enums import TransactionStatus, TransactionType
from momopay.models.records import (
    PHONE,
    REFERENCE,
    RESULT_TEXT,
    Id,
    Items,
    ProviderCode,
    Record,
    ResponseInfo,
    Timestamp,
)
from momopay.models.request_base import Request
from momopay.phones import same_phone

__all__ = ["Transaction", "TransactionOverview", "TransactionPage", "TransactionSummary"]

CLOCKS_DIFFER = timedelta(minutes=5)
"""How far the service's clock may be from this machine's when a payment is searched for."""


class TransactionSummary(Record):
    """A transaction as the list shows it (SPEC.md, "Transaction")."""

    transaction_id: Id
    type: TransactionType
    status: TransactionStatus
    amount: Decimal
    currency: str = "KES"
    phone: str = Field(validation_alias=PHONE)
    account_reference: str | None = Field(None, validation_alias=REFERENCE)
    transaction_fee: Decimal | None = None
    created_at: Timestamp
    updated_at: Timestamp


class Transaction(TransactionSummary):
    """A transaction as a single read shows it. Fields that the answer's naming style lacks are None.

    A wait that was answered from the list has only the list's fields; the others are None.
    """

    tenant_id: str | None = None
    channel_id: str | None = None
    transaction_desc: str | None = None
    provider: str | None = None
    provider_request_id: str | None = None
    provider_checkout_id: str | None = None
    result_code: ProviderCode | None = None
    result_desc: str | None = Field(None, validation_alias=RESULT_TEXT)

    @classmethod
    def from_summary(cls, summary: TransactionSummary) -> Self:
        """Take over what the list shows."""
        values = {name: getattr(summary, name) for name in type(summary).model_fields}
        try:
            transaction = cls.model_validate(values | (summary.model_extra or {}))
        except ValidationError:  # what the list shows beyond its own fields need not be what a read shows
            transaction = cls.model_validate(values)
        transaction.received(summary.response)
        return transaction


class TransactionOverview(Record):
    """Counts over the whole filtered set, whatever the page (SPEC.md, "Transaction overview")."""

    total: int
    completed: int
    failed: int
    pending: int


class TransactionPage(Record):
    """One page of the list, newest first. Pure data: it fetches nothing."""

    items: Items[TransactionSummary]
    overview: TransactionOverview
    next_cursor: str | None = None

    def received(self, info: ResponseInfo) -> None:
        """Note which answer this page and its items came in."""
        super().received(info)
        self.overview.received(info)
        for item in self.items:
            vars(item)["_response"] = info


class TransactionFilters(Request):
    """Which transactions are listed."""

    status: Text | None = None
    type: Text | None = None
    from_: Moment | None = Field(None, serialization_alias="from")
    to: Moment | None = None
    channel_id: ChannelId | None = None
    amount_min: Annotated[Decimal, kes(minimum=0)] | None = None
    amount_max: Annotated[Decimal, kes(minimum=0)] | None = None
    q: Text | None = None


class TransactionQuery(TransactionFilters):
    """The query of GET /transactions, for one page."""

    limit: PageSize = 20
    cursor: Text | None = None


class TransactionWalk(TransactionFilters):
    """The query of GET /transactions, for one page after another."""

    page_size: PageSize = Field(100, serialization_alias="limit")
    cursor: Text | None = None

    def after(self, cursor: str | None) -> Self:
        """Give the same query for the page at that cursor."""
        return self if cursor is None else self.model_copy(update={"cursor": cursor})


class Search(Request):
    """What is known of a payment that is searched for."""

    reference: Name
    since: Since
    amount: Annotated[Decimal, kes(minimum=0)] | None = None
    phone: Phone | None = None
    type: Text | None = None

    def fits(self, item: TransactionSummary) -> bool:
        """Tell whether a transaction may be the one."""
        return (
            item.account_reference == self.reference
            and not self._is_before(item)
            and self.type in {None, item.type}
            and self.amount in {None, item.amount}
            and (self.phone is None or same_phone(self.phone, item.phone))
        )

    def is_past(self, page: TransactionPage) -> bool:
        """Tell whether the list, walked this far, is older than the payment can be."""
        return bool(page.items) and self._is_before(page.items[-1])

    def _is_before(self, item: TransactionSummary) -> bool:
        return self.since - item.created_at > CLOCKS_DIFFER
