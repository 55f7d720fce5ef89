"""What is known of one transaction that a wait is waiting for. Times are in seconds, on the backend's monotonic clock.

Thread safety: a waiter is shared by its owner (the wait it belongs to), the wait that is polling, and whoever calls
``notify``. It needs no lock, because each attribute is assigned in one step and no decision depends on two of them
being changed together:
- The wait that is polling writes what was read. There is only one at a time; see `WaitCoordinator`.
- The owner writes what it concluded from that.
- Anybody may set `notified` and `needs_full_read`, which are requests to poll; a poll round clears them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final, NamedTuple

from momopay.errors import MomoPayError, ProtocolError
from momopay.models.enums import TransactionStatus
from momopay.models.transactions import Transaction

# Poll intervals to wait for a failure's result code.
RESULT_POLLS: Final = 3


class Observation(NamedTuple):
    """What one request showed of a transaction: all its fields, or only those of a list row."""

    transaction: Transaction
    is_full: bool


@dataclass(eq=False)
class Waiter:
    """One transaction of one wait."""

    transaction_id: str
    created_at: datetime | None  # tells how far down the list it can be; a poll round corrects it
    every: float
    deadline: float  # when the wait gives up

    # Written by whoever asks for a poll, and by poll rounds.
    next_poll_at: float
    notified: bool = False
    needs_full_read: bool = False

    # Written by the wait that is polling.
    observation: Observation | None = None
    failure: MomoPayError | None = None  # ends the wait: a refusal of this transaction, or malformed answers
    was_malformed: bool = False  # whether the last answer was not the service's format
    last_read_at: float = -inf  # read or tried to read
    reads: int = 0

    # Written by the owner.
    judged: Observation | None = None
    ended: Transaction | None = None  # a list row that ends the wait, returned if no full read comes
    full_read_status: TransactionStatus | None = None  # the status for which a full read was requested
    result_deadline: float = inf  # when the full read is no longer waited for

    def record(self, observation: Observation, now: float) -> None:
        """Publish what a request showed to the owner."""
        self.created_at = observation.transaction.created_at
        self.last_read_at = now
        self.reads += 1
        self.was_malformed = False
        if observation.is_full:
            self.needs_full_read = False
        held = self.observation
        # The owner may be busy, so a full read may still be unjudged when the next page comes. A list row of the
        # same status says less, and replacing the full read with it would lose the result code.
        if (
            held is None
            or held is self.judged
            or observation.is_full
            or not held.is_full
            or held.transaction.status != observation.transaction.status
        ):
            self.observation = observation

    def record_failure(self, error: MomoPayError) -> None:
        """Take note of a poll that failed; the second malformed answer in a row ends the wait."""
        # One may be a proxy that restarts. Two mean that something else answers, which waiting does not change.
        is_malformed = isinstance(error, ProtocolError)
        if is_malformed and self.was_malformed and self.ended is None:  # an end that is known is returned
            self.failure = error
        self.was_malformed = is_malformed

    def take_observation(self) -> Observation | None:
        """Return what was read since the last call, or None. Only the owner calls it."""
        # The observation stays in place: clearing it here could drop one that is recorded at the same moment.
        observation = self.observation
        if observation is self.judged:
            return None
        self.judged = observation
        return observation

    def request_full_read(self, status: TransactionStatus, ended: Transaction | None, now: float) -> None:
        """Ask for a read by id, once for each status, because a list row has no result code."""
        self.full_read_status = status
        self.ended = ended
        self.result_deadline = min(self.deadline, now + RESULT_POLLS * self.every)
        self.needs_full_read = True

    def abandon_full_read(self, now: float) -> None:
        """Give up the full read: for good if the wait has ended, else until a list row shows that end again."""
        self.needs_full_read = False
        self.full_read_status = None
        self.result_deadline = inf if self.ended is None else now

    @property
    def last(self) -> Transaction | None:
        """What was read last."""
        return None if self.observation is None else self.observation.transaction

    @property
    def answers_by(self) -> float:
        """When the owner answers or gives up, even if nothing more is read."""
        return self.deadline if self.ended is None else self.result_deadline

    @property
    def needs_polling(self) -> bool:
        """Whether its status is still of use: nothing has ended it, and the owner has seen all that was read."""
        return self.ended is None and self.failure is None and self.observation is self.judged

    def is_due(self, now: float) -> bool:
        """Return whether it must be polled for."""
        return self.needs_polling and (self.notified or self.next_poll_at <= now)
