"""The sandbox inside a process whose tools put a middleware of their own into every ASGI application."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from momopay.sandbox import Fault, Sandbox
from sandbox.kit import KEY, Service, client, data, refusal

GLOBAL = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)

from momopay import Client
from momopay.sandbox import Sandbox

with Sandbox() as sandbox, Client("pk_test_a", base_url=sandbox.base_url) as client:
    client.transactions.list(q="254712345678")
print([span.name for span in spans.get_finished_spans()])
"""


def test_it_makes_no_spans_by_itself() -> None:
    # FastAPI 0.165 does where the process has a tracer provider, with the whole query.
    shown = subprocess.run(
        [sys.executable, "-c", GLOBAL], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert shown.strip() == "[]"


def test_opentelemetry_for_one_application(fresh: Sandbox) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    FastAPIInstrumentor.instrument_app(fresh.app, tracer_provider=provider)
    with fresh, client(fresh.base_url) as api:
        exercise(Service(api), fresh)
    assert any(span.name == "POST /v1/b2c/payouts" for span in spans.get_finished_spans())


class ReadsBodies(BaseHTTPMiddleware):
    """Reads the body of every request, as a logger does."""

    bodies: list[bytes]

    def __init__(self, app: ASGIApp, bodies: list[bytes]) -> None:
        super().__init__(app)
        self.bodies = bodies

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        self.bodies.append(await request.body())
        response = await call_next(request)
        response.headers["x-read"] = "yes"
        return response


class ConsumesBodies:
    """Reads the body and passes on what it has read, in pieces: the least that ASGI asks of a middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces: list[Message] = []
        while scope["type"] == "http" and (not pieces or pieces[-1].get("more_body")):
            pieces.append(await receive())

        async def again() -> Message:
            return pieces.pop(0) if pieces else await receive()

        await self.app(scope, again, send)


def exercise(service: Service, sandbox: Sandbox) -> None:
    """Use everything that reads a body, and faults before and after the commit."""
    data(service.payout())
    assert refusal(service.payout(amount=1)) == (400, "VALIDATION_ERROR")
    sandbox.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
    assert refusal(service.payout()) == (500, "INTERNAL_ERROR")
    sandbox.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
    with pytest.raises(httpx.ReadError):
        service.payout()
    channel = data(service.channel())
    assert data(service.api.patch(f"/payment-wallet/channels/{channel['id']}", json={"name": "B"}))["name"] == "B"
    service.api.delete(f"/payment-wallet/channels/{channel['id']}").raise_for_status()
    assert data(service.api.get("/transactions"))["overview"]["total"] == 3


@pytest.fixture
def fresh() -> Iterator[Sandbox]:
    with closing(Sandbox()) as sandbox:
        yield sandbox


def test_middleware_that_is_added_to_the_application(fresh: Sandbox) -> None:
    bodies = list[bytes]()
    fresh.app.add_middleware(GZipMiddleware, minimum_size=10)
    fresh.app.add_middleware(CORSMiddleware, allow_origins=["*"])
    fresh.app.add_middleware(ConsumesBodies)
    fresh.app.add_middleware(ReadsBodies, bodies=bodies)
    with fresh, client(fresh.base_url) as api:
        exercise(Service(api), fresh)
        assert api.get("/transactions").headers["x-read"] == "yes"
    assert sum(b'"reference"' in body for body in bodies) == 4


@pytest.mark.parametrize("kind", [ReadsBodies, ConsumesBodies, GZipMiddleware])
def test_middleware_around_the_application(fresh: Sandbox, kind: Any) -> None:
    async def pay() -> None:
        around = kind(fresh.app, []) if kind is ReadsBodies else kind(fresh.app)
        transport = httpx.ASGITransport(around)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/v1", auth=(KEY, "")) as http:
            body = {"amount": 100, "phone": "0712345678", "reference": "SAL-1"}
            assert (await http.post("/b2c/payouts", json=body)).status_code == 200
            assert (await http.get("/transactions")).json()["data"]["overview"]["total"] == 1

    asyncio.run(pay())
