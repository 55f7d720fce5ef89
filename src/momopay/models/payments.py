"""`Payment`: one payment as the durable calls return it, and as handlers get it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Any, TypeAlias

from pydantic import Field

from momopay.models.enums import EntryKind, ResultCode, TransactionStatus, TransactionType, has_settled
from momopay.models.records import MaskedModel
from momopay.models.transactions import Payout, StkTransaction, Transaction


class Payment(MaskedModel):
    """A payment that the service accepted, now or before. You can pass it to ``transactions.wait``.

    Attributes:
        kind: Payout or collection.
        reference: Your own reference.
        transaction_id: The service's id.
        status: The last status that the service reported.
        amount: KES.
        phone: ``254XXXXXXXXX``; the repr masks it.
        result_code: The provider's code for how it ended, if the service reported one.
        fee: The service's fee, KES, if it was reported.
        receipt: The provider's receipt, once a callback or a read has shown it.
        is_new: Whether this call sent it.
        metadata: Your own JSON object, as the journal has it.
        refund_of: For a refund, the reference of the collection that it pays back.
        refunded: KES that were paid back of a collection so far, refunds under way included. A refund has it, too: the
            collection was paid back as a whole once this is as much as was collected. Of a collection, a sweep reads it
            before it calls the handler for the first end.
        transaction: The service's record, unchanged; None if no request was needed.
        in_journal: Whether the client's journal has it. False in a handler means that no call of yours made it: a pay
            link or the dashboard did, or the client has no journal.
    """

    kind: EntryKind
    reference: str
    transaction_id: str
    status: TransactionStatus
    amount: Decimal
    phone: str
    result_code: ResultCode | None = None
    fee: Decimal | None = None
    receipt: str | None = None
    is_new: bool = False
    metadata: dict[str, Any] | None = None
    refund_of: str | None = None
    refunded: Decimal = Decimal(0)
    transaction: Payout | StkTransaction | Transaction | None = Field(default=None, repr=False)
    in_journal: bool = True

    @property
    def type(self) -> TransactionType:
        """The type of the service's transactions of this kind."""
        return self.kind.transaction_type

    @property
    def is_paid(self) -> bool | None:
        """Whether the money moved: True, False, or None while the payment is open."""
        if self.status is TransactionStatus.SUCCESS:
            return True
        return False if self.status.is_terminal else None

    @property
    def is_settled(self) -> bool:
        """Whether the money is where it will stay. A payout that FAILED has settled once it is REVERSED."""
        return has_settled(self.type, self.status)


PaymentHandler: TypeAlias = Callable[[Payment], object]
"""A function that is called with each payment that has ended. Its result is ignored."""

AsyncPaymentHandler: TypeAlias = Callable[[Payment], Coroutine[Any, Any, object]]
"""An ``async def`` function that is awaited with each payment that has ended."""
