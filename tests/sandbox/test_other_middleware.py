"""The sandbox inside a process whose tools put a middleware of their own into every ASGI application."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from momopay.sandbox import Fault, Sandbox
from sandbox.kit import Service, client, data, refusal

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


@pytest.mark.whole
def test_it_makes_no_spans_by_itself() -> None:
    # FastAPI 0.165 does where the process has a tracer provider, with the whole query.
    shown = subprocess.run(
        [sys.executable, "-c", GLOBAL], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert shown.strip() == "[]"


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


@pytest.fixture
def fresh() -> Iterator[Sandbox]:
    with closing(Sandbox()) as sandbox:
        yield sandbox


def test_middleware_that_is_added_to_the_application(fresh: Sandbox) -> None:
    bodies = list[bytes]()
    fresh.app.add_middleware(GZipMiddleware, minimum_size=10)
    fresh.app.add_middleware(CORSMiddleware, allow_origins=["*"])
    fresh.app.add_middleware(ReadsBodies, bodies=bodies)
    with fresh, client(fresh.base_url) as api:
        service = Service(api)
        data(service.payout())
        fresh.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
        assert refusal(service.payout()) == (500, "INTERNAL_ERROR")
        fresh.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
        with pytest.raises(httpx.ReadError):
            service.payout()
        assert data(service.channel())["name"] == "Shop"
        listed = api.get("/transactions")
        assert (data(listed)["overview"]["total"], listed.headers["x-read"]) == (3, "yes")
    assert sum(b'"reference"' in body for body in bodies) == 3
