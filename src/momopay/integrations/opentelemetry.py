"""OpenTelemetry: turns the events of a client into spans and metrics.

    from momopay import Client
    from momopay.integrations.opentelemetry import observer

    client = Client(on_event=observer())

Needs the extra ``otel``. Without an SDK of OpenTelemetry that exports them, spans and metrics go nowhere, and cost
little. The guide "Monitoring" shows the spans and lists the metrics.

No span and no metric has a key, a query or a phone. Metrics have no ids and no references either, so that the number
of time series stays small.
"""

from __future__ import annotations

from collections.abc import Callable

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as _missing:
    _remedy = "the observer needs an extra: pip install 'momopay[otel]'"
    raise ModuleNotFoundError(_remedy, name=_missing.name) from _missing

from momopay import __version__
from momopay._redaction import redact
from momopay.events import AttemptEnded, BudgetWaited, CallEnded, CallStarted, Event
from momopay.integrations._otel_metrics import Metrics, http_attributes
from momopay.journal import Journal

__all__ = ["observer"]

_NAME = "momopay"


def observer(
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    *,
    journal: Journal | None = None,
) -> Callable[[Event], None]:
    """Return what to pass as ``on_event=`` to clients and to the views of `momopay.integrations`.

    Make one in each process and pass it to all of them: the STK success rate is that of all events that it receives.

    Args:
        tracer_provider: For spans; by default OpenTelemetry's global one.
        meter_provider: For metrics; by default OpenTelemetry's global one.
        journal: Asked at each collection how many entries are open or unresolved, and how old the oldest ones are.
            Events cannot tell that: each process has its own, and a restart forgets them. Without it, the two counts
            are those that the process's latest ``transactions.sweep`` found, and the ages are not reported. Pass it
            in one process.

    Returns:
        The observer. Any thread may call it.
    """
    tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
    meter = metrics.get_meter(_NAME, __version__, meter_provider)
    spans, counted = Spans(tracer), Metrics(meter, journal)

    def observe(event: Event) -> None:
        spans.observe(event)
        counted.observe(event)

    return observe


class Spans:
    """Makes the spans. Any thread may call it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        # By the number of the call. Without a lock, since threads begin and end only their own operations.
        self._open: dict[int, Span] = {}
        self._waited: dict[int, float] = {}  # seconds for the rate budget

    def observe(self, event: Event) -> None:
        """Begin, extend or end a span."""
        match event:
            case CallStarted():
                self._begin(event)
            case AttemptEnded():
                self._add_attempt(event)
            case BudgetWaited():
                self._waited[event.call_id] = self._waited.get(event.call_id, 0.0) + event.seconds
            case CallEnded():
                self._end(event)
            case _:
                pass

    def _begin(self, event: CallStarted) -> None:
        # The event comes in the thread or task of the caller, so the current span is the one to be below. It is not
        # made the current one itself: an iterable would leave it so between its steps, in the caller's own code.
        self._open[event.call_id] = self._tracer.start_span(
            event.operation,
            kind=SpanKind.INTERNAL,
            attributes={"momopay.operation": event.operation},
            start_time=_nanoseconds(event.at),
        )

    def _add_attempt(self, event: AttemptEnded) -> None:
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
            # No event tells the start: an attempt is worth an event only when it is over.
            start_time=_nanoseconds(event.at - event.seconds),
        )
        if event.error is not None:
            span.set_status(StatusCode.ERROR)  # without a text, which might quote what was sent
        span.end(_nanoseconds(event.at))

    def _end(self, event: CallEnded) -> None:
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
            if value is not None:  # the event has it redacted, and nothing is lost by making sure of that
                attributes[name] = redact(str(value))
        if event.error is not None:
            attributes["error.type"] = event.error.__name__
            attributes["momopay.may_have_executed"] = event.may_have_executed
            span.set_status(StatusCode.ERROR)
        span.set_attributes(attributes)
        span.end(_nanoseconds(event.at))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
