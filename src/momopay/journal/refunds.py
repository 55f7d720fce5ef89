"""The payouts that pay something of one collection back, and the rule that they never exceed what was paid.

Several processes may begin a refund of one collection at once. Each reads the collection's number of begun refunds,
then the refunds, then writes its own row as SENDING, and then raises the number, if it still is the one that it read.

Invariant: who raises the number has counted every refund that may be sent. A refund whose number was raised before was
in its row before, so it was read; a refund whose number was not raised is not sent. A process that dies in between
leaves a row that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import bindparam, func, select, update

from momopay._redaction import redacted_repr
from momopay.errors import RequestValidationError
from momopay.journal.database import ForkSafeDatabase
from momopay.journal.entries import ANONYMISED, MAY_BE_SENT, EntryKind, JournalEntry, JournalState
from momopay.journal.lease import Lease, LeaseHolder
from momopay.journal.payments import Payments
from momopay.journal.schema import lease_left, payments, prompts, update_one
from momopay.models.enums import TransactionStatus
from momopay.money import format_amount

_columns: Final = payments.c
_COLLECTION: Final = (
    _columns.account == bindparam("the_account"),
    _columns.kind == EntryKind.COLLECTION.value,
    _columns.reference == bindparam("the_collection"),
)
_PAID_PROMPTS: Final = (
    select(func.count())
    .where(
        prompts.c.account == bindparam("the_account"),
        prompts.c.reference == bindparam("the_collection"),
        prompts.c.status == TransactionStatus.SUCCESS.value,
    )
    .scalar_subquery()
)
_SELECT_COLLECTION: Final = select(
    _columns.amount, _columns.phone, _columns.status, _columns.refunds, _PAID_PROMPTS.label("paid_prompts")
).where(*_COLLECTION)
# Not ordered: SQLite would read all payments in the order that it has an index for.
_SELECT_REFUNDS: Final = select(payments, lease_left(payments)).where(
    _columns.account == bindparam("the_account"),
    _columns.kind == bindparam("the_kind"),
    _columns.refund_of == bindparam("the_collection"),
)
_RAISE_NUMBER: Final = (
    update(payments)
    .where(*_COLLECTION, _columns.refunds == bindparam("the_refunds"))
    .values(refunds=_columns.refunds + 1)
)


@dataclass(frozen=True)
class Refundable:
    """What was paid of a collection, and what of it was paid back.

    Attributes:
        of: The collection's reference.
        phone: Of the payer.
        amount: Of one prompt, KES.
        paid: By all prompts together, KES.
        counting: The refunds that were paid, or may be.
        begun: How often a refund was begun.
    """

    of: str
    phone: str
    amount: Decimal
    paid: Decimal
    counting: tuple[JournalEntry, ...]
    begun: int

    @property
    def left(self) -> Decimal:
        """What may still be paid back, KES."""
        return self.paid - sum((each.amount for each in self.counting), Decimal(0))

    @property
    def overpaid(self) -> Decimal:
        """What was paid beyond one prompt and not paid back, KES."""
        return max(Decimal(0), self.left - self.amount)

    @property
    def by_default(self) -> Decimal:
        """What a refund without an amount pays back, KES: what was paid beyond one prompt, else all that is left."""
        return self.overpaid or self.left

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


def counts(refund: JournalEntry) -> bool:
    """Return whether a refund was paid or may be: not if it was refused, not sent, or REVERSED."""
    is_reversed = refund.state is JournalState.ACCEPTED and refund.status is TransactionStatus.REVERSED
    return refund.state not in MAY_BE_SENT and not is_reversed


class Refunds(Payments):
    """The payouts of an account, of which those that are begun here pay back something of one collection."""

    def __init__(self, database: ForkSafeDatabase, leases: LeaseHolder, account: str, of: str) -> None:
        super().__init__(database, leases, account)
        self._of: str = of
        self.refund_of: str | None = of

    def plan(self, reference: str, amount: int | Decimal | None) -> tuple[int | Decimal, str]:
        """Return the amount and the phone of a refund; without an amount, that of the row, or what is left.

        Raises:
            RequestValidationError: The collection was not paid, or the amount is more than what is left.
            JournalError: The database failed.
        """
        known = self.get(reference)
        refundable = self.refundable(besides=reference)
        if amount is None and known is not None and known.refund_of == self._of:
            amount = known.amount
        elif amount is None:
            amount = refundable.by_default
            refundable.check(amount)
        if not refundable.phone or refundable.phone.startswith(ANONYMISED):
            raise RequestValidationError({"of": "was anonymised: pay back with pay_once, to a phone that you know"})
        return amount, refundable.phone

    def refundable(self, *, besides: str) -> Refundable:
        """Return what may be paid back, not counting the refund with that reference.

        Raises:
            RequestValidationError: The collection is not in the journal, or was not paid.
            JournalError: The database failed.
        """
        values = {**self._rows, "the_collection": self._of}
        with self._database.connection() as connection:
            # First the number, then the refunds: what is begun in between fails to raise it, or makes this call fail.
            row = connection.execute(_SELECT_COLLECTION, values).mappings().one_or_none()
        if row is None:
            raise RequestValidationError({"of": "is no collection in this journal; check the reference"})
        if not row["paid_prompts"]:
            known = f"its last known status is {row['status']}" if row["status"] else "its outcome is not known"
            raise RequestValidationError({"of": f"was not paid: {known}. If it was paid since, sweep, then try again"})
        amount = Decimal(row["amount"])
        refunds = sorted(self.select(_SELECT_REFUNDS, the_collection=self._of), key=lambda each: each.created_at)
        return Refundable(
            of=self._of,
            phone=row["phone"],
            amount=amount,
            paid=amount * row["paid_prompts"],
            counting=tuple(each for each in refunds if each.reference != besides and counts(each)),
            begun=row["refunds"],
        )

    def begin(
        self, lease: Lease, *, reference: str, amount: Decimal, read: JournalEntry | None = None, **rest: Any
    ) -> JournalEntry | None:
        """Do what `Payments.begin` does, unless the refunds would exceed what was paid.

        Raises:
            RequestValidationError: They would; the row does not forbid to try again.
            JournalError: The database failed.
        """
        while True:
            refundable = self.refundable(besides=reference)
            refundable.check(amount)
            forbidding = super().begin(lease, reference=reference, amount=amount, read=read, **rest)
            if forbidding is not None or self._raise_number(refundable.begun):
                return forbidding
            # Another refund was begun meanwhile, so this one counts again. Nothing of this row was sent yet.
            self.undo(lease, reference)
            read = self.get(reference)

    def _raise_number(self, begun: int) -> bool:
        values = {**self._rows, "the_collection": self._of, "the_refunds": begun}
        with self._database.connection() as connection:
            return update_one(connection, _RAISE_NUMBER, values)
