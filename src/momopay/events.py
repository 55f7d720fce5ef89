"""What a client reports while it works: the events that ``on_event=`` receives.

    def on_event(event: Event) -> None:
        if isinstance(event, CallEnded):
            print(event.operation, event.seconds, event.error)

    client = Client(on_event=on_event)

Every event names its operation and the number of its call, by which an observer tells the events of one call from those
of other threads and tasks. A call has one `CallStarted`, further events, and one `CallEnded`. Each step of an iterable
is a call: a page of ``transactions.iter``, an end of ``transactions.wait_all``, an outcome of ``payouts.pay_all``.

No event has a key, a query or a whole phone; a phone in a reference is masked. In every event, `seconds` is a duration
by a monotonic clock, `error` an exception class, `status` an HTTP status, and `request_id` the service's id of a
request. `transaction_id`, `transaction_type` and `transaction_status` are as the service states them. Each is None if
there is none, or it is not known.
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
    """The base class of all events.

    Attributes:
        operation: The operation that was called, such as ``stk.initiate`` or ``transactions.wait``. Its searches and
            polls have the same name.
        call_id: The number of the call, from 1. It is unique in the process, and the same in all events of one call.
        at: When it happened, in seconds since 1970 by this machine's clock; see `JournalChanged` for the delivery.
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
        error: The class of what it raised, including a cancellation or an interrupt.
        may_have_executed: Whether money may have moved although it raised; see `MomoPayError.may_have_executed`.
        attempts: How many requests the operation made, including searches and polls. `status` and `request_id` are
            those of the last one.
        reference: The reference that the caller gave, if it gave one.
        transaction_id: The id of the transaction that it returned. Type and status are of the same one.
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
    """One attempt at a request was answered, failed, or could not be sent at all.

    Attributes:
        method: The HTTP method.
        route: The path below the base address with ``{id}`` in the place of an id, such as ``/transactions/{id}``.
        host: The host of the base address.
        port: The port of the base address; 443 or 80 where it names none.
        attempt: The number of the attempt, counted from 1 for each request of the operation.
        seconds: How long the attempt took, without the wait for the rate budget.
        error: The class of its error. The operation need not raise it, because it may retry.
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
    """A request waited for a slot of the rate budget. There is no event if it got a slot at once.

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
    """The wait for one transaction ended: the transaction has ended, or the wait failed.

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

    While a durable call sends a payment, its events are held back until the journal has the outcome, so that no
    observer can interfere between the two. `at` is when each of them happened. A change by a method of the `Journal`
    itself, such as ``journal.settle``, is not reported, because no client makes it.

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
    unread: int
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackReceived(BaseEvent):
    """A callback (webhook) was checked, by ``transactions.confirm`` or by a view of `momopay.integrations`.

    If a view's handler confirms the callback and both have an observer, there are two of these events: one with the
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
"""Any event."""
