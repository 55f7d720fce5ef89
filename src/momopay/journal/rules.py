"""The rules: which states may follow which, what blocks another attempt, and what may be refunded. No I/O.

Payouts and orders follow the same state machine. They differ in one policy: whether another attempt may follow a
transaction that ended without success. `momopay.journal.statements` derives the conditions of its SQL from
`transitions`. `tests/model` explores every order in which calls, crashes, callbacks and people can use the rules.

Which scale answers which question:

| scale | of | question |
|---|---|---|
| `TransactionStatus` | a transaction | What does the service call its state? |
| `Stage` | a transaction | Is it open, paid, or ended without success? It follows from the status. |
| `JournalState` | a payment | How far did our latest attempt come? It is a column of the row. |
| `Cause` | a payment | Why does that state change? |
| `Fit` | a record of the list | Is it the payment that a search looks for? |
| `Proof` | a search | Do the records that fit prove that the payment was made? |

What a durable call does next is decided in `momopay.durable.decide`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, auto
from itertools import count
from typing import Final

from momopay._redaction import mask_phone, redacted_repr
from momopay.errors import RequestValidationError
from momopay.journal.entries import MAY_BE_SENT, UNRESOLVED, JournalEntry, JournalState, Moment
from momopay.models.enums import EntryKind, Stage, TransactionStatus, stage_of
from momopay.money import format_amount


class Cause(Enum):
    """Why the state of a row changes."""

    BEGIN = auto()
    """A call is about to send. The row must not have changed since the call read it."""
    OUTCOME = auto()
    """The call that sent reports the outcome. The row must still have its lease."""
    ACCEPTANCE = auto()
    """A response or record of the service shows this payment, with a transaction id that no other row has."""
    CONTRADICTED = auto()
    """The service's record of the accepted transaction is another payment."""
    SEEN = auto()
    """A search for a payment that was refused or not sent finds one with its reference after all."""
    RESEND = auto()
    """A call sends an unresolved payment once more with its Idempotency-Key. The row must be unchanged."""
    RELEASE = auto()
    """A person knows that the payment was not made. The row must be unchanged, and its lease over."""


REPEATS: Final[Mapping[EntryKind, bool]] = {EntryKind.PAYOUT: False, EntryKind.COLLECTION: True}
"""The policy: whether another attempt may follow a transaction that ended without success."""

KEYED: Final[Mapping[EntryKind, bool]] = {EntryKind.PAYOUT: True, EntryKind.COLLECTION: False}
"""The policy: whether the service takes an Idempotency-Key, by which it may know a request that is sent again."""

# Seconds after the first request with a key within which it may be sent again: the service may forget the key later.
RESEND_WITHIN: Final = 900.0
# Seconds by which the clocks of two responses may differ: the ``Date`` header has whole seconds.
_CLOCK_RESOLUTION: Final = 1.0

# Seconds between the end of the latest attempt's lease and the time when a person may release the payment. Until then,
# a request may be on its way, or a frozen sender may continue.
RELEASE_AFTER_LEASE: Final = 60.0

# Before the first use of a journal: payments of that time, which it did not make, show that another may be lost.
PAST: Final = timedelta(days=30)


def transitions(kind: EntryKind) -> Mapping[Cause, Mapping[JournalState, frozenset[JournalState | None]]]:
    """Return, for each cause, the states from which it leads to each state; None is "no row"."""
    states = JournalState
    free = MAY_BE_SENT | {states.ACCEPTED} if REPEATS[kind] else MAY_BE_SENT
    return {
        Cause.BEGIN: {states.SENDING: frozenset({None, *free})},
        # Not a stored UNKNOWN: what wrote it, such as a search that found the payment, knows more than the sender.
        Cause.OUTCOME: dict.fromkeys((states.REFUSED, states.NOT_SENT, states.UNKNOWN), frozenset({states.SENDING})),
        Cause.ACCEPTANCE: {states.ACCEPTED: frozenset(states)},
        Cause.CONTRADICTED: {states.UNKNOWN: frozenset({states.ACCEPTED})},
        # A search for an order may also find the transaction of an earlier attempt, beside an accepted one.
        Cause.SEEN: {states.UNKNOWN: frozenset(free)},
        # A row in SENDING whose sender died reads as UNKNOWN.
        Cause.RESEND: {states.SENDING: UNRESOLVED if KEYED[kind] else frozenset()},
        Cause.RELEASE: {states.NOT_SENT: frozenset({states.SENDING, states.UNKNOWN})},
    }


def blocks(kind: EntryKind, stage: Stage) -> bool:
    """Return whether a transaction at this stage blocks another attempt."""
    return stage is not Stage.ENDED or not REPEATS[kind]


def seconds_to_resend(entry: JournalEntry, now: Moment) -> float:
    """Return for how long an unresolved payment may still be sent again where the service honours its key.

    0 or less if it may not, or if no clock shows when it was first sent.
    """
    if not KEYED[entry.kind] or entry.state is not JournalState.UNKNOWN or entry.key_since is None:
        return 0.0
    passed = Moment.of(entry.key_since).seconds_until(now)
    return 0.0 if passed is None or passed < -_CLOCK_RESOLUTION else RESEND_WITHIN - passed


def payout_key(scope: str, reference: str, amount: Decimal, phone: str, number: int) -> str:
    """Return the Idempotency-Key of an attempt at a payout: 64 hexadecimal digits, the same from any journal.

    `scope` is from `Accounts.scope`, and `number` how many attempts were definitely refused, plus 1.
    """
    # As JSON, so that no two lists of fields have the same text.
    fields = json.dumps(["payout", scope, reference, format_amount(amount), phone, number])
    return hashlib.sha256(fields.encode()).hexdigest()


def may_have_executed(entry: JournalEntry) -> bool:
    """Return whether, for all that the entry says, money has moved or may still move."""
    if entry.state in UNRESOLVED:
        return True
    return any(blocks(entry.kind, stage_of(each.status)) for each in entry.transactions)


class Proof(Enum):
    """What a search proves about a payment."""

    MADE = auto()
    """It was made."""
    UNRESOLVED = auto()
    """Several transactions fit where only one can, or one has the reference but differs in another field."""
    ABSENT = auto()
    """The list does not show it. This alone proves nothing, as the list may lag."""


def proof(kind: EntryKind, exact: Sequence[object], near: Sequence[object]) -> Proof:
    """Return what the exact and near matches of a search prove. They do not include known transactions."""
    if len(exact) == 1 or (exact and REPEATS[kind]):  # an order may have several prompts
        return Proof.MADE
    return Proof.UNRESOLVED if exact or near else Proof.ABSENT


@dataclass(frozen=True)
class Refundable:
    """What was paid of a collection, and what was refunded."""

    order: JournalEntry
    refunds: Sequence[JournalEntry]  # all, oldest first
    excluding: str = ""  # the reference of a refund that is not counted

    @property
    def paid(self) -> Decimal:
        """The amount that was paid, in KES."""
        return sum((each.amount for each in self.order.counting), Decimal(0))

    @property
    def counted_refunds(self) -> list[JournalEntry]:
        """The refunds that were paid, or may be."""
        return [each for each in self.refunds if each.reference != self.excluding and refunded(each)]

    @property
    def paid_back(self) -> Decimal:
        """The amount of the refunds that were paid, or may be, in KES."""
        return sum(map(refunded, self.counted_refunds), Decimal(0))

    @property
    def left(self) -> Decimal:
        """The amount that may still be refunded, in KES."""
        return self.paid - self.paid_back

    @property
    def phone(self) -> str:
        """The phone to refund: of those that paid and did not get all back, the one that paid last."""
        phones = [each.phone for each in self.order.counting[::-1]]
        return next((each for each in phones if self.left_to(each) > 0), phones[0])

    def left_to(self, phone: str) -> Decimal:
        """Return the amount that may still be refunded to this phone, in KES."""
        if self.order.is_anonymised:  # nothing shows who paid
            return self.left
        paid = sum(each.amount for each in self.order.counting if each.phone == phone)
        back = sum((refunded(each) for each in self.counted_refunds if each.phone == phone), Decimal(0))
        return min(self.left, paid - back)

    @property
    def overpaid(self) -> Decimal:
        """The amount that was paid in excess of the order and not paid back, in KES."""
        # A refund that began before a second payment was of the order itself: it reduces what is to be kept of that.
        amount = self.order.amount
        early = [each for each in self.counted_refunds if each.paid_before is not None and each.paid_before <= amount]
        wanted = max(Decimal(0), amount - sum(map(refunded, early), Decimal(0)))
        return max(Decimal(0), self.left - wanted)

    @property
    def default_amount(self) -> Decimal:
        """The default amount of a refund, in KES: what was overpaid, else what is left, as far as `phone` paid it."""
        amount = self.overpaid or self.left
        return min(amount, self.left_to(self.phone)) if amount > 0 else amount

    def free_reference(self) -> str:
        """Return the first default reference that no refund has."""
        taken = {each.reference for each in self.refunds}
        references = (refund_reference(self.order.reference, number) for number in count(1))
        return next(each for each in references if each not in taken)

    def check(self, amount: Decimal, phone: str | None = None) -> None:
        """Raise RequestValidationError if this amount may not be refunded."""
        left = self.left if phone is None else self.left_to(phone)
        if 0 < amount <= left:
            return
        counted = ", ".join(
            f"{redacted_repr(each.reference)} KES {format_amount(refunded(each))} ({each.status or each.state})"
            for each in self.counted_refunds
        )
        to = "" if left == self.left else f" to {mask_phone(phone or '')}; refund each other phone by itself"
        problem = (
            f"KES {format_amount(left)} of the KES {format_amount(self.paid)} that was paid is left to refund{to}."
            f" These refunds count: {counted or 'none'}"
        )
        if not all(each.has_settled for each in self.counted_refunds):
            problem += ". One that fails counts until it reads as REVERSED: sweep, then try again"
        raise RequestValidationError({"amount": problem})

    def remedy(self) -> str:
        """Return the remedy for an order that was paid again, as text."""
        amount = format_amount(self.default_amount)
        call = f"of={redacted_repr(self.order.reference)}, reference={redacted_repr(self.free_reference())}"
        return f"pay back KES {amount}, with client.payouts.refund({call}, amount=Decimal({amount!r}))"


def refund_reference(of: str, number: int = 1) -> str:
    """Return the default reference of a refund."""
    return f"{of}-R{number}"


def refunded(refund: JournalEntry) -> Decimal:
    """Return what a refund paid or may have paid, in KES: 0 if it was refused, not sent, REVERSED or CANCELLED."""
    # A refund that a person released, and that was sent again, may have been made twice.
    unpaid = {TransactionStatus.REVERSED, TransactionStatus.CANCELLED}
    made = sum(each.status not in unpaid for each in refund.transactions)
    return refund.amount * (made + (refund.state in UNRESOLVED))


def is_contested(entry: JournalEntry, sharing: Iterable[JournalEntry]) -> bool:
    """Return whether a transaction with an order's reference may belong to an unresolved order that shares it."""
    return entry.state not in UNRESOLVED and any(
        other.kind is entry.kind and other.state in UNRESOLVED for other in sharing
    )


def check_sharing(other: JournalEntry, wire_reference: str, reference: str, amount: Decimal) -> None:
    """Raise RequestValidationError if another order with the same reference blocks this one.

    It does while it is open or unresolved and has the same amount, as their transactions could be confused.
    """
    if other.kind is EntryKind.PAYOUT or other.reference == reference or other.amount != amount:
        return
    if other.state in UNRESOLVED or any(each.is_open for each in other.transactions):
        problem = (
            f"{redacted_repr(wire_reference)} is that of order {redacted_repr(other.reference)} too, which has the same"
            " amount and has not ended: wait for its end, or give this order another one"
        )
        raise RequestValidationError({"account_reference": problem})


# A transaction that is older than an attempt by more than this is not that attempt's. The margin is for the ``Date``
# header, which has whole seconds, and for differences between the service's clocks.
_EARLIER: Final = timedelta(seconds=3)
_LATEST: Final = timedelta(minutes=5)  # after an attempt was sent; no service takes longer to create its transaction


def is_earlier(entry: JournalEntry, created_at: datetime | None, status: TransactionStatus | None) -> bool:
    """Return whether a new prompt is from an earlier attempt, while the latest attempt is unresolved."""
    are_others_known = len(entry.transactions) + 1 >= entry.attempts  # so a new one is the latest attempt's
    if entry.state not in UNRESOLVED or are_others_known:
        return False
    if entry.clock_offset is not None and created_at is not None:
        age = created_at - (entry.sent_at - timedelta(seconds=entry.clock_offset))
        if age < _LATEST:  # else the times are by different clocks, or in different zones
            return age < -_EARLIER
    # The attempts cannot be distinguished. An ended one must not free an order whose other prompt may be open.
    return stage_of(status) is Stage.ENDED
