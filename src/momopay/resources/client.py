"""``client.request``: requests to endpoints that have no method of their own."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, cast
from urllib.parse import quote, urlencode

from pydantic import AfterValidator, BaseModel

from momopay._core.call import Call
from momopay._core.endpoint import Endpoint, PaymentDetails
from momopay._core.operation import Resource, operation
from momopay._core.retry import AT_MOST_ONCE, SAFE
from momopay._core.wiring import BackendT
from momopay._ratelimit.budget import Lane
from momopay.errors import RequestValidationError
from momopay.models.arguments import check_idempotency_key
from momopay.models.records import Envelope
from momopay.models.requests import query_text
from momopay.money import json_number
from momopay.urls import check_path, fully_decoded

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


def _with_decimals(value: Any) -> Any:
    """Return JSON with Decimals in the place of floats."""
    if isinstance(value, dict):
        return {name: _with_decimals(each) for name, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_with_decimals(each) for each in cast("Sequence[Any]", value)]
    return Decimal(str(value)) if isinstance(value, float) else value


class Data(Envelope[Any]):
    """A success envelope with any data, or none."""

    data: Annotated[Any, AfterValidator(_with_decimals)] = None


class Client(Resource[BackendT]):
    """The requests of a client itself. The class has this name because events carry it: ``client.request``."""

    @operation
    async def request(
        self, method: str, path: str, json: object, params: object, idempotency_key: str | None, cast_to: object
    ) -> Any:
        """Send a request; see `momopay.Client.request`."""
        problems = dict[str, str]()

        def checked(name: str, check: Callable[[Any], Any], value: object) -> Any:
            try:
                return None if value is None and name not in {"method", "path"} else check(value)
            except ValueError as error:
                problems[name] = str(error)

        method = checked("method", _check_method, method)
        path = checked("path", check_path, path)
        body = checked("json", _encoded, json)
        query = checked("params", _query, params) or ""
        key = checked("idempotency_key", check_idempotency_key, idempotency_key)
        envelope = checked("cast_to", _envelope_type, cast_to) or Data
        if method == "GET" and body is not None:
            problems["json"] = "must be left out: a GET has no body, and params= makes a query"
        if not problems and method != "GET" and (call := _own_call(path)):
            problems["path"] = f"has a call of its own, which protects the payment: use {call}"
        if problems:
            raise RequestValidationError(problems)
        # A key makes no repetition safe: whether the endpoint honours it is not known here.
        policy = SAFE if method == "GET" else AT_MOST_ONCE
        endpoint = Endpoint[Any]("client.request", method, policy, Lane.READ, envelope)
        details = PaymentDetails(idempotency_key=key)
        return await Call(self._session, endpoint, path + query, body=body, details=details).run()


def _own_call(path: str) -> str | None:
    """Return the SDK's own call for what is not read at a path, however a server reads the path; None if none."""
    parts = re.split(r"[/\\]", fully_decoded(path).casefold())
    segments = [re.split("[;?#]", part)[0].strip().rstrip(".") for part in parts]
    match [segment for segment in segments if segment]:
        case ["payments", "stk"]:
            return "client.stk.collect_once, or client.stk.initiate"
        case ["b2c", "payouts"]:
            return "client.payouts.pay_once, or client.payouts.initiate"
        case ["wallets", "service", "topups"]:
            return "client.wallet.top_up"
        case ["payment-wallet", "channels"]:
            return "client.channels.create"
        case ["payment-wallet", "channels", _]:
            return "client.channels.update or client.channels.delete"
        case _:
            return None


def _check_method(value: object) -> str:
    if not isinstance(value, str) or value.upper() not in _METHODS:
        raise ValueError("must be GET, POST, PUT, PATCH or DELETE")
    return value.upper()


def _encoded(value: object) -> bytes:
    try:
        return json_module.dumps(value, allow_nan=False, default=_number, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        raise ValueError("must be what JSON can hold, with Decimals of at most 15 digits") from None  # shows no value


def _number(value: object) -> int | float:
    # As a float, because JSON parsers hold numbers in 64 bits.
    if not isinstance(value, Decimal) or not value.is_finite() or Decimal(str(float(value))) != value:
        raise TypeError
    return json_number(value)


def _query(value: object) -> str:
    pairs = cast("Mapping[str, object]", value)
    if not isinstance(value, Mapping) or not all(isinstance(each, str | int | Decimal) for each in pairs.values()):
        raise ValueError("must be a mapping of names to texts, whole numbers or Decimals")
    try:
        query = urlencode({str(name): query_text(each) for name, each in pairs.items()}, quote_via=quote)
    except UnicodeEncodeError:
        raise ValueError("must be text that can be encoded as UTF-8") from None  # the cause shows the text
    return f"?{query}" if query else ""


def _envelope_type(value: object) -> type[Envelope[Any]]:
    if not isinstance(value, type) or not issubclass(value, BaseModel):
        raise ValueError("must be a pydantic model")  # noqa: TRY004  every refusal is a ValueError
    return Envelope[value]  # type: ignore[valid-type]
