"""What can be asked of a running sandbox over its control routes: functions from a JSON body to JSON."""

from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from momopay.sandbox import _lifecycle
from momopay.sandbox._bodies import Body, parse_json, read_body
from momopay.sandbox._engine import Engine
from momopay.sandbox._faults import Fault
from momopay.sandbox._settings import change_account
from momopay.sandbox._snapshot import (
    account_json,
    callback_json,
    movement_json,
    request_json,
    snapshot,
    transaction_json,
)

View = Callable[[Engine], object]
Act = Callable[[Engine, bytes], Awaitable[object]]


class _IdBody(Body):
    id: str


class _AdvanceBody(Body):
    seconds: Decimal


class _FaultBody(Body):
    method: str
    path: str
    fault: str
    times: int = 1
    content_length: Annotated[bool, Field(alias="content_length")] = True


async def _advance(engine: Engine, raw: bytes) -> object:
    await engine.advance(float(read_body(_AdvanceBody, raw).seconds))
    return snapshot(engine)


async def _fail_next(engine: Engine, raw: bytes) -> object:
    body = read_body(_FaultBody, raw, integer=int)
    fault = Fault(body.fault)
    engine.faults.add(body.method, body.path, fault, body.times, content_length=body.content_length)
    return {}


async def _reset(engine: Engine, _raw: bytes) -> object:
    engine.reset()
    return {}


async def _account(engine: Engine, raw: bytes) -> object:
    value: Any = parse_json(raw, integer=int)
    return account_json(change_account(engine.world, value, engine.clock.now()))


async def _enter_pin(engine: Engine, raw: bytes) -> object:
    body = read_body(_IdBody, raw)
    return transaction_json(_lifecycle.enter_pin(engine.world, body.id, engine.clock.now()))


async def _cancel(engine: Engine, raw: bytes) -> object:
    body = read_body(_IdBody, raw)
    return transaction_json(_lifecycle.cancel(engine.world, body.id, engine.clock.now()))


async def _ignore(engine: Engine, raw: bytes) -> object:
    body = read_body(_IdBody, raw)
    return transaction_json(_lifecycle.ignore(engine.world, body.id, engine.clock.now()))


VIEWS: Mapping[str, View] = {
    "state": snapshot,
    "callbacks": lambda engine: [callback_json(record) for record in engine.world.callbacks],
    "requests": lambda engine: [request_json(request) for request in engine.requests.all()],
    "ledger": lambda engine: [movement_json(movement) for movement in engine.world.ledger],
}
ACTS: Mapping[str, Act] = {
    "advance": _advance,
    "fail_next": _fail_next,
    "reset": _reset,
    "account": _account,
    "enter_pin": _enter_pin,
    "cancel": _cancel,
    "ignore": _ignore,
}
