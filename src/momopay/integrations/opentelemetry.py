"""OpenTelemetry: turns the events of a client into spans and metrics.

    from momopay import Client
    from momopay.integrations.opentelemetry import observer

    client = Client(on_event=observer())

Needs the extra ``otel``. Without an OpenTelemetry SDK that exports them, spans and metrics go nowhere and cost little.
The guide "Monitoring" shows the spans and lists the metrics.

Spans and metrics never contain a key, a query or a phone. Metrics contain no ids and no references either, so that the
number of time series stays small.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from itertools import product
from typing import Final, get_args

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as _missing:
    _remedy = 'the observer needs an extra: pip install "momopay[otel]"'
    raise ModuleNotFoundError(_remedy, name=_missing.name) from _missing

from momopay import __version__, events
from momopay._locks import SafeLock
from momopay._redaction import redact
from momopay.events import Event
from momopay.journal.entries import JournalState
from momopay.models.enums import EntryKind, TransactionStatus, TransactionType, end_of

__all__ = ["observer"]

_NAME: Final = "momopay"

# Seconds. Those of an attempt are OpenTelemetry's; an operation may wait minutes for the rate budget or for an end.
_ATTEMPT_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_LONG_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

_JUDGED: Final = 100  # the service judges the latest 100 completed payments
# Ends that are remembered, so that one which is reported again, however late, is not counted twice.
_REMEMBERED: Final = 10_000

# The gauges, each with the field of `SweepEnded` that it shows.
_GAUGES: Final = {
    "momopay.journal.open": ("open", "Payments that were accepted and have not settled."),
    "momopay.journal.unresolved": ("unknown", "Unresolved payments."),
}


def observer(
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> Callable[[Event], None]:
    """Return an observer to pass as ``on_event=`` to clients and to the views of `momopay.integrations`.

    Any thread may call it. Make one in each process and pass it to all clients and views: the STK success rate covers
    the events that it receives.

    Args:
        tracer_provider: For spans; by default OpenTelemetry's global one.
        meter_provider: For metrics; by default OpenTelemetry's global one.
    """
    tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
    meter = metrics.get_meter(_NAME, __version__, meter_provider)
    spans, counted = Spans(tracer), Metrics(meter)

    def observe(event: Event) -> None:
        spans.observe(event)
        counted.observe(event)

    return observe


class Spans:
    """Makes the spans. Any thread may call it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        # By the id of the call. No lock is needed, since each thread begins and ends only its own operations.
        self._open: dict[int, Span] = {}
        self._waited: dict[int, float] = {}  # seconds waited for the rate budget

    def observe(self, event: Event) -> None:
        """Begin, extend or end a span."""
        match event:
            case events.CallStarted():
                self._begin(event)
            case events.AttemptEnded():
                self._add_attempt(event)
            case events.BudgetWaited():
                self._waited[event.call_id] = self._waited.get(event.call_id, 0.0) + event.seconds
            case events.CallEnded():
                self._end(event)
            case _:
                pass

    def _begin(self, event: events.CallStarted) -> None:
        # The event comes in the caller's thread or task, so the current span is the parent. The new span does not
        # become the current one: during an iteration, it would stay current in the caller's own code.
        self._open[event.call_id] = self._tracer.start_span(
            event.operation,
            kind=SpanKind.INTERNAL,
            attributes={"momopay.operation": event.operation},
            start_time=_nanoseconds(event.at),
        )

    def _add_attempt(self, event: events.AttemptEnded) -> None:
        operation = self._open.get(event.call_id)
        attributes = http_attributes(event)
        if event.attempt > 1:
            attributes["http.request.resend_count"] = event.attempt - 1
        if event.request_id is not None:
            attributes["momopay.request_id"] = redact(event.request_id)
        span = self._tracer.start_span(
            f"{event.method} {event.route}",
            None if operation is None else trace.set_span_in_context(operation),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            # Attempts have an event at their end only.
            start_time=_nanoseconds(event.at - event.seconds),
        )
        if event.error is not None:
            span.set_status(StatusCode.ERROR)  # without a description, which might quote the request
        span.end(_nanoseconds(event.at))

    def _end(self, event: events.CallEnded) -> None:
        span, waited = self._open.pop(event.call_id, None), self._waited.pop(event.call_id, None)
        if span is None:
            return
        attributes: dict[str, AttributeValue] = {"momopay.attempts": event.attempts}
        if waited is not None:
            attributes["momopay.budget.wait"] = waited
        for name, value in (
            ("momopay.reference", event.reference),
            ("momopay.transaction.id", event.transaction_id),
            ("momopay.transaction.type", event.transaction_type),
            ("momopay.transaction.status", event.transaction_status),
        ):
            if value is not None:  # redacted in the event already, and once more to be sure
                attributes[name] = redact(str(value))
        if event.error is not None:
            attributes["error.type"] = event.error.__name__
            attributes["momopay.may_have_executed"] = event.may_have_executed
            span.set_status(StatusCode.ERROR)
        span.set_attributes(attributes)
        span.end(_nanoseconds(event.at))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


class Metrics:
    """Makes the metrics. Any thread may call it.

    The success rate covers the latest prompts, as the service's own does (service page, "POST /payments/stk").
    """

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Callable[..., None]:
            return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=buckets).record

        def counter(name: str, unit: str, text: str) -> Callable[..., None]:
            return meter.create_counter(name, unit, text).add

        self._operations = histogram("momopay.operation.duration", "Duration of operations.", _LONG_BUCKETS)
        self._attempts = histogram(
            "http.client.request.duration", "Duration of HTTP client requests.", _ATTEMPT_BUCKETS
        )
        self._waits = histogram("momopay.budget.wait", "Waits for the rate budget.", _LONG_BUCKETS)
        self._ends = counter("momopay.payments.ended", "{payment}", "Payments that reached an end, each end once.")
        self._callbacks = counter("momopay.callbacks", "{callback}", "Callbacks (webhooks) that were checked.")
        for operation, outcome in product(
            ("callbacks.receive", "transactions.confirm"), get_args(events.CallbackOutcome)
        ):
            # Starts at 0, because Prometheus sees no increase in a counter that starts with its first event.
            self._callbacks(0, {"momopay.operation": operation, "momopay.callback.outcome": outcome})
        self._lock = SafeLock()
        self._counted: OrderedDict[tuple[str, TransactionStatus], None] = OrderedDict()
        self._prompts: OrderedDict[str, bool] = OrderedDict()  # whether it was paid, by the transaction's id
        meter.create_observable_gauge(
            "momopay.stk.success_rate", [self._rate], description="Share of the latest 100 STK prompts that was paid."
        )
        meter.create_observable_gauge(
            "momopay.stk.completed", [self._completed], "{payment}", "STK prompts that the success rate is of."
        )
        self._swept: events.SweepEnded | None = None  # the latest sweep of this process
        for name, (field, text) in _GAUGES.items():
            meter.create_observable_gauge(name, [partial(self._found, field)], "{entry}", text)

    def observe(self, event: Event) -> None:
        """Record what an event says."""
        match event:
            case events.CallEnded():
                self._operations(event.seconds, {"momopay.operation": event.operation, **_error_type(event.error)})
            case events.AttemptEnded():
                self._attempts(event.seconds, http_attributes(event))
            case events.BudgetWaited():
                self._waits(event.seconds, {"momopay.lane": event.lane, **_error_type(event.error)})
            case events.WaitEnded():
                self._note_end(event.transaction_id, event.transaction_type, event.transaction_status)
            case events.JournalChanged():
                # In any other state, the id came in a response of uncertain outcome and may be another payment's.
                if event.new_state == JournalState.ACCEPTED:
                    kind = EntryKind(event.kind).transaction_type
                    self._note_end(event.transaction_id, kind, event.transaction_status)
            case events.SweepEnded():
                self._swept = event
            case events.CallbackReceived():
                # With the operation: if a view's handler confirms, both the view and `confirm` report the callback.
                self._callbacks(1, {"momopay.operation": event.operation, "momopay.callback.outcome": event.outcome})
                # Only an accepted one, because anybody can make up a callback.
                if event.outcome == "accepted":
                    self._note_end(event.transaction_id, event.transaction_type, event.transaction_status)
            case _:
                pass

    def _note_end(
        self, transaction_id: str | None, kind: TransactionType | None, status: TransactionStatus | None
    ) -> None:
        """Count an end once, whichever of a wait, a callback and the journal reports it first."""
        if transaction_id is None or kind is None or status is None or not status.is_terminal:
            return
        with self._lock:
            end = (transaction_id, end_of(status))  # a callback may say CANCELLED where a read says FAILED
            if end in self._counted:
                return
            self._counted[end] = None
            if len(self._counted) > _REMEMBERED:
                self._counted.popitem(last=False)
            if kind is TransactionType.STK:
                # A late PIN may pay a prompt that had failed. A prompt that was paid never fails.
                was_paid = self._prompts.get(transaction_id, False)
                self._prompts[transaction_id] = was_paid or status is TransactionStatus.SUCCESS
                if len(self._prompts) > _JUDGED:
                    self._prompts.popitem(last=False)
        # A type that is not specified could be any text from the network.
        known = kind.value if kind in TransactionType.__members__.values() else "other"
        self._ends(1, {"momopay.transaction.type": known, "momopay.transaction.status": status.value})

    def _rate(self, _options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            paid = list(self._prompts.values())
        return [Observation(sum(paid) / len(paid))] if paid else []

    def _completed(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(len(self._prompts))]

    def _found(self, field: str, _options: CallbackOptions) -> Iterable[Observation]:
        return [] if self._swept is None else [Observation(getattr(self._swept, field))]


def _error_type(error: type[BaseException] | None) -> dict[str, AttributeValue]:
    return {} if error is None else {"error.type": error.__name__}


def http_attributes(event: events.AttemptEnded) -> dict[str, AttributeValue]:
    """Return the attributes that the span and the metric of an attempt share."""
    # `url.full`, which OpenTelemetry requires, is left out: it would hold ids and, in searches, a customer's phone. A
    # redacted one would say no more than `url.template` and the server's address do.
    attributes: dict[str, AttributeValue] = {
        "http.request.method": event.method,
        "url.template": event.route,
        "server.address": event.host,
        "server.port": event.port,
    }
    if event.status is not None:
        attributes["http.response.status_code"] = event.status
    if event.error is not None:
        is_refusal = event.status is not None and event.status >= HTTPStatus.BAD_REQUEST
        attributes["error.type"] = str(event.status) if is_refusal else event.error.__name__
    return attributes
