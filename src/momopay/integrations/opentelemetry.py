"""OpenTelemetry: turns the events of a client into spans and metrics.

    from momopay import Client
    from momopay.integrations.opentelemetry import observer

    client = Client(on_event=observer())

Needs the extra ``otel``. Without an SDK of OpenTelemetry that exports them, spans and metrics go nowhere, and cost
little.

Spans:
- One for each operation, kind INTERNAL, named after it (``payouts.pay_once``). It is the child of the span that is
  current where the operation was called.
- One for each attempt at a request below it, kind CLIENT, by OpenTelemetry's conventions for HTTP clients, named
  ``POST /b2c/payouts``. It is made when the attempt has ended, with the time when it began.

| metric | kind | attributes |
|---|---|---|
| ``momopay.operation.duration`` | histogram, seconds | ``momopay.operation``, ``error.type`` |
| ``http.client.request.duration`` | histogram, seconds, of each attempt | OpenTelemetry's conventions |
| ``momopay.retries`` | counter | ``momopay.operation``, ``error.type`` |
| ``momopay.budget.wait`` | histogram, seconds | ``momopay.lane``, ``error.type`` |
| ``momopay.payments.ended`` | counter | ``momopay.transaction.type``, ``momopay.transaction.status`` |
| ``momopay.stk.success_rate`` | gauge, 0 to 1 | |
| ``momopay.stk.completed`` | gauge, 0 to 100: how many prompts the rate is of | |
| ``momopay.journal.changes`` | counter | ``momopay.journal.kind``, ``momopay.journal.state`` |
| ``momopay.journal.open`` | gauge | |
| ``momopay.journal.unresolved`` | gauge | |
| ``momopay.journal.open.age`` | gauge, seconds: of the oldest entry | |
| ``momopay.journal.unresolved.age`` | gauge, seconds: of the oldest entry | |
| ``momopay.callbacks`` | counter | ``momopay.operation``, ``momopay.callback.outcome`` |

Where the handler of a view confirms the callback, both the view (``callbacks.receive``) and ``transactions.confirm``
count it; choose one by ``momopay.operation``.

No span and no metric has a key, a query or a phone. Metrics have no ids and no references either, so that the number
of time series stays small.
"""

from __future__ import annotations

from collections.abc import Callable

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError as _missing:
    _remedy = "the observer needs an extra: pip install 'momopay[otel]'"
    raise ModuleNotFoundError(_remedy, name=_missing.name) from _missing

from momopay import __version__
from momopay.events import Event
from momopay.integrations._otel_metrics import Metrics
from momopay.integrations._otel_spans import Spans
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
