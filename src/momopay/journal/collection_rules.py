"""The rules of collections: what a call does about an order, and when another prompt may go out. Pure.

The row of an order has the state of its latest attempt to prompt, and follows `momopay.journal.rules`, but for BEGIN:
an order may be prompted again after a prompt was accepted. Beside the row, the journal has every prompt of the order
that the service accepted. `tests/model` explores both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum, auto
from typing import Final

from momopay.journal.entries import MAY_BE_SENT, JournalState
from momopay.journal.rules import TRANSITIONS, Cause, Finding, Transitions
from momopay.models.enums import TransactionStatus


class Stage(IntEnum):
    """How far a prompt came. What the journal has of a prompt only moves upwards."""

    OPEN = 0
    """The customer may still pay it, as far as is known."""
    ENDED = 1
    """It ended without success. A late PIN may pay it after all."""
    PAID = 2
    """It was paid. Nothing follows."""


class CollectStep(Enum):
    """What ``collect_once`` does next about an order."""

    SEND = auto()
    """There is no row, or every attempt ended as a prompt that was not paid: send, if the row is as it was read."""
    SEARCH_THEN_SEND = auto()
    """As SEND, but an attempt may have become a prompt that is not known: search first."""
    WAIT = auto()
    """Another call is sending: read the row again a little later."""
    RETURN_PAID = auto()
    """A prompt was paid: return its transaction, for ever."""
    READ_OPEN = auto()
    """A prompt is open as far as is known: read it, and return it if it is open still."""
    RECONCILE = auto()
    """The latest attempt may have become a prompt: search for it."""


# The causes and states of `TRANSITIONS`, with two differences. BEGIN: a prompt that was accepted and has ended does not
# block the next one, and one that is open blocks it only until the caller's `abandon_after` has passed. The database
# compares the row with the one that was read (claim, state and transaction), and that no prompt of it is paid.
# SIGHTING: a search may also show what an earlier attempt has made, beside an accepted one.
COLLECTION_TRANSITIONS: Final[Transitions] = {
    **TRANSITIONS,
    Cause.BEGIN: {JournalState.SENDING: frozenset({None, JournalState.ACCEPTED, *MAY_BE_SENT})},
    Cause.SIGHTING: {JournalState.UNKNOWN: frozenset({JournalState.ACCEPTED, *MAY_BE_SENT})},
}


def stage_of(status: TransactionStatus | None) -> Stage:
    """Return how far a prompt came that the service last reported with this status; None if it reported none."""
    if status is TransactionStatus.SUCCESS:
        return Stage.PAID
    return Stage.ENDED if status is not None and status.is_terminal else Stage.OPEN


def next_collect_step(
    state: JournalState | None, stages: Sequence[Stage], attempts: int, *, abandoned: bool = False
) -> CollectStep:
    """Return what a call does about an order.

    Args:
        state: The state of its row as it reads, that is of the latest attempt; None is "no row".
        stages: Of its known prompts. The call has read each open one before it passes it over as abandoned.
        attempts: How many times a prompt was sent or may have been, refused times included.
        abandoned: Whether `abandon_after` has passed since every prompt that is open was sent.
    """
    if Stage.PAID in stages:
        return CollectStep.RETURN_PAID
    match state:
        case None:
            return CollectStep.SEND
        case JournalState.SENDING:
            return CollectStep.WAIT
        case JournalState.UNKNOWN:
            return CollectStep.RECONCILE
        case JournalState.ACCEPTED | JournalState.REFUSED | JournalState.NOT_SENT:
            if Stage.OPEN in stages and not abandoned:
                return CollectStep.READ_OPEN
            # An attempt without a prompt was refused, or released by a person: it may be a prompt after all.
            unaccounted = state in MAY_BE_SENT or attempts > len(stages)
            return CollectStep.SEARCH_THEN_SEND if unaccounted else CollectStep.SEND


def prompts_found(exact: Sequence[object], near: Sequence[object]) -> Finding:
    """Return what a search proves about an order, whose known prompts are not among the matches."""
    # Unlike a payout an order may have several, and each that fits it is a prompt of it.
    if exact:
        return Finding.MADE
    return Finding.UNCLEAR if near else Finding.ABSENT
