"""The FastAPI application: the routes under /v1 and the envelope around every answer."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from momopay.sandbox._authentication import admit
from momopay.sandbox._bodies import MAXIMUM_BYTES
from momopay.sandbox._engine import Engine
from momopay.sandbox._envelope import refusal_response, success_response
from momopay.sandbox._fault_middleware import BODY, EFFECT, PREFIX
from momopay.sandbox._faults import Fault
from momopay.sandbox._operations import Call
from momopay.sandbox._payments import NO_EFFECTS, FaultEffects
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._routes import ROUTES, Route, describe

Handler = Callable[[Request], Awaitable[Response]]
NO_CONTENT = 204


class ServiceApp(FastAPI):
    """FastAPI, with the one security scheme, which `_authentication` checks, in its OpenAPI document."""

    outermost: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, through the sandbox's own layers first and then through those that others add."""
        # Not in `build_middleware_stack`: OpenTelemetry refuses a stack that does not begin as Starlette's does.
        await self.outermost(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request behind the sandbox's own layers."""
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        document = super().openapi()
        scheme = {"type": "http", "scheme": "basic", "description": "The API key as user name, no password"}
        document.setdefault("components", {})["securitySchemes"] = {"apiKey": scheme}
        return document


def build(engine: Engine, wrap: Callable[[ASGIApp], ASGIApp]) -> FastAPI:
    """Return the service under /v1. `wrap` puts `FaultMiddleware` around it, which reads bodies and plans faults."""
    app = ServiceApp(
        title="Mobile-money payments service (sandbox)",
        version="1.0",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # It plays somebody else's server: its spans, with customers' phones in queries, are none of this process's.
        # Older versions of FastAPI ignore the argument, and none of them reports anything by itself.
        telemetry={"exclude": lambda _scope: True, "auto_configure": False},
    )
    app.outermost = wrap(app.serve)
    for route in ROUTES:
        app.add_api_route(
            PREFIX + route.path,
            _handler(engine, route),
            methods=[route.method],
            response_class=Response,
            **describe(route),
        )
    # Starlette's own answers are plain text; a client of the service expects the envelope from everything.
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(Exception, _defect)
    return app


def _handler(engine: Engine, route: Route) -> Handler:
    async def handle(request: Request) -> Response:
        # Nothing suspends in here: a request is one step of the state machine, so it needs no lock.
        now = engine.catch_up()
        scope = request.scope
        headers = request.headers
        try:
            account_state = admit(engine.state, headers.get("authorization"), now)
            record = route.operation(
                Call(
                    state=engine.state,
                    account_state=account_state,
                    now=now,
                    # Only now: the path was routed as sent, so that an id may hold an encoded slash.
                    id=unquote(request.path_params.get("id", "")),
                    query=request.query_params,
                    body=_body(scope),
                    idempotency_key=headers.get("idempotency-key"),
                    effects=_effects(scope),
                )
            )
        except Refusal as refusal:
            return refusal_response(refusal)
        finally:
            # Before the answer goes out: what a client learned must survive a kill.
            engine.commit()
        switches = account_state.account.switches
        if route.method == "DELETE" and switches.delete_answer == "empty":
            return Response(status_code=NO_CONTENT)
        return success_response(record, switches.created_status if route.method == "POST" else 200)

    return handle


def _body(scope: Mapping[str, Any]) -> bytes:
    body: bytes = scope[BODY]
    if len(body) > MAXIMUM_BYTES:
        raise Refusal("PAYLOAD_TOO_LARGE", "The request body is over 1 MiB")
    return body


def _effects(scope: Mapping[str, Any]) -> FaultEffects:
    fault: Fault | None = scope.get(EFFECT)
    if fault is None:
        return NO_EFFECTS
    if fault is Fault.list_lag:
        return FaultEffects(list_lag=True)
    return FaultEffects(callback_mode=fault.removeprefix("callback_"))


async def _http_error(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(status, "VALIDATION_ERROR")
    message = {404: "No such path", 405: "This path does not take that method"}.get(status, "Not acceptable")
    return refusal_response(Refusal(code, message, status=status, headers=headers))


async def _refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)  # noqa: S101 - for the type checkers
    return refusal_response(error)


async def _defect(_request: Request, _error: Exception) -> Response:
    return refusal_response(Refusal("INTERNAL_ERROR", "The sandbox itself failed; this is a defect of the sandbox"))
