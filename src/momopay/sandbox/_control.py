"""The routes outside /v1: the page, the API's description, and the control routes for any language."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from fastapi import FastAPI, Request, Response
from starlette.responses import StreamingResponse

from momopay.sandbox._answers import answered
from momopay.sandbox._bodies import MAXIMUM_BYTES
from momopay.sandbox._control_api import ACTS, VIEWS, Act, View
from momopay.sandbox._engine import ClosedError, Engine
from momopay.sandbox._guard import guard, guard_host
from momopay.sandbox._page import page_response
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._snapshot import snapshot

_LOOK_EVERY = 0.15  # real seconds between two looks for news, while a page is open
Handler = Callable[[Request], Awaitable[Response]]


def add_control_routes(app: FastAPI, engine: Engine) -> None:
    """Add /, /docs and /sandbox/... to the app; none of it stands in the OpenAPI description."""
    routes: list[tuple[str, str, Handler]] = [
        ("GET", "/", _page("page.html")),
        ("GET", "/docs", _page("docs.html")),
        ("GET", "/sandbox/events", _events(engine)),
        *(("GET", f"/sandbox/{name}", _view(engine, view)) for name, view in VIEWS.items()),
        *(("POST", f"/sandbox/{name}", _act(engine, act)) for name, act in ACTS.items()),
    ]
    for method, path, handler in routes:
        app.add_api_route(path, handler, methods=[method], include_in_schema=False, response_class=Response)


def _page(name: str) -> Handler:
    async def handle(request: Request) -> Response:
        # A link from elsewhere may lead here; the page cannot be framed and tells other sites nothing.
        guard_host(request)
        return page_response(name)

    return handle


def _view(engine: Engine, view: View) -> Handler:
    async def handle(request: Request) -> Response:
        guard(request)
        engine.settle()
        return answered(view(engine))

    return handle


def _act(engine: Engine, act: Act) -> Handler:
    async def handle(request: Request) -> Response:
        guard(request)
        raw = await request.body()
        if len(raw) > MAXIMUM_BYTES:
            raise Refusal("PAYLOAD_TOO_LARGE", "The request body is over 1 MiB")
        engine.settle()
        try:
            return answered(await act(engine, raw))
        except ValueError as error:
            raise Refusal("VALIDATION_ERROR", str(error)) from error
        except ClosedError as error:
            raise Refusal("INTERNAL_ERROR", str(error), status=503) from error
        finally:
            engine.commit()

    return handle


def _events(engine: Engine) -> Handler:
    async def stream() -> AsyncIterator[str]:
        seen = -1
        while not engine.stopping.is_set():
            if engine.world.version != seen:
                seen = engine.world.version
                yield f"data: {json.dumps(snapshot(engine))}\n\n"
            with suppress(TimeoutError):
                await asyncio.wait_for(engine.stopping.wait(), _LOOK_EVERY)

    async def handle(request: Request) -> Response:
        guard(request)
        return StreamingResponse(stream(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    return handle
