"""A small service of its own: another reading of the service page than the sandbox's, as an httpx transport.

What the service page leaves open, it does in its own way: other statuses, other codes for invalid requests, other
headers, other field names, an offset as cursor, a request id in a header for refusals.
"""

import json
import re
from typing import Any
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
        self.status, self.error = status, {"code": code, "message": "No.", "details": details}


class OtherService(httpx.BaseTransport):
    """One account, in memory."""

    deleted: tuple[int, bytes] = (200, b'{"success":true,"data":null}')

    def __init__(self) -> None:
        self.channels: list[dict[str, Any]] = []
        paid, topped_up = ("b2c", "SUCCESS", 50, 5, None), ("wallet_topup", "SUCCESS", 900, 0, None)
        kinds = (paid, ("stk", "FAILED", 20, 0, 1032), topped_up)
        names = ("type", "status", "amount", "fee", "code")
        self.transactions = {str(uuid4()): dict[str, Any](zip(names, kind, strict=True)) for kind in kinds}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        headers = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "9", "Server": "other"}
        try:
            status, data = self.answer(request, request.url.path.split("/")[2:])
        except RefusedError as refused:
            answer = {"requestId": None, "success": False, "error": refused.error}
            return httpx.Response(refused.status, json=answer, headers={**headers, "X-Request-Id": "req-9"})
        whole = {"success": True, "data": data, "requestId": str(uuid4())}
        return httpx.Response(status, content=data if isinstance(data, bytes) else json.dumps(whole), headers=headers)

    def answer(self, request: httpx.Request, path: list[str]) -> tuple[int, object]:  # noqa: PLR0911  one for each
        """Return the status, and the data or a whole body."""
        match request.method, path:
            case "GET", ["wallets", "service", "balance"]:
                return 200, {"available_balance": "12.50", "ledger_balance": "12.50"}
            case "GET", ["transactions"]:
                return 203, self.list(int(request.url.params.get("limit", 20)))
            case "GET", ["transactions", identity]:
                return 200, self.read(identity)
            case "GET", ["payment-wallet", "channels"]:
                return 200, {"items": self.channels}
            case "POST", ["payment-wallet", "channels"]:
                return self.create(json.loads(request.content))
            case _, ["payment-wallet", "channels", identity]:
                return self.one_channel(request, identity)
            case _:
                return 404, b"<html>Not found</html>"

    def list(self, limit: int) -> dict[str, Any]:
        if not 1 <= limit <= 100:
            raise RefusedError(422, "INVALID_REQUEST", limit="1 to 100")
        shared = dict.fromkeys(("createdAt", "updatedAt"), "2026-11-20T13:00:00")
        shared |= {"phone": "2547****333", "accountReference": "REF-1"}
        items = [
            {
                "transactionId": identity,
                "transaction_fee": each["fee"],
                "amount": each["amount"] + each["fee"],
                "type": each["type"],
                "status": each["status"],
                **shared,
            }
            for identity, each in self.transactions.items()
        ]
        return {"items": items, "next_cursor": None}

    def read(self, identity: str) -> object:
        if not _UUID.fullmatch(identity):
            raise RefusedError(422, "INVALID_REQUEST")
        if identity not in self.transactions:
            raise RefusedError(400, "TRANSACTION_NOT_FOUND")
        found = self.transactions[identity]
        return {
            "transaction_id": identity,
            "_links": [],  # a field of its own says nothing about the style of the names
            "amount": found["amount"],
            "phone_number": PHONE,
            "status": found["status"],
            "type": found["type"].upper(),
            "result_code": found["code"],
            "created_at": "2026-11-20T10:00:00+00:00",
        }

    def create(self, body: dict[str, Any]) -> tuple[int, object]:
        if not body.get("name"):
            raise RefusedError(422, "INVALID_REQUEST", errors=[{"field": "name"}, {"field": "type"}])
        self.channels.append({"id": str(uuid4()), "category": "PAYMENT_WALLET", **body})
        return 201, self.channels[-1]

    def change(self, channel: dict[str, Any], body: dict[str, Any]) -> None:
        """Ignore a change, and answer with the channel."""

    def one_channel(self, request: httpx.Request, identity: str) -> tuple[int, object]:
        found = next((each for each in self.channels if each["id"] == identity), None)
        if found is None:
            raise RefusedError(404, "TRANSACTION_NOT_FOUND" if request.method == "PATCH" else "CHANNEL_NOT_FOUND")
        if request.method == "DELETE":
            self.channels.remove(found)
            return self.deleted
        if request.method == "PATCH":
            self.change(found, json.loads(request.content))
        return 200, found
