"""The ASGI application: the service under /v1, its OpenAPI document, and the two HTML pages, behind a guard."""

from collections.abc import Collection, Mapping
from http import HTTPStatus
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from momopay.sandbox._accounts import Switches, is_key, key_of
from momopay.sandbox._bodies import IS_UUID, MAXIMUM_BYTES, is_loopback
from momopay.sandbox._endpoints import ENDPOINTS, Endpoint
from momopay.sandbox._engine import Engine
from momopay.sandbox._fault_middleware import BODY, EFFECT, PREFIX, json_response, refusal_response
from momopay.sandbox._faults import Fault
from momopay.sandbox._openapi import openapi
from momopay.sandbox._payments import Call
from momopay.sandbox._refusals import Refusal, success_body
from momopay.sandbox._serializers import spoil

_PAGES = {"page.html": "/", "docs.html": "/docs"}
_LINKED = frozenset({*_PAGES.values(), "/openapi.json"})
_HEADERS = {
    # Nothing is fetched from elsewhere, and text from a caller could not run even if a page showed it as HTML.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """The layer that keeps other web sites out of the pages and the control routes, which need no key.

    Any site that a developer visits can make the browser send requests to loopback. The sandbox answers requests for
    loopback names and for `hosts`. If other machines reach it, that applies to /v1 too.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], *, reachable: bool) -> None:
        self._app = app
        self._hosts = hosts
        self._reachable = reachable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http" and (self._reachable or not scope["path"].startswith(f"{PREFIX}/")):
                self._check(scope["path"], Headers(scope=scope), scope["scheme"])
        except Refusal as refusal:
            await refusal_response(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, path: str, headers: Mapping[str, str], scheme: str) -> None:
        """Raise if a request is for another name, which may be DNS rebinding, or comes from another site."""
        host = headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name) and name not in self._hosts:
            others = " and those given as --allow-host" if self._hosts else ""
            raise Refusal("FORBIDDEN", f"The sandbox answers to loopback names{others} only")
        # Other sites may link to a page, since they can neither frame nor read it, and may use /v1 with a key.
        if path in _LINKED or path.startswith(f"{PREFIX}/"):
            return
        # Programs send neither header. Browsers send at least one, and scripts cannot change it.
        foreign = headers.get("origin", f"{scheme}://{host}") != f"{scheme}://{host}"
        if foreign or headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
            raise Refusal("FORBIDDEN", "Another site may not drive the sandbox")


class ServiceApp(FastAPI):
    """The application. It is a FastAPI for tools that instrument one, but has its own routes and OpenAPI document."""

    outermost: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, first through the sandbox's own layers and then through middleware that others add."""
        # Not in `build_middleware_stack`, because OpenTelemetry needs a stack that begins as Starlette's does.
        await self.outermost(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that has passed the sandbox's own layers."""
        await super().__call__(scope, receive, send)


def build(engine: Engine) -> ServiceApp:
    """Return the application. The caller sets its `outermost` layer."""
    app = ServiceApp(
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # It acts as another server, so its spans, with customers' phones in queries, are not for this process.
        # Older versions of FastAPI ignore the argument and report nothing by themselves.
        telemetry={"exclude": lambda _scope: True, "auto_configure": False},
    )
    for path, endpoints in groupby(ENDPOINTS, lambda endpoint: endpoint.path):
        app.router.routes.append(Route(PREFIX + path, _Resource(engine, list(endpoints)), include_in_schema=False))
    _add_pages(app, engine)
    # Starlette's own errors are plain text, but clients of the service expect the envelope.
    for kind in (HTTPException, Refusal, Exception):
        app.add_exception_handler(kind, _error_response)
    return app


class _Resource:
    """All methods of one path. With a route for each, Starlette's 405 would have the methods of one in Allow."""

    def __init__(self, engine: Engine, endpoints: list[Endpoint]) -> None:
        self._engine = engine
        self._endpoints = {endpoint.method: endpoint for endpoint in endpoints}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Nothing suspends before the response is sent, so a request is one step and needs no lock.
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            raise Refusal("METHOD_NOT_ALLOWED", headers={"allow": ", ".join(self._endpoints)})
        engine, headers, effect = self._engine, Headers(scope=scope), scope.get(EFFECT) or ""
        now, switches, more = engine.catch_up(), engine.state.switches, dict[str, str]()
        try:
            # The key comes first, since a request without a valid one has no account whose rate limit could apply.
            key, is_raw = key_of(headers.get("authorization"), switches)
            account_state = engine.state.account_of(key, now, is_raw=is_raw)
            account = account_state.account
            switches = account.switches
            account.check_access(endpoint.method)
            try:
                account_state.rate.admit(now, account.rate_limit, switches.rate_window, switches.rate_limit_code)
            finally:
                if switches.rate_limit_headers:
                    more = account_state.rate.headers(account.rate_limit)
            if not endpoint.exists_under(switches):
                raise Refusal("NOT_FOUND")
            if len(scope[BODY]) > MAXIMUM_BYTES:
                raise Refusal("PAYLOAD_TOO_LARGE")
            call = Call(
                state=engine.state,
                account_state=account_state,
                now=now,
                # Decoded only here, because the path was routed as sent: an id may hold an encoded slash.
                id=unquote(scope["path_params"].get("id", "")),
                query=QueryParams(scope["query_string"]),
                body=scope[BODY],
                idempotency_key=headers.get("idempotency-key"),
                callback_mode="" if effect is Fault.list_lag else effect.removeprefix("callback_"),
                list_lag=effect is Fault.list_lag,
            )
            if switches.invalid_uuid and "id" in scope["path_params"] and not IS_UUID(call.id):
                raise Refusal("INVALID_UUID")
            data = endpoint.operation(call)
        except Refusal as refusal:
            refusal.headers.update(more)
            return refusal_response(refusal, switches.error_messages)
        finally:
            engine.commit()  # before the response is sent, because what a client knows must survive a kill
        if endpoint.record == "TransactionList":
            spoil(data["items"], engine.state.transactions)
        status = endpoint.status_under(switches)
        if status == HTTPStatus.NO_CONTENT:
            return Response(status_code=status, headers=more)
        return json_response(success_body(data), status, more)


async def _error_response(_request: Request, error: Exception) -> Response:
    """Return the envelope of a refusal, of an error of Starlette, or of a bug."""
    if isinstance(error, Refusal):
        return refusal_response(error)
    if isinstance(error, HTTPException):
        code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "VALIDATION_ERROR")
        return refusal_response(Refusal(code, status=error.status_code, headers=error.headers))
    return refusal_response(Refusal("INTERNAL_ERROR"))


def _add_pages(app: FastAPI, engine: Engine) -> None:
    """Add the phone, the documentation and the OpenAPI document."""

    async def document(request: Request) -> Response:
        url = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
        return JSONResponse(openapi(_described_switches(engine, request), url, engine.state.callback_hosts))

    for file in Path(__file__).with_name("page").iterdir():
        # A response is an application of its own.
        page = FileResponse(file, headers=_HEADERS)
        app.router.routes.append(Route(_PAGES.get(file.name, f"/page/{file.name}"), page, methods=["GET"]))
    app.router.add_route("/openapi.json", document, include_in_schema=False)


def _described_switches(engine: Engine, request: Request) -> Switches:
    """Return the switches of the account that `?account=` (a key or a tenant id) or Basic authentication names.

    Without either, return the switches that all accounts share; if there are none, those of a fresh account.
    """
    name = request.query_params.get("account") or ""
    if not name and "authorization" in request.headers:
        name, _ = key_of(request.headers["authorization"], engine.state.switches)
    if is_key(name):
        return engine.state.account_of(name, engine.clock.now()).account.switches
    known = [each for each in engine.state.accounts.values() if name in {"", each.account.tenant_id}]
    if name and not known:
        raise Refusal("NOT_FOUND", "No account has this id")
    shared = {each.account.switches.model_dump_json(): each.account.switches for each in known}
    return shared.popitem()[1] if len(shared) == 1 else engine.state.switches
