"""The control routes under /sandbox/: what `Sandbox` does in Python, from any language.

A view is a function from the engine and a query to JSON, an action one from the engine and a request body. The
envelope, the errors and the guard against other web sites are the service's own.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from momopay.sandbox import _lifecycle
from momopay.sandbox._bodies import MAXIMUM_BYTES, Body, parse_json, read_body
from momopay.sandbox._choices import choices
from momopay.sandbox._clock import iso
from momopay.sandbox._engine import ClosedError, Engine
from momopay.sandbox._envelope import success_response
from momopay.sandbox._faults import REFUSED_WITH, Fault
from momopay.sandbox._guard import Guard
from momopay.sandbox._outcomes import Outcome
from momopay.sandbox._refusals import Refusal
from momopay.sandbox._settings import change_account
from momopay.sandbox._snapshot import (
    account_json,
    callback_json,
    find_transactions,
    movement_json,
    request_json,
    snapshot,
    transaction_detail,
    transaction_json,
    version,
)
from momopay.sandbox._state import ServiceState
from momopay.sandbox._transactions import Transaction

View = Callable[[Engine, Mapping[str, str]], object]
Action = Callable[[Engine, bytes], Awaitable[object]]
PromptAction = Callable[[ServiceState, str, datetime], Transaction]
Handler = Callable[[Request], Awaitable[Response]]

# Real seconds between two checks for a new version. Polling costs one comparison and needs no list of listeners.
_EVENT_INTERVAL = 0.15


class _IdBody(Body):
    id: str


class _PlanIdBody(Body):
    id: str | None = None


class _OutcomeBody(Body):
    outcome: str
    phone: str | None = None
    kind: str = "prompt"
    times: int = 1


class _AdvanceBody(Body):
    seconds: Decimal


class _FaultBody(Body):
    method: str
    path: str
    fault: str
    times: int = 1
    content_length: Annotated[bool, Field(alias="content_length")] = True
    status: int = REFUSED_WITH


async def _advance(engine: Engine, raw: bytes) -> object:
    await engine.advance(float(read_body(_AdvanceBody, raw).seconds))
    return snapshot(engine)


async def _fail_next(engine: Engine, raw: bytes) -> object:
    # With int, a `times` of 1.5 or 1.0 is refused; as Decimal a whole number would be no int.
    body = read_body(_FaultBody, raw, integer=int)
    fault = Fault(body.fault)
    engine.faults.add(body.method, body.path, fault, body.times, content_length=body.content_length, status=body.status)
    return {}


async def _end_next(engine: Engine, raw: bytes) -> object:
    body = read_body(_OutcomeBody, raw, integer=int)
    engine.state.outcomes.add(Outcome(body.outcome), phone=body.phone, kind=body.kind, times=body.times)
    return {}


async def _clear_planned(engine: Engine, raw: bytes) -> object:
    engine.clear_planned(read_body(_PlanIdBody, raw or b"{}").id)
    return {}


async def _resend(engine: Engine, raw: bytes) -> object:
    wanted = read_body(_IdBody, raw).id
    record = next((each for each in reversed(engine.state.callbacks) if each.id == wanted), None)
    if record is None:
        raise Refusal("NOT_FOUND", "No callback has this id")
    await engine.send_again(record)
    return {}


async def _reset(engine: Engine, _raw: bytes) -> object:
    engine.reset()
    return {}


async def _account(engine: Engine, raw: bytes) -> object:
    value: Any = parse_json(raw, integer=int)
    return account_json(change_account(engine.state, value, engine.clock.now()))


def _on_prompt(act: PromptAction) -> Action:
    async def action(engine: Engine, raw: bytes) -> object:
        body = read_body(_IdBody, raw)
        return transaction_json(act(engine.state, body.id, engine.clock.now()))

    return action


VIEWS: Mapping[str, View] = {
    "health": lambda engine, _query: {"now": iso(engine.clock.now())},
    "state": lambda engine, _query: snapshot(engine),
    "choices": lambda _engine, _query: choices(),
    "callbacks": lambda engine, _query: [callback_json(record) for record in engine.state.callbacks],
    "requests": lambda engine, _query: [request_json(request) for request in engine.requests.all()],
    "ledger": lambda engine, _query: [movement_json(movement) for movement in engine.state.ledger],
    "transactions": lambda engine, query: find_transactions(engine.state, query),
    "transactions/{id}": lambda engine, query: transaction_detail(engine, query["id"]),
}
ACTIONS: Mapping[str, Action] = {
    "advance": _advance,
    "fail_next": _fail_next,
    "end_next": _end_next,
    "clear_planned": _clear_planned,
    "resend": _resend,
    "reset": _reset,
    "account": _account,
    "enter_pin": _on_prompt(_lifecycle.enter_pin),
    "cancel": _on_prompt(_lifecycle.cancel),
    "ignore": _on_prompt(_lifecycle.ignore),
}


def add_control_routes(app: FastAPI, engine: Engine, guard: Guard) -> None:
    """Add the control routes to the app; its OpenAPI document is the service's and leaves them out."""
    routes: list[tuple[str, str, Handler]] = [
        ("GET", "events", _events(engine, guard)),
        *(("GET", name, _view(engine, guard, view)) for name, view in VIEWS.items()),
        *(("POST", name, _action(engine, guard, action)) for name, action in ACTIONS.items()),
    ]
    for method, name, handler in routes:
        app.add_api_route(
            f"/sandbox/{name}", handler, methods=[method], include_in_schema=False, response_class=Response
        )


def _view(engine: Engine, guard: Guard, view: View) -> Handler:
    async def handle(request: Request) -> Response:
        guard.check(request)
        engine.catch_up()
        return success_response(view(engine, {**request.query_params, **request.path_params}))

    return handle


def _action(engine: Engine, guard: Guard, action: Action) -> Handler:
    async def handle(request: Request) -> Response:
        guard.check(request)
        # Nothing is read or done before the guard: a page elsewhere can send a request, and only not read the answer.
        raw = await request.body()
        if len(raw) > MAXIMUM_BYTES:
            raise Refusal("PAYLOAD_TOO_LARGE", "The request body is over 1 MiB")
        engine.catch_up()
        try:
            # ValueErrors carry the messages that Python callers see; over HTTP they are refusals.
            return success_response(await action(engine, raw))
        except ValueError as error:
            raise Refusal("VALIDATION_ERROR", str(error)) from error
        except ClosedError as error:
            raise Refusal("INTERNAL_ERROR", str(error), status=503) from error
        finally:
            engine.commit()

    return handle


def _events(engine: Engine, guard: Guard) -> Handler:
    async def stream() -> AsyncIterator[str]:
        sent_version: object = None
        while not engine.stopping.is_set():
            if (present := version(engine)) != sent_version:
                sent_version = present
                yield f"data: {json.dumps(snapshot(engine))}\n\n"
            # Waiting for the stop, not merely sleeping: a page that is open must not delay `close`.
            with suppress(TimeoutError):
                await asyncio.wait_for(engine.stopping.wait(), _EVENT_INTERVAL)

    async def handle(request: Request) -> Response:
        guard.check(request)
        return StreamingResponse(stream(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    return handle
