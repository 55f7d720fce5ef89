"""Spans of operations and of their attempts, from events.

Attribute names are those of OpenTelemetry's semantic conventions for HTTP client spans, else they begin with
``momopay.``.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from momopay._redaction import redact
from momopay.events import AttemptEnded, BudgetWaited, CallEnded, CallStarted, Event

# Operations that may be under way at once, of about 3 KB each. One that never ends, such as that of a thread that died,
# is given up when so many others are under way.
MAX_OPEN: Final = 10_000

ABANDONED: Final = "abandoned"
"""The ``error.type`` of an operation that was given up."""


def http_attributes(event: AttemptEnded) -> dict[str, AttributeValue]:
    """Return the attributes of an attempt that its span and its metric have in common."""
    # Not `url.full`, which the conventions require: it would hold ids, and in searches `q=254...`, a customer's phone.
    # Nor is there a redacted one, because `url.template` with the server's address says everything else that it would.
    attributes: dict[str, AttributeValue] = {
        "http.request.method": event.method,
        "url.template": event.route,
        "server.address": event.host,
        "server.port": event.port,
    }
    if event.status is not None:
        attributes["http.response.status_code"] = event.status
    if event.error is not None:
        is_refusal = event.status is not None and event.status >= 400  # noqa: PLR2004
        attributes["error.type"] = str(event.status) if is_refusal else event.error.__name__
    return attributes


@dataclass
class _Operation:
    """An operation that has not ended.

    Attributes:
        span: Its span.
        waited: Seconds for which it waited for the rate budget.
    """

    span: Span
    waited: float = 0.0


class Spans:
    """Makes the spans. Any thread may call it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        # By the number of the call. Without a lock, since no step depends on the one before: threads end only their own
        # operations, and one that another thread gave up is missing here.
        self._open: OrderedDict[int, _Operation] = OrderedDict()

    def observe(self, event: Event) -> None:
        """Begin, extend or end a span."""
        match event:
            case CallStarted():
                self._begin(event)
            case AttemptEnded():
                self._add_attempt(event)
            case BudgetWaited():
                operation = self._open.get(event.call_id)
                if operation is not None:
                    operation.waited += event.seconds
            case CallEnded():
                self._end(event)
            case _:
                pass

    def _begin(self, event: CallStarted) -> None:
        # The event comes in the thread or task of the caller, so the current span is the one to be below. It is not
        # made the current one itself: an iterable would leave it so between its steps, in the caller's own code.
        span = self._tracer.start_span(
            event.operation,
            kind=SpanKind.INTERNAL,
            attributes={"momopay.operation": event.operation},
            start_time=_nanoseconds(event.at),
        )
        self._open[event.call_id] = _Operation(span)
        if len(self._open) > MAX_OPEN:
            _, oldest = self._open.popitem(last=False)
            oldest.span.set_attribute("error.type", ABANDONED)
            oldest.span.set_status(StatusCode.ERROR)
            oldest.span.end()

    def _add_attempt(self, event: AttemptEnded) -> None:
        operation = self._open.get(event.call_id)
        attributes = http_attributes(event)
        if event.attempt > 1:
            attributes["http.request.resend_count"] = event.attempt - 1
        if event.request_id is not None:
            attributes["momopay.request_id"] = redact(event.request_id)
        span = self._tracer.start_span(
            f"{event.method} {event.route}",
            None if operation is None else trace.set_span_in_context(operation.span),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            # No event tells the start: an attempt is worth an event only when it is over.
            start_time=_nanoseconds(event.at - event.seconds),
        )
        if event.error is not None:
            span.set_status(StatusCode.ERROR)  # without a text, which might quote what was sent
        span.end(_nanoseconds(event.at))

    def _end(self, event: CallEnded) -> None:
        operation = self._open.pop(event.call_id, None)
        if operation is None:
            return
        span = operation.span
        attributes: dict[str, AttributeValue] = {"momopay.attempts": event.attempts}
        if operation.waited:
            attributes["momopay.budget.wait"] = operation.waited
        if event.reference is not None:
            # It is the caller's own text. The event has it redacted, and nothing is lost by making sure of that.
            attributes["momopay.reference"] = redact(event.reference)
        for name, value in (
            ("momopay.transaction.id", event.transaction_id),
            ("momopay.transaction.type", event.transaction_type),
            ("momopay.transaction.status", event.transaction_status),
        ):
            if value is not None:
                attributes[name] = redact(str(value))
        if event.error is not None:
            attributes["error.type"] = event.error.__name__
            attributes["momopay.may_have_executed"] = event.may_have_executed
            span.set_status(StatusCode.ERROR)
        span.set_attributes(attributes)
        span.end(_nanoseconds(event.at))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
