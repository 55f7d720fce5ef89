"""What must hold between payments: refunds never exceed what was paid, and orders that share a reference wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import count

from momopay._redaction import redacted_repr
from momopay.errors import RequestValidationError
from momopay.journal.entries import MAY_BE_SENT, UNRESOLVED, EntryKind, JournalEntry
from momopay.models.enums import TransactionStatus
from momopay.money import format_amount


@dataclass(frozen=True)
class Refundable:
    """What was paid of a collection, and what of it was paid back.

    Attributes:
        order: The collection.
        refunds: All its refunds, oldest first.
        besides: The reference of a refund that is not counted, "" if all are.
    """

    order: JournalEntry
    refunds: Sequence[JournalEntry]
    besides: str = ""

    @property
    def paid(self) -> Decimal:
        """What all its transactions together brought, KES."""
        return sum((each.amount for each in self.order.counting), Decimal(0))

    @property
    def counting(self) -> list[JournalEntry]:
        """The refunds that were paid, or may be."""
        return [each for each in self.refunds if each.reference != self.besides and counts(each)]

    @property
    def left(self) -> Decimal:
        """What may still be paid back, KES."""
        return self.paid - sum((each.amount for each in self.counting), Decimal(0))

    @property
    def overpaid(self) -> Decimal:
        """What was paid beyond the order and not paid back, KES."""
        # What was refunded before a second payment came was of the order itself: that much is not wanted any more.
        amount = self.order.amount
        early = [each.amount for each in self.counting if each.paid_before is not None and each.paid_before <= amount]
        wanted = max(Decimal(0), amount - sum(early, Decimal(0)))
        return max(Decimal(0), self.left - wanted)

    @property
    def by_default(self) -> Decimal:
        """What a refund without an amount pays back, KES: what was paid beyond one payment, else all that is left."""
        return self.overpaid or self.left

    def free_reference(self) -> str:
        """Return the first of the default references that no refund has."""
        taken = {each.reference for each in self.refunds}
        return next(
            name for number in count(1) if (name := refund_reference(self.order.reference, number)) not in taken
        )

    def check(self, amount: Decimal) -> None:
        """Raise RequestValidationError if so much may not be paid back."""
        if 0 < amount <= self.left:
            return
        counted = ", ".join(
            f"{redacted_repr(each.reference)} KES {format_amount(each.amount)} ({each.status or each.state})"
            for each in self.counting
        )
        problem = (
            f"KES {format_amount(self.left)} of the KES {format_amount(self.paid)} that was paid is left to refund."
            f" These refunds count: {counted or 'none'}"
        )
        if not all(each.has_settled for each in self.counting):
            problem += ". One that fails counts until it reads as REVERSED: sweep, then try again"
        raise RequestValidationError({"amount": problem})

    def remedy(self) -> str:
        """Return what to do about an order that was paid again."""
        amount = self.overpaid
        call = f"of={redacted_repr(self.order.reference)}, reference={redacted_repr(self.free_reference())}"
        return (
            f"pay back KES {format_amount(amount)}, with"
            f" client.payouts.refund({call}, amount=Decimal({format_amount(amount)!r}))"
        )


def refund_reference(of: str, number: int = 1) -> str:
    """Return the reference of a refund for which the caller gives none."""
    return f"{of}-R{number}"


def counts(refund: JournalEntry) -> bool:
    """Return whether a refund was paid or may be: not if it was refused, not sent, or REVERSED."""
    return refund.state not in MAY_BE_SENT and refund.status is not TransactionStatus.REVERSED


def check_sharing(other: JournalEntry, wire_reference: str, reference: str, amount: Decimal) -> None:
    """Raise RequestValidationError if another order blocks one that is to go out under the same reference.

    It does while it is open or unresolved with the same amount: what belongs to one could be taken for the other's.
    """
    if other.kind is EntryKind.PAYOUT or other.reference == reference or other.amount != amount:
        return
    if other.state in UNRESOLVED or any(each.is_open for each in other.transactions):
        problem = (
            f"{redacted_repr(wire_reference)} is that of order {redacted_repr(other.reference)} too, which has the same"
            " amount and has not ended: wait for its end, or give this order another one"
        )
        raise RequestValidationError({"account_reference": problem})
