"""What other instrumentation shows of our requests, without and with what docs/operate/monitoring.md advises."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

from docs.blocks import ROOT, blocks_in
from drivers import Drive
from integrations.telemetry import Telemetry
from momopay.sandbox import Sandbox

PHONE = "254712345678"
PAGE = ROOT / "docs/operate/monitoring.md"


@contextmanager
def instrumented(telemetry: Telemetry, **hooks: Any) -> Generator[None]:
    instrumentor = HTTPXClientInstrumentor()
    instrumentor.instrument(tracer_provider=telemetry.tracers, meter_provider=telemetry.meters, **hooks)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def shown(telemetry: Telemetry, text: str) -> bool:
    assert telemetry.spans, "it sees our requests"
    return any(text in each for each in telemetry.texts())


def test_httpx_spans_show_a_query_unless_a_hook_cuts_it(telemetry: Telemetry, sandbox: Sandbox, drive: Drive) -> None:
    with instrumented(telemetry):
        drive(base_url=sandbox.base_url)(lambda client: client.transactions.list(q=PHONE))
    assert shown(telemetry, f"q={PHONE}")  # what the hook is for

    cut = Telemetry()
    hooks: dict[str, Any] = {}
    block = next(each for each in blocks_in(PAGE) if "def cut_query(" in each.text)
    exec(compile(block.text, str(PAGE), "exec"), hooks)
    with instrumented(cut, request_hook=hooks["cut_query"], async_request_hook=hooks["cut_query_async"]):
        drive(base_url=sandbox.base_url)(lambda client: client.transactions.list(q=PHONE))
    assert not shown(cut, PHONE)
    assert shown(cut, f"{sandbox.base_url}/transactions")
    cut.shutdown()
