"""The sandbox's reads per second, over one raw connection, against a bare FastAPI route with the same JSON work.

As a script, the other end: it prints both addresses and serves until its standard input closes.
"""

import asyncio
import socket
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from fastapi import FastAPI

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Row, Scale, take_turns
from benchmarks.processes import AUTHORIZATION, KEY, PATIENCE, serving
from momopay.sandbox import Sandbox
from momopay.sandbox._server import Server, listen

READS = 500


def measure(scale: Scale) -> list[Row]:
    with serving("sandbox_reads.py") as urls, ExitStack() as connections:
        sides = {
            name: partial(_reads_per_second, _connect(url, connections), _request(url), scale.of(READS))
            for name, url in zip(("sandbox", "bare"), urls, strict=True)
        }
        taken = take_turns(sides, scale)
    work, unit, other = "sandbox: GET one record", "reads a second", "bare FastAPI route"
    return [Row(work, unit, taken["sandbox"], other, taken["bare"], 0.7, at_least=True)]


def _connect(url: str, connections: ExitStack) -> socket.socket:
    address = ("127.0.0.1", urlsplit(url).port or 80)
    return connections.enter_context(socket.create_connection(address, timeout=PATIENCE))


def _request(url: str) -> bytes:
    headers = {"Host": "127.0.0.1", **AUTHORIZATION}
    lines = [f"GET {urlsplit(url).path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _reads_per_second(connection: socket.socket, request: bytes, reads: int) -> float:
    begun = time.perf_counter()
    for _ in range(reads):
        connection.sendall(request)
        answer = connection.recv(65_536)
        while not answer.endswith(b"}"):
            answer += connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 200"), answer
    return reads / (time.perf_counter() - begun)


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

    server = Server(_bare(record))
    await server.start(listener)
    sys.stdout.write(f"{sandbox.url}{path} {bare}{path}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()


if __name__ == "__main__":
    with Sandbox(speed=0) as started:
        started.account(KEY).rate_limit = None
        asyncio.run(_serve(started, _a_payment(started.base_url)))
