"""What a client reports while it works: the events that ``on_event=`` receives.

    def on_event(event: Event) -> None:
        if isinstance(event, CallEnded):
            print(event.operation, event.seconds, event.error)

    client = Client(on_event=on_event)

Every event names the operation that it is part of and the number of the call, by which an observer puts together what
belongs together: calls of several threads and tasks mix. One call is one `CallStarted`, what happens in it, and one
`CallEnded`. Each step of an iterable is a call: a page of ``transactions.iter``, an end of ``transactions.wait_all``,
an outcome of ``payouts.pay_all``.

No event has a key, a query or a whole phone. A phone in a reference is masked. Where events have these: `seconds` is a
time that passed, measured by a clock that nobody sets; `error` the class of an error, `status` an HTTP status,
`request_id` the service's id of a request, and `transaction_id`, `transaction_type` and `transaction_status` the
service's words for the transaction. Each is None if there is none, or it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from momopay.models.enums import TransactionStatus, TransactionType

__all__ = [
    "AttemptEnded",
    "BaseEvent",
    "BudgetWaited",
    "CallEnded",
    "CallStarted",
    "CallbackOutcome",
    "CallbackReceived",
    "Event",
    "JournalChanged",
    "RetryScheduled",
    "SweepEnded",
    "WaitEnded",
]

CallbackOutcome: TypeAlias = Literal["accepted", "duplicate", "busy", "invalid", "forged", "mismatch", "failed"]
"""The outcome of a callback; see `CallbackReceived`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseEvent:
    """What all events have.

    Attributes:
        operation: The operation that was called, such as ``stk.initiate`` or ``transactions.wait``. A search or a poll
            that an operation makes has the operation's name.
        call_id: The number of the call, from 1. It is unique in the process, and the same in all events of one call.
        at: When it happened, as seconds since 1970 by this machine's clock. Not always when it is delivered: see
            `JournalChanged`.
    """

    operation: str
    call_id: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted(BaseEvent):
    """An operation was called. Delivered in the thread or task that called it, before anything else happens.

    Attributes:
        reference: The reference that the caller gave, if it gave one.
    """

    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded(BaseEvent):
    """An operation returned or raised. Delivered in the thread or task that called it, as the last event of the call.

    Attributes:
        seconds: How long the operation took.
        error: What it raised. A cancellation and an interrupt count.
        may_have_executed: Whether money may have moved although it raised; see `MomoPayError.may_have_executed`.
        attempts: How many requests the operation made, searches and polls included. The last one had `status` and
            `request_id`.
        reference: The reference that the caller gave, if it gave one.
        transaction_id: That of the transaction that it returned, as are type and status.
    """

    seconds: float
    error: type[BaseException] | None = None
    may_have_executed: bool = False
    attempts: int = 0
    status: int | None = None
    request_id: str | None = None
    reference: str | None = None
    transaction_id: str | None = None
    transaction_type: TransactionType | None = None
    transaction_status: TransactionStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(BaseEvent):
    """One attempt at a request ended, whether it was answered, failed, or could not be sent at all.

    Attributes:
        method: The HTTP method.
        route: The path below the base address with ``{id}`` in the place of an id, such as ``/transactions/{id}``.
        host: The host of the base address.
        port: The port of the base address; 443 or 80 where it names none.
        attempt: Which attempt at the same request it was, from 1. An operation that makes several requests counts
            each of them from 1.
        seconds: How long the attempt took, without the wait for the rate budget.
        error: What it ended with. The operation need not raise it: the attempt may be repeated.
        is_sent: Whether a part of the request may have reached the service.
    """

    method: str
    route: str
    host: str
    port: int
    attempt: int
    seconds: float
    status: int | None = None
    error: type[BaseException] | None = None
    request_id: str | None = None
    is_sent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled(BaseEvent):
    """An attempt failed, and the same request is sent again after a pause.

    Attributes:
        method: The HTTP method.
        route: As for `AttemptEnded`.
        attempt: Which attempt failed, from 1.
        seconds: The pause before the next attempt. The rate budget may make it longer.
    """

    method: str
    route: str
    attempt: int
    seconds: float
    status: int | None = None
    error: type[BaseException] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWaited(BaseEvent):
    """A request waited for a slot of the rate budget. There is no event if it had a slot at once.

    Attributes:
        lane: The priority that it waited with: ``payment``, ``read`` or ``poll``, the values of `Lane`.
        seconds: How long it waited.
        error: ``BudgetExhaustedError`` if no slot came in time, so that nothing was sent.
    """

    lane: str
    seconds: float
    error: type[BaseException] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEnded(BaseEvent):
    """The wait for one transaction ended: it reached its end, or the wait gave up on it.

    A wait for many transactions reports each of them once. One that its caller left or cancelled reports nothing.

    Attributes:
        seconds: How long the wait took, from its start.
        polls: How often the transaction was read, by this wait or by another one that polled for it.
        error: ``WaitTimeoutError`` if the schedule's limit passed, another class if the wait failed.
    """

    transaction_id: str
    seconds: float
    polls: int
    error: type[BaseException] | None = None
    transaction_type: TransactionType | None = None
    transaction_status: TransactionStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalChanged(BaseEvent):
    """An entry of the journal changed its state, or the status of its transaction.

    While a durable call sends a payment, its events wait until the journal has the outcome, so that nothing which an
    observer does can come between the two. `at` has the time when each of them happened. A change that is made by a
    method of the `Journal` itself, such as ``journal.settle``, is not reported, because no client makes it.

    Attributes:
        kind: ``PAYOUT`` or ``COLLECTION``, the values of `EntryKind`.
        reference: The caller's reference.
        old_state: The state before, one of the values of `JournalState`; ``None`` if there was no entry, or if it was
            not read before (``transactions.reconcile`` finds an entry by a transaction that the journal did not know).
        new_state: The state now; the same as before if only the transaction's status changed.
    """

    kind: str
    reference: str
    old_state: str | None
    new_state: str
    transaction_id: str | None = None
    transaction_status: TransactionStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnded(BaseEvent):
    """A sweep went through the whole journal. The counts are those of its `SweepReport`.

    Set gauges from `open` and `unknown`. A sum of `JournalChanged` would lose count when a process restarts.
    """

    settled: int
    open: int
    unknown: int
    handled: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackReceived(BaseEvent):
    """A callback (webhook) was checked, by ``transactions.confirm`` or by a view of `momopay.integrations`.

    A view whose handler confirms the callback leads to two of these events if both have an observer: one with the
    operation ``transactions.confirm``, one with ``callbacks.receive``. Count one of them.

    Attributes:
        outcome: ``accepted``: it was confirmed, or its handler returned. ``duplicate``: it was handled before.
            ``busy``: another call is handling it; it comes again. ``invalid``: it is no callback. ``forged``: the URL
            is not signed for it. ``mismatch``: the service's record or the journal's entry says something else, or
            the account has no such transaction. ``failed``: it could not be checked, or its handler raised.
        seconds: How long it took, the handler included.
        status: The HTTP status that the view answered; ``None`` for ``transactions.confirm``.
        reference: The reference that the callback states, as it states id, type and status of its transaction.
    """

    outcome: CallbackOutcome
    seconds: float
    status: int | None = None
    error: type[BaseException] | None = None
    transaction_id: str | None = None
    transaction_type: TransactionType | None = None
    transaction_status: TransactionStatus | None = None
    reference: str | None = None


Event: TypeAlias = (
    CallStarted
    | AttemptEnded
    | RetryScheduled
    | BudgetWaited
    | CallEnded
    | WaitEnded
    | JournalChanged
    | SweepEnded
    | CallbackReceived
)
"""Any of them."""
