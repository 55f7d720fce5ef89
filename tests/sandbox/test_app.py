"""The application: the envelope around everything, and the pages."""

import sys

import httpx
import pytest
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from in_turn import in_turn
from momopay.sandbox import Fault, Sandbox
from momopay.sandbox._control_api import ACTIONS, VIEWS
from patience import run_program
from sandbox.kit import Routes, client, data, error_of

EVIL_HOST = {"Host": "evil.example"}


def test_unknown_paths_and_methods_get_an_envelope(api: httpx.Client, control: httpx.Client) -> None:
    ids = set[str]()
    for asked, path in ((api, "/nope"), (control, "/nope"), (control, "/v1"), (api, "/transactions/")):
        answer = asked.get(path)
        assert error_of(answer) == (404, "NOT_FOUND")
        ids.add(answer.json()["requestId"])
    assert len(ids) == 4
    assert api.head("/transactions").status_code == 405


def test_a_defect_of_the_sandbox_is_an_envelope_too(control: httpx.Client, sandbox: Sandbox) -> None:
    engine = vars(sandbox)["_runner"].engine
    vars(engine)["catch_up"] = None
    response = control.get("/sandbox/state")
    del vars(engine)["catch_up"]
    assert error_of(response) == (500, "INTERNAL_ERROR")


def test_a_page_may_run_its_own_script_only(control: httpx.Client) -> None:
    for path, script in (("/", "/page/base.js"), ("/docs", "/page/docs.js")):
        # A link of another site may lead here, but not under another name.
        pages = [control.get(path, headers={"Sec-Fetch-Site": "cross-site"}), control.get(script)]
        kinds = [page.headers["content-type"].partition(";")[0] for page in pages]
        assert (kinds, script in pages[0].text) == (["text/html", "text/javascript"], True)
        for page in pages:
            assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            assert not any(text in page.text for text in ("https://", "innerHTML"))
        assert error_of(control.get(path, headers=EVIL_HOST)) == (403, "FORBIDDEN")


@in_turn(
    "headers",
    [
        EVIL_HOST,
        {"Host": "evil.example:8787"},
        {"Host": "[oops"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_are_refused(control: httpx.Client, sandbox: Sandbox, headers: dict[str, str]) -> None:
    sandbox.clear_planned()
    sandbox.end_next("cancelled")
    routes = [("POST", f"/sandbox/{name}") for name in ACTIONS]
    routes += [("GET", f"/sandbox/{name}") for name in (*VIEWS, "events")]
    for method, path in routes if headers == EVIL_HOST else (routes[0], routes[-1]):
        assert error_of(control.request(method, path, headers=headers)) == (403, "FORBIDDEN")
    assert len(data(control.get("/sandbox/state"))["outcomes"]) == 1


def test_a_name_that_was_allowed_is_the_sandboxs_own_and_another_site_stays_another() -> None:
    with Sandbox(host="0.0.0.0", allow_hosts=["Sandbox"]) as sandbox, client(sandbox.url) as control:
        named = f"sandbox:{control.base_url.port}"
        own = {"Origin": f"http://{named}", "Sec-Fetch-Site": "same-origin"}
        data(control.post("/sandbox/reset", headers={"Host": named, **own}))
        for name in ("SANDBOX", f"localhost:{control.base_url.port}"):
            data(control.get("/sandbox/state", headers={"Host": name}))
        assert control.get("/", headers={"Host": named}).status_code == 200
        for headers in (
            {"Host": "other"},
            {"Host": f"evil.{named}"},
            {"Host": named, "Origin": "https://evil.example"},
            {"Host": named, "Origin": "http://sandbox:1"},
            {"Host": named, "Sec-Fetch-Site": "cross-site"},
        ):
            assert error_of(control.get("/sandbox/state", headers=headers)) == (403, "FORBIDDEN")
        for path in ("/", "/docs", "/openapi.json", "/v1/transactions"):  # as other machines can reach it
            assert error_of(control.get(path, headers={"Host": "other"})) == (403, "FORBIDDEN")


GLOBAL = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)

from momopay import Client
from momopay.sandbox import Sandbox

with Sandbox() as sandbox, Client("pk_test_a", base_url=sandbox.base_url) as client:
    client.transactions.list(q="254712345678")
"""


@pytest.mark.whole
def test_the_sandbox_makes_no_spans_by_itself() -> None:
    # FastAPI 0.165 does where the process has a tracer provider, with the whole query.
    assert run_program([sys.executable, "-c", GLOBAL]).stdout == ""


def test_middleware_that_is_added_to_the_application() -> None:
    fresh, bodies = Sandbox(), list[bytes]()

    async def read(request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Read the body of every request, as a logger does."""
        bodies.append(await request.body())
        response = await call_next(request)
        response.headers["x-read"] = "yes"
        return response

    fresh.app.add_middleware(GZipMiddleware, minimum_size=10)
    fresh.app.add_middleware(BaseHTTPMiddleware, dispatch=read)
    with fresh, client(fresh.base_url) as api:
        service = Routes(api)
        data(service.payout())
        fresh.fail_next("POST", "/b2c/payouts", Fault.error_after_commit)
        assert error_of(service.payout()) == (500, "INTERNAL_ERROR")
        fresh.fail_next("POST", "/b2c/payouts", Fault.reset_after_commit)
        with pytest.raises(httpx.ReadError):
            service.payout()
        listed = api.get("/transactions")
        assert (data(listed)["overview"]["total"], listed.headers["x-read"]) == (3, "yes")
    assert sum(b'"reference"' in body for body in bodies) == 3
