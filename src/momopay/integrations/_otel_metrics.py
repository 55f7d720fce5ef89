"""Metrics from events. Attributes have few values: never an id, a reference or a text of the service's own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import product
from typing import Final, get_args

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.util.types import AttributeValue

from momopay.errors import TransactionHealthBlockedError
from momopay.events import (
    AttemptEnded,
    BudgetWaited,
    CallbackOutcome,
    CallbackReceived,
    CallEnded,
    Event,
    JournalChanged,
    RetryScheduled,
    SweepEnded,
    WaitEnded,
)
from momopay.integrations._otel_journal import JournalGauges
from momopay.integrations._otel_spans import http_attributes
from momopay.integrations._stk_window import MEMORY, StkWindow
from momopay.journal import Journal
from momopay.journal.entries import EntryKind, JournalState
from momopay.models.enums import TransactionStatus, TransactionType, end_of

# Seconds. Those of an attempt are the conventions'; an operation may wait for minutes for the rate budget or an end.
_ATTEMPT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_LONG_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

_PROMPTS: Final = "/payments/stk"
OTHER: Final = "other"
"""In the place of a type or status that is not specified: what it is, the network decides."""


class Metrics:
    """Makes the metrics. Any thread may call it."""

    def __init__(self, meter: Meter, journal: Journal | None) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Callable[..., None]:
            return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=buckets).record

        def counter(name: str, unit: str, text: str) -> Callable[..., None]:
            return meter.create_counter(name, unit, text).add

        self._operations = histogram("momopay.operation.duration", "Duration of operations.", _LONG_BUCKETS)
        self._attempts = histogram(
            "http.client.request.duration", "Duration of HTTP client requests.", _ATTEMPT_BUCKETS
        )
        self._waits = histogram("momopay.budget.wait", "Waits for the rate budget.", _LONG_BUCKETS)
        self._retries = counter("momopay.retries", "{retry}", "Requests that are sent again.")
        self._ends = counter("momopay.payments.ended", "{payment}", "Payments that reached an end, each end once.")
        self._changes = counter("momopay.journal.changes", "{change}", "Changes of entries of the journal.")
        self._callbacks = counter("momopay.callbacks", "{callback}", "Callbacks (webhooks) that were checked.")
        for operation, outcome in product(("callbacks.receive", "transactions.confirm"), get_args(CallbackOutcome)):
            # A counter that begins with its first event shows Prometheus no increase for that one.
            self._callbacks(0, {"momopay.operation": operation, "momopay.callback.outcome": outcome})
        self._journal = JournalGauges(meter, journal)
        self._lock = threading.Lock()
        self._window = StkWindow()
        self._counted: OrderedDict[tuple[str, TransactionStatus], None] = OrderedDict()
        meter.create_observable_gauge(
            "momopay.stk.success_rate", [self._rate], description="Share of the latest 100 STK prompts that was paid."
        )
        meter.create_observable_gauge(
            "momopay.stk.completed", [self._completed], "{payment}", "STK prompts that the success rate is of."
        )

    def observe(self, event: Event) -> None:
        """Record what an event says."""
        match event:
            case CallEnded():
                self._operations(event.seconds, {"momopay.operation": event.operation, **_error_type(event.error)})
            case AttemptEnded():
                self._attempts(event.seconds, http_attributes(event))
                self._notice_block(event)
            case RetryScheduled():
                self._retries(1, {"momopay.operation": event.operation, **_error_type(event.error)})
            case BudgetWaited():
                self._waits(event.seconds, {"momopay.lane": event.lane, **_error_type(event.error)})
            case WaitEnded():
                self._note_end(event.transaction_id, event.transaction_type, event.transaction_status)
            case JournalChanged():
                self._note_change(event)
            case SweepEnded():
                self._journal.remember(event)
            case CallbackReceived():
                # By the operation, too: where the handler of a view confirms, each of them reports the callback.
                self._callbacks(1, {"momopay.operation": event.operation, "momopay.callback.outcome": event.outcome})
                # What a refused callback states may be anybody's invention.
                if event.outcome == "accepted":
                    self._note_end(event.transaction_id, event.transaction_type, event.transaction_status)
            case _:
                pass

    def _note_change(self, event: JournalChanged) -> None:
        if event.new_state != event.old_state:
            attributes = {"momopay.journal.kind": str(event.kind), "momopay.journal.state": str(event.new_state)}
            self._changes(1, attributes)
        # In another state the id is one that an unclear response showed, perhaps of another payment.
        if event.new_state == JournalState.ACCEPTED:
            self._note_end(event.transaction_id, EntryKind(event.kind).transaction_type, event.transaction_status)

    def _note_end(
        self, transaction_id: str | None, kind: TransactionType | None, status: TransactionStatus | None
    ) -> None:
        """Count an end once, whichever of a wait, a callback and the journal reports it first."""
        if transaction_id is None or kind is None or status is None or not status.is_terminal:
            return
        with self._lock:
            if kind is TransactionType.STK:
                self._window.add(transaction_id, paid=status is TransactionStatus.SUCCESS)
            end = (transaction_id, end_of(status))  # a callback may say CANCELLED where a read says FAILED
            if end in self._counted:
                return
            self._counted[end] = None
            if len(self._counted) > MEMORY:
                self._counted.popitem(last=False)
        known = kind.value if kind in TransactionType.__members__.values() else OTHER
        self._ends(1, {"momopay.transaction.type": known, "momopay.transaction.status": status.value})

    def _notice_block(self, event: AttemptEnded) -> None:
        if event.route == _PROMPTS:
            with self._lock:
                if event.error is TransactionHealthBlockedError:
                    self._window.block()
                elif event.error is None:
                    self._window.accept()

    def _rate(self, _options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            rate = self._window.rate
        return [] if rate is None else [Observation(rate)]

    def _completed(self, _options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            return [Observation(self._window.completed)]


def _error_type(error: type[BaseException] | None) -> dict[str, AttributeValue]:
    return {} if error is None else {"error.type": error.__name__}
