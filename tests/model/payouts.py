"""One reference, a number of calls of ``pay_once`` for it, the journal's row, the service, its list, and a person."""

from __future__ import annotations

from typing import Final, NamedTuple

from momopay.journal.entries import EntryKind, JournalState

PAYOUT: Final = EntryKind.PAYOUT

# How far the time of a call has come since its row was committed.
FRESH: Final = 0
OLDER: Final = 1  # more than a second
LATE: Final = 2  # after the deadline
EXPIRED: Final = 3  # more than a minute after the lease
PHASES: Final = ("is a second old", "is past its deadline", "is past its lease by a minute")

# Ids of transactions: a payment's own is its number from 1 on.
NONE: Final = 0
HELD: Final = -1  # another row of the journal has it
FOREIGN: Final = -2  # somebody's payment that the journal does not know
FORGED: Final = -3  # of no payment at all

# How the list shows a payment.
HIDDEN: Final = 0
EXACT: Final = 1
NEAR: Final = 2  # with another amount, phone, type or time


class Row(NamedTuple):
    """The journal's row. `claim` is the number of the call that last began."""

    state: JournalState
    claim: int
    transaction: int = NONE


class Call(NamedTuple):
    """A call of ``pay_once``.

    `at` is the step that comes next, and `saw` the claim of the row as the call read it, 0 for no row. `delayed`: its
    begin statement may still be committed. `in_flight`: its request may still be executed.
    """

    at: str = "read"
    phase: int = FRESH
    saw: int = 0
    delayed: bool = False
    in_flight: bool = False
    outcome: JournalState | None = None
    transaction: int = NONE


class Release(NamedTuple):
    """A call of ``client.payouts.release``: the step that comes next, and the row as it was read.

    `wrong`: its search did not find a payment that was there.
    """

    at: str = "start"
    state: JournalState | None = None
    claim: int = 0
    wrong: bool = False


class State(NamedTuple):
    """Everything that matters for what may happen next.

    `payments` has how the list shows each. `waiting` calls did not begin yet. `told`: the journal learned of a payment.
    `wrong`: a release was made although there was a payment; `unseen`: and the list did not show it.
    """

    row: Row | None
    calls: tuple[Call, ...]
    waiting: int
    payments: tuple[int, ...]
    release: Release
    releases: int
    told: bool = False
    wrong: bool = False
    unseen: bool = False
    broken: str | None = None
