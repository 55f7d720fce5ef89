"""The rules of the journal: what a call does about a payment, and which states may follow which. Pure.

Payouts and orders follow one state machine. They differ in one policy: whether another attempt may follow a transaction
that ended without success. `momopay.journal.store` makes the conditions of its SQL statements from `transitions`, and
`tests/model` explores every order in which calls, crashes, callbacks and people can use the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, IntEnum, auto
from typing import Final, TypeAlias

from momopay.journal.entries import MAY_BE_SENT, UNRESOLVED, EntryKind, JournalEntry, JournalState
from momopay.models.enums import TransactionStatus


class Stage(IntEnum):
    """How far a transaction came. What the journal has of one only moves upwards."""

    OPEN = 0
    """It may still be paid, as far as is known."""
    ENDED = 1
    """It ended without success. A late PIN may pay a prompt after all."""
    PAID = 2
    """The money moved."""


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


_SENDING, _ACCEPTED, _REFUSED, _NOT_SENT, _UNKNOWN = (
    JournalState.SENDING,
    JournalState.ACCEPTED,
    JournalState.REFUSED,
    JournalState.NOT_SENT,
    JournalState.UNKNOWN,
)

REPEATS: Final[Mapping[EntryKind, bool]] = {EntryKind.PAYOUT: False, EntryKind.COLLECTION: True}
"""The policy: whether another attempt may follow a transaction that ended without success."""

Transitions: TypeAlias = Mapping[Cause, Mapping[JournalState, frozenset[JournalState | None]]]

# Seconds after the end of the lease of the latest attempt before a person may release a payment. What was sent may
# still be on its way, and a frozen sender may go on; after that neither can reach the service.
RELEASE_AFTER_LEASE: Final = 60.0


def transitions(kind: EntryKind) -> Transitions:
    """Return, for each cause, the states from which it leads to each state; None is "no row"."""
    free = MAY_BE_SENT | {_ACCEPTED} if REPEATS[kind] else MAY_BE_SENT
    return {
        Cause.BEGIN: {_SENDING: frozenset({None, *free})},
        # A stored UNKNOWN is not among them: it was written by something that knows more than the call that sent, such
        # as a search that saw the payment.
        Cause.OUTCOME: {state: frozenset({_SENDING}) for state in (_REFUSED, _NOT_SENT, _UNKNOWN)},
        Cause.ACCEPTANCE: {_ACCEPTED: frozenset(JournalState)},
        Cause.CONTRADICTION: {_UNKNOWN: frozenset({_ACCEPTED})},
        # A search for an order may also show what an earlier attempt has made, beside an accepted one.
        Cause.SIGHTING: {_UNKNOWN: frozenset(free)},
        # A row in SENDING whose sender died reads as UNKNOWN.
        Cause.RELEASE: {_NOT_SENT: frozenset({_SENDING, _UNKNOWN})},
    }


def stage_of(status: TransactionStatus | None) -> Stage:
    """Return how far a transaction came that the service last reported with this status; None if it reported none."""
    if status is TransactionStatus.SUCCESS:
        return Stage.PAID
    return Stage.ENDED if status is not None and status.is_terminal else Stage.OPEN


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
    """Return what a call does about a payment.

    Args:
        kind: Of the payment.
        state: The state of its row as it reads, that is of the latest attempt; None is "no row".
        stages: Of its known transactions.
        attempts: How many times it was sent or may have been, refused times included.
        passed_over: The indexes of open transactions that the call has read and treats as abandoned.
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


def may_follow(kind: EntryKind, cause: Cause, before: JournalState | None, after: JournalState) -> bool:
    """Return whether a cause may change a row from one state to another."""
    return before in transitions(kind)[cause].get(after, frozenset())


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
