"""A small service of its own: another reading of the service page than the sandbox's, as an httpx transport.

What the service page leaves open, it does in its own way: other statuses, other codes for invalid requests, other
headers, other field names, an offset as cursor, a request id in a header for refusals.
"""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import httpx

from momopay import Client
from momopay.probe import Profile, probe

PHONE = "254711222333"
_UUID = re.compile(r"[0-9a-f-]{36}")


def probed(service: httpx.BaseTransport, key: str = "pk_test_x") -> tuple[Profile, list[str]]:
    """Probe a service, and write to it; return what was found and said."""
    notes: list[str] = []
    with Client(key, base_url="https://api.example/v1", transport=service, budget=None) as client:
        return probe(client, write=True, note=notes.append), notes


class RefusedError(Exception):
    def __init__(self, status: int, code: str, **details: object) -> None:
        self.status, self.code, self.details = status, code, details


class OtherService(httpx.BaseTransport):
    """One account, in memory."""

    deleted: tuple[int, bytes] = (200, b'{"success":true,"data":null}')

    def __init__(self) -> None:
        self.channels: list[dict[str, Any]] = []
        self.transactions = [
            self.transaction("b2c", "SUCCESS", 50, 5),
            self.transaction("stk", "FAILED", 20, 0, resultCode=1032),
            self.transaction("wallet_topup", "SUCCESS", 900, 0),
        ]

    @staticmethod
    def transaction(kind: str, status: str, amount: int, fee: int, **more: object) -> dict[str, Any]:
        return {"id": str(uuid4()), "kind": kind, "status": status, "amount": amount, "fee": fee, **more}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1")
        headers = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "9", "Server": "other"}
        try:
            status, body = self.answer(request, path)
        except RefusedError as refused:
            answer = self.error(refused.code, refused.details)
            return httpx.Response(refused.status, json=answer, headers={**headers, "X-Request-Id": "req-9"})
        return httpx.Response(status, content=body, headers=headers)

    @staticmethod
    def error(code: str, details: object = None) -> dict[str, Any]:
        return {"requestId": None, "success": False, "error": {"code": code, "message": "No.", "details": details}}

    def answer(self, request: httpx.Request, path: str) -> tuple[int, bytes]:
        query = {name: values[-1] for name, values in parse_qs(request.url.query.decode()).items()}
        handlers: dict[tuple[str, str], Callable[[], tuple[int, object]]] = {
            ("GET", "/wallets/service/balance"): lambda: (
                200,
                {"available_balance": "12.50", "ledger_balance": "12.50"},
            ),
            ("GET", "/payment-wallet/channels"): lambda: (200, {"items": self.channels}),
            ("GET", "/transactions"): lambda: (203, self.list(query)),
            ("POST", "/payment-wallet/channels"): lambda: self.create(json.loads(request.content)),
        }
        handler = handlers.get((request.method, path))
        if handler is not None:
            status, data = handler()
            return status, json.dumps({"data": data, "requestId": str(uuid4()), "success": True}).encode()
        head, _, identity = path.rpartition("/")
        if head == "/transactions":
            return 200, self.read(identity)
        if head == "/payment-wallet/channels":
            return self.one_channel(request, identity)
        return 404, b"<html>Not found</html>"

    def list(self, query: dict[str, str]) -> dict[str, Any]:
        if not 1 <= int(query.get("limit", "20")) <= 100:
            raise RefusedError(422, "INVALID_REQUEST", limit="1 to 100")
        items = [
            {
                "updatedAt": "2026-11-20T13:00:00",
                "createdAt": "2026-11-20T13:00:00",
                "transaction_fee": each["fee"],
                "amount": each["amount"] + each["fee"],
                "transactionId": each["id"],
                "type": each["kind"],
                "status": each["status"],
                "phone": "2547****333",
                "accountReference": "REF-1",
            }
            for each in self.transactions
        ]
        return {"items": items, "next_cursor": None}

    def read(self, identity: str) -> bytes:
        if not _UUID.fullmatch(identity):
            raise RefusedError(422, "INVALID_REQUEST")
        found = next((each for each in self.transactions if each["id"] == identity), None)
        if found is None:
            raise RefusedError(400, "TRANSACTION_NOT_FOUND")
        data: dict[str, Any] = {
            "transaction_id": identity,
            "_links": [],  # a field of its own says nothing about the style of the names
            "amount": found["amount"],
            "phone_number": PHONE,
            "status": found["status"],
            "type": found["kind"].upper(),
            "result_code": found.get("resultCode"),
            "created_at": "2026-11-20T10:00:00+00:00",
        }
        return json.dumps({"success": True, "data": data, "requestId": str(uuid4())}).encode()

    def create(self, body: dict[str, Any]) -> tuple[int, object]:
        if not body.get("name"):
            raise RefusedError(422, "INVALID_REQUEST", errors=[{"field": "name"}, {"field": "type"}])
        channel = {"id": str(uuid4()), "category": "PAYMENT_WALLET", **body}
        self.channels.append(channel)
        return 201, channel

    def change(self, channel: dict[str, Any], body: dict[str, Any]) -> None:
        """Ignore a change, and answer with the channel."""

    def one_channel(self, request: httpx.Request, identity: str) -> tuple[int, bytes]:
        found = next((each for each in self.channels if each["id"] == identity), None)
        if found is None:
            raise RefusedError(404, "TRANSACTION_NOT_FOUND" if request.method == "PATCH" else "CHANNEL_NOT_FOUND")
        if request.method == "DELETE":
            self.channels.remove(found)
            return self.deleted
        if request.method == "PATCH":
            self.change(found, json.loads(request.content))
        return 200, json.dumps({"success": True, "data": found, "requestId": str(uuid4())}).encode()
