"""OpenTelemetry in memory: what an observer made, and events made by hand."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from momopay.events import AttemptEnded, CallEnded, Event

Attributes = Mapping[str, Any]


class Telemetry:
    """Providers that export to memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    def shutdown(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that ended, in the order of their ends."""
        return self._exporter.get_finished_spans()

    def points(self) -> Iterator[tuple[str, Any]]:
        """Collect, and yield each metric's name with each of its data points."""
        data = self._reader.get_metrics_data()
        for resource in () if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        yield metric.name, point

    def values(self, name: str) -> dict[tuple[Any, ...], float]:
        """Collect, and return a metric's values by the values of their attributes; of a histogram, the sums."""
        return {
            tuple(dict[str, Any](point.attributes or {}).values()): point.sum if hasattr(point, "sum") else point.value
            for each, point in self.points()
            if each == name
        }

    def texts(self) -> Iterator[str]:
        """Yield everything that was exported, as text."""
        for span in self.spans:
            yield span.to_json()
        for name, point in self.points():
            yield f"{name} {point!r}"


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


CALL: dict[str, Any] = {"operation": "payouts.pay_once", "call_id": 1, "at": 1000.0, "attempt": 1, "seconds": 0.5}
SENT: dict[str, Any] = {"method": "POST", "route": "/b2c/payouts", "host": "api.example", "port": 443}
ENTRY: dict[str, Any] = {"kind": "COLLECTION", "reference": "INV-1"}
USUAL: dict[str, Any] = {**CALL, **SENT, **ENTRY, "polls": 2, "lane": "payment", "unread": 0}
"""What an event that a test makes has in each field that must be given, unless the test says otherwise."""


def made(kind: type[Event], **fields: Any) -> Event:
    needed = {each.name for each in dataclasses.fields(kind) if each.default is dataclasses.MISSING}
    return kind(**{name: USUAL[name] for name in needed - fields.keys()}, **fields)


def attempt(**fields: Any) -> Event:
    return made(AttemptEnded, **{"status": 200, **fields})


def ended(**fields: Any) -> Event:
    return made(CallEnded, **fields)


def feed(observe: Callable[[Event], None], *events: Event) -> None:
    for event in events:
        observe(event)
