"""The rules: what a call does about a payment, which states may follow which, and what may be refunded. Pure.

Payouts and orders follow one state machine. They differ in one policy: whether another attempt may follow a transaction
that ended without success. `momopay.journal.store` makes the conditions of its SQL statements from `transitions`, and
`tests/model` explores every order in which calls, crashes, callbacks and people can use the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from itertools import count
from typing import Final

from momopay._redaction import redacted_repr
from momopay.errors import RequestValidationError
from momopay.journal.entries import MAY_BE_SENT, UNRESOLVED, EntryKind, JournalEntry, JournalState
from momopay.models.enums import Stage, TransactionStatus, stage_of
from momopay.money import format_amount


class Step(Enum):
    """What a durable call does next about a payment."""

    SEND = auto()
    """Nothing blocks it, and every earlier attempt is accounted for: send, if the row is as it was read."""
    SEARCH_THEN_SEND = auto()
    """As SEND, but an earlier attempt may have become a transaction that is not known: search first."""
    WAIT = auto()
    """Another call is sending it: read the row again a little later."""
    READ = auto()
    """A transaction was paid, or blocks another attempt: read it, and return it if it still does."""
    RECONCILE = auto()
    """The latest attempt may have been executed: search for it, and never send it by itself."""


class Cause(Enum):
    """What may change the state of a row."""

    BEGIN = auto()
    """A call is about to send. The row must still be as the call read it."""
    OUTCOME = auto()
    """The call that sent reports how it ended. The row must still carry its lease."""
    ACCEPTANCE = auto()
    """The service's own response or record shows this payment, under an id that no other row has."""
    CONTRADICTION = auto()
    """The service's record under the accepted id is another payment."""
    SIGHTING = auto()
    """A search for a payment that was refused or not sent shows one with its reference after all."""
    RELEASE = auto()
    """A person knows that the payment was not made. The row must be as it was read, its lease over."""


REPEATS: Final[Mapping[EntryKind, bool]] = {EntryKind.PAYOUT: False, EntryKind.COLLECTION: True}
"""The policy: whether another attempt may follow a transaction that ended without success."""

# Seconds after the end of the lease of the latest attempt before a person may release a payment. What was sent may
# still be on its way, and a frozen sender may go on; after that neither can reach the service.
RELEASE_AFTER_LEASE: Final = 60.0


def transitions(kind: EntryKind) -> Mapping[Cause, Mapping[JournalState, frozenset[JournalState | None]]]:
    """Return, for each cause, the states from which it leads to each state; None is "no row"."""
    states = JournalState
    free = MAY_BE_SENT | {states.ACCEPTED} if REPEATS[kind] else MAY_BE_SENT
    return {
        Cause.BEGIN: {states.SENDING: frozenset({None, *free})},
        # A stored UNKNOWN is not among them: it was written by something that knows more than the call that sent, such
        # as a search that saw the payment.
        Cause.OUTCOME: dict.fromkeys((states.REFUSED, states.NOT_SENT, states.UNKNOWN), frozenset({states.SENDING})),
        Cause.ACCEPTANCE: {states.ACCEPTED: frozenset(states)},
        Cause.CONTRADICTION: {states.UNKNOWN: frozenset({states.ACCEPTED})},
        # A search for an order may also show what an earlier attempt has made, beside an accepted one.
        Cause.SIGHTING: {states.UNKNOWN: frozenset(free)},
        # A row in SENDING whose sender died reads as UNKNOWN.
        Cause.RELEASE: {states.NOT_SENT: frozenset({states.SENDING, states.UNKNOWN})},
    }


def blocks(kind: EntryKind, stage: Stage) -> bool:
    """Return whether a transaction at this stage forbids another attempt."""
    return stage is not Stage.ENDED or not REPEATS[kind]


def next_step(
    kind: EntryKind,
    state: JournalState | None,
    stages: Sequence[Stage],
    attempts: int,
    *,
    passed_over: Collection[int] = (),
) -> Step:
    """Return what a call does about a payment, by its row and the stages of its known transactions.

    `state` is that of the row as it reads, so of the latest attempt; None is "no row". `passed_over` are the indexes of
    open transactions that the call has read and treats as abandoned.
    """
    if Stage.PAID in stages:
        return Step.READ
    match state:
        case None:
            return Step.SEND
        case JournalState.SENDING:
            return Step.WAIT
        case JournalState.UNKNOWN:
            return Step.RECONCILE
        case JournalState.ACCEPTED | JournalState.REFUSED | JournalState.NOT_SENT:
            if any(blocks(kind, stage) for index, stage in enumerate(stages) if index not in passed_over):
                return Step.READ
            # An attempt without a transaction was refused, or released by a person: it may be one after all.
            unaccounted = state in MAY_BE_SENT or attempts > len(stages)
            return Step.SEARCH_THEN_SEND if unaccounted else Step.SEND


def may_have_executed(entry: JournalEntry) -> bool:
    """Return whether an entry leaves open that money has moved, or may still move, by what was sent so far."""
    if entry.state in UNRESOLVED:
        return True
    return any(blocks(entry.kind, stage_of(each.status)) for each in entry.transactions)


class Proof(Enum):
    """What a search proves about a payment."""

    MADE = auto()
    """It was made."""
    UNRESOLVED = auto()
    """Several fit where only one can, or one has its reference and differs in something else."""
    ABSENT = auto()
    """The list does not show it. That proves nothing by itself: the list may lag."""


def proof(kind: EntryKind, exact: Sequence[object], near: Sequence[object]) -> Proof:
    """Return what the exact and the near matches of a search prove. Known transactions are not among them."""
    if len(exact) == 1 or (exact and REPEATS[kind]):  # an order may have several prompts
        return Proof.MADE
    return Proof.UNRESOLVED if exact or near else Proof.ABSENT


# Between payments: refunds never exceed what was paid, and orders that share a reference wait.


@dataclass(frozen=True)
class Refundable:
    """What was paid of a collection, and what of it was paid back."""

    order: JournalEntry
    refunds: Sequence[JournalEntry]  # all, oldest first
    besides: str = ""  # the reference of one that is not counted

    @property
    def paid(self) -> Decimal:
        """What all its transactions together brought, KES."""
        return sum((each.amount for each in self.order.counting), Decimal(0))

    @property
    def counting(self) -> list[JournalEntry]:
        """The refunds that were paid, or may be."""
        return [each for each in self.refunds if each.reference != self.besides and refunded(each)]

    @property
    def left(self) -> Decimal:
        """What may still be paid back, KES."""
        return self.paid - sum(map(refunded, self.counting), Decimal(0))

    @property
    def phone(self) -> str:
        """Whom to pay back: who paid last, of those who have not had all of it back."""
        back: dict[str, Decimal] = {}
        for each in self.counting:
            back[each.phone] = back.get(each.phone, Decimal(0)) + refunded(each)
        payments = self.order.counting[::-1]
        for paid in payments:
            if back.get(paid.phone, Decimal(0)) < paid.amount:
                return paid.phone
            back[paid.phone] -= paid.amount
        return payments[0].phone

    @property
    def overpaid(self) -> Decimal:
        """What was paid beyond the order and not paid back, KES."""
        # What was refunded before a second payment came was of the order itself: that much is not wanted any more.
        amount = self.order.amount
        early = [each for each in self.counting if each.paid_before is not None and each.paid_before <= amount]
        wanted = max(Decimal(0), amount - sum(map(refunded, early), Decimal(0)))
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
            f"{redacted_repr(each.reference)} KES {format_amount(refunded(each))} ({each.status or each.state})"
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
        amount = format_amount(self.overpaid)
        call = f"of={redacted_repr(self.order.reference)}, reference={redacted_repr(self.free_reference())}"
        return f"pay back KES {amount}, with client.payouts.refund({call}, amount=Decimal({amount!r}))"


def refund_reference(of: str, number: int = 1) -> str:
    """Return the reference of a refund for which the caller gives none."""
    return f"{of}-R{number}"


def refunded(refund: JournalEntry) -> Decimal:
    """Return what a refund paid, or may have paid, KES: nothing if it was refused, not sent, or REVERSED."""
    # One that a person released may have been made twice.
    made = sum(each.status is not TransactionStatus.REVERSED for each in refund.transactions)
    return refund.amount * (made + (refund.state in UNRESOLVED))


def is_contested(entry: JournalEntry, sharing: Iterable[JournalEntry]) -> bool:
    """Return whether what the list shows under an order's reference may be that of another one, which is unresolved."""
    return entry.state not in UNRESOLVED and any(
        other.kind is entry.kind and other.state in UNRESOLVED for other in sharing
    )


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
