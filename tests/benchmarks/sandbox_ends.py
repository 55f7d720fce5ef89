"""The sandbox, and beside it a bare FastAPI route that does the same JSON work on the same server.

A script of its own process: it prints both addresses and serves until its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from uuid import uuid4

import httpx
from fastapi import FastAPI

from momopay.sandbox import Sandbox
from momopay.sandbox._server import Server, listen

KEY = "pk_test_benchmark"


def _a_payment(base_url: str) -> dict[str, Any]:
    body = {"amount": 100, "phone": "0712345678", "accountReference": "INV-42", "transactionDesc": "Order 42"}
    with httpx.Client(base_url=base_url, auth=(KEY, ""), trust_env=False) as client:
        initiated = client.post("/payments/stk", json=body).json()
        record: dict[str, Any] = client.get(f"/transactions/{initiated['data']['transactionId']}").json()["data"]
    return record


def _bare(record: dict[str, Any]) -> FastAPI:
    app = FastAPI()
    records = {record["transactionId"]: record}

    async def read(transaction_id: str) -> dict[str, Any]:
        return {"success": True, "data": records[transaction_id], "requestId": str(uuid4())}

    app.add_api_route("/v1/transactions/{transaction_id}", read)
    return app


async def _serve(sandbox: Sandbox, record: dict[str, Any]) -> None:
    listener = listen(0)
    path = f"/v1/transactions/{record['transactionId']}"
    bare = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def tell() -> None:
        sys.stdout.write(f"{sandbox.url}{path} {bare}{path}\n")
        sys.stdout.flush()

    server = Server(_bare(record), listener, tell)
    serving = asyncio.create_task(server.serve_listener())
    await asyncio.to_thread(sys.stdin.read)
    server.stop()
    await serving


if __name__ == "__main__":
    with Sandbox(speed=0) as started:
        started.account(KEY).rate_limit = None
        asyncio.run(_serve(started, _a_payment(started.base_url)))
