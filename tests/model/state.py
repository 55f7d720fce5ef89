"""One reference as the model sees it: calls, the journal's row, the service's payments, and a person who releases.

A payout and an order have one state machine, with the kind as a parameter. Only an order has several payments, its
prompts, which customers pay or cancel; only of a payout the time of each call is followed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from momopay.journal.entries import JournalState
from momopay.models.enums import Stage


class Phase(IntEnum):
    """How far the time of a call has come since its row was committed."""

    FRESH = 0
    OLDER = 1  # more than a second
    LATE = 2  # after the deadline
    EXPIRED = 3  # more than a minute after the lease


PHASES: Final = ("is a second old", "is past its deadline", "is past its lease by a minute")

# Transactions: a payment's own number is from 1 on.
NONE: Final = 0
HELD: Final = -1  # another row of the journal has it
FOREIGN: Final = -2  # somebody's payment that the journal does not know
FORGED: Final = -3  # of no payment at all


class Look(IntEnum):
    """How the list shows a payment."""

    HIDDEN = 0
    EXACT = 1
    NEAR = 2  # with another amount, phone, type or time


class Payment(NamedTuple):
    """A payment at the service. `swept`: ten minutes after the end of a prompt have passed, and a sweep.

    `key` is the number of the call that first sent its key, where clients send payouts again.
    """

    look: Look = Look.HIDDEN
    stage: Stage = Stage.OPEN
    swept: bool = False
    key: int = 0


class Row(NamedTuple):
    """The journal's row, and its known transactions.

    `claim` is the number of the call that last began, and `key` that of the one that first sent the row's key.
    """

    state: JournalState
    claim: int
    attempts: int = 1
    known: tuple[tuple[int, Stage], ...] = ()
    key: int = 0

    @property
    def stages(self) -> list[Stage]:
        """How far each known transaction came."""
        return [stage for _, stage in self.known]

    @property
    def transaction(self) -> int:
        """Of a payout: its one transaction, or NONE."""
        return self.known[0][0] if self.known else NONE


class Call(NamedTuple):
    """A call: the step that comes next, and what it needs.

    `saw`: the row as it was read; whatever changes it, the call must decide anew. `searched`: the row for which its
    search found nothing. `passed`: the prompts that are open and abandoned. `delayed`: its begin statement may still be
    committed. `in_flight`: its request may still be executed. `stage` is what the service said of `number`. `key` is
    set if it sends a payout again: the row's.
    """

    at: str = "read"
    phase: Phase = Phase.FRESH
    saw: Row | None = None
    searched: Row | None = None
    passed: tuple[int, ...] = ()
    delayed: bool = False
    in_flight: bool = False
    outcome: JournalState | None = None
    number: int = NONE
    stage: Stage = Stage.OPEN
    key: int = 0

    def again(self) -> Call:
        """Return the call as it reads the row again."""
        return Call(passed=self.passed)


class Release(NamedTuple):
    """A call of ``client.payouts.release``. `wrong`: its search did not find a payment that was there."""

    at: str = "start"
    saw: Row | None = None
    wrong: bool = False


class State(NamedTuple):
    """Everything that matters for what may happen next.

    `told`: the payment that the journal first learned of (an order's: as paid). `wrong`: a release, or a refusal, was
    wrong; `unseen`: and the list did not show the payment.
    """

    row: Row | None
    calls: tuple[Call, ...]
    waiting: int
    payments: tuple[Payment, ...]
    release: Release
    releases: int
    told: int = NONE
    wrong: bool = False
    unseen: bool = False
    broken: str | None = None

    @property
    def unknown(self) -> list[int]:
        known = dict(self.row.known) if self.row else {}
        return [number for number in range(1, len(self.payments) + 1) if number not in known]

    def looking(self, look: Look, *, also_known: bool = False) -> list[int]:
        """Return the payments that the list shows so, of those that the journal does not know, or of all."""
        numbers = range(1, len(self.payments) + 1) if also_known else self.unknown
        return [number for number in numbers if self.payments[number - 1].look == look]

    def put(self, index: int, call: Call) -> State:
        return self._replace(calls=(*self.calls[:index], call, *self.calls[index + 1 :]))

    def ended(self, index: int) -> State:
        """Return the state after a call ended: only what may still arrive of it is left."""
        call = self.calls[index]
        saw, key = call.saw if call.delayed else None, call.key if call.delayed or call.in_flight else 0
        return self.put(index, Call("end", call.phase, saw, delayed=call.delayed, in_flight=call.in_flight, key=key))

    def without_idle_times(self) -> State:
        """Return the state in which calls of which nothing follows any more are as old as new ones.

        It allows the same steps, so an exploration visits one state in the place of up to four.
        """
        state = self
        for index, call in enumerate(self.calls):
            if call.phase and call.at == "end" and not (call.delayed or call.in_flight or self.needs_time(index)):
                state = state.put(index, call._replace(phase=Phase.FRESH))
        return state

    def needs_time(self, index: int) -> bool:
        """Return whether the age of a call matters to the row, or to a request with its key."""
        of_row = set[int]() if self.row is None else {self.row.claim, self.row.key}
        return index + 1 in of_row | {call.key for call in self.calls}

    def with_payment(self, number: int, **changes: object) -> State:
        changed = self.payments[number - 1]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(payments=(*self.payments[: number - 1], changed, *self.payments[number:]))
