"""The FastAPI skin: routes, their description for OpenAPI, and the envelope around every error."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from momopay.sandbox import _operations
from momopay.sandbox._admission import admit
from momopay.sandbox._answers import answered, refused
from momopay.sandbox._bodies import MAXIMUM_BYTES
from momopay.sandbox._contract import ROUTES, describe
from momopay.sandbox._engine import Engine
from momopay.sandbox._fault_middleware import BODY, PREFIX, TWIST
from momopay.sandbox._faults import Fault
from momopay.sandbox._operations import Call, Operation
from momopay.sandbox._payments import NO_TWIST, Twist
from momopay.sandbox._refusals import Refusal

Handler = Callable[[Request], Awaitable[Response]]
NO_CONTENT = 204


class ServiceApp(FastAPI):
    """FastAPI, with the one security scheme that the gate-keeping of `_admission` amounts to."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        scheme = {"type": "http", "scheme": "basic", "description": "The API key as user name, no password"}
        document.setdefault("components", {})["securitySchemes"] = {"apiKey": scheme}
        return document


def build(engine: Engine) -> FastAPI:
    """The service under /v1. The gate must stand before it: it reads the body and plans the faults."""
    app = ServiceApp(
        title="Mobile-money payments service (sandbox)",
        version="1.0",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for route in ROUTES:
        operation: Operation = getattr(_operations, route.operation)
        app.add_api_route(
            PREFIX + route.path,
            _handler(engine, route.operation, operation),
            methods=[route.method],
            response_class=Response,
            **describe(route),
        )
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(Exception, _defect)
    return app


def _handler(engine: Engine, name: str, operation: Operation) -> Handler:
    creates = name in {"initiate_stk", "initiate_payout", "top_up", "create_channel"}
    deletes = name == "delete_channel"

    async def handle(request: Request) -> Response:
        # Nothing suspends in here: a request is one step of the state machine.
        now = engine.settle()
        scope = request.scope
        headers = request.headers
        try:
            book = admit(engine.world, headers.get("authorization"), now)
            data = operation(
                Call(
                    world=engine.world,
                    book=book,
                    now=now,
                    id=unquote(request.path_params.get("id", "")),
                    query=request.query_params,
                    body=_body(scope),
                    idempotency_key=headers.get("idempotency-key"),
                    twist=_twist(scope),
                )
            )
        except Refusal as refusal:
            return refused(refusal)
        finally:
            engine.commit()
        if deletes and book.account.switches.delete_answer == "empty":
            return Response(status_code=NO_CONTENT)
        return answered(data, book.account.switches.created_status if creates else 200)

    handle.__name__ = name
    return handle


def _body(scope: Mapping[str, Any]) -> bytes:
    body: bytes = scope[BODY]
    if len(body) > MAXIMUM_BYTES:
        raise Refusal("PAYLOAD_TOO_LARGE", "The request body is over 1 MiB")
    return body


def _twist(scope: Mapping[str, Any]) -> Twist:
    fault: Fault | None = scope.get(TWIST)
    if fault is None:
        return NO_TWIST
    if fault is Fault.list_lag:
        return Twist(list_lag=True)
    return Twist(callback_mode=fault.removeprefix("callback_"))


async def _http_error(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(status, "VALIDATION_ERROR")
    message = {404: "No such path", 405: "This path does not take that method"}.get(status, "Not acceptable")
    return refused(Refusal(code, message, status=status, headers=headers))


async def _refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)  # noqa: S101 - for the type checkers
    return refused(error)


async def _defect(_request: Request, _error: Exception) -> Response:
    return refused(Refusal("INTERNAL_ERROR", "The sandbox itself failed; this is a defect of the sandbox"))
