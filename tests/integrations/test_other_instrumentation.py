"""What other instrumentation shows of our requests, without and with what docs/operate/monitoring.md advises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from packaging.version import Version

from docs.blocks import ROOT, blocks_in
from drivers import Driver, unique_key
from integrations.telemetry import Telemetry
from momopay.sandbox import Sandbox

PHONE = "254712345678"
PAGE = ROOT / "docs/operate/monitoring.md"


def documented(name: str) -> dict[str, Any]:
    """Run the block of the page that defines a function, and return what it defines."""
    block = next(each for each in blocks_in(PAGE) if f"def {name}(" in each.text)
    names: dict[str, Any] = {}
    exec(compile(block.text, str(PAGE), "exec"), names)
    return names


@contextmanager
def instrumented(telemetry: Telemetry, **hooks: Any) -> Generator[None]:
    instrumentor = HTTPXClientInstrumentor()
    instrumentor.instrument(tracer_provider=telemetry.tracers, meter_provider=telemetry.meters, **hooks)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def search(client_kind: str, sandbox: Sandbox, key: str) -> None:
    driver = Driver(client_kind, api_key=key, base_url=sandbox.base_url)
    try:
        driver(lambda client: client.transactions.list(q=PHONE))
    finally:
        driver.close()


def shown(telemetry: Telemetry, text: str) -> bool:
    assert telemetry.spans, "it sees our requests"
    return any(text in each for each in telemetry.texts())


def test_its_spans_of_httpx_show_a_search_unless_a_hook_cuts_it_off(
    telemetry: Telemetry, sandbox: Sandbox, client_kind: str
) -> None:
    with instrumented(telemetry):
        search(client_kind, sandbox, unique_key())
    assert shown(telemetry, f"q={PHONE}")  # what the hook is for

    cut = Telemetry()
    hooks = documented("cut_query")
    with instrumented(cut, request_hook=hooks["cut_query"], async_request_hook=hooks["cut_query_async"]):
        search(client_kind, sandbox, unique_key())
    assert not shown(cut, PHONE)
    assert shown(cut, f"{sandbox.base_url}/transactions")
    cut.shutdown()


def test_the_hook_cuts_the_attribute_of_the_newer_conventions_too(
    telemetry: Telemetry, sandbox: Sandbox, client_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.instrumentation._semconv import _OpenTelemetrySemanticConventionStability as Conventions

    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
    monkeypatch.setattr(Conventions, "_initialized", False)
    hooks = documented("cut_query")
    with instrumented(telemetry, request_hook=hooks["cut_query"], async_request_hook=hooks["cut_query_async"]):
        search(client_kind, sandbox, unique_key())
    monkeypatch.undo()
    Conventions._initialized = False
    assert shown(telemetry, '"url.full"')
    assert shown(telemetry, '"server.address"')  # only the newer ones have it
    assert not shown(telemetry, PHONE)


def test_an_excluded_host_has_none_of_its_spans(
    telemetry: Telemetry, sandbox: Sandbox, client_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_PYTHON_HTTPX_EXCLUDED_URLS", sandbox.base_url.partition("//")[2].partition("/")[0])
    with instrumented(telemetry):
        search(client_kind, sandbox, unique_key())
    assert telemetry.spans == ()
    assert list(telemetry.points()) == []


@pytest.mark.skipif(
    Version(version("opentelemetry-instrumentation-httpx")) < Version("0.61b0"), reason="it captures no headers yet"
)
def test_it_shows_the_key_only_if_it_captures_that_header(
    telemetry: Telemetry, sandbox: Sandbox, client_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with instrumented(telemetry):
        search(client_kind, sandbox, unique_key())
    assert not shown(telemetry, "Basic ")

    monkeypatch.setenv("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_CLIENT_REQUEST", ".*")
    with instrumented(telemetry):
        search(client_kind, sandbox, unique_key())
    assert shown(telemetry, "Basic ")  # what the page warns of

    sanitized = Telemetry()
    monkeypatch.setenv("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SANITIZE_FIELDS", "authorization")
    with instrumented(sanitized):
        search(client_kind, sandbox, unique_key())
    assert not shown(sanitized, "Basic ")
    assert shown(sanitized, "[REDACTED]")
    sanitized.shutdown()


# In a process of its own, because Sentry changes the libraries of the whole process.
SENTRY = """
import asyncio, json, sys
import httpx, httpx_aiohttp, sentry_sdk
from integrations.test_other_instrumentation import PHONE, documented
from momopay import AsyncClient, Client

kept = []
def keep(thing):
    kept.append(json.dumps(thing, default=str))
    return thing

hooks = documented("cut_breadcrumb") if sys.argv[2] == "hooks" else {}
cut_crumb = hooks.get("cut_breadcrumb", lambda crumb, hint: crumb)
cut_spans = hooks.get("cut_spans", lambda event, hint: event)
sentry_sdk.init(
    "http://key@127.0.0.1:1/1",
    traces_sample_rate=1.0,
    before_breadcrumb=lambda crumb, hint: keep(cut_crumb(crumb, hint)),
    before_send_transaction=lambda event, hint: keep(cut_spans(event, hint)) and None,
)

async def search_async(transport):
    async with AsyncClient("pk_test_a", base_url=sys.argv[1], transport=transport) as client:
        with sentry_sdk.start_transaction(name="search"):
            await client.transactions.list(q=PHONE)

def search(transport):
    with Client("pk_test_a", base_url=sys.argv[1], transport=transport) as client:
        with sentry_sdk.start_transaction(name="search"):
            client.transactions.list(q=PHONE)

async def search_over_aiohttp():
    await search_async(httpx_aiohttp.AiohttpTransport())

match sys.argv[3]:
    case "blocking":
        search(None)
        search(httpx.HTTPTransport())
    case "async":
        asyncio.run(search_async(None))
        asyncio.run(search_async(httpx.AsyncHTTPTransport()))
    case "aiohttp":
        asyncio.run(search_over_aiohttp())
transactions = sum('"search"' in each for each in kept)
print(transactions, any('"httplib"' in each for each in kept), any(PHONE in each for each in kept))
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("client", "hooks", "shows"),
    [
        ("blocking", "none", "2 False False"),  # it does not see our requests
        ("async", "none", "2 False False"),
        ("aiohttp", "none", "1 True True"),
        ("aiohttp", "hooks", "1 True False"),
    ],
)
def test_sentry_shows_a_search_over_aiohttp_unless_hooks_cut_it_off(
    sandbox: Sandbox, client: str, hooks: str, shows: str
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "ignore"}
    program = [sys.executable, "-c", SENTRY, sandbox.base_url, hooks, client]
    ran = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == shows
