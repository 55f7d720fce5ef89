"""Bodies of responses, as the service sends them."""

import json
from collections.abc import Sequence
from typing import Any

import httpx

REQUEST_ID = "9f1c"


def encoded(body: object) -> bytes:
    return json.dumps(body).encode()


def envelope(data: Any) -> dict[str, Any]:
    return {"success": True, "data": data, "requestId": REQUEST_ID}


def refusal(code: str, **details: Any) -> dict[str, Any]:
    error = {"message": f"this is {code}", "code": code, "details": details}
    return {"success": False, "error": error, "requestId": REQUEST_ID}


def transaction(identity: str, status: str = "PENDING", **fields: Any) -> dict[str, Any]:
    return {
        "transactionId": identity,
        "type": "STK",
        "status": status,
        "amount": 100,
        "currency": "KES",
        "phone": "254712345678",
        "accountReference": identity,
        "createdAt": "2026-11-20T10:00:00Z",
        "updatedAt": "2026-11-20T10:00:00Z",
        **fields,
    }


def page(items: Sequence[Any], cursor: str | None = None) -> dict[str, Any]:
    """Make the data of a page of the list; with a cursor if there are more pages."""
    overview = {"total": len(items), "completed": 0, "failed": 0, "pending": len(items)}
    return {"items": items, "overview": overview, "nextCursor": cursor}


def wallet(**fields: Any) -> dict[str, Any]:
    """Make the record of a wallet that does not say whose it is."""
    known = {"walletId": "w", "currency": "KES", "availableBalance": 5, "ledgerBalance": 5}
    return {**known, "updatedAt": "2026-11-20T10:00:00Z", **fields}


def balance(_request: httpx.Request) -> httpx.Response:
    """Answer every request of a transport with a wallet."""
    return httpx.Response(200, json=envelope(wallet()))
