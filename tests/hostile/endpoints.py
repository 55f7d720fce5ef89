"""Every call of the interface, one of each, with the normal answer to it; and what must hold of any other answer."""

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx

import momopay
import wire
from core import kit
from drivers import Drive, Driver, session_of, unique_key
from momopay._core.state import StkPause
from momopay.errors import ERRORS_BY_CODE

ID = wire.TRANSACTION_ID


@dataclass(frozen=True)
class Call:
    """One call: how it is made, the `data` of its normal answer, and whether an unclear end of it must be settled."""

    name: str
    use: Callable[[Any], Any]
    data: Any
    needs_reconciliation: bool = False
    once: bool = False
    """It must never go out a second time."""

    def __str__(self) -> str:
        return self.name


def data_of(method: str, path: str) -> Any:
    return dict(wire.record_for(wire.Request(method, path, {}, b"", 0.0)))


TRANSACTION = data_of("POST", "/payments/stk")
CHANNEL = data_of("GET", "/payment-wallet/channels/c")
PAGE: Any = {
    "items": [TRANSACTION],
    "overview": {"total": 1, "completed": 0, "failed": 0, "pending": 1},
    "nextCursor": None,
}

ONCE: dict[str, Any] = {"needs_reconciliation": True, "once": True}
STK = Call("stk", kit.initiate_stk, TRANSACTION, **ONCE)
PAYOUT = Call("payout", kit.initiate_payout, data_of("POST", "/b2c/payouts"), **ONCE)
TOP_UP = Call("top_up", kit.top_up, TRANSACTION, needs_reconciliation=True)
CREATE = Call("create", kit.create_channel, CHANNEL, **ONCE)
UPDATE = Call("update", kit.update_channel, CHANNEL)
DELETE = Call("delete", kit.delete_channel, {})
CHANNELS = Call("channels", lambda client: client.channels.list(), {"items": [CHANNEL]})
ONE_CHANNEL = Call("channel", lambda client: client.channels.get("c"), CHANNEL)
READ = Call("read", lambda client: client.transactions.get(ID), TRANSACTION)
LIST = Call("list", lambda client: client.transactions.list(), PAGE)
BALANCE = Call("balance", kit.read_balance, data_of("GET", "/wallets/service/balance"))

CALLS = (STK, PAYOUT, TOP_UP, CREATE, UPDATE, DELETE, CHANNELS, ONE_CHANNEL, READ, LIST, BALANCE)


def outcome(driver: Driver, call: Call) -> Any:
    """The record, or the error of this package; anything else that is raised fails the test."""
    try:
        return driver(call.use)
    except momopay.MomoPayError as error:
        return error


class Responses:
    """A client whose next response is given, and which sends a request once."""

    def __init__(self, drive: Drive) -> None:
        self._response = httpx.Response(200)
        self._requests = 0
        # What a response forbids is forbidden to every client of its key.
        self._driver = drive(api_key=unique_key(), transport=httpx.MockTransport(self._respond), max_attempts=1)

    def _respond(self, _request: httpx.Request) -> httpx.Response:
        self._requests += 1
        return self._response

    def check(self, call: Call, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Check that a call comes to a record or an error of this package, and that no payment is taken for refused."""
        self._response, self._requests = httpx.Response(status, headers=headers, content=body), 0
        session_of(self._driver.client).stk_pause = StkPause()  # the ban of one response is not the next one's
        found = outcome(self._driver, call)
        assert self._requests == 1
        assert isinstance(f"{found!r}{found}", str)
        assert isinstance(pickle.loads(pickle.dumps(found)), type(found))
        if not isinstance(found, momopay.MomoPayError):
            assert 200 <= status < 300
            return
        assert len(str(found)) < 3000
        if call.needs_reconciliation:
            assert isinstance(found, momopay.OutcomeUnknownError | momopay.APIError)
            assert found.may_have_executed or is_definite_refusal(status, body)


MARK = "@@@"


def places(value: Any) -> list[Any]:
    found: list[Any] = [MARK]
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        for key, inner in mapping.items():
            found += [{**mapping, key: changed} for changed in places(inner)]
        found.append({**mapping, "more": MARK})
    if isinstance(value, list) and value:
        found += [[changed] for changed in places(cast("Any", value)[0])]
    return found


REFUSING = {400, 401, 402, 403, 404, 410, 413, 415, 422, 429}


def is_definite_refusal(status: int, body: bytes) -> bool:
    """Return whether a payment counts as not made: the error envelope, with a known code or on a refusing status."""
    try:
        envelope: Any = json.loads(body.decode())
    except (ValueError, RecursionError):
        return False
    if status >= 500 or status == 408 or 300 <= status < 400:
        return False
    match envelope:
        case {"data": {"transactionId": str()} | {"transaction_id": str()}}:
            return False
        case {"success": bool(succeeded), "error": {"code": str(code)}}:
            return (code in ERRORS_BY_CODE or status in REFUSING) and not succeeded and code != ""
        case _:
            return False
