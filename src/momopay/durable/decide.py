"""Decide what a durable call does next about its payment. No client, no database and no clock.

`DurableCall` reads the payment's row, asks `decide`, takes the step, and asks again. Money may be sent in three cases:

- `Send` where there is no row, and this call has sent nothing that may have been executed.
- `Send` where every earlier attempt was refused, was not sent, or (of an order) has a transaction that ended without
  success. If an attempt has no transaction, a search must not have found one, and the row must still be as it was when
  the search began.
- `Send` of a payout whose outcome is unknown, with the key of its first request, if the client says that the service
  honours keys, a search did not find it, and the service must still know the key.

In each case, the journal lets the call begin only if the row is still the one that was decided about. Absence from the
list never resolves a payment. Times are in seconds. `tests/model` explores every order of steps, crashes, callbacks and
people with this function; what one call does after it sent is in the tables of `tests/durable/test_decide.py`.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf
from typing import Final, TypeAlias

from momopay._core.retry import BASE_BACKOFF, MAX_BACKOFF
from momopay.journal.entries import MAY_BE_SENT, JournalEntry, JournalState, Moment
from momopay.journal.rules import blocks, seconds_to_resend
from momopay.models.enums import EntryKind, Stage, stage_of

PAUSE: Final = 0.25  # between two reads of a row that another call is sending
_AGE_RESOLUTION: Final = 1.0  # the service's time is known from the ``Date`` header, which has whole seconds


class Result(Enum):
    """How a send of this call ended."""

    ACCEPTED = auto()
    """The service accepted it."""
    REFUSED = auto()
    """A definite refusal: nothing was executed."""
    RATE_LIMITED = auto()
    """A definite refusal that may be retried later."""
    NOT_SENT = auto()
    """No request of this send was executed."""
    LOST = auto()
    """The request was sent, or may have been, and no valid response came."""
    OTHER_PAYMENT = auto()
    """The service answered with another payment."""
    SENT_BEFORE = auto()
    """The service knows the key from an earlier request, whose outcome is unknown."""
    ROW_CHANGED = auto()
    """Another call or a person changed the row before the body was written: this call sent nothing."""
    NOT_BEGUN = auto()
    """The row had changed before this call could begin: nothing was written and nothing was sent."""
    REFERENCE_IN_USE = auto()
    """The journal refuses it: another order has its account_reference, or refunds would exceed what was paid."""


_UNRESOLVED: Final = frozenset({Result.LOST, Result.OTHER_PAYMENT, Result.SENT_BEFORE, Result.ROW_CHANGED})


@dataclass(frozen=True)
class Policy:
    """What does not change during a call."""

    kind: EntryKind
    payout_keys: bool = False  # whether the service honours the keys of this kind of payment
    abandon_after: float = inf  # an open prompt of at least this age does not block another one
    max_attempts: int = 4
    max_wait: float = inf  # of a pause that the service orders
    least_seconds: float = 0.0  # that must be left until the deadline to send


@dataclass(frozen=True)
class Shown:
    """A transaction of the payment that this call has read or found."""

    transaction_id: str
    stage: Stage
    age: float = 0.0  # since it was created


@dataclass(frozen=True)
class Memory:
    """What a call knows beside the row: what it has read, searched and sent."""

    now: Moment | None = None
    seconds_left: float = inf  # until the deadline
    is_stale: bool = False  # whether this call may have changed the row since it read it
    is_older: bool = False  # whether a transaction was read after the row
    read: tuple[Shown, ...] = ()
    searched: JournalEntry | None = None  # the row for which the latest search was made
    found: Shown | None = None  # the transaction that this search found, if there was a search
    is_doubtful: bool = False  # whether it left open whether the payment was made
    result: Result | None = None  # of the latest send, until a step followed from it
    shown_id: str | None = None  # the transaction id in the response to it
    retry_after: float = 0.0  # the pause that the response ordered
    attempts: int = 0  # requests so far
    was_unresolved: bool = False  # whether an earlier send of this call ended with an unresolved result
    has_read_others: bool = False  # whether it has read the other orders with its account_reference

    def after_reading_row(self, entry: JournalEntry | None) -> Memory:
        """Return the memory once the row was read. What was read of a transaction that has ended since is outdated."""
        known = () if entry is None else entry.transactions
        is_open = {each.transaction_id for each in known if each.is_open}
        read = tuple(each for each in self.read if each.stage is Stage.OPEN and each.transaction_id in is_open)
        return replace(self, is_stale=False, is_older=False, read=read)

    def after_reading(self, shown: Shown) -> Memory:
        """Return the memory once a transaction was read."""
        return replace(self, is_older=True, read=(*self.read, shown))

    def after_search(self, entry: JournalEntry, *, found: Shown | None, is_doubtful: bool) -> Memory:
        """Return the memory once the list was searched for the payment of this row."""
        return replace(self, is_stale=True, searched=entry, found=found, is_doubtful=is_doubtful)

    def after_send(self, result: Result, *, attempts: int, shown_id: str | None, retry_after: float) -> Memory:
        """Return the memory once a send has ended."""
        return replace(self.after_step(), result=result, attempts=attempts, shown_id=shown_id, retry_after=retry_after)

    def after_step(self) -> Memory:
        """Return the memory once the step that followed from a result was taken. Earlier searches are outdated."""
        unresolved = self.was_unresolved or self.result in _UNRESOLVED
        return replace(self, is_stale=True, result=None, was_unresolved=unresolved, searched=None)


@dataclass(frozen=True)
class ReadRow:
    """Read the payment's row again. `may_fail`: if that fails, the call still raises its own error."""

    may_fail: bool = False


@dataclass(frozen=True)
class ReadTransaction:
    """Read a transaction that is paid or blocks another attempt: is that still so?"""

    entry: JournalEntry
    transaction_id: str


@dataclass(frozen=True)
class ReadOthers:
    """Read the other orders with the same account_reference, which may have ended since."""


@dataclass(frozen=True)
class Search:
    """Search the list for the payment; with `whole_list`, only a search that reaches its end proves absence."""

    entry: JournalEntry
    whole_list: bool = False


@dataclass(frozen=True)
class Wait:
    """Wait, then read the row again."""

    seconds: float
    is_retry: bool = False  # whether a request of this call is repeated after it


@dataclass(frozen=True)
class Send:
    """Send the payment if the row is unchanged. `within`: only so many seconds from now, with the key of the row."""

    within: float | None = None


@dataclass(frozen=True)
class ReturnSent:
    """Return the payment that the service has just accepted."""


@dataclass(frozen=True)
class ReturnFound:
    """Return the payment by a transaction that this call has read or found."""

    entry: JournalEntry
    transaction_id: str


@dataclass(frozen=True)
class ReturnRow:
    """Return the payment as the row has it: a callback was faster than the response."""

    entry: JournalEntry


@dataclass(frozen=True)
class Fail:
    """Raise the error of the latest send or search."""


@dataclass(frozen=True)
class FailUnknown:
    """Raise the error of a send that left the outcome unknown; without one, OutcomeUnknownError with this text."""

    entry: JournalEntry
    why: str


_More: TypeAlias = ReadRow | ReadTransaction | ReadOthers | Search | Wait | Send
_Last: TypeAlias = ReturnSent | ReturnFound | ReturnRow | Fail | FailUnknown
Step: TypeAlias = _More | _Last


def decide(entry: JournalEntry | None, memory: Memory, policy: Policy) -> Step:
    """Return the next step of a call. `entry` is the payment's row as the call last read it, None if there is none."""
    step = _after_search(entry, memory, policy) or _after_send(entry, memory, policy)
    if step is not None:
        return step
    if memory.is_stale:
        return ReadRow()
    if entry is None:
        # A row of this call's own that has disappeared says nothing about its payment.
        return Send() if not memory.was_unresolved else Fail()
    step = _by_transactions(entry, memory, policy)
    if step is None and memory.is_older:
        return ReadRow()  # which has what was read, and perhaps a callback of that time
    return step or _by_state(entry, memory, policy)


def _by_state(entry: JournalEntry, memory: Memory, policy: Policy) -> Step:
    """Return the step for a payment of which no known transaction is paid or blocks another attempt."""
    match entry.state:
        case JournalState.SENDING:
            is_over = memory.seconds_left < PAUSE
            why = "another call was still sending it at this one's deadline"
            return FailUnknown(entry, why) if is_over else Wait(PAUSE)
        case JournalState.UNKNOWN:
            if memory.searched != entry:
                return Search(entry)
            seconds = seconds_to_resend(entry, memory.now) if policy.payout_keys and memory.now is not None else 0.0
            why = "the list does not show it, which proves nothing"
            return Send(within=seconds) if seconds > 0 else FailUnknown(entry, why)
        case JournalState.ACCEPTED | JournalState.REFUSED | JournalState.NOT_SENT:
            # An attempt without a transaction was refused, not sent or released. It may have been executed even so: a
            # proxy may have refused it, and what a transport reported as not sent may have been sent.
            has_gap = entry.state in MAY_BE_SENT or entry.attempts > len(entry.transactions)
            # Without the clock's offset when it was sent, no time bounds the search.
            search = Search(entry, whole_list=entry.attempts > 0 and entry.clock_offset is None)
            return search if has_gap and memory.searched != entry else Send()


def _by_transactions(entry: JournalEntry, memory: Memory, policy: Policy) -> Step | None:
    """Read the paid transactions, else those that block another attempt. Return None if none of them does."""
    paid = any(each.is_paid for each in entry.transactions)
    if not paid and entry.state in {JournalState.SENDING, JournalState.UNKNOWN}:
        return None  # first, the latest attempt must be accounted for
    read = {each.transaction_id: each for each in memory.read}
    blocking: str | None = None
    for known in entry.transactions:
        if (paid and not known.is_paid) or not blocks(policy.kind, stage_of(known.status)):
            continue
        shown = read.get(known.transaction_id)
        if shown is None:
            return ReadTransaction(entry, known.transaction_id)
        if paid or shown.stage is Stage.PAID:
            return ReturnFound(entry, known.transaction_id)
        is_abandoned = shown.stage is Stage.OPEN and shown.age + _AGE_RESOLUTION >= policy.abandon_after
        if blocks(policy.kind, shown.stage) and not is_abandoned:
            blocking = known.transaction_id
    return None if blocking is None else ReturnFound(entry, blocking)


def _after_search(entry: JournalEntry | None, memory: Memory, policy: Policy) -> Step | None:
    """Return the step that follows from what the latest search showed; None to decide by the row."""
    searched = memory.searched
    if searched is None:
        return None
    if memory.found is not None and blocks(policy.kind, memory.found.stage):
        return ReturnFound(searched, memory.found.transaction_id)
    if not memory.is_doubtful or searched.state is JournalState.UNKNOWN:
        return Fail() if memory.is_doubtful else None
    # Before the search, the row was one that may be sent. A callback may have shown meanwhile that it was.
    return _row_or_fail(entry, memory, known=searched.transaction_ids)


def _after_send(entry: JournalEntry | None, memory: Memory, policy: Policy) -> Step | None:
    """Return the step that follows from how the latest send ended; None to decide by the row."""
    match memory.result:
        case None | Result.NOT_BEGUN:
            return None
        case Result.ACCEPTED:
            return ReturnSent()
        case Result.REFUSED | Result.NOT_SENT:
            return Fail()
        case Result.REFERENCE_IN_USE:
            may_have_ended = policy.kind is EntryKind.COLLECTION and not memory.has_read_others
            return ReadOthers() if may_have_ended else Fail()
        case Result.RATE_LIMITED:
            # Not repeated at once: a search must go before any second send, even after this refusal.
            pause = max(memory.retry_after, BASE_BACKOFF)
            is_over = pause > policy.max_wait or pause >= memory.seconds_left
            return Fail() if is_over or memory.attempts >= policy.max_attempts else Wait(pause, is_retry=True)
        case Result.LOST | Result.OTHER_PAYMENT | Result.SENT_BEFORE | Result.ROW_CHANGED:
            return _after_unresolved_send(entry, memory, policy)


def _after_unresolved_send(entry: JournalEntry | None, memory: Memory, policy: Policy) -> Step | None:
    # A callback may have recorded meanwhile what the lost response would have said.
    step = _row_or_fail(entry, memory)
    if not isinstance(step, Fail):
        return step
    if memory.result is Result.SENT_BEFORE and not memory.was_unresolved:
        return Wait(0.0)  # the earlier request is searched for
    # With its key, it may be sent again once a search has not found it.
    pause = min(MAX_BACKOFF, BASE_BACKOFF * 2 ** (memory.attempts - 1))
    left = memory.seconds_left
    if entry is not None and entry.state is JournalState.UNKNOWN and memory.now is not None:
        left = min(left, seconds_to_resend(entry, memory.now))
    is_over = memory.attempts >= policy.max_attempts or pause >= left - policy.least_seconds
    may_retry = memory.result is Result.LOST and policy.payout_keys and not is_over
    return Wait(pause, is_retry=True) if may_retry else step


def _row_or_fail(entry: JournalEntry | None, memory: Memory, known: Container[str | None] = ()) -> Step:
    """Return the payment if the row, as it is now, has it as accepted, with no `known` transaction. Else fail."""
    if memory.is_stale:
        return ReadRow(may_fail=True)
    if entry is None or entry.state is not JournalState.ACCEPTED or entry.transaction is None:
        return Fail()
    is_new = entry.transaction_id not in known and memory.shown_id in {None, entry.transaction_id}
    return ReturnRow(entry) if is_new else Fail()
