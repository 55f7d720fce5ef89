"""Every call of the interface, one of each, with the normal answer to it: what hostile answers are tried on."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import momopay
import wire
from core import kit
from drivers import Driver
from momopay.errors import ERRORS_BY_CODE

ID = wire.TRANSACTION_ID


@dataclass(frozen=True)
class Call:
    """One call: how it is made, the `data` of its normal answer, and whether an unclear end of it must be settled."""

    name: str
    use: Callable[[Any], Any]
    data: Any
    method: str = "GET"
    needs_reconciliation: bool = False
    once: bool = False
    """It must never go out a second time."""

    def __str__(self) -> str:
        return self.name


def normal(method: str, path: str) -> Any:
    return dict(wire.record_for(wire.Request(method, path, {}, b"", 0.0)))


TRANSACTION = normal("POST", "/payments/stk")
CHANNEL = normal("GET", "/payment-wallet/channels/c")
PAGE: Any = {
    "items": [TRANSACTION],
    "overview": {"total": 1, "completed": 0, "failed": 0, "pending": 1},
    "nextCursor": None,
}

PAYMENT: dict[str, Any] = {"method": "POST", "needs_reconciliation": True}
STK = Call("stk", kit.initiate_stk, TRANSACTION, **PAYMENT, once=True)
PAYOUT = Call("payout", kit.initiate_payout, normal("POST", "/b2c/payouts"), **PAYMENT, once=True)
TOP_UP = Call("top_up", kit.top_up, TRANSACTION, **PAYMENT)
CREATE = Call("create", kit.create_channel, CHANNEL, **PAYMENT, once=True)
UPDATE = Call("update", kit.update_channel, CHANNEL, "PATCH")
DELETE = Call("delete", kit.delete_channel, {}, "DELETE")
CHANNELS = Call("channels", lambda client: client.channels.list(), {"items": [CHANNEL]})
ONE_CHANNEL = Call("channel", lambda client: client.channels.get("c"), CHANNEL)
READ = Call("read", lambda client: client.transactions.get(ID), TRANSACTION)
LIST = Call("list", lambda client: client.transactions.list(), PAGE)
BALANCE = Call("balance", kit.read_balance, normal("GET", "/wallets/service/balance"))

CALLS = (STK, PAYOUT, TOP_UP, CREATE, UPDATE, DELETE, CHANNELS, ONE_CHANNEL, READ, LIST, BALANCE)


def success(data: Any) -> bytes:
    return json.dumps({"success": True, "data": data, "requestId": "r-1"}).encode()


def refusal(code: Any = "KYC_NOT_VERIFIED", **more: Any) -> bytes:
    error: dict[str, Any] = {"message": "no", "code": code, "details": {}}
    return json.dumps({"success": False, "error": error, "requestId": "r-1", **more}).encode()


def outcome(driver: Driver, call: Call) -> Any:
    """The record, or the error of this package; anything else that is raised fails the test."""
    try:
        return driver(call.use)
    except momopay.MomoPayError as error:
        return error


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
            is_believed = code in ERRORS_BY_CODE or status in REFUSING
            return is_believed and not succeeded and code != ""
        case _:
            return False
