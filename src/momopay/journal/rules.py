"""The rules of the journal: what a call does about an entry, and which states may follow which. Pure.

`TRANSITIONS` is the whole life of a row. The SQL statements of `momopay.journal.payments` take their conditions from
it, and `tests/model` explores every order in which calls, crashes, callbacks and people can use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, TypeAlias

from momopay.journal.entries import MAY_BE_SENT, JournalState


class Step(Enum):
    """What ``pay_once`` does next about a reference."""

    SEND = auto()
    """There is no row: insert it as SENDING, then send."""
    SEARCH_THEN_SEND = auto()
    """It was attempted before: send only if a search does not show it."""
    WAIT = auto()
    """Another call is sending it: read the row again a little later."""
    READ = auto()
    """The service accepted it: return its transaction."""
    RECONCILE = auto()
    """It may have been executed: search for it, and never send it."""


class Cause(Enum):
    """What may change the state of a row."""

    BEGIN = auto()
    """A call is about to send. The row must still be the one that the call read."""
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

Transitions: TypeAlias = Mapping[Cause, Mapping[JournalState, frozenset[JournalState | None]]]

# For each cause, the states from which it leads to each state; None is "no row". A row in SENDING whose sender died
# reads as UNKNOWN, so RELEASE names both. OUTCOME does not: a stored UNKNOWN was written by something that knows more
# than the call that sent, such as a search that saw the payment.
TRANSITIONS: Final[Transitions] = {
    Cause.BEGIN: {_SENDING: frozenset({None, *MAY_BE_SENT})},
    Cause.OUTCOME: {
        _REFUSED: frozenset({_SENDING}),
        _NOT_SENT: frozenset({_SENDING}),
        _UNKNOWN: frozenset({_SENDING}),
    },
    Cause.ACCEPTANCE: {_ACCEPTED: frozenset(JournalState)},
    Cause.CONTRADICTION: {_UNKNOWN: frozenset({_ACCEPTED})},
    Cause.SIGHTING: {_UNKNOWN: frozenset(MAY_BE_SENT)},
    Cause.RELEASE: {_NOT_SENT: frozenset({_SENDING, _UNKNOWN})},
}

# Seconds after the end of a lease before a person may release a row whose sender never reported an outcome.
RELEASE_AFTER_LEASE: Final = 60.0


def next_step(state: JournalState | None) -> Step:
    """Return what a call does about a reference whose row reads as this state; None is "no row"."""
    match state:
        case None:
            return Step.SEND
        case JournalState.REFUSED | JournalState.NOT_SENT:
            return Step.SEARCH_THEN_SEND
        case JournalState.SENDING:
            return Step.WAIT
        case JournalState.ACCEPTED:
            return Step.READ
        case JournalState.UNKNOWN:
            return Step.RECONCILE


def may_follow(cause: Cause, before: JournalState | None, after: JournalState) -> bool:
    """Return whether a cause may change a row from one state to another."""
    return before in TRANSITIONS[cause].get(after, frozenset())


class Finding(Enum):
    """What a search proves about a payment."""

    MADE = auto()
    """It was made: exactly one transaction fits."""
    UNCLEAR = auto()
    """Several fit, or one has its reference and differs in something else."""
    ABSENT = auto()
    """The list does not show it. That proves nothing by itself: the list may lag."""


def finding(exact: Sequence[object], near: Sequence[object]) -> Finding:
    """Return what the exact and the near matches of a search prove."""
    if len(exact) == 1:
        return Finding.MADE
    return Finding.UNCLEAR if exact or near else Finding.ABSENT
