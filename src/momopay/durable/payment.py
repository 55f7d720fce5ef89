"""`Payment`, what the durable calls return."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from pydantic import ConfigDict, Field

from momopay.journal.entries import EntryKind, JournalEntry
from momopay.models.enums import ResultCode, TransactionStatus, TransactionType
from momopay.models.records import MaskedModel
from momopay.models.transactions import Payout, StkTransaction, Transaction

__all__ = ["Payment"]


class Payment(MaskedModel):
    """A payment that the service accepted, now or before. ``transactions.wait`` takes it as any record.

    Attributes:
        kind: Payout or collection.
        reference: Your own.
        transaction_id: The service's id.
        status: As the service reported it last.
        amount: KES.
        phone: ``254XXXXXXXXX``; the repr masks it.
        result_code: The provider's code for how it ended, where the service reported one.
        fee: The service's fee, KES, where it was reported.
        receipt: The provider's receipt, which only a callback brings.
        is_new: Whether this call sent it.
        transaction: The service's record as it came; None if no request was needed.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    kind: EntryKind
    reference: str
    transaction_id: str
    status: TransactionStatus
    amount: Decimal
    phone: str
    result_code: ResultCode | None = None
    fee: Decimal | None = None
    receipt: str | None = None
    is_new: bool
    transaction: Payout | StkTransaction | Transaction | None = Field(default=None, repr=False)

    @property
    def type(self) -> TransactionType:
        """The type that the service's transactions of this kind have."""
        return self.kind.transaction_type

    @property
    def is_paid(self) -> bool | None:
        """Whether the money moved: True, False, or None while that is open."""
        if self.status is TransactionStatus.SUCCESS:
            return True
        return False if self.status.is_terminal else None


def payment_of(
    kind: EntryKind,
    reference: str,
    record: Payout | StkTransaction | Transaction,
    *,
    is_new: bool = False,
    entry: JournalEntry | None = None,
) -> Payment:
    """Return the payment that a record of the service is, with what only the journal knows of it."""
    transactions = () if entry is None else entry.transactions
    known = next((each for each in transactions if each.transaction_id == record.transaction_id), None)
    payment = Payment.model_construct(
        kind=kind,
        reference=reference,
        transaction_id=record.transaction_id,
        status=record.status,
        amount=record.amount,
        phone=record.phone,
        result_code=record.result_code,
        fee=record.transaction_fee,
        receipt=None if known is None else known.receipt,
        is_new=is_new,
        transaction=record,
    )
    if known is not None and known.is_paid and not payment.is_paid:
        # A callback was first: a record of the service that is behind it takes no payment back.
        return payment.model_copy(update={"status": known.status, "result_code": known.result_code, "fee": known.fee})
    return payment


def payment_in(entry: JournalEntry) -> Payment | None:
    """Return the payment that the journal has as accepted, without a request; None if it has none."""
    known = entry.transaction
    if known is None:
        return None
    return Payment(
        kind=entry.kind,
        reference=entry.reference,
        transaction_id=known.transaction_id,
        status=known.status or TransactionStatus.PENDING,
        amount=known.amount,
        phone=known.phone,
        result_code=known.result_code,
        fee=known.fee,
        receipt=known.receipt,
        is_new=False,
    )
