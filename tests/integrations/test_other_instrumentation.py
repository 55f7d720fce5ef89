"""What other instrumentation shows of our requests, without and with what docs/operate/monitoring.md advises."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

from docs.blocks import ROOT
from drivers import Drive
from integrations.telemetry import Telemetry
from momopay.sandbox import Sandbox

PHONE = "254712345678"
PAGE = ROOT / "docs/operate/monitoring.md"
EXCLUDED = "OTEL_PYTHON_HTTPX_EXCLUDED_URLS"


@contextmanager
def instrumented(telemetry: Telemetry) -> Generator[None]:
    instrumentor = HTTPXClientInstrumentor()
    instrumentor.instrument(tracer_provider=telemetry.tracers, meter_provider=telemetry.meters)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def test_httpx_spans_show_a_query_unless_the_service_is_excluded(
    telemetry: Telemetry, sandbox: Sandbox, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with instrumented(telemetry):
        drive(base_url=sandbox.base_url)(lambda client: client.transactions.list(q=PHONE))
    assert any(f"q={PHONE}" in each for each in telemetry.texts())

    excluding = Telemetry()
    assert f"$ export {EXCLUDED}=" in PAGE.read_text()
    monkeypatch.setenv(EXCLUDED, "127.0.0.1")
    with instrumented(excluding):
        drive(base_url=sandbox.base_url)(lambda client: client.transactions.list(q=PHONE))
    assert excluding.spans == ()
    excluding.shutdown()
