"""The control routes under /sandbox/: the methods of `Sandbox` for any language, and the state as JSON.

An action is a method of `Sandbox`, whose parameters are the fields of the body. The envelope and the errors are the
service's.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from inspect import signature
from itertools import islice
from types import MethodType, NoneType
from typing import Any, TypeVar, cast, get_args, get_type_hints

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from momopay.sandbox._accounts import Account, Switches
from momopay.sandbox._bodies import MAXIMUM_BYTES, parse_json
from momopay.sandbox._endpoints import ENDPOINTS
from momopay.sandbox._engine import ClosedError, Engine
from momopay.sandbox._fault_middleware import json_response
from momopay.sandbox._faults import Fault
from momopay.sandbox._outcomes import Outcome, outcome_for
from momopay.sandbox._records import CallbackRecord, ReceivedRequest, Transaction, iso, json_number
from momopay.sandbox._refusals import Refusal, invalid, success_body
from momopay.sandbox._state import AccountState, ServiceState

Json = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]
R = TypeVar("R", CallbackRecord, ReceivedRequest, Transaction)

# Real seconds between two checks for a new version. Polling costs one comparison and needs no list of listeners.
_EVENT_INTERVAL = 0.15
# Records of each account that the page shows. Every change sends the whole snapshot again.
_NEWEST = 100
_REQUESTS_LOOKED_AT = 5_000
_BODY_SHOWN = 2_000
_READ_ONLY = {"tenant_id", "label", "service_updated_at"}  # they identify the account or follow from its payments
CHANGEABLE = tuple(name for name in Account.model_fields if name not in _READ_ONLY)

# The methods of `Sandbox` that are routes.
ACTIONS = (
    "advance",
    "ban_stk",
    "block_stk",
    "cancel",
    "clear_planned",
    "end_next",
    "enter_pin",
    "fail_next",
    "ignore",
    "resend",
    "reset",
    "spoil",
)
_IDS = {"transaction", "callback", "plan_id"}  # parameters that are the field `id` of a body
VIEWS: Mapping[str, Callable[[Engine, Mapping[str, str]], object]] = {
    "health": lambda engine, _query: {"now": iso(engine.clock.now())},
    "state": lambda engine, _query: snapshot(engine),
    "choices": lambda _engine, _query: choices(),
    "callbacks": lambda engine, _query: [callback_json(record) for record in engine.state.callbacks],
    "requests": lambda engine, _query: [record_json(request) for request in list(engine.requests.entries)],
    "ledger": lambda engine, _query: [record_json(movement) for movement in engine.state.ledger],
    "transactions": lambda engine, query: find_transactions(engine.state, query),
    "transactions/{id}": lambda engine, query: transaction_detail(engine, query["id"]),
}


def add_control_routes(app: Starlette, sandbox: object, engine: Engine) -> None:
    """Add the control routes to the app. The OpenAPI document describes only the service."""
    routes: list[tuple[str, str, Handler]] = [
        ("GET", "events", _events(engine)),
        ("POST", "account", _account(engine)),
        *(("GET", name, _view(engine, view)) for name, view in VIEWS.items()),
        *(("POST", name, _action(engine, getattr(sandbox, name))) for name in ACTIONS),
    ]
    for method, name, handler in routes:
        app.router.add_route(f"/sandbox/{name}", handler, methods=[method], include_in_schema=False)


def _view(engine: Engine, view: Callable[[Engine, Mapping[str, str]], object]) -> Handler:
    async def handle(request: Request) -> Response:
        engine.catch_up()
        return json_response(success_body(view(engine, {**request.query_params, **request.path_params})))

    return handle


@cache  # by the function, because a test suite starts hundreds of sandboxes
def _body_of(action: Callable[..., object]) -> type[BaseModel]:
    """Return the body of an action's route. Its fields are the parameters of the action."""
    _self, *parameters = signature(action).parameters.values()
    hints, taken = get_type_hints(action), dict[str, Any]()
    for each in parameters:
        default, hint = ... if each.default is each.empty else each.default, hints[each.name]
        # Of what may be a string or an object of Python, only the string.
        kind = str if str in get_args(hint) and NoneType not in get_args(hint) else hint
        taken[each.name] = kind, Field(default, alias="id" if each.name in _IDS else None)
    return create_model(action.__name__, __config__=ConfigDict(strict=True), **taken)


def _action(engine: Engine, method: MethodType) -> Handler:
    model = _body_of(method.__func__)

    async def handle(request: Request) -> Response:
        given = parse_json(await _body(request) or b"{}", number=None)
        try:
            body = model.model_validate(given)
        except ValidationError as error:
            raise invalid(error, "The request body is not valid") from None
        arguments = {name: getattr(body, name) for name in model.model_fields}
        try:
            # On a thread, because the method blocks until this event loop has run its work.
            await anyio.to_thread.run_sync(
                partial(method, **arguments), abandon_on_cancel=True, limiter=anyio.CapacityLimiter(math.inf)
            )
        except ValueError as error:
            raise Refusal("VALIDATION_ERROR", str(error)) from error
        except ClosedError as error:
            raise Refusal("INTERNAL_ERROR", str(error), status=503) from error
        return json_response(success_body(_result(engine, method.__name__, arguments)))

    return handle


def _result(engine: Engine, name: str, arguments: Mapping[str, Any]) -> object:
    if name == "advance":
        return snapshot(engine)
    if "transaction" in arguments:
        return transaction_json(engine.state.transactions[arguments["transaction"]])
    return {}


def _account(engine: Engine) -> Handler:
    async def handle(request: Request) -> Response:
        given = parse_json(await _body(request), number=None)
        try:
            account = change_account(engine.state, given, engine.catch_up())
        finally:
            engine.commit()
        return json_response(success_body(account_json(account)))

    return handle


def change_account(state: ServiceState, body: Mapping[str, Any], now: datetime) -> Account:
    """Apply `{"key" or "tenant_id": ..., "change": {...}}` and return the account. Without a change, this is a read."""
    account = _find_account(state, body, now)
    change = body.get("change", {})
    if not isinstance(change, dict) or not set(cast("Json", change)) <= set(CHANGEABLE):
        raise Refusal("VALIDATION_ERROR", f"change may hold: {', '.join(CHANGEABLE)}")
    changes = cast("Json", change)
    # Validated as a whole on a copy, so that an invalid value leaves no half of a change behind.
    merged: Json = {**account.model_dump(), **changes}
    if isinstance(changes.get("switches"), dict):
        merged["switches"] = {**account.switches.model_dump(), **changes["switches"]}
    try:
        checked = Account.model_validate(merged)
    except ValidationError as error:
        raise invalid(error, "The change is not valid") from None
    for name in changes:
        setattr(account, name, getattr(checked, name))
    state.version += 1
    return account


def _find_account(state: ServiceState, body: Mapping[str, Any], now: datetime) -> Account:
    tenant_id, key = body.get("tenant_id"), body.get("key")
    if isinstance(tenant_id, str) and tenant_id in state.accounts:
        return state.accounts[tenant_id].account
    if not isinstance(key, str):
        raise Refusal("VALIDATION_ERROR", "key (or the tenant_id of a known account) is required")
    return state.account_of(key, now).account


def _events(engine: Engine) -> Handler:
    async def stream() -> AsyncIterator[str]:
        sent_version: object = None
        while not engine.stopping.is_set():
            if (present := version(engine)) != sent_version:
                sent_version = present
                yield f"data: {json.dumps(snapshot(engine))}\n\n"
            # Not a plain sleep, so that an open page does not delay `close`.
            with suppress(TimeoutError):
                await asyncio.wait_for(engine.stopping.wait(), _EVENT_INTERVAL)

    async def handle(_request: Request) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    return handle


async def _body(request: Request) -> bytes:
    raw = await request.body()
    if len(raw) > MAXIMUM_BYTES:
        raise Refusal("PAYLOAD_TOO_LARGE")
    return raw


def choices() -> Json:
    """Return everything that the page can choose from: outcomes, routes with the faults that fit them, switches."""
    return {
        "outcomes": [
            {"value": each, "title": each.label, "digits": each.digits, "text": each.text} for each in Outcome
        ],
        "routes": [
            {
                "value": f"{endpoint.method} {endpoint.path}",
                "title": endpoint.summary,
                "ends_as": endpoint.ends_as,
                "faults": [fault for fault in Fault if fault.fits(endpoint)],
            }
            for endpoint in ENDPOINTS
        ],
        "faults": [{"value": each, "title": each.label, "text": each.text} for each in Fault],
        "switches": Switches.model_json_schema()["properties"],
    }


def account_json(account: Account) -> Json:
    # pydantic writes a Decimal as text, the service writes a number.
    amounts = {name: json_number(getattr(account, name)) for name in ("b2c_balance", "service_balance", "fee")}
    return account.model_dump(mode="json") | amounts


def record_json(record: Any) -> Json:
    """Return a callback, a movement of money, a request or a plan as JSON."""
    shown = {each.name: getattr(record, each.name) for each in fields(record) if each.init}
    return {name: _plain(value) for name, value in shown.items()}


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return json_number(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return iso(value) if isinstance(value, datetime) else value


def callback_json(record: CallbackRecord) -> Json:
    return {**record_json(record), "acknowledged": record.acknowledged}


def transaction_json(transaction: Transaction) -> Json:
    """Return a transaction as the page shows it, and whether it is an open prompt."""
    shown = record_json(transaction)
    for name in ("plan", "number", "kind", "due", "idempotency_key", "callback_mode", "listed_from", "spoiled"):
        del shown[name]
    more = {"type": transaction.kind, "outcome": outcome_for(transaction), "prompt": transaction.is_prompt}
    return {**shown, **more, "next_step_at": iso(transaction.due) if transaction.due else None}


def snapshot(engine: Engine) -> Json:
    """Return the state as the page shows it: all accounts, their newest records, and every open prompt."""
    state = engine.state
    return {
        "now": iso(engine.clock.now()),
        "speed": engine.clock.speed,
        "accounts": [{**account_json(each.account), "phones": _phones(each)} for each in state.accounts.values()],
        # In order of arrival, because many have the same instant while time stands still.
        "transactions": [transaction_json(each) for each in _newest(reversed(state.transactions.values()))],
        "callbacks": [callback_json(record) for record in _newest(reversed(state.callbacks))],
        "callbacks_total": len(state.callbacks),
        "requests": list(_newest_requests(engine)),
        "requests_total": engine.requests.total,
        "faults": [record_json(planned) for planned in engine.faults.waiting],
        "outcomes": [record_json(planned) for planned in state.outcomes.waiting],
    }


def version(engine: Engine) -> tuple[object, ...]:
    """Return a value that changes whenever the snapshot does."""
    faults = [(each.id, each.times) for each in engine.faults.waiting]
    outcomes = [(each.id, each.times) for each in engine.state.outcomes.waiting]
    return engine.state.version, engine.requests.version, faults, outcomes


def find_transactions(state: ServiceState, query: Mapping[str, str]) -> list[Json]:
    """Return the newest transactions with the `phone`, the `tenant_id` and, in any field, the text `q`."""
    wanted = {name: query[name] for name in ("phone", "tenant_id") if query.get(name)}
    text = query.get("q", "").casefold().strip()
    found: Iterator[Transaction] = (
        transaction
        for transaction in reversed(state.transactions.values())
        if all(getattr(transaction, name) == value for name, value in wanted.items()) and text in _searched(transaction)
    )
    return [transaction_json(transaction) for transaction in islice(found, _NEWEST)]


def transaction_detail(engine: Engine, transaction_id: str) -> Json:
    """Return a transaction with its callbacks, newest first, and its movements of money."""
    state = engine.state
    transaction = state.find(transaction_id)
    waiting = [each for each in state.deliveries.values() if each.transaction_id == transaction_id and each.due]
    return {
        **transaction_json(transaction),
        "callbacks": [
            callback_json(record) for record in reversed(state.callbacks) if record.transaction_id == transaction_id
        ],
        "callback_due_at": min((iso(each.due) for each in waiting if each.due), default=None),
        "ledger": [record_json(each) for each in state.ledger if each.transaction_id == transaction_id],
    }


def _searched(transaction: Transaction) -> str:
    shown = (transaction.id, transaction.phone, f"0{transaction.phone[3:]}", transaction.reference)
    more = (transaction.description, transaction.receipt or "", transaction.status, transaction.kind)
    return "\n".join((*shown, *more, str(transaction.amount))).casefold()


def _newest(newest_first: Iterable[R]) -> Iterator[R]:
    """Yield each account's newest records, and every open prompt, however old, since somebody may want to tap it."""
    shown = Counter[str | None]()
    for each in newest_first:
        shown[each.tenant_id] += 1
        if shown[each.tenant_id] <= _NEWEST or (isinstance(each, Transaction) and each.is_prompt):
            yield each


def _phones(account_state: AccountState) -> list[str]:
    """Return the account's phone numbers, the latest first."""
    return list(islice(dict.fromkeys(each.phone for each in reversed(account_state.history)), _NEWEST))


def _newest_requests(engine: Engine) -> Iterator[Json]:
    for request in _newest(islice(reversed(engine.requests.entries), _REQUESTS_LOOKED_AT)):
        shown = record_json(request)
        yield {**shown, "body": shown["body"][:_BODY_SHOWN]}
